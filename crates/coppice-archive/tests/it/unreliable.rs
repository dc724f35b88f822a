//! A bucket whose server fails, hangs, breaks off in the middle of an answer, and has answers without end.

use std::fs;
use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use coppice_archive::{Archive, ArchiveError, StorePlace};
use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;
use coppice_test_support::S3Server;
use tokio::runtime::Runtime;

use crate::s3::{bucket, in_a_bucket};
use crate::support::{installation, key};

/// A file that says what the server does.
const WHIM: &str = "COPPICE_TEST_WHIM";

/// What stands between a client and the server: it does as a file says.
struct Between {
    listener: TcpListener,
    server: String,
    whim: PathBuf,
}

impl Between {
    fn start(server: &S3Server, whim: &Path) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = server.endpoint().replace("http://", "");
        let between = Arc::new(Self { listener, server, whim: whim.to_owned() });
        std::thread::spawn(move || {
            while let Ok((client, _)) = between.listener.accept() {
                let between = between.clone();
                std::thread::spawn(move || between.serve(client));
            }
        });
        endpoint
    }

    /// Passes on one connection, each way in a thread, until either end has enough.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let whim = || fs::read_to_string(&self.whim).unwrap_or_default();
        match whim().as_str() {
            "refuse" => return Ok(()),
            "endless" => return answer_without_end(&client),
            _ => {}
        }
        let mut server = TcpStream::connect(&self.server)?;
        let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
        let asks_on = std::thread::spawn(move || io::copy(&mut from_client, &mut to_server));
        let mut piece = [0; 1 << 14];
        let mut passed = 0;
        loop {
            let count = server.read(&mut piece)?;
            match whim().as_str() {
                // The answer never comes, nor does an end.
                "hang" => return asks_on.join().map(drop).map_err(|_| io::ErrorKind::Other.into()),
                "fail" => {
                    client.write_all(
                        b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    )?;
                    return client.shutdown(std::net::Shutdown::Both);
                }
                "break off" if count == 0 || passed + count > 50_000 => {
                    return client.shutdown(std::net::Shutdown::Both);
                }
                _ if count == 0 => return client.shutdown(std::net::Shutdown::Both),
                _ => client.write_all(&piece[..count])?,
            }
            passed += count;
        }
    }
}

/// Goes on as far as no client should read.
fn answer_without_end(mut client: &TcpStream) -> io::Result<()> {
    // The question first: to end with that unread would reset the connection.
    let mut piece = vec![b' '; 1 << 20];
    let _ = client.read(&mut piece)?;
    client.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\ncontent-length: 268435456\r\n\r\n",
    )?;
    piece.fill(b' ');
    (0..256).try_for_each(|_| client.write_all(&piece))
}

#[test]
fn a_server_that_fails_hangs_breaks_off_or_goes_on_keeps_nothing_waiting_and_spoils_nothing() {
    let server = S3Server::start();
    let home = tempfile::tempdir().expect("a directory");
    let whim = home.path().join("whim");
    let endpoint = Between::start(&server, &whim);
    server.make_bucket("bucket");
    // The process below says what it is to do.
    let place = whim.display().to_string();
    in_a_bucket("unreliable::within_an_unreliable_bucket", &server, &endpoint, &[(WHIM, &place)]);
}

/// Does something only in the process that the test above begins.
#[test]
fn within_an_unreliable_bucket() {
    let Some(bucket) = bucket() else { return };
    let Ok(whim) = std::env::var(WHIM) else { return };
    let does = |what: &str| fs::write(&whim, what).expect("a file");
    let runtime = Runtime::new().expect("a runtime");
    let place: StorePlace = format!("s3://{bucket}").parse().expect("a bucket");
    let archive = runtime.block_on(Archive::take(&place, &key(1), &installation())).expect("a store");
    let volume = VolumeId::from_trusted("vol_1");
    // Too long for an answer that breaks off; nothing makes it shorter.
    let bytes: Vec<u8> =
        (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()).collect();
    let put = |start: u64| runtime.block_on(archive.put_log(&volume, Utc::now(), Lsn(start), &bytes));
    put(1 << 24).expect("written");

    does("hang");
    let began = Instant::now();
    let owner = runtime.block_on(archive.check_owner());
    assert!(matches!(owner, Err(ArchiveError::Silent { .. })), "{owner:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());

    let pieces = || runtime.block_on(archive.log_pieces(&volume)).expect("listed");
    let read = || runtime.block_on(archive.get_log(&pieces()[0]));
    does("");
    let piece = pieces().remove(0);
    does("break off");
    let cut = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(20), archive.get_log(&piece)).await });
    match cut {
        // The rest was asked for again.
        Ok(Ok(whole)) => assert_eq!(whole, bytes),
        Ok(Err(error)) => assert!(!matches!(error, ArchiveError::Damaged { .. }), "{error}"),
        Err(_) => {}
    }

    does("endless");
    let listed = runtime.block_on(archive.log_pieces(&volume)).expect_err("a list without end").chain();
    assert!(listed.contains("more than 16777216 bytes"), "{listed}");

    // It fails for a while.
    does("fail");
    std::thread::scope(|scope| {
        let written = scope.spawn(|| put(1 << 25));
        std::thread::sleep(Duration::from_millis(700));
        does("");
        written.join().expect("no panic").expect("written when it does well again");
    });
    does("refuse");
    put(1 << 26).expect_err("nobody is there");
    does("");
    assert_eq!(read().expect("read"), bytes, "nothing is spoilt");
    runtime.block_on(archive.check_owner()).expect("still its owner");
    println!("worked in a bucket");
}

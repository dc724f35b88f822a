//! Clients that don't speak the protocol, or not to its end.

use std::time::Duration;

use bytes::BytesMut;
use coppice_pgwire::encode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{TestGateway, eventually};

const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const GSSENC_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 48];

/// Sends these bytes and reads until the gateway closes.
pub(crate) async fn answer(gateway: &TestGateway, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = vec![];
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(60), read).await.expect("the gateway closes").unwrap();
    answer
}

pub(crate) fn says(answer: &[u8], code: &str) -> bool {
    answer.first() == Some(&b'E') && String::from_utf8_lossy(answer).contains(&format!("\0C{code}\0"))
}

#[tokio::test]
async fn garbage_gets_an_error_and_the_gateway_lives_on() {
    let gateway = TestGateway::start().await;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 10_000],
        &[0, 0, 0, 7],
        &[0, 0, 0, 9, 0, 3, 0, 0, 1],
        &[0, 0, 0, 8, 4, 210, 22, 46],
    ] {
        let answer = answer(&gateway, bytes).await;
        assert!(says(&answer, "08P01"), "{bytes:?}: {}", String::from_utf8_lossy(&answer));
    }
    assert!(says(&answer(&gateway, &[0, 0, 0, 9, 0, 2, 0, 0, 0]).await, "0A000"));
    assert_eq!(gateway.query("", "select 1").await, "1");
}

#[tokio::test]
async fn garbage_in_place_of_a_sign_in_gets_an_error() {
    let gateway = TestGateway::start().await;
    let mut bytes = BytesMut::new();
    encode::startup(&mut bytes, 0, &[("user", gateway.user().as_str())]);
    bytes.extend_from_slice(b"Q\0\0\0\x0dselect 1\0");
    let answer = answer(&gateway, &bytes).await;
    let end = answer.iter().position(|byte| *byte == b'E').expect("an error");
    assert!(says(&answer[end..], "08P01"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn bytes_slipped_in_before_encryption_close_the_connection() {
    let gateway = TestGateway::start().await;
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 0, &[("user", gateway.user().as_str())]);
    for request in [SSL_REQUEST, GSSENC_REQUEST] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(&[request, &startup].concat()).await.unwrap();
        let mut answer = vec![];
        // Closing with unread bytes may reset the connection.
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
    }
}

#[tokio::test]
async fn gssapi_encryption_is_declined_and_the_session_goes_on() {
    let gateway = TestGateway::start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut byte = [0];
    stream.write_all(GSSENC_REQUEST).await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    assert_eq!(&byte, b"N");
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 0, &[("user", gateway.user().as_str())]);
    stream.write_all(&startup).await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    assert_eq!(&byte, b"R");
}

#[tokio::test]
async fn a_newer_protocol_is_negotiated_down() {
    let gateway = TestGateway::start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 9999, &[("user", gateway.user().as_str()), ("_pq_.new", "1")]);
    stream.write_all(&startup).await.unwrap();
    let mut expected = BytesMut::new();
    encode::negotiate_protocol_version(&mut expected, 2, &["_pq_.new"]);
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_startup_that_never_ends_is_cut() {
    let gateway = TestGateway::with(|config| config.startup_timeout = Duration::from_millis(300)).await;
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 0, &[("user", gateway.user().as_str())]);
    for bytes in [&b""[..], &startup[..5], SSL_REQUEST, &[0x16, 3, 1]] {
        assert!(answer(&gateway, bytes).await.len() <= 1, "{bytes:?}");
    }
    let answer = answer(&gateway, &startup).await;
    assert!(String::from_utf8_lossy(&answer).contains("took too long"));
}

#[tokio::test]
async fn clients_beyond_the_limit_are_told_so() {
    let gateway = TestGateway::with(|config| config.limits.total = 1).await;
    let client = gateway.connect().await;
    let answer = gateway.refusal("").await;
    assert!(answer.contains("too many clients"), "{answer}");
    // Cancelling needs no place.
    client.cancel_token().cancel_query(tokio_postgres::NoTls).await.unwrap();
    drop(client);
    eventually("the place is free again", async || gateway.psql("", "select 1").await.status.success()).await;
}

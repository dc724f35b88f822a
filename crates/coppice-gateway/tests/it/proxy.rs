//! Clients that come through a proxy.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use coppice_core::proxies::TrustedProxies;
use coppice_gateway::{GatewayConfig, Plaintext};
use coppice_pgwire::encode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::first_bytes::{answer, says};
use crate::gateway::TestGateway;

const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn trusting(ranges: &'static [&'static str]) -> impl FnOnce(&mut GatewayConfig) {
    |config| config.trusted_proxies = TrustedProxies::parse(ranges).unwrap()
}

fn v1(client: &str) -> Vec<u8> {
    let family = if client.contains(':') { "TCP6" } else { "TCP4" };
    format!("PROXY {family} {client} {client} 50000 5432\r\n").into_bytes()
}

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    [V2, &[command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
}

fn v2_ipv6(client: &str) -> Vec<u8> {
    let client: Ipv6Addr = client.parse().unwrap();
    v2(0x21, 0x21, &[&client.octets()[..], &client.octets(), &[195, 80, 21, 56]].concat())
}

/// A proxy that sends these bytes first; it goes when it is dropped.
struct Proxy {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Proxy {
    async fn before(gateway: &TestGateway, header: Vec<u8>) -> Self {
        let listener = TcpListener::bind((gateway.address.ip(), 0)).await.unwrap();
        let (address, target) = (listener.local_addr().unwrap(), gateway.address);
        let task = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let header = header.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    server.write_all(&header).await.unwrap();
                    // Either side may leave as it likes.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, task }
    }

    /// Connection parameters that lead through it.
    fn reach(&self, more: &str) -> String {
        format!("host={} port={} {more}", self.address.ip(), self.address.port())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn the_address_in_the_header_is_the_one_that_counts() {
    let gateway = TestGateway::with(trusting(&["127.0.0.0/8"])).await;
    for (header, client) in [
        (v1("203.0.113.7"), "203.0.113.7"),
        (v1("2001:db8::7"), "2001:db8::7"),
        (v1("::ffff:203.0.113.7"), "203.0.113.7"),
        (v2(0x21, 0x11, &[203, 0, 113, 7, 127, 0, 0, 1, 195, 80, 21, 56]), "203.0.113.7"),
        (v2_ipv6("2001:db8::7"), "2001:db8::7"),
        (v2_ipv6("::ffff:203.0.113.7"), "203.0.113.7"),
    ] {
        let proxy = Proxy::before(&gateway, header).await;
        gateway.admit_only("127.0.0.1");
        let refused = gateway.refusal(&proxy.reach("sslmode=require")).await;
        assert!(refused.contains(&format!("connections from {client} are not allowed")), "{refused}");
        gateway.admit_only(client);
        assert_eq!(gateway.query(&proxy.reach("sslmode=require"), "select 1").await, "1");
        let direct = gateway.refusal("").await;
        assert!(direct.contains("connections from 127.0.0.1 are not allowed"), "{direct}");
    }
}

#[tokio::test]
async fn a_proxy_that_speaks_for_itself_has_its_own_address() {
    let gateway = TestGateway::on(Ipv6Addr::LOCALHOST.into(), trusting(&["::1"])).await;
    gateway.admit_only("::1");
    let unknown = b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec();
    for header in [vec![], b"PROXY UNKNOWN\r\n".to_vec(), unknown, v2(0x20, 0, &[]), v2(0x21, 0, &[])] {
        let proxy = Proxy::before(&gateway, header.clone()).await;
        assert_eq!(gateway.query(&proxy.reach(""), "select 1").await, "1", "{header:?}");
    }
}

#[tokio::test]
async fn nobody_else_is_believed() {
    for ranges in [&[][..], &["192.0.2.0/24", "::1"]] {
        let gateway = TestGateway::with(trusting(ranges)).await;
        for header in [v1("203.0.113.7"), v2_ipv6("2001:db8::7")] {
            let mut bytes = BytesMut::from(&header[..]);
            encode::startup(&mut bytes, 0, &[("user", gateway.user().as_str())]);
            let answer = answer(&gateway, &bytes).await;
            assert!(says(&answer, "08P01"), "{}", String::from_utf8_lossy(&answer));
        }
    }
}

#[tokio::test]
async fn a_header_that_makes_no_sense_is_refused() {
    let gateway = TestGateway::with(trusting(&["127.0.0.1"])).await;
    let twice = [v1("203.0.113.7"), v1("203.0.113.8")].concat();
    for header in [
        b"PROXY TCP4 203.0.113.700 127.0.0.1 1 2\r\n".to_vec(),
        b"POST / HTTP/1.1\r\n".to_vec(),
        vec![b'P'; 200],
        v2(0x21, 0x12, &[0; 12]),
        v2(0x21, 0x11, &[0; 11]),
        v2(0x2f, 0x11, &[0; 12]),
        // As long as a header can be, and longer than one is taken.
        v2(0x21, 0x11, &[0; 4096]),
        v2(0x21, 0x11, &[0; 65_535]),
        b"\r\n\r\n, a length, and never more".to_vec(),
        twice,
    ] {
        let answer = answer(&gateway, &header).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(says(&answer, "08P01"), "{:?}: {text}", &header[..header.len().min(40)]);
    }
    assert_eq!(gateway.query("", "select 1").await, "1");
}

#[tokio::test]
async fn a_header_that_comes_in_pieces_is_read_to_its_end_and_no_further() {
    let gateway = TestGateway::with(trusting(&["127.0.0.1"])).await;
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 0, &[("user", gateway.user().as_str())]);
    for header in [v1("203.0.113.7"), v2(0x21, 0x11, &[203, 0, 113, 7, 127, 0, 0, 1, 1, 1, 1, 1])] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in &header {
            stream.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        // A GSSAPI request: answered, so nothing before it was left over, nor too much taken.
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 48]).await.unwrap();
        let mut answered = [0];
        stream.read_exact(&mut answered).await.unwrap();
        assert_eq!(&answered, b"N");
        stream.write_all(&startup).await.unwrap();
        let mut said = vec![];
        stream.read_to_end(&mut said).await.unwrap();
        assert!(String::from_utf8_lossy(&said).contains("TLS is required"), "{said:?}");
    }
}

#[tokio::test]
async fn a_header_that_does_not_end_is_given_up() {
    let gateway = TestGateway::with(|config| {
        config.startup_timeout = Duration::from_millis(300);
        trusting(&["127.0.0.1"])(config);
    })
    .await;
    for header in [&b"P"[..], b"PROXY TCP4 203.0", b"\r\n\r\n", &v2_ipv6("2001:db8::7")[..30]] {
        assert_eq!(answer(&gateway, header).await, b"");
    }
}

/// The address in the header is not only one that may connect, it is also one
/// that may need TLS.
#[tokio::test]
async fn without_tls_both_the_client_and_its_proxy_have_to_be_here() {
    let gateway = TestGateway::with(trusting(&["127.0.0.1"])).await;
    let from_elsewhere = Proxy::before(&gateway, v1("203.0.113.7")).await;
    let refused = gateway.refusal(&from_elsewhere.reach("sslmode=disable")).await;
    assert!(refused.contains("TLS is required"), "{refused}");
    let from_here = Proxy::before(&gateway, v1("127.0.0.9")).await;
    assert_eq!(gateway.query(&from_here.reach("sslmode=disable"), "select 1").await, "1");
    let gateway = TestGateway::with(|config| {
        config.plaintext = Plaintext::Always;
        trusting(&["127.0.0.1"])(config);
    })
    .await;
    let from_elsewhere = Proxy::before(&gateway, v1("203.0.113.7")).await;
    assert_eq!(gateway.query(&from_elsewhere.reach("sslmode=disable"), "select 1").await, "1");
}

#[tokio::test]
async fn a_statement_is_cancelled_through_a_proxy() {
    let gateway = TestGateway::with(trusting(&["127.0.0.1"])).await;
    let proxy = Proxy::before(&gateway, v1("127.0.0.9")).await;
    let mut config = tokio_postgres::Config::new();
    config.host(proxy.address.ip().to_string()).port(proxy.address.port());
    config.user(gateway.user()).password(crate::gateway::PASSWORD);
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let cancel = client.cancel_token();
    let sleep = client.simple_query("select pg_sleep(600)");
    let end = async {
        let is_asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and usename = $1";
        crate::gateway::eventually("it sleeps", async || {
            gateway.admin.query_one(is_asleep, &[&gateway.role]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await;
        cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    };
    let error = tokio::join!(sleep, end).0.unwrap_err();
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::QUERY_CANCELED));
}

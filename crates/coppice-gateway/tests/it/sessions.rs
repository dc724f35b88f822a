//! What goes through an open session.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use coppice_gateway::CertificateFiles;
use coppice_pgwire::encode;
use coppice_pgwire::startup::{CancelKey, StartupPacket};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::NoTls;
use tokio_postgres::config::SslMode;

use crate::gateway::{PASSWORD, TestGateway, error_of, eventually};
use crate::postgres::Postgres;

/// 20 MB in lines, none like another.
const LINES: &str = "select i || repeat('x', 1000) as line from generate_series(1, 20000) i";

fn tls_client(gateway: &TestGateway, alpn: &[&[u8]]) -> tokio_rustls::TlsConnector {
    let certificate =
        CertificateDer::from_pem_file(gateway.certificate_dir.path().join("gateway.crt")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config).into()
}

#[tokio::test]
async fn a_client_may_begin_with_tls_at_once() {
    let gateway = TestGateway::start().await;
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = tls_client(&gateway, &[b"postgresql"]).connect(name, tcp).await.unwrap();
    let mut config = tokio_postgres::Config::new();
    config.user(gateway.user()).password(PASSWORD).ssl_mode(SslMode::Disable);
    let (client, connection) = config.connect_raw(tls, NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(client.query_one("select 7", &[]).await.unwrap().get::<_, i32>(0), 7);
}

#[tokio::test]
async fn tls_at_once_without_naming_the_protocol_is_closed() {
    let gateway = TestGateway::start().await;
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = tls_client(&gateway, &[]).connect(name, tcp).await.unwrap();
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 0, &[("user", gateway.user().as_str())]);
    let _ = tls.write_all(&startup).await;
    assert!(!matches!(tls.read(&mut [0]).await, Ok(1..)), "no answer");
}

#[tokio::test]
async fn twenty_megabytes_come_out_and_go_in_unchanged() {
    let gateway = TestGateway::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lines");
    let file = file.display();
    let sum = "select count(*) || ' ' || md5(string_agg(md5(line), '' order by line))";
    let expected = gateway.query("", &format!("{sum} from ({LINES}) lines")).await;
    for sslmode in ["disable", "require"] {
        let connection = format!("sslmode={sslmode}");
        gateway.query(&connection, &format!("create table copied_{sslmode} (line text)")).await;
        gateway.query(&connection, &format!("\\copy ({LINES}) to '{file}'")).await;
        gateway.query(&connection, &format!("\\copy copied_{sslmode} from '{file}'")).await;
        assert_eq!(gateway.query(&connection, &format!("{sum} from copied_{sslmode}")).await, expected);
    }
    let traffic = gateway.gateway.traffic();
    assert!(traffic.from_clients > 40_000_000 && traffic.to_clients > 40_000_000, "{traffic:?}");
}

#[tokio::test]
async fn pgbench_runs() {
    let gateway = TestGateway::start().await;
    for arguments in [&["-i", "-q"][..], &["-S", "-T", "1", "-c", "4"], &["-C", "-S", "-t", "20"]] {
        let output = gateway.program("pgbench").args(arguments).arg(&gateway.role).output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", error_of(&output));
        assert!(!error_of(&output).contains("aborted"), "{}", error_of(&output));
    }
}

#[tokio::test]
async fn a_cancel_request_stops_the_statement_of_its_session_alone() {
    let gateway = TestGateway::start().await;
    let (one, two) = (Arc::new(gateway.connect().await), Arc::new(gateway.connect().await));
    let sleep = |client: &Arc<tokio_postgres::Client>| {
        let client = client.clone();
        tokio::spawn(async move { client.simple_query("select pg_sleep(600)").await })
    };
    let (first, second) = (sleep(&one), sleep(&two));
    let sleeping = format!(
        "select count(*) from pg_stat_activity where usename = '{}' and query like 'select pg_sleep%' \
         and state = 'active'",
        gateway.role
    );
    eventually("both statements run", async || {
        gateway.admin.query_one(&sleeping, &[]).await.unwrap().get::<_, i64>(0) == 2
    })
    .await;
    one.cancel_token().cancel_query(NoTls).await.unwrap();
    let in_time = |statement| tokio::time::timeout(Duration::from_secs(60), statement);
    let error = in_time(first).await.expect("ends").unwrap().expect_err("is cancelled");
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::QUERY_CANCELED));
    assert!(!second.is_finished());
    two.cancel_token().cancel_query(NoTls).await.unwrap();
    assert!(in_time(second).await.expect("ends").unwrap().is_err());
    assert!(one.simple_query("select 1").await.is_ok(), "a session survives being cancelled");
}

#[tokio::test]
async fn a_cancel_request_with_an_unknown_key_is_closed_without_an_answer() {
    let gateway = TestGateway::start().await;
    cancel(&gateway, &CancelKey { process_id: 1, secret: vec![0; 4].into() }).await;
}

#[tokio::test]
async fn a_cancel_request_over_tls_ends_as_tls_does() {
    let gateway = TestGateway::start().await;
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = tls_client(&gateway, &[b"postgresql"]).connect(name, tcp).await.unwrap();
    let mut request = BytesMut::new();
    encode::cancel_request(&mut request, &CancelKey { process_id: 1, secret: vec![0; 4].into() });
    tls.write_all(&request).await.unwrap();
    // Without the closing alert this would be an error.
    assert_eq!(tls.read(&mut [0]).await.unwrap(), 0);
}

/// The key that a client was given.
async fn key_of(client: &tokio_postgres::Client) -> CancelKey {
    let (near, mut far) = tokio::io::duplex(64);
    client.cancel_token().cancel_query_raw(near, NoTls).await.unwrap();
    let mut request = BytesMut::new();
    while far.read_buf(&mut request).await.unwrap() > 0 {}
    match StartupPacket::decode(&mut request).unwrap() {
        Some(StartupPacket::Cancel(key)) => key,
        other => panic!("{other:?}"),
    }
}

/// Sends a cancel request and waits until it was dealt with.
async fn cancel(gateway: &TestGateway, key: &CancelKey) {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut request = BytesMut::new();
    encode::cancel_request(&mut request, key);
    stream.write_all(&request).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "there is no answer");
}

#[tokio::test]
async fn the_process_id_that_clients_are_told_is_that_of_their_server_process() {
    let gateway = TestGateway::start().await;
    let (one, two) = (gateway.connect().await, gateway.connect().await);
    let pid = one.query_one("select pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0);
    assert_eq!(i64::from(key_of(&one).await.process_id), i64::from(pid));
    two.query_one("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    eventually("it is ended by its process id", async || one.simple_query("select 1").await.is_err()).await;
}

#[tokio::test]
async fn an_address_that_guesses_keys_can_cancel_nothing_for_a_while() {
    let gateway = TestGateway::with(|config| config.failures_per_minute = NonZeroU32::MIN).await;
    let client = Arc::new(gateway.connect().await);
    let key = key_of(&client).await;
    let guessed = CancelKey { secret: key.secret.iter().map(|byte| !byte).collect(), ..key.clone() };
    for _ in 0..5 {
        cancel(&gateway, &guessed).await;
    }
    let statement = tokio::spawn({
        let client = client.clone();
        async move { client.simple_query("select pg_sleep(2)").await }
    });
    let running = format!(
        "select count(*) from pg_stat_activity where usename = '{}' and state = 'active'",
        gateway.role
    );
    eventually("the statement runs", async || {
        gateway.admin.query_one(&running, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    cancel(&gateway, &key).await;
    assert!(statement.await.unwrap().is_ok(), "even the right key is not looked at");
}

/// What SQL says of a session's way to the gateway: address, version, cipher.
const WAY: &str = "select current_setting('coppice.client_address'), current_setting('coppice.tls_version'), \
                   current_setting('coppice.tls_cipher')";

#[tokio::test]
async fn a_session_finds_out_by_sql_how_its_client_is_connected() {
    let gateway = TestGateway::start().await;
    assert_eq!(gateway.query("sslmode=disable", WAY).await, "127.0.0.1||");
    let encrypted = gateway.query("sslmode=require", WAY).await;
    assert!(encrypted.starts_with("127.0.0.1|TLSv1.3|TLS_"), "{encrypted}");
    assert!(!encrypted.contains("TLS13"), "{encrypted}");
    let older = gateway.query("sslmode=require ssl_max_protocol_version=TLSv1.2", WAY).await;
    assert!(older.starts_with("127.0.0.1|TLSv1.2|TLS_ECDHE_"), "{older}");
}

#[tokio::test]
async fn what_a_session_is_told_of_its_client_can_t_be_faked_for_good() {
    let gateway = TestGateway::start().await;
    let (role, address) = (&gateway.role, "show coppice.client_address");
    gateway
        .admin
        .batch_execute(&format!("alter role {role} set coppice.client_address = '192.0.2.1'"))
        .await
        .unwrap();
    let faked = "options='-c coppice.client_address=192.0.2.1 --coppice.client-address=192.0.2.1'";
    assert_eq!(gateway.query(faked, address).await, "127.0.0.1");
    let client = gateway.connect().await;
    for back in [
        "reset coppice.client_address",
        "reset all",
        "discard all",
        "select set_config('coppice.client_address', null, false)",
    ] {
        client.batch_execute("set coppice.client_address = '192.0.2.1'").await.unwrap();
        client.batch_execute(back).await.unwrap();
        assert_eq!(client.query_one(address, &[]).await.unwrap().get::<_, &str>(0), "127.0.0.1", "{back}");
    }
}

#[tokio::test]
async fn another_certificate_is_shown_to_the_next_client() {
    let gateway = TestGateway::start().await;
    let before = tls_client(&gateway, &[b"postgresql"]);
    let other = CertificateFiles::ensure(tempfile::tempdir().unwrap().path()).unwrap().load_changed();
    gateway.gateway.set_certificate(other.unwrap().expect("is new"));
    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    assert!(before.connect(name, tcp).await.is_err(), "is not the one that this client trusts");
    assert_eq!(gateway.query("sslmode=require channel_binding=require", "select 1").await, "1");
}

#[tokio::test]
async fn sessions_are_counted_while_they_are_open() {
    let gateway = TestGateway::start().await;
    let open = || gateway.sessions.count(&gateway.branch);
    assert_eq!(open(), 0);
    let (one, two) = (gateway.connect().await, gateway.connect().await);
    assert_eq!(open(), 2);
    drop((one, two));
    eventually("closed sessions are forgotten", async || open() == 0).await;
}

#[tokio::test]
async fn a_server_that_goes_away_ends_its_sessions() {
    let postgres = tokio::task::spawn_blocking(Postgres::start).await.unwrap();
    let gateway = TestGateway::before(postgres, |_| {}).await;
    let client = gateway.connect().await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1";
    gateway.admin.query(end, &[&gateway.role]).await.unwrap();
    let error = client.simple_query("select 1").await.expect_err("the session is over");
    assert!(
        error.is_closed() || error.code() == Some(&tokio_postgres::error::SqlState::ADMIN_SHUTDOWN),
        "{error}"
    );
    assert_eq!(gateway.query("", "select 1").await, "1");
}

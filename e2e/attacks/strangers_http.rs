//! A stranger at the API's door: connections without requests, another name
//! for this site, a page in a frame, somebody else's name.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use coppice_test_support::{Platform, wait_for};
use reqwest::header::{HOST, HeaderName};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::setup::{PROGRAM, options, platform};

const PATIENCE: Duration = Duration::from_secs(30);
/// Connections that the API may hold, all together and of one address.
const TOTAL: usize = 300;
const PER_ADDRESS: usize = 100;
/// Many times what is held; each from one of this many addresses.
const HALF_SENT: usize = 3000;
const ADDRESSES: usize = 20;

fn address_of(coppice: &Platform) -> SocketAddr {
    coppice.api().trim_start_matches("http://").parse().expect("an address")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A line of `/metrics`, read over a new connection.
fn metric(coppice: &Platform, line: &str) -> f64 {
    let (status, page) = coppice.call_as(None, "GET", "/metrics", None);
    assert_eq!(status, 200, "{page}");
    let page = page.as_str().expect("text");
    let value = page.lines().find_map(|text| text.strip_prefix(line)).expect("the metric");
    value.trim().parse().expect("a number")
}

/// Begins a request from an address of this machine and does not end it.
async fn half_send(api: SocketAddr, number: usize) -> Option<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    let source = format!("127.0.0.{}:0", 2 + number % ADDRESSES);
    socket.bind(source.parse().expect("an address")).expect("an address of this machine");
    let mut stream = socket.connect(api).await.ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.ok()?;
    Some(stream)
}

#[test]
fn half_sent_requests_shut_nobody_out() {
    let mut coppice = Platform::prepare(PROGRAM, options());
    let (total, per_address) = (TOTAL.to_string(), PER_ADDRESS.to_string());
    let flags = ["--api-connections", &total, "--api-connections-per-address", &per_address];
    coppice.add_flags(&[&flags[..], &["--first-request-timeout", "2"]].concat());
    coppice.spawn();
    ready_is_said_when_everything_is_there(&coppice);
    coppice.wait_ready();
    let api = address_of(&coppice);
    let neighbour = coppice.connection_string("main");
    let resident = metric(&coppice, "process_resident_memory_bytes");

    let runtime = runtime();
    let mut held = vec![];
    for number in 0..HALF_SENT {
        held.extend(runtime.block_on(half_send(api, number)));
        if number % 500 == 499 {
            let (status, _) = coppice.call("GET", "/organizations/{org}/projects", None);
            assert_eq!(status, 200, "after {number}");
            let said = coppice_test_support::psql(&neighbour, "SELECT 1");
            assert!(said.is_ok, "after {number}: {}", said.err);
            let open = metric(&coppice, "coppice_http_connections ");
            assert!(open <= TOTAL as f64, "{open} are held after {number}");
        }
    }
    assert!(metric(&coppice, "coppice_http_connections_ended_total{reason=\"displaced\"}") > 1000.0);
    let grown = metric(&coppice, "process_resident_memory_bytes") - resident;
    assert!(grown < f64::from(64 << 20), "{grown} bytes for {HALF_SENT} half-sent requests");
    // Nobody has to come for them to end.
    wait_for("what was never asked has ended", PATIENCE, || {
        (metric(&coppice, "coppice_http_connections ") <= 1.0).then_some(())
    });
    drop(held);
    asked_connections_stay_and_silent_ones_end(&coppice);
}

/// The status of an answer.
fn status_of(api: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(api).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    said.split(' ').nth(1).map(str::to_owned)
}

fn ready_is_said_when_everything_is_there(coppice: &Platform) {
    let data_dir = coppice.data_dir();
    let api = wait_for("the API listens", PATIENCE, || {
        let record = std::fs::read_to_string(data_dir.join("serve.json")).ok()?;
        let record: serde_json::Value = serde_json::from_str(&record).ok()?;
        record["api"].as_str().map(str::to_owned)
    });
    assert_eq!(status_of(&api, "/healthz").as_deref(), Some("200"));
    wait_for("it is ready", PATIENCE, || (status_of(&api, "/readyz")? == "200").then_some(()));
    assert!(data_dir.join("admin.env").exists() && !data_dir.join("main-branch.pending").exists());
}

/// Reads until the other side closes; what it said before.
fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut said = vec![];
    match stream.read_to_end(&mut said) {
        Ok(_) => said,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => said,
        Err(error) => panic!("it was not closed: {error}"),
    }
}

fn asked_connections_stay_and_silent_ones_end(coppice: &Platform) {
    let connect = |first: &[u8]| {
        let mut stream = TcpStream::connect(address_of(coppice)).expect("a connection");
        stream.write_all(first).expect("it listens");
        stream
    };
    let mut asked = connect(b"");
    let mut ask = || {
        asked.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it is open");
        let mut answer = [0; 15];
        asked.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        let mut rest = vec![0; 4096];
        let _ = asked.read(&mut rest).expect("the rest");
    };
    ask();
    for silence in [
        &b""[..],
        b"G",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n",
        // The beginning of HTTP/2 (RFC 9113, 3.4), with and without settings.
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let said = read_to_end(connect(silence));
        assert!(!said.starts_with(b"HTTP/1.1 2"), "{silence:?}: {}", String::from_utf8_lossy(&said));
    }
    ask();
}

#[test]
fn a_page_of_another_site_reads_nothing_and_takes_nobodys_name() {
    let coppice = platform();
    let runtime = runtime();
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let ask = |path: &str, headers: &[(HeaderName, &str)]| {
        let request = client.get(format!("{}{path}", coppice.api()));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, *value));
        runtime.block_on(request.send()).expect("an answer")
    };
    let (site, mode) = (HeaderName::from_static("sec-fetch-site"), HeaderName::from_static("sec-fetch-mode"));
    let pages = ["/docs/", "/oauth/device", "/oauth/logout", "/oauth/authorize"];
    for path in pages {
        for host in ["localhost:7070", "127.0.0.1", "[::1]:80"] {
            assert_ne!(ask(path, &[(HOST, host)]).status(), 421, "{path} as {host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:7070"] {
            assert_eq!(ask(path, &[(HOST, host)]).status(), 421, "{path} as {host}");
        }
        let used = [(site.clone(), "cross-site"), (mode.clone(), "no-cors")];
        assert_eq!(ask(path, &used).status(), 403, "{path} in another page");
    }
    assert_eq!(ask("/metrics", &[]).status(), 200);
    assert_eq!(ask("/metrics", &[(HOST, "localhost")]).status(), 200);
    assert_eq!(ask("/metrics", &[(HOST, "evil.example")]).status(), 403);
    assert_eq!(ask("/metrics", &[(site, "same-origin")]).status(), 403);
    // Programs that have a key call it as they like.
    let key = format!("Bearer {}", coppice.setting("COPPICE_API_KEY"));
    let call = [(HOST, "db.internal"), (reqwest::header::AUTHORIZATION, &key)];
    assert_eq!(ask("/organizations", &call).status(), 200);

    let docs = ask("/docs/", &[]);
    let header = |name: &str| docs.headers()[name].to_str().expect("text").to_owned();
    let policy = header("content-security-policy");
    assert!(policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(
        (header("x-frame-options"), header("x-content-type-options")),
        ("DENY".into(), "nosniff".into())
    );

    for (name, status) in [("Coppice console", 400), ("\u{421}OPPICE  Con-sole", 400), ("Notes", 201)] {
        let metadata = json!({ "redirect_uris": ["http://127.0.0.1/cb"], "client_name": name });
        let (found, answer) = coppice.call_as(None, "POST", "/oauth/register", Some(&metadata));
        assert_eq!(found, status, "{name}: {answer}");
    }
}

/// Bodies that are held short of their end, and their size.
const BODIES: usize = 400;
const BODY_BYTES: usize = (1 << 20) - 1;
/// What they may cost: they would need 400 MiB.
const GROWTH_MAX_BYTES: f64 = (200 << 20) as f64;

/// Sends all but the last byte of a body from an address of this machine.
async fn hold_body(api: SocketAddr, number: usize, head: String) -> Option<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, 2 + (number % 2) as u8], 0))).expect("an address");
    let mut stream = socket.connect(api).await.ok()?;
    stream.write_all(head.as_bytes()).await.ok()?;
    // Who was refused may find the connection closed, who has to wait does not get on.
    let body = vec![b' '; BODY_BYTES];
    let sent = tokio::time::timeout(Duration::from_secs(3), stream.write_all(&body)).await;
    (!matches!(sent, Ok(Err(_)))).then_some(stream)
}

#[test]
fn bodies_that_never_end_and_unread_answers_cost_a_bounded_memory() {
    let mut coppice = Platform::prepare(PROGRAM, options());
    coppice.add_flags(&["--api-connections", "1000", "--api-connections-per-address", "500"]);
    coppice.spawn();
    coppice.wait_ready();
    let api = address_of(&coppice);
    let resident = metric(&coppice, "process_resident_memory_bytes");
    let organization = coppice.setting("COPPICE_ORGANIZATION").to_owned();
    let key = format!("authorization: Bearer {}\r\n", coppice.setting("COPPICE_API_KEY"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let projects = format!("/organizations/{organization}/projects");
    for (path, credential) in [(&projects[..], ""), ("/oauth/register", ""), (&projects, &key)] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{credential}content-type: application/json\r\n\
             transfer-encoding: chunked\r\n\r\n100000\r\n"
        );
        let held: Vec<_> = runtime.block_on(async {
            let sent: Vec<_> =
                (0..BODIES).map(|number| tokio::spawn(hold_body(api, number, head.clone()))).collect();
            let mut held = vec![];
            for one in sent {
                held.push(one.await.expect("it was sent"));
            }
            held
        });
        let grown = metric(&coppice, "process_resident_memory_bytes") - resident;
        assert!(grown < GROWTH_MAX_BYTES, "{grown} bytes for {BODIES} bodies of {path} {}", credential.len());
        let (status, answer) = coppice.call("GET", "/organizations/{org}/projects", None);
        assert_eq!(status, 200, "{path}: {answer}");
        drop(held);
    }
    wait_for("there is room again", PATIENCE, || {
        let name = json!({ "name": "after them" });
        let (status, _) = coppice.call("POST", "/organizations/{org}/projects", Some(&name));
        (status == 201).then_some(())
    });
    answers_that_nobody_reads_cost_a_bounded_memory(&coppice);
}

/// Connections of HTTP/2, and requests of each, as many as one may have at once.
const UNREAD_CONNECTIONS: usize = 30;
const UNREAD_EACH: u32 = 32;

/// Asks for the OpenAPI document, compressed, many times over one connection of
/// HTTP/2 that takes no byte of a body (RFC 9113, 6.9.2). Returns when all of
/// them were answered so far.
fn ask_and_read_nothing(api: SocketAddr) -> TcpStream {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    // Method, scheme, path, authority, and the two usual encodings (RFC 7541, appendix A).
    let path = b"/openapi.json";
    let headers = [&[0x82, 0x86, 0x04, 13][..], path, &[0x01, 9], b"localhost", &[0x90]].concat();
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    (0..UNREAD_EACH).for_each(|number| said.extend(frame(1, 0x05, 2 * number + 1, &headers)));
    let mut stream = TcpStream::connect(api).expect("a connection");
    stream.write_all(&said).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answered = 0;
    while answered < UNREAD_EACH {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).expect("the rest of it");
        answered += u32::from(head[3] == 1);
    }
    stream
}

fn answers_that_nobody_reads_cost_a_bounded_memory(coppice: &Platform) {
    let resident = metric(coppice, "process_resident_memory_bytes");
    let unread: Vec<_> = (0..UNREAD_CONNECTIONS).map(|_| ask_and_read_nothing(address_of(coppice))).collect();
    let grown = metric(coppice, "process_resident_memory_bytes") - resident;
    assert!(grown < f64::from(64 << 20), "{grown} bytes for answers that nobody reads");
    drop(unread);
}

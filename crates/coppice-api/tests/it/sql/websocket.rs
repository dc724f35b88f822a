//! The protocol of PostgreSQL in frames of a WebSocket.

use std::net::Ipv4Addr;

use bytes::{Buf as _, BufMut as _, BytesMut};
use coppice_core::branch::BranchState;
use coppice_core::organization::Holder;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::{encode, statement};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::branch::{Branch, CONNECTIONS_MAX, DOMAIN, HERE, PASSWORD};

const BINARY: u8 = 0x82;
const TEXT: u8 = 0x81;
const PING: u8 = 0x89;

/// A client's side of a WebSocket.
struct Socket {
    tcp: TcpStream,
    received: BytesMut,
    /// Bytes of the stream that came in frames.
    stream: BytesMut,
    pongs: Vec<Vec<u8>>,
    close: Option<u16>,
}

impl Socket {
    async fn open(branch: &Branch, host: &str) -> Self {
        Self::open_from(HERE, branch, host).await
    }

    async fn open_from(from: Ipv4Addr, branch: &Branch, host: &str) -> Self {
        let tcp = TcpSocket::new_v4().expect("a socket");
        tcp.bind((from, 0).into()).expect("an address of this machine");
        let mut tcp = tcp.connect(branch.listen().await).await.expect("a connection");
        let request = format!(
            "GET /v2 HTTP/1.1\r\nhost: {host}\r\nupgrade: websocket\r\nconnection: upgrade\r\norigin: https://example.com\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        tcp.write_all(request.as_bytes()).await.expect("sent");
        let mut received = BytesMut::new();
        let end = loop {
            if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(tcp.read_buf(&mut received).await.expect("an answer") > 0, "{received:?}");
        };
        let head = String::from_utf8_lossy(&received.split_to(end)).into_owned();
        assert!(head.starts_with("HTTP/1.1 101") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Self { tcp, received, stream: BytesMut::new(), pongs: vec![], close: None }
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) {
        let mask = [7, 9, 1, 3];
        let mut frame = BytesMut::new();
        frame.put_u8(kind);
        frame.put_u8(0x80 | 127);
        frame.put_u64(payload.len() as u64);
        frame.put_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.tcp.write_all(&frame).await.expect("sent");
    }

    /// Reads the next frame; false at the end.
    async fn read(&mut self) -> bool {
        loop {
            if let Some((kind, payload)) = take_frame(&mut self.received) {
                match kind {
                    BINARY => self.stream.extend_from_slice(&payload),
                    0x8a => self.pongs.push(payload.to_vec()),
                    0x88 => self.close = Some((&payload[..]).get_u16()),
                    _ => panic!("a frame of kind {kind:x}"),
                }
                return true;
            }
            if self.tcp.read_buf(&mut self.received).await.unwrap_or(0) == 0 {
                return false;
            }
        }
    }

    /// Reads messages up to one of this type.
    async fn messages_until(&mut self, tag: u8) -> Vec<Frame> {
        let mut messages = vec![];
        loop {
            while let Some(frame) = Frame::decode(&mut self.stream, 1 << 24).expect("messages") {
                let is_last = frame.tag == tag;
                messages.push(frame);
                if is_last {
                    return messages;
                }
            }
            assert!(self.read().await, "it ends: {messages:?} {:?}", self.close);
        }
    }

    /// Reads to the end: the last message, if there was one, and why it ended.
    async fn end(mut self) -> (Option<String>, Option<u16>) {
        while self.read().await {}
        let frame = Frame::decode(&mut self.stream, 1 << 24).expect("messages");
        (frame.map(|frame| String::from_utf8_lossy(&frame.body).into_owned()), self.close)
    }
}

fn take_frame(received: &mut BytesMut) -> Option<(u8, BytesMut)> {
    let [kind, length] = received.first_chunk().copied()?;
    let (head, length) = match length {
        126 => (4, usize::from(received.get(2..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))?)),
        127 => (10, received.get(2..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))? as usize),
        length => (2, usize::from(length)),
    };
    if received.len() < head + length {
        return None;
    }
    received.advance(head);
    Some((kind, received.split_to(length)))
}

/// What a client sends without waiting: who it is, its password, and a statement.
fn pipelined(user: &str, more: &[(&str, &str)], password: &str, query: &str) -> BytesMut {
    let mut bytes = BytesMut::new();
    encode::startup(&mut bytes, 0, &[&[("user", user)], more].concat());
    statement::password(&mut bytes, password);
    statement::parse(&mut bytes, query);
    statement::bind_head(&mut bytes, 0, 0).expect("a message");
    statement::run(&mut bytes);
    bytes
}

fn tags(messages: &[Frame]) -> String {
    messages.iter().map(|message| char::from(message.tag)).filter(|tag| *tag != 'S').collect()
}

#[tokio::test]
async fn a_client_that_waits_for_nothing_is_signed_in_and_answered() {
    let branch = Branch::start().await;
    let (host, user) = (format!("{}.{DOMAIN}", branch.id), branch.role.clone());
    let bytes = pipelined(&user, &[], PASSWORD, "select current_user");
    // In one frame, and in frames that end in the middle of everything.
    for size in [bytes.len(), 7] {
        let mut socket = Socket::open(&branch, &host).await;
        socket.send(PING, b"there?").await;
        for piece in bytes.chunks(size) {
            socket.send(BINARY, piece).await;
        }
        assert_eq!(tags(&socket.messages_until(b'Z').await), "RKZ");
        let answer = socket.messages_until(b'Z').await;
        assert_eq!(tags(&answer), "12TDCZ");
        assert!(answer[3].body.ends_with(user.as_bytes()));
        assert_eq!(socket.pongs, [b"there?".to_vec()]);
        let mut end = BytesMut::new();
        statement::terminate(&mut end);
        socket.send(BINARY, &end).await;
        assert_eq!(socket.end().await, (None, Some(1000)));
    }
    // The branch may also be named within.
    for more in [vec![("host", host.as_str())], vec![("options", "")]] {
        let user = if more[0].0 == "host" { user.clone() } else { format!("{user}.{}", branch.id) };
        let mut socket = Socket::open(&branch, "127.0.0.1:7070").await;
        socket.send(BINARY, &pipelined(&user, &more, PASSWORD, "select 1")).await;
        socket.messages_until(b'C').await;
    }
}

#[tokio::test]
async fn a_driver_that_signs_in_step_by_step_has_no_encryption_within() {
    let branch = Branch::start().await;
    let mut socket = Socket::open(&branch, "127.0.0.1").await;
    socket.send(BINARY, &[0, 0, 0, 8, 4, 210, 22, 47]).await;
    socket.send(BINARY, &[0, 0, 0, 8, 4, 210, 22, 48]).await;
    while socket.stream.len() < 2 {
        assert!(socket.read().await);
    }
    assert_eq!(&socket.stream.split()[..], b"NN");
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let mut config = tokio_postgres::Config::new();
    config.user(format!("{}.{}", branch.role, branch.id)).password(PASSWORD).dbname(&branch.role);
    let carried = tokio::spawn(async move {
        let mut buffer = BytesMut::new();
        loop {
            tokio::select! {
                read = far.read_buf(&mut buffer) => match read {
                    Ok(0) | Err(_) => return socket.end().await.1,
                    Ok(_) => socket.send(BINARY, &buffer.split()).await,
                },
                more = socket.read() => {
                    assert!(more);
                    far.write_all(&socket.stream.split()).await.expect("taken");
                }
            }
        }
    });
    let (client, connection) = config.connect_raw(near, tokio_postgres::NoTls).await.expect("a session");
    let connection = tokio::spawn(connection);
    let row = client.query_one("select repeat('x', 1000000), $1::text", &[&"y".repeat(300_000)]).await;
    let row = row.expect("a row");
    assert_eq!((row.get::<_, &str>(0).len(), row.get::<_, &str>(1).len()), (1_000_000, 300_000));
    drop(client);
    connection.await.expect("no panic").expect("a clean end");
    assert_eq!(carried.await.expect("no panic"), Some(1000));
}

#[tokio::test]
async fn who_gets_no_session_is_told_why_twice() {
    let branch = Branch::start().await;
    let host = format!("{}.{DOMAIN}", branch.id);
    let end = async |host: &str, password: &str| {
        let mut socket = Socket::open(&branch, host).await;
        socket.send(BINARY, &pipelined(&branch.role, &[], password, "select 1")).await;
        let (message, close) = socket.end().await;
        let message = message.unwrap_or_default();
        let code = message.split('\0').find_map(|field| field.strip_prefix('C')).map(str::to_owned);
        (code.unwrap_or_default(), close)
    };
    assert_eq!(end(&host, "wrong").await, ("28P01".to_owned(), Some(1000)));
    assert_eq!(end("127.0.0.1", PASSWORD).await, ("08004".to_owned(), Some(1008)));
    branch.admit_only("192.0.2.0/24");
    assert_eq!(end(&host, "wrong").await, ("28P01".to_owned(), Some(1000)));
    assert_eq!(end(&host, PASSWORD).await, ("28000".to_owned(), Some(1008)));
    branch.admit_only("127.0.0.0/8");
    branch.told.lock().state = BranchState::Hibernated;
    branch.told.lock().may_wake = false;
    assert_eq!(end(&host, PASSWORD).await, ("57P01".to_owned(), Some(1011)));
    branch.told.lock().may_wake = true;
    let mut socket = Socket::open(&branch, &host).await;
    socket.send(BINARY, &pipelined(&branch.role, &[], PASSWORD, "select 1")).await;
    socket.messages_until(b'C').await;
}

#[tokio::test]
async fn who_has_not_signed_in_makes_room_for_others() {
    let branch = Branch::start().await;
    let host = format!("{}.{DOMAIN}", branch.id);
    let mut known = Socket::open(&branch, &host).await;
    known.send(BINARY, &pipelined(&branch.role, &[], PASSWORD, "select 1")).await;
    known.messages_until(b'C').await;
    let mut silent = vec![];
    while silent.len() + 1 < CONNECTIONS_MAX {
        silent.push(Socket::open(&branch, &host).await);
    }
    // Of another network.
    let mut other = Socket::open_from(Ipv4Addr::new(127, 0, 1, 1), &branch, &host).await;
    other.send(BINARY, &pipelined(&branch.role, &[], PASSWORD, "select 1")).await;
    other.messages_until(b'C').await;
    assert_eq!(silent.remove(0).end().await, (None, None), "it was there for longest of those");
    let mut again = BytesMut::new();
    statement::parse(&mut again, "select 2");
    statement::bind_head(&mut again, 0, 0).expect("a message");
    statement::run(&mut again);
    known.messages_until(b'Z').await;
    known.send(BINARY, &again).await;
    assert_eq!(tags(&known.messages_until(b'Z').await), "12TDCZ", "it stays");
}

#[tokio::test]
async fn what_is_no_protocol_ends_the_connection_with_its_code() {
    let branch = Branch::start().await;
    let long = [&10_001_u32.to_be_bytes()[..], &[0, 3, 0, 0]].concat();
    let cases: [(u8, &[u8], u16); 5] = [
        (TEXT, b"select 1", 1003),
        (BINARY, &long, 1009),
        (BINARY, &[0, 0, 0, 8, 0, 2, 0, 0], 1002),
        (BINARY, &[0, 0, 0, 8, 4, 210, 22, 47].repeat(3), 1002),
        (0xc2, b"x", 1002),
    ];
    for (kind, payload, code) in cases {
        let mut socket = Socket::open(&branch, "127.0.0.1").await;
        socket.send(kind, payload).await;
        assert_eq!(socket.end().await, (None, Some(code)), "{payload:?}");
    }
    let mut tcp = TcpStream::connect(branch.listen().await).await.expect("a connection");
    tcp.write_all(b"GET /v2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("sec-websocket-version: 13"), "{answer}");
}

#[tokio::test]
async fn the_session_of_a_client_that_vanishes_ends() {
    let branch = Branch::start().await;
    let mut socket = Socket::open(&branch, &format!("{}.{DOMAIN}", branch.id)).await;
    // More than anybody keeps, so it has to be read.
    let endless = "select repeat('x', 1000), generate_series(1, 1000000000)";
    socket.send(BINARY, &pipelined(&branch.role, &[], PASSWORD, endless)).await;
    socket.messages_until(b'D').await;
    assert_eq!(branch.count_busy("generate_series").await, 1);
    drop(socket);
    branch.eventually("it ends", async || branch.count_busy("generate_series").await == 0).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_keeps_no_connection_when_its_session_was_ended() {
    // Seven of eight places may be taken by those who have signed in.
    let branch = Branch::start_with_places(8).await;
    let host = format!("{}.{DOMAIN}", branch.id);
    let endless = "select repeat('x', 1000), generate_series(1, 1000000000)";
    let mut sockets = vec![];
    for query in ["select 1"; 6].into_iter().chain([endless]) {
        let mut socket = Socket::open(&branch, &host).await;
        socket.send(BINARY, &pipelined(&branch.role, &[], PASSWORD, query)).await;
        socket.messages_until(b'D').await;
        sockets.push(socket);
    }
    let mut last = (0, 0);
    let stalls = async || {
        let sent = branch.sent();
        last = if last.0 == sent { (sent, last.1 + 1) } else { (sent, 0) };
        last.1 == 50
    };
    branch.eventually("whatever is between both is full", stalls).await;
    branch.told.lock().holder = Holder::from_trusted("usr_2");
    let mut other = Socket::open(&branch, &host).await;
    other.send(BINARY, &pipelined(&branch.role, &[], PASSWORD, "select 1")).await;
    other.messages_until(b'D').await;
    branch
        .eventually("the last one gave way", async || branch.count_busy("generate_series").await == 0)
        .await;
    // It still reads nothing, and so learns of the end only by what it says.
    let mut stalled = sockets.pop().expect("the last one");
    let ended = async || stalled.tcp.write_all(&[PING, 0x80, 0, 0, 0, 0]).await.is_err();
    branch.eventually("its connection ends", ended).await;
}

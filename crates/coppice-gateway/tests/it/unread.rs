//! A client of a pool that reads nothing of what it is answered.

use std::time::Duration;

use bytes::BytesMut;
use coppice_pgwire::encode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::gateway::{PASSWORD, TestGateway};

/// More than sockets and the gateway hold together.
const ASKED_BYTES_MAX: usize = 64 << 20;
/// Taken for "it takes nothing any more".
const SILENCE: Duration = Duration::from_secs(5);

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = BytesMut::new();
    encode::begin(&mut message, tag, &[body], 0);
    message.to_vec()
}

/// A client of the pool that speaks the protocol itself.
async fn raw(gateway: &TestGateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(gateway.address).await.unwrap();
    let user = format!("{}-pooler", gateway.user());
    let mut startup = BytesMut::new();
    encode::startup(&mut startup, 0, &[("user", user.as_str())]);
    let signed_in =
        coppice_sql::sign_in(stream, &startup, &Zeroizing::new(PASSWORD.to_owned()), gateway.address.ip())
            .await;
    signed_in.unwrap().stream
}

#[tokio::test]
async fn neither_messages_nor_answers_pile_up_for_a_client_that_does_not_read() {
    let gateway = TestGateway::start().await;
    let mut client = raw(&gateway).await;
    // Short messages, so that there are far more of them than are under way at once.
    client.write_all(&[message(b'P', b"\0select 1\0\0\0"), message(b'H', b"")].concat()).await.unwrap();
    let close = message(b'C', b"Snone\0");
    let closes = close.repeat(1000);
    let (mut asked, mut offset) = (0, 0);
    while asked < ASKED_BYTES_MAX {
        match timeout(SILENCE, client.write(&closes[offset..])).await {
            Ok(written) => {
                let written = written.unwrap();
                asked += written;
                offset = (offset + written) % closes.len();
            }
            Err(_) => break,
        }
    }
    assert!(asked < ASKED_BYTES_MAX, "it takes requests without end");
    // All are answered as soon as somebody reads.
    let (mut reader, mut writer) = client.split();
    let rest = [&closes[offset..], &message(b'S', b"")].concat();
    let asked = asked + closes.len() - offset;
    let ask = async { writer.write_all(&rest).await.unwrap() };
    let read = async {
        let (mut answers, mut buffer) = (vec![], BytesMut::new());
        while !answers.ends_with(b"Z\0\0\0\x05I") {
            buffer.clear();
            assert!(reader.read_buf(&mut buffer).await.unwrap() > 0, "it is open");
            answers.extend_from_slice(&buffer);
        }
        answers
    };
    let (answers, ()) = timeout(Duration::from_secs(120), async { tokio::join!(read, ask) }).await.unwrap();
    let closed = message(b'3', b"").len() * (asked / close.len());
    let others = message(b'1', b"").len() + message(b'Z', b"I").len();
    assert_eq!(answers.len(), closed + others);
}

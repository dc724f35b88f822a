//! A client that sends what it likes.

use std::pin::pin;

use bytes::BytesMut;
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{PASSWORD, TestGateway};

/// Its type and its body.
pub(crate) type Message<'a> = (u8, &'a [u8]);

/// See the module.
pub(crate) struct Raw {
    stream: TcpStream,
    received: BytesMut,
}

impl Raw {
    pub(crate) async fn connect(gateway: &TestGateway, user: &str) -> Self {
        let mut startup = BytesMut::new();
        encode::startup(&mut startup, 0, &[("user", user), ("database", &gateway.role)]);
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let signed_in =
            coppice_sql::sign_in(stream, &startup, &PASSWORD.to_owned().into(), gateway.address.ip())
                .await
                .unwrap();
        Self { stream: signed_in.stream, received: signed_in.received }
    }

    /// Sends messages, and takes the answers that come meanwhile.
    pub(crate) async fn send(&mut self, messages: &[Message<'_>]) {
        let mut bytes = BytesMut::new();
        for (tag, body) in messages {
            encode::begin(&mut bytes, *tag, &[body], 0);
        }
        let (mut reader, mut writer) = self.stream.split();
        let mut sending = pin!(writer.write_all(&bytes));
        loop {
            tokio::select! {
                // That the connection has ended is seen by who reads.
                _ = &mut sending => return,
                read = reader.read_buf(&mut self.received) => {
                    if read.unwrap_or(0) == 0 {
                        return;
                    }
                }
            }
        }
    }

    /// The next message; none when the connection ends before.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.received, 10_000).unwrap() {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.received).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Reads up to a message of this type; false when the connection ends before.
    pub(crate) async fn hears(&mut self, tag: u8) -> bool {
        while let Some(frame) = self.next().await {
            if frame.tag == tag {
                return true;
            }
        }
        false
    }
}

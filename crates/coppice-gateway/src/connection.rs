//! One side's byte stream, read and written message by message until its
//! session begins.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::startup::StartupPacket;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::refusal::{End, Refusal};

/// A byte stream of either side, with or without TLS.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How long a refused client may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes taken from a client that waits and should be silent.
const EARLY_BYTES_MAX: usize = 64 * 1024;

/// A stream with what was received and not yet used, and what was written and
/// not yet sent.
pub(crate) struct Connection<S> {
    pub(crate) stream: S,
    pub(crate) received: BytesMut,
    /// Filled by the encoders, emptied by [`Connection::flush`].
    pub(crate) outgoing: BytesMut,
}

impl<S: Duplex> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, received: BytesMut::new(), outgoing: BytesMut::new() }
    }

    /// The stream, with what was received and not yet used. What was written has been sent, and its
    /// memory is given back.
    pub(crate) fn into_stream(self) -> (S, BytesMut) {
        debug_assert!(self.outgoing.is_empty(), "it is flushed before");
        (self.stream, self.received)
    }

    /// Gives memory back that nothing is in, where there is more of it than this.
    pub(crate) fn trim(&mut self, bytes_max: usize) {
        for buffer in [&mut self.received, &mut self.outgoing] {
            if buffer.is_empty() && buffer.capacity() > bytes_max {
                *buffer = BytesMut::new();
            }
        }
    }

    async fn receive(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads a packet that has no type.
    pub(crate) async fn read_startup(&mut self) -> Result<StartupPacket, End> {
        loop {
            if let Some(packet) = StartupPacket::decode(&mut self.received)? {
                return Ok(packet);
            }
            self.receive().await?;
        }
    }

    /// Reads a message.
    pub(crate) async fn read_frame(&mut self, body_length_max: usize) -> Result<Frame, End> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.received, body_length_max)? {
                return Ok(frame);
            }
            self.receive().await?;
        }
    }

    /// Returns when the client is gone. What it sends meanwhile is kept.
    pub(crate) async fn gone(&mut self) -> io::Error {
        while self.received.len() < EARLY_BYTES_MAX {
            if let Err(error) = self.receive().await {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Sends what was written.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all_buf(&mut self.outgoing).await?;
        self.stream.flush().await
    }

    /// Says why and ends the connection.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) {
        encode::fatal_error(&mut self.outgoing, &refusal.report());
        self.finish().await;
    }

    /// Sends what was written and ends the connection. Closing a socket with
    /// unread bytes would reset it, and the client would lose our last words.
    pub(crate) async fn finish(&mut self) {
        let farewell = async {
            self.flush().await?;
            self.stream.shutdown().await?;
            self.received.clear();
            Err::<(), _>(self.gone().await)
        };
        // The client being gone is what we wait for; there is nobody to tell.
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
}

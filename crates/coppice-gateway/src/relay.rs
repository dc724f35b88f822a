//! Stage: the bytes of a session, passed on unread.
//!
//! What is read is written at once, so all sessions of a thread read into the
//! same memory, and only what the other side does not take yet is kept: a session
//! on which nothing is said costs no memory for what might be.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{Connection, Duplex};
use crate::sessions::Session;

/// Bytes that are read at once.
const BUFFER_LENGTH: usize = 64 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_LENGTH].into_boxed_slice());
}

/// Copies both ways until the server is done or the client is lost. A client
/// that only ends its own direction still gets the answers it asked for, and
/// what a server said before it went away still reaches the client.
pub(crate) async fn relay(
    client: Connection<impl Duplex>,
    server: Connection<impl Duplex>,
    session: &Session,
) -> io::Result<()> {
    let (mut client, of_client) = client.into_stream();
    let (mut server, of_server) = server.into_stream();
    let (mut up, mut down) = (Direction::new(of_client), Direction::new(of_server));
    poll_fn(|context| {
        let count_down = |bytes| session.count_to_client(bytes);
        if let Poll::Ready(ended) = down.poll(context, &mut server, &mut client, count_down) {
            return Poll::Ready(ended.map_err(|(Lost::Reader(error) | Lost::Writer(error))| error));
        }
        let count_up = |bytes| session.count_from_client(bytes);
        match up.poll(context, &mut client, &mut server, count_up) {
            Poll::Ready(Err(Lost::Reader(error))) => Poll::Ready(Err(error)),
            // The server's direction tells the end.
            Poll::Ready(Ok(()) | Err(Lost::Writer(_))) | Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Which end of a direction failed.
enum Lost {
    Reader(io::Error),
    Writer(io::Error),
}

/// What goes from one side to the other.
struct Direction {
    /// Read, and not yet written.
    kept: BytesMut,
    /// Whether what was written may still be on this side of an encryption.
    is_flushed: bool,
    /// Whether the reader has said all.
    has_ended: bool,
    /// Whether the writer knows, or is gone.
    is_over: bool,
}

impl Direction {
    fn new(kept: BytesMut) -> Self {
        Self { kept, is_flushed: true, has_ended: false, is_over: false }
    }

    /// Goes on until the end, which is passed on too.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
        count: impl Fn(usize),
    ) -> Poll<Result<(), Lost>> {
        if self.is_over {
            return Poll::Pending;
        }
        let ended = BUFFER.with_borrow_mut(|buffer| self.poll_with(context, reader, writer, count, buffer));
        self.is_over = ended.is_ready();
        ended
    }

    fn poll_with(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
        count: impl Fn(usize),
        buffer: &mut [u8],
    ) -> Poll<Result<(), Lost>> {
        loop {
            while !self.kept.is_empty() {
                let written = ready!(Pin::new(&mut *writer).poll_write(context, &self.kept));
                let written = some(written).map_err(Lost::Writer)?;
                count(written);
                self.kept.advance(written);
            }
            if self.kept.capacity() > 0 {
                self.kept = BytesMut::new();
            }
            if self.has_ended {
                return Pin::new(writer).poll_shutdown(context).map_err(Lost::Writer);
            }
            let mut read = ReadBuf::new(buffer);
            match Pin::new(&mut *reader).poll_read(context, &mut read) {
                Poll::Ready(read) => read.map_err(Lost::Reader)?,
                Poll::Pending => {
                    if !self.is_flushed {
                        ready!(Pin::new(writer).poll_flush(context)).map_err(Lost::Writer)?;
                        self.is_flushed = true;
                    }
                    return Poll::Pending;
                }
            }
            let mut left = read.filled();
            self.has_ended = left.is_empty();
            self.is_flushed = false;
            while !left.is_empty() {
                match Pin::new(&mut *writer).poll_write(context, left) {
                    Poll::Ready(written) => {
                        let written = some(written).map_err(Lost::Writer)?;
                        count(written);
                        left = &left[written..];
                    }
                    Poll::Pending => {
                        self.kept.extend_from_slice(left);
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

/// A writer that takes nothing is gone.
fn some(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coppice_core::BranchId;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::ClientInfo;
    use crate::sessions::Sessions;

    /// The far ends of a client and a server, and what joins them.
    fn joined() -> (DuplexStream, DuplexStream, impl Future<Output = io::Result<()>>) {
        let ((client, near_client), (server, near_server)) = (duplex(1024), duplex(1024));
        let branch = BranchId::generate();
        let somebody =
            ClientInfo { role: "app".to_owned(), application: String::new(), address: [127, 0, 0, 1].into() };
        let sessions = Arc::<Sessions>::default();
        let begun = sessions.begin(&branch, &somebody, &sessions.look(&branch));
        let session = begun.ok().expect("nobody holds it");
        let near_client: Box<dyn Duplex> = Box::new(near_client);
        let relayed =
            async move { relay(Connection::new(near_client), Connection::new(near_server), &session).await };
        (client, server, relayed)
    }

    #[tokio::test]
    async fn the_last_words_of_a_server_reach_a_client_that_keeps_talking() {
        let (mut client, mut server, relayed) = joined();
        client.write_all(b"query").await.unwrap();
        server.write_all(b"bye").await.unwrap();
        drop(server);
        let mut answer = vec![];
        let _ = tokio::join!(relayed, client.read_to_end(&mut answer));
        assert_eq!(answer, b"bye");
    }

    #[tokio::test]
    async fn a_client_that_ends_its_own_direction_still_gets_its_answer() {
        let (mut client, mut server, relayed) = joined();
        client.write_all(b"query").await.unwrap();
        client.shutdown().await.unwrap();
        let serve = async {
            let mut query = vec![];
            server.read_to_end(&mut query).await.unwrap();
            server.write_all(b"answer").await.unwrap();
            drop(server);
            query
        };
        let mut answer = vec![];
        let (relayed, query, read) = tokio::join!(relayed, serve, client.read_to_end(&mut answer));
        assert_eq!((relayed.is_ok(), query.as_slice(), read.is_ok()), (true, &b"query"[..], true));
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn whatever_the_other_side_does_not_take_yet_comes_in_order() {
        let (client, server, relayed) = joined();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number / 7) as u8).collect();
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_server, mut to_server) = tokio::io::split(server);
        let talk = async {
            let (mut up, mut down) = (vec![0; sent.len()], vec![0; sent.len()]);
            // All at once, in pieces that have nothing to do with the buffers.
            let all = tokio::join!(
                to_client.write_all(&sent),
                to_server.write_all(&sent),
                from_client.read_exact(&mut down),
                from_server.read_exact(&mut up),
            );
            assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok() && all.3.is_ok());
            assert!(up == sent && down == sent);
            to_server.shutdown().await.unwrap();
            drop(from_server);
            drop(to_server);
        };
        let (relayed, ()) = tokio::join!(relayed, talk);
        assert!(relayed.is_ok(), "{relayed:?}");
    }
}

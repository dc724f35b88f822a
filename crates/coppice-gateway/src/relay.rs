//! Stage: the bytes of a session, passed on unread.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::connection::{Connection, Duplex};
use crate::sessions::Session;

const BUFFER_LENGTH: usize = 64 * 1024;

/// Copies both ways until the server is done or the client is lost. A client
/// that only ends its own direction still gets the answers it asked for, and
/// what a server said before it went away still reaches the client.
pub(crate) async fn relay(
    client: Connection<Box<dyn Duplex>>,
    server: Connection<impl Duplex>,
    session: &Session,
) -> io::Result<()> {
    let (client_reader, client_writer) = tokio::io::split(client.stream);
    let (server_reader, server_writer) = tokio::io::split(server.stream);
    let count_up = |bytes| session.count_from_client(bytes);
    let count_down = |bytes| session.count_to_client(bytes);
    let client_lost = async {
        match copy(client_reader, server_writer, client.received, count_up).await {
            Err(Lost::Reader(error)) => error,
            Ok(()) | Err(Lost::Writer(_)) => std::future::pending().await,
        }
    };
    tokio::select! {
        result = copy(server_reader, client_writer, server.received, count_down) => {
            result.map_err(|(Lost::Reader(error) | Lost::Writer(error))| error)
        }
        error = client_lost => Err(error),
    }
}

/// Which end of a direction failed.
enum Lost {
    Reader(io::Error),
    Writer(io::Error),
}

/// Copies until the end, which is passed on too. `buffer` holds what was read
/// before.
async fn copy(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    mut buffer: BytesMut,
    count: impl Fn(usize),
) -> Result<(), Lost> {
    loop {
        if !buffer.is_empty() {
            count(buffer.len());
            writer.write_all(&buffer).await.map_err(Lost::Writer)?;
            writer.flush().await.map_err(Lost::Writer)?;
            buffer.clear();
        }
        buffer.reserve(BUFFER_LENGTH);
        if reader.read_buf(&mut buffer).await.map_err(Lost::Reader)? == 0 {
            return writer.shutdown().await.map_err(Lost::Writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coppice_core::BranchId;
    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::ClientInfo;
    use crate::sessions::Sessions;

    /// The far ends of a client and a server, and what joins them.
    fn joined() -> (DuplexStream, DuplexStream, impl Future<Output = io::Result<()>>) {
        let ((client, near_client), (server, near_server)) = (duplex(1024), duplex(1024));
        let branch = BranchId::generate();
        let somebody =
            ClientInfo { role: "app".to_owned(), application: String::new(), address: [127, 0, 0, 1].into() };
        let session = Arc::<Sessions>::default().begin(&branch, &somebody, 0).ok().expect("nobody holds it");
        let near_client: Box<dyn Duplex> = Box::new(near_client);
        let relayed =
            async move { relay(Connection::new(near_client), Connection::new(near_server), &session).await };
        (client, server, relayed)
    }

    #[tokio::test]
    async fn the_last_words_of_a_server_reach_a_client_that_keeps_talking() {
        // Which direction is looked at first is left to chance.
        for _ in 0..64 {
            let (mut client, mut server, relayed) = joined();
            client.write_all(b"query").await.unwrap();
            server.write_all(b"bye").await.unwrap();
            drop(server);
            let mut answer = vec![];
            let _ = tokio::join!(relayed, client.read_to_end(&mut answer));
            assert_eq!(answer, b"bye");
        }
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
}

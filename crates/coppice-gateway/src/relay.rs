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

//! Clients of HTTP, in TLS or not.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::gateway::Gateway;
use crate::negotiate::TLS_HANDSHAKE;

impl Gateway {
    /// What a client of HTTP says, out of TLS when it began with that. It is
    /// shown the certificate that clients of PostgreSQL are shown, and may
    /// choose HTTP/2 (ALPN, RFC 7301).
    ///
    /// Takes as long as the client does, and the handshakes of others: the caller bounds it.
    ///
    /// # Errors
    /// When the client is gone, or there is no TLS that both speak.
    pub async fn http_stream(&self, tcp: TcpStream) -> io::Result<Either<TcpStream, TlsStream<TcpStream>>> {
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 || first[0] != TLS_HANDSHAKE {
            return Ok(Either::Left(tcp));
        }
        let peer = tcp.peer_addr()?.ip();
        Ok(Either::Right(self.handshakes.accept(tcp, peer, self.certificate().http).await?))
    }
}

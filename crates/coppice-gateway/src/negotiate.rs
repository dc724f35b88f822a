//! Stage: TLS, and the first packet.
//!
//! A client asks for TLS with an SSLRequest, or begins with TLS at once and
//! then has to name the protocol by ALPN. Whatever it sent before the
//! handshake could have been slipped in by someone else, so it must be nothing.

use std::io;
use std::net::IpAddr;

use coppice_pgwire::sqlstate;
use coppice_pgwire::startup::{CancelKey, Startup, StartupPacket};
use rustls::{ProtocolVersion, ServerConnection};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::Certificate;
use crate::certificate::ALPN_POSTGRESQL;
use crate::connection::{Connection, Duplex};
use crate::handshakes::Handshakes;
use crate::reason::Reason;
use crate::refusal::{End, Refusal};

/// First byte of a TLS handshake; no startup packet begins with it.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// What a client wants.
pub(crate) enum Request {
    Session(Startup),
    Cancel(CancelKey),
}

/// A client that has said what it wants.
pub(crate) struct Client {
    pub(crate) connection: Connection<Box<dyn Duplex>>,
    /// None when the connection is not encrypted.
    pub(crate) tls: Option<Tls>,
    pub(crate) server_name: Option<String>,
    /// Whether its bytes came by way of another part of this program, which
    /// answers for how they came there.
    pub(crate) is_inside: bool,
    /// Whether it shares sessions with others unless it says otherwise.
    pub(crate) is_pooled: bool,
}

/// How a connection is encrypted.
pub(crate) struct Tls {
    /// As PostgreSQL calls it: `TLSv1.3`.
    pub(crate) version: &'static str,
    /// The name that IANA lists.
    pub(crate) cipher: String,
    /// Of the certificate that the client was shown.
    digest: Option<Vec<u8>>,
}

impl Tls {
    fn of(connection: &ServerConnection, certificate: &Certificate) -> Self {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            // rustls speaks no other.
            _ => "TLSv1.2",
        };
        let cipher = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        // IANA's names of those of 1.3 don't repeat the version.
        let cipher = cipher.unwrap_or_default().replacen("TLS13_", "TLS_", 1);
        Self { version, cipher, digest: certificate.digest.clone() }
    }
}

/// Takes a client that is at this address up to its first packet that is not about
/// encryption. A client whose packet makes no sense has been told so when this fails.
pub(crate) async fn negotiate(
    tcp: TcpStream,
    address: IpAddr,
    certificate: &Certificate,
    handshakes: &Handshakes,
) -> io::Result<(Client, Request)> {
    let mut first = [0];
    if tcp.peek(&mut first).await? == 1 && first[0] == TLS_HANDSHAKE {
        let stream = handshakes.accept(tcp, address, certificate.tls.clone()).await?;
        return over_tls(stream, certificate, true).await;
    }
    let mut connection = Connection::new(tcp);
    loop {
        match connection.read_startup().await {
            Ok(StartupPacket::SslRequest) => {
                check_nothing_unread(&connection)?;
                connection.stream.write_all(b"S").await?;
                let tcp = connection.stream;
                let stream = handshakes.accept(tcp, address, certificate.tls.clone()).await?;
                return over_tls(stream, certificate, false).await;
            }
            Ok(StartupPacket::GssEncRequest) => {
                check_nothing_unread(&connection)?;
                connection.stream.write_all(b"N").await?;
            }
            result => {
                let Connection { stream, received, outgoing } = connection;
                let stream: Box<dyn Duplex> = Box::new(stream);
                let connection = Connection { stream, received, outgoing };
                return Client::new(connection, None, None).begin(result).await;
            }
        }
    }
}

/// The same for one whose bytes come by way of another part of this program,
/// where there is no TLS to ask for.
pub(crate) async fn negotiate_inside(
    stream: DuplexStream,
    server_name: Option<String>,
    is_pooled: bool,
) -> io::Result<(Client, Request)> {
    let stream: Box<dyn Duplex> = Box::new(stream);
    let mut connection = Connection::new(stream);
    loop {
        match connection.read_startup().await {
            Ok(StartupPacket::SslRequest | StartupPacket::GssEncRequest) => {
                connection.stream.write_all(b"N").await?;
            }
            result => {
                let client = Client::new(connection, None, server_name);
                return Client { is_inside: true, is_pooled, ..client }.begin(result).await;
            }
        }
    }
}

fn check_nothing_unread<S>(connection: &Connection<S>) -> io::Result<()> {
    if connection.received.is_empty() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "unencrypted bytes after a request for encryption"))
}

async fn over_tls(
    stream: TlsStream<TcpStream>,
    certificate: &Certificate,
    is_alpn_required: bool,
) -> io::Result<(Client, Request)> {
    let (_, session) = stream.get_ref();
    if is_alpn_required && session.alpn_protocol() != Some(ALPN_POSTGRESQL) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "direct TLS without the ALPN of PostgreSQL"));
    }
    let server_name = session.server_name().map(str::to_owned);
    let tls = Some(Tls::of(session, certificate));
    let stream: Box<dyn Duplex> = Box::new(stream);
    let mut client = Client::new(Connection::new(stream), tls, server_name);
    let result = client.connection.read_startup().await;
    client.begin(result).await
}

impl Client {
    fn new(connection: Connection<Box<dyn Duplex>>, tls: Option<Tls>, server_name: Option<String>) -> Self {
        Self { connection, tls, server_name, is_inside: false, is_pooled: false }
    }

    /// What a client binds its sign-in to; none without TLS.
    pub(crate) fn digest(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.digest.as_deref()
    }

    async fn begin(mut self, result: Result<StartupPacket, End>) -> io::Result<(Self, Request)> {
        let refusal = match result {
            Ok(StartupPacket::Startup(startup)) => return Ok((self, Request::Session(startup))),
            Ok(StartupPacket::Cancel(key)) => return Ok((self, Request::Cancel(key))),
            Ok(StartupPacket::SslRequest | StartupPacket::GssEncRequest) => Refusal::new(
                Reason::Protocol,
                sqlstate::PROTOCOL_VIOLATION,
                "this connection is encrypted already",
            ),
            Err(End::Refused(refusal)) => refusal,
            Err(End::Gone(error)) => return Err(error),
            Err(End::RefusedByServer(_)) => Refusal::server_lost(),
        };
        self.connection.refuse(&refusal).await;
        Err(io::Error::new(io::ErrorKind::InvalidData, refusal.message.into_owned()))
    }
}

//! The conversation with a mail server, which may be a silent or an endless one.
//!
//! The client library waits for an answer for ever, and reads a line however long. So each
//! letter has a connection of ours, on which both ends: the time, and what the server says.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use coppice_core::error::chain;
use lettre::Message;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::{MailError, MailSettings, PATIENCE, Protection};

/// How long connecting to one of its addresses may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// How long a server that has the letter, or refuses it, may take to say goodbye.
pub(crate) const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes that a server may say about a letter. It takes a dozen lines for that, and a handshake.
const ANSWERS_MAX: usize = 256 << 10;

/// How a client asks for TLS, and says goodbye.
const UPGRADE: &[u8] = b"STARTTLS\r\n";
const GOODBYE: &[u8] = b"QUIT\r\n";

/// A server, and how it is talked to.
#[derive(Clone)]
pub(crate) struct Server {
    host: String,
    port: u16,
    tls: Tls,
    credentials: Option<Credentials>,
    /// How long a letter may take.
    pub(crate) patience: Duration,
}

/// See [`Protection`].
#[derive(Clone)]
enum Tls {
    Later(TlsParameters),
    AtOnce(TlsConnector, ServerName<'static>),
    Never,
}

impl Server {
    pub(crate) fn new(settings: &MailSettings) -> Result<Self, MailError> {
        let host = settings.host.clone();
        let wrong = |why: String| MailError::Settings(format!("TLS to the mail server {host}: {why}"));
        let tls = match settings.protection {
            Protection::StartTls => {
                Tls::Later(TlsParameters::new(host.clone()).map_err(|error| wrong(chain(&error)))?)
            }
            Protection::Tls => {
                let name = ServerName::try_from(host.clone()).map_err(|error| wrong(chain(&error)))?;
                Tls::AtOnce(connector().map_err(|error| wrong(chain(&error)))?, name)
            }
            Protection::None => Tls::Never,
        };
        let credentials = settings.credentials.as_ref();
        let credentials =
            credentials.map(|(user, password)| Credentials::new(user.clone(), password.to_string()));
        Ok(Self { host, port: settings.port, tls, credentials, patience: PATIENCE })
    }

    /// Has it take a letter.
    pub(crate) async fn take(&self, message: &Message) -> Result<(), MailError> {
        let Ok(taken) = timeout(self.patience, self.converse(message)).await else {
            return Err(MailError::Later(format!("it took longer than {:?}", self.patience)));
        };
        let mut connection = taken?;
        // It has the letter, whatever it says now.
        let _ = timeout(FAREWELL_PATIENCE, connection.quit()).await;
        Ok(())
    }

    async fn converse(&self, message: &Message) -> Result<AsyncSmtpConnection, MailError> {
        let mut connection = self.begin().await?;
        connection.send(message.envelope(), &message.formatted()).await?;
        Ok(connection)
    }

    /// What a server says before it is told of a letter is about no letter.
    async fn begin(&self) -> Result<AsyncSmtpConnection, MailError> {
        let later = |error: Error| MailError::Later(chain(&error));
        let stream = self.connect().await.map_err(|error| MailError::Later(chain(&error)))?;
        let me = ClientId::default();
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &me).await.map_err(later)?;
        if let Tls::Later(parameters) = &self.tls {
            connection.starttls(parameters.clone(), &me).await.map_err(later)?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await.map_err(later)?;
        }
        Ok(connection)
    }

    async fn connect(&self) -> io::Result<Box<dyn AsyncTokioStream>> {
        let (stream, address) = self.connect_to_any().await?;
        Ok(match &self.tls {
            Tls::AtOnce(connector, name) => {
                Box::new(Bounded::new(connector.connect(name.clone(), stream).await?, address))
            }
            Tls::Later(_) | Tls::Never => Box::new(Bounded::new(stream, address)),
        })
    }

    async fn connect_to_any(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut failed = io::Error::other("its name has no address");
        for address in lookup_host((self.host.as_str(), self.port)).await? {
            match timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok((stream, address)),
                Ok(Err(error)) => failed = error,
                Err(elapsed) => failed = elapsed.into(),
            }
        }
        Err(failed)
    }
}

impl From<Error> for MailError {
    fn from(error: Error) -> Self {
        match error.is_permanent() && !is_about_us(&error) {
            true => Self::Refused(chain(&error)),
            false => Self::Later(chain(&error)),
        }
    }
}

/// Whether the server refuses this client rather than the letter (RFC 4954,
/// section 6): that is for the operator to change, and the letter can wait.
fn is_about_us(error: &Error) -> bool {
    let code = error.status().map(u16::from);
    code.is_none_or(|code| matches!(code, 500..=504 | 530 | 534 | 535 | 538))
}

/// Believes whom the machine believes, as what the library makes for STARTTLS does.
fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

/// Whether something is behind the last line of an answer, which has no `-` behind its code.
fn is_more_than_an_answer(come: &[u8]) -> bool {
    let mut lines = come.split_inclusive(|byte| *byte == b'\n');
    let mut is_last = |line: &&[u8]| line.ends_with(b"\n") && line.get(3) != Some(&b'-');
    lines.find(&mut is_last).is_some() && lines.next().is_some()
}

/// A stream on which the other side may say so much and no more.
#[derive(Debug)]
struct Bounded<S> {
    stream: S,
    address: SocketAddr,
    left: usize,
    /// Whether the client has asked for TLS last: what comes in clear behind the answer to that
    /// would be taken for an answer inside (RFC 3207, section 4.2).
    is_upgrading: bool,
    /// Runs since the client said goodbye last: after a refusal the library waits for an answer
    /// before it tells of it.
    farewell: Option<Pin<Box<Sleep>>>,
    /// Whether nothing more is heard from it.
    is_left: bool,
}

impl<S> Bounded<S> {
    fn new(stream: S, address: SocketAddr) -> Self {
        Self { stream, address, left: ANSWERS_MAX, is_upgrading: false, farewell: None, is_left: false }
    }
}

impl<S> AsyncTokioStream for Bounded<S>
where
    S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug,
{
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The library asks even such a one to say goodbye.
        if self.is_left {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if self.farewell.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            self.is_left = true;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let come = buffer.filled().get(before..).unwrap_or_default();
        let why = match self.left.checked_sub(come.len()) {
            None => format!("it said more than {ANSWERS_MAX} bytes about a letter"),
            Some(_) if self.is_upgrading && is_more_than_an_answer(come) => {
                "it said more in clear than that it goes on with TLS".to_owned()
            }
            Some(left) => {
                self.left = left;
                return Poll::Ready(Ok(()));
            }
        };
        // Where reading fails, nothing was read.
        buffer.set_filled(before);
        self.is_left = true;
        Poll::Ready(Err(io::Error::other(why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        let sent = bytes.get(..written).unwrap_or_default();
        self.is_upgrading = sent.ends_with(UPGRADE);
        self.farewell = sent.ends_with(GOODBYE).then(|| Box::pin(sleep(FAREWELL_PATIENCE)));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// Far less than what a peer that does not stop can say meanwhile.
    const MUCH: usize = 64 << 20;
    /// A letter to a server that is fine, and every test, ends sooner.
    const LONG: Duration = Duration::from_secs(60);

    /// A server that says its lines, one to each of the client's, and then does what it does.
    async fn lying<F>(
        lines: Vec<&'static str>,
        then: impl FnOnce(BufReader<TcpStream>) -> F + Send + 'static,
    ) -> (u16, JoinHandle<usize>)
    where
        F: Future<Output = usize> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let server = async move {
            let mut stream = BufReader::new(listener.accept().await.expect("a client").0);
            for line in lines {
                stream.write_all(line.as_bytes()).await.expect("it listens");
                stream.read_line(&mut String::new()).await.expect("it answers");
            }
            then(stream).await
        };
        (port, tokio::spawn(server))
    }

    async fn send(port: u16, protection: Protection, patience: Duration) -> Result<(), MailError> {
        let settings = MailSettings {
            host: "127.0.0.1".to_owned(),
            port,
            protection,
            credentials: None,
            from: "coppice@example.com".to_owned(),
        };
        let server = Server { patience, ..Server::new(&settings)? };
        let message = Message::builder().from("coppice@example.com".parse().expect("an address"));
        let message = message.to("ada@example.com".parse().expect("an address")).body("Hello".to_owned());
        let sending = timeout(LONG, async move { server.take(&message.expect("a letter")).await });
        sending.await.expect("it ends by itself")
    }

    /// Says nothing, for as long as the client is there.
    async fn silent(mut stream: BufReader<TcpStream>) -> usize {
        let mut said = vec![];
        stream.read_to_end(&mut said).await.unwrap_or_default()
    }

    /// Says something without an end; tells how much of it the client took.
    async fn endless(mut stream: BufReader<TcpStream>) -> usize {
        let (mut taken, text) = (0, [b'x'; 64 << 10]);
        while taken < MUCH && stream.write_all(&text).await.is_ok() {
            taken += text.len();
        }
        taken
    }

    const ENVELOPE: [&str; 5] =
        ["220 here\r\n", "250 hello\r\n", "250 ok\r\n", "250 ok\r\n", "354 go on\r\n"];

    #[tokio::test]
    async fn a_server_that_goes_silent_is_left() {
        for said in 0..=ENVELOPE.len() {
            let (port, server) = lying(ENVELOPE[..said].to_vec(), silent).await;
            let sent = send(port, Protection::None, Duration::from_millis(200)).await;
            assert!(
                matches!(&sent, Err(MailError::Later(why)) if why.contains("longer than")),
                "{said}: {sent:?}"
            );
            server.await.expect("the connection ends");
        }
    }

    #[tokio::test]
    async fn a_server_that_goes_silent_instead_of_a_handshake_is_left() {
        let said = vec!["220 here\r\n", "250-hello\r\n250 STARTTLS\r\n"];
        for (protection, said) in [(Protection::Tls, vec![]), (Protection::StartTls, said)] {
            let (port, server) = lying(said, silent).await;
            let sent = send(port, protection, Duration::from_millis(200)).await;
            assert!(matches!(&sent, Err(MailError::Later(_))), "{protection:?}: {sent:?}");
            server.await.expect("the connection ends");
        }
    }

    #[tokio::test]
    async fn a_server_that_says_a_line_without_an_end_is_left() {
        for (protection, said) in [(Protection::StartTls, 0), (Protection::Tls, 0), (Protection::None, 4)] {
            let (port, server) = lying(ENVELOPE[..said].to_vec(), endless).await;
            let sent = send(port, protection, LONG).await;
            assert!(matches!(&sent, Err(MailError::Later(_))), "{protection:?}: {sent:?}");
            assert!(server.await.expect("the connection ends") < MUCH, "{protection:?}: it was listened to");
        }
    }

    #[tokio::test]
    async fn a_server_that_takes_no_letters_now_refuses_none_of_them() {
        let lines = [vec!["554 no\r\n"], vec!["220 here\r\n", "554 no\r\n", "554 no\r\n"]];
        for said in lines {
            let (port, _) = lying(said, |_| async { 0 }).await;
            let sent = send(port, Protection::None, LONG).await;
            assert!(matches!(&sent, Err(MailError::Later(why)) if why.contains("554")), "{sent:?}");
        }
    }

    #[tokio::test]
    async fn a_letter_that_was_refused_is_so_though_the_server_says_no_goodbye() {
        let said = [&ENVELOPE[..3], &["550 nobody here\r\n"]].concat();
        let (port, server) = lying(said, silent).await;
        let sent = send(port, Protection::None, LONG).await;
        assert!(matches!(&sent, Err(MailError::Refused(why)) if why.contains("550")), "{sent:?}");
        server.await.expect("the connection ends");
    }

    #[tokio::test]
    async fn an_answer_that_came_before_the_handshake_is_none_inside_of_it() {
        let offer = "250-hello\r\n250 STARTTLS\r\n";
        let (port, _) = lying(vec!["220 here\r\n", offer, "220 go\r\n250 ok\r\n"], silent).await;
        let sent = send(port, Protection::StartTls, LONG).await;
        assert!(matches!(&sent, Err(MailError::Later(why)) if why.contains("in clear")), "{sent:?}");
    }

    #[tokio::test]
    async fn a_letter_that_was_taken_is_sent_though_the_server_says_no_goodbye() {
        let text = |mut stream: BufReader<TcpStream>| async move {
            let mut line = String::new();
            while line != ".\r\n" {
                line.clear();
                stream.read_line(&mut line).await.expect("the letter");
            }
            stream.write_all(b"250 taken\r\n").await.expect("it listens");
            silent(stream).await
        };
        let (port, server) = lying(ENVELOPE.to_vec(), text).await;
        send(port, Protection::None, LONG).await.expect("it was taken");
        assert!(server.await.expect("the connection ends") > 0, "the client says goodbye");
    }
}

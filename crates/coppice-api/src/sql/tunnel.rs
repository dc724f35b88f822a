//! The stream of bytes that a WebSocket carries, and its other end in the gateway.

use std::future::{pending, poll_fn};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use coppice_core::network;
use coppice_core::organization::Holder;
use coppice_gateway::{Gateway, Reason, Visitor};
use coppice_pgwire::WireError;
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::sqlstate;
use coppice_pgwire::startup::StartupPacket;
use coppice_sql::{Failure, sign_in};
use parking_lot::Mutex;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::{Notify, SetOnce};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::frames::{self, Close, Event, Reader};
use crate::connections::Asked;
use crate::pace::{Pace, Pause};

/// Bytes of each direction that are read at once.
const BUFFER_BYTES: usize = 16 << 10;
/// How long a client may take until its startup packet is there.
const STARTUP_PATIENCE: Duration = Duration::from_secs(15);
/// How long a password may come after its startup packet that was sent with it,
/// in a frame of its own.
const PASSWORD_PATIENCE: Duration = Duration::from_millis(20);
/// How often a client may ask for encryption: once for each kind.
const ENCRYPTION_ASKED_MAX: usize = 2;
/// Bytes taken from a client that is being signed in.
const EARLY_BYTES_MAX: usize = 64 << 10;
/// Longest message with a password.
const PASSWORD_BYTES_MAX: usize = 10_000;
/// How often a WebSocket on which nothing else is said asks whether its client
/// is there: proxies end those that are silent for a minute.
const PING: Duration = Duration::from_secs(30);
/// How long a client may take to be told the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a client may take, when the gateway is done with it, to read what that has said before.
const REMAINDER: Duration = Duration::from_secs(5);

/// The frames that a client sends.
struct Incoming<S> {
    socket: ReadHalf<S>,
    reader: Reader,
    received: BytesMut,
    /// Frames that carry nothing would else keep a thread busy as long as they are sent.
    pace: Pace,
    /// What comes before the startup packet does not pay for itself.
    has_started: bool,
    pause: Pause,
}

/// What a client is told.
struct Outgoing<S> {
    socket: WriteHalf<S>,
    buffer: BytesMut,
}

/// See the module.
pub(super) struct Tunnel<S> {
    incoming: Incoming<S>,
    outgoing: Outgoing<S>,
}

/// Why a connection ends before its time.
enum End {
    /// To be told.
    Close(Close),
    /// Nobody is there any more.
    Gone(io::Error),
}

impl From<Close> for End {
    fn from(close: Close) -> Self {
        Self::Close(close)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// What a client sent first.
struct Opening {
    /// For the gateway.
    packet: BytesMut,
    /// Which branch it means, if it says so.
    host: Option<String>,
    /// Sent together with it.
    password: Option<Zeroizing<String>>,
    /// What came after it.
    rest: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Incoming<S> {
    async fn next(&mut self) -> Result<Event, End> {
        loop {
            if let Some(event) = self.reader.take(&mut self.received)? {
                if let Event::Data(bytes) = &event
                    && self.has_started
                {
                    self.pace.add(bytes.len() + frames::HEAD_BYTES_MAX);
                }
                return Ok(event);
            }
            poll_fn(|context| self.pace.poll(&mut self.pause, context)).await;
            self.received.reserve(BUFFER_BYTES);
            match self.socket.read_buf(&mut self.received).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => self.pace.take(count),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Outgoing<S> {
    async fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all_buf(&mut self.buffer).await?;
        self.socket.flush().await
    }

    /// Sends bytes of the stream.
    async fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        frames::data(&mut self.buffer, bytes.len());
        self.buffer.extend_from_slice(bytes);
        self.flush().await
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Tunnel<S> {
    /// Over a connection that has just become a WebSocket.
    pub(super) fn new(socket: S) -> Self {
        let (reader, writer) = tokio::io::split(socket);
        Self {
            incoming: Incoming {
                socket: reader,
                reader: Reader::default(),
                received: BytesMut::new(),
                pace: Pace::default(),
                has_started: false,
                pause: Pause::default(),
            },
            outgoing: Outgoing { socket: writer, buffer: BytesMut::new() },
        }
    }

    /// Serves it to its end. From its sign-in until the gateway is done with it, somebody answers for the request
    /// it came by.
    pub(super) async fn serve(
        mut self,
        gateway: &Arc<Gateway>,
        visitor: Visitor,
        asked: Option<Asked>,
    ) -> io::Result<()> {
        let why = match self.carry(gateway, visitor, asked).await {
            Ok(why) | Err(End::Close(why)) => why,
            Err(End::Gone(error)) => return Err(error),
        };
        let farewell = async {
            frames::close(&mut self.outgoing.buffer, why);
            self.outgoing.flush().await?;
            self.outgoing.socket.shutdown().await
        };
        timeout(FAREWELL, farewell).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    async fn carry(
        &mut self,
        gateway: &Arc<Gateway>,
        visitor: Visitor,
        asked: Option<Asked>,
    ) -> Result<Close, End> {
        let last = Instant::now() + STARTUP_PATIENCE;
        let mut opening = timeout_at(last, self.open()).await.map_err(|_| End::Close(Close::Policy))??;
        let source = network::source(visitor.address);
        let host = opening.host.take().or(visitor.host);
        let entrance = gateway.enter(Visitor { host, ..visitor });
        let refused = entrance.refused();
        let staying = stay(asked, entrance.signed_in(), entrance.has_ended());
        tokio::select! {
            passed = self.pass(entrance.stream, opening, source) => passed?,
            () = staying => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
        Ok(close_of(refused.get().copied()))
    }

    /// Signs the client in if it sent a password at once, and passes on what both sides say.
    async fn pass(&mut self, mut stream: DuplexStream, opening: Opening, source: IpAddr) -> Result<(), End> {
        let Opening { packet, password, mut rest, .. } = opening;
        let mut said = BytesMut::new();
        if let Some(password) = password {
            match self.while_there(sign_in(stream, &packet, &password, source), &mut rest).await? {
                Ok(signed_in) => {
                    said.unsplit(signed_in.greeting);
                    said.unsplit(signed_in.received);
                    stream = signed_in.stream;
                }
                Err(failure) => return self.tell(&failure).await,
            }
        } else {
            stream.write_all(&packet).await?;
        }
        stream.write_all(&rest).await?;
        if !said.is_empty() {
            self.outgoing.data(&said).await?;
        }
        self.copy(stream).await
    }

    /// Reads up to the startup packet, and the password that may follow it.
    async fn open(&mut self) -> Result<Opening, End> {
        let (mut stream, mut encryption_asked) = (BytesMut::new(), 0);
        let mut startup = loop {
            match StartupPacket::decode(&mut stream) {
                Ok(Some(StartupPacket::Startup(startup))) => break startup,
                // There is no encryption within.
                Ok(Some(StartupPacket::SslRequest | StartupPacket::GssEncRequest))
                    if encryption_asked < ENCRYPTION_ASKED_MAX =>
                {
                    encryption_asked += 1;
                    self.outgoing.data(b"N").await?;
                }
                Ok(Some(StartupPacket::Cancel(key))) => {
                    let mut packet = BytesMut::new();
                    encode::cancel_request(&mut packet, &key);
                    return Ok(Opening { packet, host: None, password: None, rest: BytesMut::new() });
                }
                Ok(None) => self.more(&mut stream).await?,
                Err(WireError::Length { .. }) => return Err(Close::TooLong.into()),
                Ok(Some(_)) | Err(_) => return Err(Close::Protocol.into()),
            }
        };
        self.incoming.has_started = true;
        if stream.is_empty()
            && let Ok(more) = timeout(PASSWORD_PATIENCE, self.more(&mut stream)).await
        {
            more?;
        }
        let mut password = None;
        if stream.first() == Some(&b'p') {
            let frame = loop {
                match Frame::decode(&mut stream, PASSWORD_BYTES_MAX) {
                    Ok(Some(frame)) => break frame,
                    Ok(None) => self.more(&mut stream).await?,
                    Err(_) => return Err(Close::TooLong.into()),
                }
            };
            let text = frame.body.strip_suffix(b"\0").and_then(|text| std::str::from_utf8(text).ok());
            password = Some(Zeroizing::new(text.ok_or(Close::Protocol)?.to_owned()));
        }
        let host = startup.parameters.iter().position(|(name, _)| name == "host");
        let host = host.map(|at| startup.parameters.remove(at).1);
        let mut packet = BytesMut::new();
        encode::startup(&mut packet, startup.minor_version, &startup.parameters);
        Ok(Opening { packet, host, password, rest: stream })
    }

    /// Waits for something as long as the client stays. What it sends meanwhile
    /// is kept.
    async fn while_there<T>(
        &mut self,
        work: impl Future<Output = T>,
        early: &mut BytesMut,
    ) -> Result<T, End> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                more = self.more(early), if early.len() < EARLY_BYTES_MAX => more?,
            }
        }
    }

    /// Adds what comes next of the stream.
    async fn more(&mut self, stream: &mut BytesMut) -> Result<(), End> {
        match self.incoming.next().await? {
            Event::Data(bytes) => stream.extend_from_slice(&bytes),
            Event::Ping(payload) => {
                frames::pong(&mut self.outgoing.buffer, &payload);
                self.outgoing.flush().await?;
            }
            Event::Close => return Err(Close::Done.into()),
        }
        Ok(())
    }

    /// Says why nobody was signed in, in words of the protocol.
    async fn tell(&mut self, failure: &Failure) -> Result<(), End> {
        let mut message = BytesMut::new();
        match failure {
            Failure::Server(error) => Frame { tag: b'E', body: error.body().clone() }.encode(&mut message),
            other => {
                tracing::debug!("a client could not be signed in: {other}");
                let hint = Some("Sign in without sending the password at once.");
                let failed = encode::ErrorReport {
                    code: sqlstate::CONNECTION_FAILURE,
                    message: "the sign-in failed",
                    hint,
                    routine: None,
                };
                encode::fatal_error(&mut message, &failed);
            }
        }
        Ok(self.outgoing.data(&message).await?)
    }

    /// Copies both ways until the gateway is done, or the client is gone.
    async fn copy(&mut self, stream: DuplexStream) -> Result<(), End> {
        let (reader, writer) = tokio::io::split(stream);
        // Of pings that were not answered yet the last one counts (RFC 6455, 5.5.3).
        let (asked, has_asked) = (Mutex::new(None), Notify::new());
        let up = pass_up(&mut self.incoming, writer, |payload| {
            *asked.lock() = Some(payload);
            has_asked.notify_one();
        });
        let down = pass_down(&mut self.outgoing, reader, &asked, &has_asked);
        tokio::select! {
            ended = down => Ok(ended?),
            end = up => Err(end),
        }
    }
}

/// Keeps the connection of a client that has signed in, and gives that up when the gateway is done with it, which who
/// reads nothing would not see else. Completes when what is left was not read in time.
async fn stay(asked: Option<Asked>, signed_in: Arc<SetOnce<Holder>>, has_ended: CancellationToken) {
    let keeping = async {
        let holder = signed_in.wait().await;
        asked.iter().for_each(|asked| asked.keep(holder));
        pending::<()>().await;
    };
    has_ended.run_until_cancelled(keeping).await;
    drop(asked);
    sleep(REMAINDER).await;
}

/// Passes on what a client sends until it ends.
async fn pass_up<S: AsyncRead + AsyncWrite + Send + Unpin>(
    incoming: &mut Incoming<S>,
    mut writer: WriteHalf<DuplexStream>,
    mut note_ping: impl FnMut(BytesMut),
) -> End {
    loop {
        match incoming.next().await {
            // What a gateway that has ended still says is on its way to the client.
            Ok(Event::Data(bytes)) => drop(writer.write_all(&bytes).await),
            Ok(Event::Ping(payload)) => note_ping(payload),
            Ok(Event::Close) => return Close::Done.into(),
            Err(end) => return end,
        }
    }
}

/// Passes on what the gateway says to its end.
async fn pass_down<S: AsyncRead + AsyncWrite + Send + Unpin>(
    outgoing: &mut Outgoing<S>,
    mut reader: ReadHalf<DuplexStream>,
    asked: &Mutex<Option<BytesMut>>,
    has_asked: &Notify,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(BUFFER_BYTES);
        tokio::select! {
            read = reader.read_buf(&mut buffer) => match read? {
                0 => return Ok(()),
                _ => outgoing.data(&buffer.split()).await?,
            },
            () = has_asked.notified() => {
                let payload = asked.lock().take();
                if let Some(payload) = payload {
                    frames::pong(&mut outgoing.buffer, &payload);
                    outgoing.flush().await?;
                }
            }
            () = sleep(PING) => {
                frames::ping(&mut outgoing.buffer);
                outgoing.flush().await?;
            }
        }
    }
}

/// What a client is told whose stream has ended.
fn close_of(refused: Option<Reason>) -> Close {
    match refused {
        Some(Reason::NoBranch | Reason::NotAllowed) => Close::Policy,
        Some(Reason::NotReady | Reason::Timeout | Reason::Asleep | Reason::TooMany | Reason::Internal) => {
            Close::Unreachable
        }
        Some(
            Reason::Authentication
            | Reason::Throttled
            | Reason::Protocol
            | Reason::Unsupported
            | Reason::Server
            | Reason::Gone
            | Reason::NoStartup,
        )
        | None => Close::Done,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn frames_that_carry_nothing_are_read_slowly() {
        let frame =
            |first: u8, payload: &[u8]| [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat();
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(&frame(0x82, b"x").repeat(10_000)).await.expect("room");
        client.write_all(&frame(0x8a, b"").repeat(100_000)).await.expect("room");
        let mut tunnel = Tunnel::new(server);
        tunnel.incoming.has_started = true;
        for number in 0..10_000 {
            let next = tunnel.incoming.next().now_or_never();
            assert!(matches!(next, Some(Ok(Event::Data(_)))), "{number}");
        }
        assert!(tunnel.incoming.next().now_or_never().is_none(), "nothing comes");
        let more = client.write_all(&[0; 600 << 10]).now_or_never();
        assert!(more.is_none(), "most of them were not read");
    }

    #[tokio::test]
    async fn what_comes_before_the_startup_packet_is_read_slowly() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x'].repeat(100_000)).await.expect("room");
        let mut tunnel = Tunnel::new(server);
        let mut read = 0;
        while read < 100_000 && matches!(tunnel.incoming.next().now_or_never(), Some(Ok(Event::Data(_)))) {
            read += 1;
        }
        assert!((2_000..10_000).contains(&read), "{read} frames");
    }
}

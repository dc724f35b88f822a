//! A session of a server that clients share.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use aws_lc_rs::digest;
use coppice_core::limits::CONNECTIONS_MAX;
use coppice_engine::BoxedServerStream;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::scram::Verifier;
use coppice_pgwire::{encode, session};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::time::{Instant, timeout};

use crate::connection::Connection;
use crate::keys::Cancellable;
use crate::pool::places::{Place, Seat};
use crate::pool::prepared::Prepared;
use crate::pool::settings::{Chance, Left, Parameter, Settings, Used, is_answered};
use crate::pool::unused::Unused;
use crate::refusal::{End, Refusal};
use crate::server::Server;
use crate::sessions::Session;
use crate::{ClientInfo, Route};

/// Longest message of an answer to the gateway's own questions, and most bytes
/// of its rows: what a client may have set is less.
const MESSAGE_LENGTH_MAX: usize = 1 << 20;
/// Counted for each row beside its bytes.
const ROW_BYTES: usize = 64;
/// Parameters that are kept of what a server reports, and their bytes; there are
/// some fifteen, of which few can be long. They are kept for each session and each client.
const REPORTED_MAX: usize = 64;
const REPORTED_BYTES_MAX: usize = 32 << 10;
/// A session that is older ends when it is given back, so that nothing of it
/// stays for ever.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// How long an answer to them may take. A client can keep its session from
/// answering: others don't wait for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which clients may share a session: those that a server could not tell apart.
#[derive(PartialEq, Eq)]
pub(crate) struct PoolKey {
    /// What its startup says, `application_name` left out.
    pub(crate) parameters: Vec<(String, String)>,
    /// What the role's password was checked against: another one, another key.
    pub(crate) verifier: Verifier,
}

/// What servers report of their parameters, in order of names.
pub(crate) type Reported = Arc<Vec<Parameter>>;

/// See the module.
pub(crate) struct Backend {
    pub(crate) stream: Connection<BoxedServerStream>,
    pub(crate) key: Arc<PoolKey>,
    pub(crate) cancellable: Arc<Cancellable>,
    /// Keeps the branch awake, as every session does.
    pub(crate) session: Session,
    pub(crate) reported: Reported,
    pub(crate) prepared: Prepared,
    /// Whether the unnamed statement is that of its client.
    pub(crate) has_unnamed: bool,
    /// Ends instead of being used again.
    pub(crate) is_worn: bool,
    pub(crate) place: Place<Self>,
    /// The client that uses it, or used it last.
    pub(crate) client: u64,
    /// How many statements had been made when that got it.
    made_before: u64,
    /// Its `application_name` at its startup.
    began_as: String,
    began: Instant,
    /// Since when nobody uses it, when nobody does.
    pub(crate) idle_since: Instant,
    /// Counts it among those that nobody uses.
    pub(crate) unused: Option<Unused>,
}

/// What a server said to a question of the gateway.
struct Said {
    rows: Vec<Frame>,
    /// Whether there were more rows than are kept.
    is_cut: bool,
    /// Notifications that came meanwhile.
    notified: Vec<Frame>,
}

/// Who is going to use a session.
pub(crate) struct User<'a> {
    /// Unlike that of any other client.
    pub(crate) number: u64,
    pub(crate) info: &'a ClientInfo,
    pub(crate) settings: &'a Settings,
    /// Its `application_name` at its startup.
    pub(crate) application: &'a str,
}

/// Begins what is kept of a value that is too long, which no value does.
const DIGEST: &[u8] = b"\0";

/// Whether what is kept of a value only tells it from others: no client is told that.
pub(crate) fn is_digest(kept: &[u8]) -> bool {
    kept.starts_with(DIGEST)
}

/// Sets what a server reports. Of what no server has so much of no value is kept.
pub(crate) fn report(reported: &mut Reported, body: &[u8]) {
    let Ok((name, value)) = session::parameter_status(body) else { return };
    let reported = Arc::make_mut(reported);
    let found = reported.binary_search_by(|(known, _)| (**known).cmp(name));
    if let Ok(index) = found {
        reported[index].1 = [].into();
    }
    let bytes: usize = reported.iter().map(|(name, value)| name.len() + value.len()).sum();
    let has_room = |kept: &[u8]| bytes + name.len() + kept.len() <= REPORTED_BYTES_MAX;
    let kept = match has_room(value) {
        true => value.to_vec(),
        false => [DIGEST, digest::digest(&digest::SHA256, value).as_ref()].concat(),
    };
    match found {
        Ok(index) => reported[index].1 = kept.into(),
        Err(index) if reported.len() < REPORTED_MAX && has_room(&kept) => {
            reported.insert(index, (name.into(), kept.into()));
        }
        Err(_) => {}
    }
}

impl Backend {
    /// Takes over what was signed in. `began_as` is its `application_name`.
    pub(crate) fn new(
        server: Server,
        session: Session,
        route: Route,
        key: Arc<PoolKey>,
        place: Place<Self>,
        began_as: String,
    ) -> Self {
        let mut reported = Reported::default();
        let mut greeting = server.greeting;
        while let Ok(Some(frame)) = Frame::decode(&mut greeting, MESSAGE_LENGTH_MAX) {
            if frame.tag == b'S' {
                report(&mut reported, &frame.body);
            }
        }
        Self {
            stream: server.connection,
            key,
            cancellable: Arc::new(Cancellable { route, key: server.cancel_key }),
            session,
            reported,
            prepared: Prepared::default(),
            has_unnamed: false,
            is_worn: false,
            place,
            client: 0,
            made_before: 0,
            began_as,
            began: Instant::now(),
            idle_since: Instant::now(),
            unused: None,
        }
    }

    /// Whether no client has had it.
    pub(crate) fn is_new(&self) -> bool {
        self.client == 0
    }

    /// Whether it can be used again.
    pub(crate) fn is_fit(&self) -> bool {
        !self.is_worn && self.began.elapsed() < LIFETIME
    }

    /// Whether its server is still there, as far as is known here.
    pub(crate) fn is_alive(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream.stream).poll_read(&mut context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.stream.received.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) => return false,
            }
            while let Ok(Some(frame)) = Frame::decode(&mut self.stream.received, MESSAGE_LENGTH_MAX) {
                match frame.tag {
                    b'S' => report(&mut self.reported, &frame.body),
                    b'N' | b'A' => {}
                    _ => return false,
                }
            }
        }
        self.stream.received.is_empty()
    }

    /// Makes it the session of this client.
    pub(crate) async fn assume(&mut self, user: &User<'_>) -> Result<(), End> {
        if self.client == user.number {
            return Ok(());
        }
        let (chance, prepared) = (Chance::new(), self.prepared.len());
        let made = self.prepared.made();
        let has_made = made != self.made_before;
        let used = Used { is_new: self.is_new(), began_as: &self.began_as, prepared, has_made };
        if let Some(sql) = user.settings.preamble(user.application, &used, &chance) {
            let said = self.ask(&sql).await?;
            let rows = said.rows.iter().map(|row| session::data_row(&row.body));
            if !is_answered(&rows.collect::<Result<Vec<_>, _>>()?, &chance.proof, prepared) {
                return Err(io::Error::other("it is not as its last client should have left it").into());
            }
        }
        self.client = user.number;
        self.made_before = made;
        self.session.set_client(user.info);
        Ok(())
    }

    /// What its client has left in it, and notifications for that client.
    pub(crate) async fn left(&mut self, settings: &Settings) -> Result<(Left, Vec<Frame>), End> {
        let said = self.ask(&settings.question()).await?;
        let rows = said.rows.iter().filter_map(|row| session::data_row(&row.body).ok());
        Ok((Left::read(rows, said.is_cut), said.notified))
    }

    /// How many sessions the server has for clients, as it says itself.
    pub(crate) async fn sessions_max(&mut self) -> Result<Option<usize>, End> {
        let said = self.ask("SHOW max_connections").await?;
        let row = said.rows.first().map(|row| session::data_row(&row.body)).transpose()?;
        let text = row.and_then(|row| std::str::from_utf8(row.first()?).ok()?.parse().ok());
        Ok(text.map(|sessions_max: usize| sessions_max.min(CONNECTIONS_MAX as usize)))
    }

    /// Runs SQL of the gateway.
    async fn ask(&mut self, sql: &str) -> Result<Said, End> {
        let asked = timeout(PATIENCE, self.ask_patiently(sql)).await;
        asked.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    async fn ask_patiently(&mut self, sql: &str) -> Result<Said, End> {
        self.has_unnamed = false;
        encode::query(&mut self.stream.outgoing, sql);
        self.stream.flush().await?;
        let (mut rows, mut notified, mut refused, mut left) = (vec![], vec![], None, MESSAGE_LENGTH_MAX);
        loop {
            let frame = self.stream.read_frame(MESSAGE_LENGTH_MAX).await?;
            match frame.tag {
                b'D' => {
                    left = left.saturating_sub(frame.body.len() + ROW_BYTES);
                    if left > 0 {
                        rows.push(frame);
                    }
                }
                b'A' => {
                    let bytes = frame.body.len() + ROW_BYTES;
                    left = left.checked_sub(bytes).ok_or_else(|| io::Error::other("it notifies too much"))?;
                    notified.push(frame);
                }
                b'S' => report(&mut self.reported, &frame.body),
                b'E' => refused = Some(frame),
                b'Z' if refused.is_none() && &frame.body[..] == b"I" => {
                    return Ok(Said { rows, is_cut: left == 0, notified });
                }
                b'Z' => {
                    let refused = refused.map_or_else(|| Refusal::server_lost().into(), End::RefusedByServer);
                    return Err(refused);
                }
                _ => {}
            }
        }
    }
}

impl Seat for Backend {
    type Key = PoolKey;

    fn key(&self) -> &Arc<PoolKey> {
        &self.key
    }

    fn client(&self) -> u64 {
        self.client
    }

    fn into_place(mut self) -> Place<Self> {
        self.place.vacated = Some(Instant::now());
        self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(of: &[(&str, String)]) -> Reported {
        let mut reported = Reported::default();
        for (name, value) in of {
            report(&mut reported, format!("{name}\0{value}\0").as_bytes());
        }
        reported
    }

    #[test]
    fn values_that_are_too_long_are_told_apart_and_told_to_nobody() {
        let long = |letter: &str| letter.repeat(REPORTED_BYTES_MAX);
        let of = |path: String| reported(&[("TimeZone", "UTC".to_owned()), ("search_path", path)]);
        let (one, other) = (of(long("a")), of(long("b")));
        assert!(one != other && one == of(long("a")), "they are told apart");
        let surroundings = |reported: &Reported| Settings::default().surroundings(reported);
        assert_ne!(surroundings(&one), surroundings(&other));
        assert_eq!(one.iter().map(|(_, kept)| is_digest(kept)).collect::<Vec<_>>(), [false, true]);
        let again = reported(&[("search_path", long("a")), ("search_path", "short".to_owned())]);
        assert_eq!(&*again[0].1, b"short");
        let many: Vec<_> = (0..40).map(|number| (format!("{number}{}", long("n")), long("v"))).collect();
        let many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        assert!(reported(&many).is_empty(), "a name is not shortened");
    }
}

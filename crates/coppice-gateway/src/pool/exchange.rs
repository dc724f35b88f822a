//! The bytes between a client of a pool and the session it has for now.
//!
//! Both directions go on by themselves, so neither side waits for the other to
//! read. Messages that are long are passed on as they come; the few that have to
//! be understood are not.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::WireError;
use coppice_pgwire::sqlstate;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite as _};

use crate::connection::{Connection, Duplex};
use crate::pool::backend::Backend;
use crate::pool::pending::Pending;
use crate::pool::room::Held;
use crate::pool::settings::Settings;
use crate::pool::statement::{ClientStatements, Content, Library, Surroundings};
use crate::pool::watch::Watch;
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Longest message that is read as a whole. Longer ones are passed on as they
/// come, so a connection never takes more memory.
pub(crate) const MESSAGE_LENGTH_MAX: usize = 256 << 10;
/// How much of a direction is held before the other side has to take it.
pub(crate) const HELD_MAX: usize = 64 << 10;
/// Room for what a client sends, and for what a server does.
const CLIENT_ROOM: usize = 8 << 10;
const SERVER_ROOM: usize = 32 << 10;
/// Work of one turn, after which the other sessions of the thread have theirs: each message that
/// has to be understood is some.
const TURN: usize = 256;
/// Bytes of such a message that are as much work as the rest of it.
const BYTES_OF_WORK: usize = 64;
/// Rows that are as much work together as such a message.
const ROWS_OF_WORK: usize = 16;

/// Why an exchange can't go on.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The client is gone.
    Client(io::Error),
    /// The server is; whether the client was told why.
    Server { is_told: bool },
    /// The client has to be told.
    Refused(Refusal),
}

impl From<WireError> for Broken {
    fn from(error: WireError) -> Self {
        Self::Refused(Refusal::new(Reason::Protocol, sqlstate::PROTOCOL_VIOLATION, error.to_string()))
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether the client has left.
    pub(crate) is_over: bool,
    /// Whether the session is between two transactions.
    pub(crate) is_between: bool,
    /// Whether something may be left in it.
    pub(crate) is_suspect: bool,
}

/// A client and the session that it has.
pub(crate) struct Exchange<'a> {
    pub(crate) client: &'a mut Connection<Box<dyn Duplex>>,
    pub(crate) server: &'a mut Backend,
    pub(crate) statements: &'a mut ClientStatements,
    pub(crate) settings: &'a mut Settings,
    pub(crate) library: &'a Library,
    /// Whether the client keeps the session between transactions.
    pub(crate) is_kept: bool,
    pub(crate) state: State,
}

/// How far an exchange is.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) pending: Pending,
    /// Bytes of a client's message that go on to the server, or nowhere.
    pub(crate) passing_up: usize,
    pub(crate) is_dropping: bool,
    /// Bytes of a server's message that go on to the client.
    pub(crate) passing_down: usize,
    /// What the last ReadyForQuery said; none before the first.
    pub(crate) status: Option<u8>,
    pub(crate) has_begun: bool,
    pub(crate) is_suspect: bool,
    /// Whether the client sends nothing more.
    pub(crate) has_left: bool,
    /// Whether it has said so, and waits for the end of its connection.
    pub(crate) has_quit: bool,
    /// Whether the server has said why it ends.
    pub(crate) is_told: bool,
    /// Whether the client's next message waits for answers to earlier ones.
    pub(crate) is_stalled: bool,
    /// Whether the server was asked for the answers that it has.
    pub(crate) is_asked: bool,
    /// What the client's next Execute is of, as far as is known.
    pub(crate) bound: Option<Watch>,
    /// A digest of the types of the parameters of a statement whose shape is being told.
    pub(crate) parameters: [u8; 16],
    /// Room for a message of the server that has not come as a whole.
    pub(crate) awaited: Option<Held>,
    /// The statement that the server was last given anew, because its client knows another shape of it.
    pub(crate) renewed: Option<Content>,
    /// Where statements are read, once that was asked for.
    pub(crate) surroundings: Option<Surroundings>,
    /// Whether the client has got all that was written to it.
    is_flushed: bool,
    /// Work that is left of this turn.
    turn: usize,
    /// Rows that were passed on since they last counted.
    rows: usize,
    /// Whether messages of the server are left for the next one.
    pub(crate) is_behind: bool,
}

impl State {
    /// Notes that so much work was done.
    pub(crate) fn work(&mut self, work: usize) {
        self.turn = self.turn.saturating_sub(work);
    }

    /// Notes that a message was taken of which so many bytes were looked at.
    pub(crate) fn worked_on(&mut self, bytes: usize) {
        self.work(1 + bytes / BYTES_OF_WORK);
    }

    /// Notes that a row was passed on, of which nothing but its length was looked at.
    pub(crate) fn passed_row(&mut self) {
        self.rows += 1;
        if self.rows == ROWS_OF_WORK {
            self.rows = 0;
            self.work(1);
        }
    }

    /// Whether the session is between two transactions, and nothing is asked of it.
    pub(crate) fn is_between(&self) -> bool {
        let is_in_transaction = matches!(self.status, Some(b'T' | b'E'));
        let is_passing = self.passing_up > 0 || self.passing_down > 0;
        self.pending.is_idle() && !is_passing && !is_in_transaction
    }

    /// Whether the others have their turn before anything else is understood.
    pub(crate) fn is_spent(&self) -> bool {
        self.turn == 0
    }
}

impl Exchange<'_> {
    /// Goes on until the session is between two transactions, or the client has
    /// left. What the client has not read by then is still in its connection.
    pub(crate) async fn run(mut self) -> Result<Outcome, Broken> {
        self.state.turn = TURN;
        // Notifications may have come with the answer to a question of the gateway.
        self.take_from_server()?;
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Outcome, Broken>> {
        self.state.turn = TURN;
        loop {
            let takes = self.take_from_client()?;
            let sends = self.poll_send(context);
            let hears = self.poll_server(context)?;
            let answers = self.poll_answer(context)?;
            if let Some(outcome) = self.outcome(takes) {
                return Poll::Ready(Ok(outcome));
            }
            if !(self.poll_client(context)? || takes || sends || hears || answers) {
                return Poll::Pending;
            }
            if self.state.is_spent() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    fn outcome(&self, takes: bool) -> Option<Outcome> {
        let state = &self.state;
        if !self.server.stream.outgoing.is_empty() {
            return None;
        }
        let is_between = state.is_between();
        // What it sent before it left waits until there is room for the answers.
        let is_last = state.has_quit || (state.has_left && !takes && !self.is_unread());
        let is_over = is_last && (state.pending.is_answered() || state.passing_up > 0);
        let is_suspect = state.is_suspect;
        (is_over || (is_between && state.has_begun)).then_some(Outcome { is_over, is_between, is_suspect })
    }

    /// Reads what the client sends, unless enough of it waits: answers make room for some messages at a time, and a
    /// client may send more than that meanwhile.
    fn poll_client(&mut self, context: &mut Context<'_>) -> Result<bool, Broken> {
        let is_enough = self.client.received.len() >= MESSAGE_LENGTH_MAX;
        if self.state.has_left || self.state.has_quit || self.state.is_stalled || is_enough || self.is_full()
        {
            return Ok(false);
        }
        let Connection { stream, received, .. } = &mut *self.client;
        match poll_read(stream, received, CLIENT_ROOM, context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(read)) => {
                self.state.has_left = read == 0;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(Broken::Client(error)),
        }
    }

    /// Whether the server has enough to do, or the client to read.
    pub(crate) fn is_full(&self) -> bool {
        self.server.stream.outgoing.len() >= HELD_MAX || self.is_crowded() || self.is_unread()
    }

    /// Whether answers are to come before the next message. One that is half passed
    /// on is finished first: the server waits for the rest of it.
    pub(crate) fn is_crowded(&self) -> bool {
        self.state.passing_up == 0 && self.state.pending.is_crowded()
    }

    /// Whether the client has enough to read.
    fn is_unread(&self) -> bool {
        self.client.outgoing.len() >= HELD_MAX
    }

    /// Sends to the server what is for it.
    fn poll_send(&mut self, context: &mut Context<'_>) -> bool {
        let Connection { stream, outgoing, .. } = &mut self.server.stream;
        let mut sends = false;
        while !outgoing.is_empty() {
            match Pin::new(&mut *stream).poll_write(context, outgoing) {
                Poll::Pending => break,
                Poll::Ready(Ok(sent @ 1..)) => {
                    self.server.session.count_from_client(sent);
                    outgoing.advance(sent);
                }
                // It is gone; what it said before that is still to be read.
                Poll::Ready(_) => outgoing.clear(),
            }
            sends = true;
        }
        sends
    }

    /// Reads what the server says, unless enough of it waits.
    fn poll_server(&mut self, context: &mut Context<'_>) -> Result<bool, Broken> {
        if self.is_unread() {
            return Ok(false);
        }
        if self.state.is_behind {
            self.take_from_server()?;
            return Ok(true);
        }
        let Connection { stream, received, .. } = &mut self.server.stream;
        match poll_read(stream, received, SERVER_ROOM, context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(read @ 1..)) => {
                self.server.session.count_to_client(read);
                self.take_from_server()?;
                Ok(true)
            }
            Poll::Ready(_) => Err(Broken::Server { is_told: self.state.is_told }),
        }
    }

    /// Sends to the client what is for it.
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Result<bool, Broken> {
        let Connection { stream, outgoing, .. } = &mut *self.client;
        let mut answers = false;
        while !outgoing.is_empty() {
            match Pin::new(&mut *stream).poll_write(context, outgoing) {
                Poll::Pending => return Ok(answers),
                Poll::Ready(Ok(sent @ 1..)) => outgoing.advance(sent),
                Poll::Ready(Ok(_)) => return Err(Broken::Client(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Err(error)) => return Err(Broken::Client(error)),
            }
            (answers, self.state.is_flushed) = (true, false);
        }
        if !self.state.is_flushed {
            match Pin::new(stream).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.state.is_flushed = true,
                Poll::Ready(Err(error)) => return Err(Broken::Client(error)),
            }
        }
        Ok(answers)
    }
}

/// Reads into `buffer`, which gets at least half of `room`.
fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    room: usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if buffer.capacity() - buffer.len() < room / 2 {
        buffer.reserve(room);
    }
    pin!(stream.read_buf(buffer)).poll(context)
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;

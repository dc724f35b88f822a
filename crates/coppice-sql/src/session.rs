//! A session: statements in, JSON out.

use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::startup::CancelKey;
use coppice_pgwire::{encode, statement};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::ending::{IN_A_BATCH, ends_transaction};
use crate::output::{Memory, Output};
use crate::request::{BadRequest, Statement, Transaction};
use crate::rows::Rows;
use crate::{Failure, Login, ServerError, parameter, sign_in};

/// What is gathered before it is sent, and what is read at once.
const BUFFER_BYTES: usize = 16 << 10;
/// Longest message where nothing but a word is awaited.
const WORD_BYTES_MAX: usize = 1 << 20;
/// A batch may take as long as so many statements that take as long as one may.
const BATCH_PATIENCE: u32 = 4;
/// Status of a session outside of a transaction, and in one.
const IDLE: u8 = b'I';
const IN_TRANSACTION: u8 = b'T';

/// How results look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Rows are arrays, where the statement says nothing else.
    pub array_mode: bool,
    /// Values are text, or null.
    pub raw_text: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Session<S> {
    stream: S,
    received: BytesMut,
    outgoing: BytesMut,
    cancel_key: CancelKey,
    /// What the last ReadyForQuery said.
    status: u8,
    /// How long a statement may take.
    patience: Duration,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Session<S> {
    /// Signs in, for a client that comes from `source`; a statement may take as long as
    /// `patience` says.
    ///
    /// # Errors
    /// When the other side refuses, or is lost.
    pub async fn begin(
        stream: S,
        login: &Login,
        source: IpAddr,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let mut startup = BytesMut::new();
        encode::startup(&mut startup, 0, &login.parameters);
        let signed_in = sign_in(stream, &startup, &login.password, source).await?;
        Ok(Self {
            stream: signed_in.stream,
            received: signed_in.received,
            outgoing: BytesMut::new(),
            cancel_key: signed_in.cancel_key,
            status: IDLE,
            patience,
        })
    }

    /// Whether the last statement left a transaction open, or one that failed.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.status != IDLE
    }

    /// How long a statement may take.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Cancels what the session does.
    pub fn cancel_key(&self) -> &CancelKey {
        &self.cancel_key
    }

    /// Carries a statement out and writes its result.
    ///
    /// # Errors
    /// When there is no result; what was written makes no sense then.
    pub async fn single<M: Memory>(
        &mut self,
        statement: &Statement<'_>,
        shape: Shape,
        out: &mut Output<M>,
    ) -> Result<(), Wrong> {
        let values = parameter::texts(&statement.parameters)?;
        let values: Vec<_> = values.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
        let rows = Rows::new(statement.array_mode.unwrap_or(shape.array_mode), shape.raw_text);
        let query = statement.query.as_ref();
        let patience = self.patience;
        let carried_out =
            tokio::time::timeout(patience, self.carry_out(query, (&values, 0), rows, out)).await;
        Ok(carried_out.unwrap_or(Err(Failure::TooLong))?)
    }

    /// Carries statements out in one transaction and writes their results. All together they may take
    /// as long as four of them.
    ///
    /// # Errors
    /// When one of them fails; then nothing was done.
    pub async fn batch<M: Memory>(
        &mut self,
        statements: &[Statement<'_>],
        transaction: Transaction,
        shape: Shape,
        out: &mut Output<M>,
    ) -> Result<(), Wrong> {
        let patience = self.patience.saturating_mul(BATCH_PATIENCE);
        let work = self.carry_out_batch(statements, transaction, shape, out);
        tokio::time::timeout(patience, work).await.unwrap_or(Err(Failure::TooLong.into()))
    }

    async fn carry_out_batch<M: Memory>(
        &mut self,
        statements: &[Statement<'_>],
        transaction: Transaction,
        shape: Shape,
        out: &mut Output<M>,
    ) -> Result<(), Wrong> {
        if statements.iter().any(|statement| ends_transaction(&statement.query)) {
            return Err(BadRequest(IN_A_BATCH.into()).into());
        }
        self.command(&transaction.begin()).await?;
        out.piece.add(br#"{"results":["#);
        for (number, statement) in statements.iter().enumerate() {
            if number > 0 {
                out.piece.add(b",");
            }
            self.single(statement, shape, out).await?;
            if self.status != IN_TRANSACTION {
                return Err(Failure::TransactionEnded.into());
            }
        }
        out.piece.add(b"]}");
        Ok(self.command("COMMIT").await?)
    }

    /// Carries one statement out that changes nothing, and writes its result of at
    /// most `rows_max` rows, as arrays. Use the session for this statement only: it may change
    /// the session's state.
    ///
    /// # Errors
    /// When it fails, or wants to change something.
    pub async fn only_read<M: Memory>(
        &mut self,
        query: &str,
        rows_max: u32,
        out: &mut Output<M>,
    ) -> Result<(), Failure> {
        self.command("BEGIN READ ONLY").await?;
        // A transaction that listens can't be prepared, and so does not outlive its session.
        self.command("LISTEN coppice").await?;
        // From its first snapshot on, a transaction can't be made one that writes.
        self.command("SELECT 1").await?;
        self.alone(query, rows_max, out).await?;
        self.command("ROLLBACK").await
    }

    /// Carries one statement out in a transaction, and writes its result, rows as
    /// arrays.
    ///
    /// # Errors
    /// When it fails, or its result is too large; then nothing was done.
    pub async fn change<M: Memory>(&mut self, query: &str, out: &mut Output<M>) -> Result<(), Failure> {
        self.command("BEGIN").await?;
        self.alone(query, 0, out).await?;
        self.command("COMMIT").await
    }

    async fn alone<M: Memory>(
        &mut self,
        query: &str,
        rows_max: u32,
        out: &mut Output<M>,
    ) -> Result<(), Failure> {
        let patience = self.patience;
        let carried_out = self.carry_out(query, (&[], rows_max), Rows::new(true, false), out);
        tokio::time::timeout(patience, carried_out).await.unwrap_or(Err(Failure::TooLong))?;
        if self.status == IN_TRANSACTION { Ok(()) } else { Err(Failure::TransactionEnded) }
    }

    /// Ends the session as clients do.
    pub async fn end(mut self) {
        statement::terminate(&mut self.outgoing);
        let _ = self.stream.write_all(&self.outgoing).await;
    }

    /// Ends the session, and waits until it is over: a statement may still go on.
    pub async fn end_and_wait(mut self) {
        statement::terminate(&mut self.outgoing);
        let _ = self.stream.write_all(&self.outgoing).await;
        loop {
            self.received.clear();
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Sends a statement, and `how` it is carried out.
    pub(crate) async fn send(
        &mut self,
        query: &str,
        values: &[Option<&[u8]>],
        how: impl FnOnce(&mut BytesMut),
    ) -> Result<(), Failure> {
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        statement::parse(&mut self.outgoing, query);
        statement::bind_head(&mut self.outgoing, values.len(), bytes)?;
        for value in values {
            statement::value_head(&mut self.outgoing, *value);
            let value = value.unwrap_or_default();
            if self.outgoing.len() + value.len() > BUFFER_BYTES {
                self.stream.write_all_buf(&mut self.outgoing).await?;
                self.stream.write_all(value).await?;
            } else {
                self.outgoing.extend_from_slice(value);
            }
        }
        self.say(how).await
    }

    /// Sends what is said next.
    pub(crate) async fn say(&mut self, what: impl FnOnce(&mut BytesMut)) -> Result<(), Failure> {
        what(&mut self.outgoing);
        Ok(self.stream.write_all_buf(&mut self.outgoing).await?)
    }

    /// A command of ours, which has no result.
    async fn command(&mut self, query: &str) -> Result<(), Failure> {
        let patience = self.patience;
        tokio::time::timeout(patience, self.carry_out_command(query)).await.unwrap_or(Err(Failure::TooLong))
    }

    async fn carry_out_command(&mut self, query: &str) -> Result<(), Failure> {
        self.send(query, &[], statement::run).await?;
        let mut error = None;
        loop {
            match Frame::decode(&mut self.received, WORD_BYTES_MAX)? {
                Some(frame) if self.is_over(&frame, &mut error)? => {
                    return error.map_or(Ok(()), |error| Err(Failure::Server(error)));
                }
                Some(_) => {}
                None => self.receive(0, &mut error).await?,
            }
        }
    }

    async fn carry_out<M: Memory>(
        &mut self,
        query: &str,
        (values, rows_max): (&[Option<&[u8]>], u32),
        mut rows: Rows,
        out: &mut Output<M>,
    ) -> Result<(), Failure> {
        let run = |out: &mut BytesMut| {
            statement::describe(out);
            statement::execute(out, rows_max);
            statement::sync(out);
        };
        self.send(query, values, run).await?;
        let (mut command, mut error, mut is_cut) = (None, None, false);
        loop {
            let frame = self.read(&mut error, out).await?;
            match frame.tag {
                b'T' => rows.begin(frame.body, &mut out.piece)?,
                b'D' => {
                    rows.add(&frame.body, &mut out.piece)?;
                    out.settle().await?;
                }
                b'C' => command = Some(statement::command(&frame.body)?),
                // There are more rows than were asked for.
                b's' => is_cut = true,
                _ if self.is_over(&frame, &mut error)? => break,
                _ => {}
            }
        }
        match error {
            Some(error) => Err(Failure::Server(error)),
            None => {
                let (command, count) = command.unwrap_or_default();
                let mut end = json!({ "command": command, "rowCount": count });
                if is_cut {
                    end["truncated"] = true.into();
                }
                rows.end(end, &mut out.piece);
                out.settle().await
            }
        }
    }

    /// Notes an error; true when the server is ready for the next statement.
    pub(crate) fn is_over(
        &mut self,
        frame: &Frame,
        error: &mut Option<ServerError>,
    ) -> Result<bool, Failure> {
        match frame.tag {
            b'E' => *error = Some(ServerError::new(frame.body.clone())),
            // The server wants, or sends, data that there is no place for.
            b'G' | b'H' | b'W' => return Err(Failure::Copy),
            b'Z' => {
                self.status = frame.body.first().copied().unwrap_or_default();
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    pub(crate) async fn read<M: Memory>(
        &mut self,
        error: &mut Option<ServerError>,
        out: &mut Output<M>,
    ) -> Result<Frame, Failure> {
        let mut expected = 0;
        loop {
            if expected == 0
                && let Some(head) = self.received.first_chunk::<5>()
            {
                expected = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                out.expect(expected).await?;
            }
            if let Some(frame) = Frame::decode(&mut self.received, out.length_max())? {
                return Ok(frame);
            }
            self.receive(expected, error).await?;
        }
    }

    /// Reads on in a message of `expected` bytes. At the end, what the server
    /// said before counts.
    async fn receive(&mut self, expected: usize, error: &mut Option<ServerError>) -> Result<(), Failure> {
        self.received.reserve((expected + 1).saturating_sub(self.received.len()).max(BUFFER_BYTES));
        if self.stream.read_buf(&mut self.received).await? > 0 {
            return Ok(());
        }
        Err(match error.take() {
            Some(error) => Failure::Server(error),
            None => Failure::Lost(std::io::ErrorKind::UnexpectedEof.into()),
        })
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub enum Wrong {
    /// It can't be understood.
    Request(BadRequest),
    /// The server, or the way there.
    Failure(Failure),
}

impl From<BadRequest> for Wrong {
    fn from(request: BadRequest) -> Self {
        Self::Request(request)
    }
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

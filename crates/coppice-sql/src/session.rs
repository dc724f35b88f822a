//! A session: statements in, JSON out.

use std::collections::HashSet;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use coppice_pgwire::frame::Frame;
use coppice_pgwire::startup::CancelKey;
use coppice_pgwire::{encode, statement};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::output::{Memory, Output, Piece};
use crate::request::{BadRequest, Statement, Transaction};
use crate::value::{self, Kind};
use crate::{Failure, Login, ServerError, parameter, sign_in};

/// What is gathered before it is sent, and what is read at once.
const BUFFER_BYTES: usize = 16 << 10;
/// Longest message where nothing but a word is awaited.
const WORD_BYTES_MAX: usize = 1 << 20;
/// Status of a session in a transaction.
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
    /// Signs in; a statement may take as long as `patience` says.
    ///
    /// # Errors
    /// When the other side refuses, or is lost.
    pub async fn begin(stream: S, login: &Login, patience: Duration) -> Result<Self, Failure> {
        let mut startup = BytesMut::new();
        encode::startup(&mut startup, 0, &login.parameters);
        let signed_in = sign_in(stream, &startup, &login.password).await?;
        Ok(Self {
            stream: signed_in.stream,
            received: signed_in.received,
            outgoing: BytesMut::new(),
            cancel_key: signed_in.cancel_key,
            status: 0,
            patience,
        })
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
        let values = statement.parameters.iter().map(|value| parameter::text(value));
        let values = values.collect::<Result<Vec<_>, _>>().map_err(Wrong::Request)?;
        let values: Vec<_> = values.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
        let is_array = statement.array_mode.unwrap_or(shape.array_mode);
        let rows =
            Rows { is_array, is_raw: shape.raw_text, columns: vec![], is_begun: false, is_first: true };
        let query = statement.query.as_ref();
        let patience = self.patience;
        let carried_out = tokio::time::timeout(patience, self.carry_out(query, &values, rows, out)).await;
        Ok(carried_out.unwrap_or(Err(Failure::TooLong))?)
    }

    /// Carries statements out in one transaction and writes their results.
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

    /// Ends the session as clients do.
    pub async fn end(mut self) {
        statement::terminate(&mut self.outgoing);
        let _ = self.stream.write_all(&self.outgoing).await;
    }

    async fn send(&mut self, query: &str, values: &[Option<&[u8]>]) -> Result<(), Failure> {
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
        statement::run(&mut self.outgoing);
        Ok(self.stream.write_all_buf(&mut self.outgoing).await?)
    }

    /// A command of ours, which has no result.
    async fn command(&mut self, query: &str) -> Result<(), Failure> {
        let patience = self.patience;
        tokio::time::timeout(patience, self.carry_out_command(query)).await.unwrap_or(Err(Failure::TooLong))
    }

    async fn carry_out_command(&mut self, query: &str) -> Result<(), Failure> {
        self.send(query, &[]).await?;
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
        values: &[Option<&[u8]>],
        mut rows: Rows,
        out: &mut Output<M>,
    ) -> Result<(), Failure> {
        self.send(query, values).await?;
        let (mut command, mut error) = (None, None);
        loop {
            let frame = self.read(&mut error, out).await?;
            match frame.tag {
                b'T' => rows.begin(frame.body, &mut out.piece)?,
                b'D' => {
                    rows.add(&frame.body, &mut out.piece)?;
                    out.settle().await?;
                }
                b'C' => command = Some(statement::command(&frame.body)?),
                _ if self.is_over(&frame, &mut error)? => break,
                _ => {}
            }
        }
        match error {
            Some(error) => Err(Failure::Server(error)),
            None => {
                rows.end(command.unwrap_or_default(), &mut out.piece);
                out.settle().await
            }
        }
    }

    /// Notes an error; true when the server is ready for the next statement.
    fn is_over(&mut self, frame: &Frame, error: &mut Option<ServerError>) -> Result<bool, Failure> {
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

    async fn read<M: Memory>(
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

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Writes a result.
struct Rows {
    is_array: bool,
    is_raw: bool,
    columns: Vec<Written>,
    /// Whether the server told the columns.
    is_begun: bool,
    is_first: bool,
}

/// How the values of a column are written.
struct Written {
    kind: Kind,
    /// Its name as a key of JSON; none where a later column has the same.
    key: Option<Vec<u8>>,
}

impl Rows {
    fn begin(&mut self, body: Bytes, out: &mut Piece) -> Result<(), Failure> {
        let columns = statement::columns(body)?;
        let mut seen = HashSet::new();
        self.is_begun = true;
        out.add(br#"{"fields":["#);
        for (number, column) in columns.iter().enumerate() {
            let field = serde_json::json!({
                "name": column.name,
                "tableID": column.table_id,
                "columnID": column.column_id,
                "dataTypeID": column.type_id,
                "dataTypeSize": column.type_size,
                "dataTypeModifier": column.type_modifier,
                "format": "text",
            });
            if number > 0 {
                out.add(b",");
            }
            out.add(field.to_string().as_bytes());
        }
        out.add(br#"],"rows":["#);
        // Of equal names the last counts.
        let written = columns.iter().rev().map(|column| Written {
            kind: if self.is_raw { Kind::Text } else { Kind::of(column.type_id) },
            key: seen.insert(&column.name).then(|| {
                let mut key = vec![];
                value::string(&mut key, &column.name);
                key.push(b':');
                key
            }),
        });
        self.columns = written.collect();
        self.columns.reverse();
        Ok(())
    }

    fn add(&mut self, body: &[u8], out: &mut Piece) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_first) {
            out.add(b",");
        }
        let (open, close) = if self.is_array { (b"[", b"]") } else { (b"{", b"}") };
        out.add(open);
        let mut is_first = true;
        for (column, text) in self.columns.iter().zip(statement::values(body)?) {
            let text = text?;
            let key: &[u8] = match &column.key {
                _ if self.is_array => b"",
                Some(key) => key,
                None => continue,
            };
            if !std::mem::take(&mut is_first) {
                out.add(b",");
            }
            out.add(key);
            match text {
                Some(text) => value::write(out, column.kind, &String::from_utf8_lossy(text)),
                None => out.add(b"null"),
            }
        }
        out.add(close);
        Ok(())
    }

    fn end(self, (command, count): (String, Option<u64>), out: &mut Piece) {
        if !self.is_begun {
            out.add(br#"{"fields":[],"rows":["#);
        }
        let end = serde_json::json!({ "command": command, "rowCount": count, "rowAsArray": self.is_array });
        out.add(b"],");
        // The rest of an object without its brace.
        out.add(&end.to_string().as_bytes()[1..]);
    }
}

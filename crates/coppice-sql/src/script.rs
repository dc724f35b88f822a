//! Statements one after the other in one session, as somebody at a console runs
//! them: each with a result of its own, up to the first that fails. None is in a
//! transaction unless a statement begins one.

use std::time::Instant;

use bytes::BytesMut;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::sqlstate;
use coppice_pgwire::statement as wire;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::output::{Memory, Output, Piece};
use crate::request::Statement;
use crate::rows::Rows;
use crate::session::{Session, Wrong};
use crate::{Failure, ServerError, parameter};

/// Most rows of a result.
pub const ROWS_MAX: u32 = 100_000;
/// Rows that are asked for at once. After each lot it is looked whether there is
/// room for more.
const LOT: u32 = 200;
/// What of an answer may be written when rows are asked for.
const FULL: f64 = 0.75;
/// Most notices of a statement that are passed on, and bytes of one.
const NOTICES_MAX: usize = 100;
const NOTICE_BYTES_MAX: usize = 8 << 10;

/// How a statement ended.
#[derive(Default)]
struct End {
    command: String,
    /// Rows that it met.
    count: Option<u64>,
    error: Option<ServerError>,
    /// Whether it has more rows than there are here.
    is_cut: bool,
}

/// What is known of a statement that is being carried out.
struct Running {
    rows: Rows,
    count: u32,
    count_max: u32,
    /// Whether there was one more.
    has_more: bool,
    notices: Vec<Value>,
    notices_left_off: usize,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Session<S> {
    /// Carries statements out, each for at most `rows_max` rows, and writes their
    /// results: values as text, rows as arrays. What fails is in the last one.
    /// False when the session is of no use any more.
    ///
    /// # Errors
    /// When a parameter makes no sense or there is no room for the answer; what
    /// was written makes no sense then.
    pub async fn script<M: Memory>(
        &mut self,
        statements: &[Statement<'_>],
        rows_max: u32,
        out: &mut Output<M>,
    ) -> Result<bool, Wrong> {
        out.piece.add(br#"{"results":["#);
        let mut line = Line::Done;
        for (number, statement) in statements.iter().enumerate() {
            if number > 0 {
                out.piece.add(b",");
            }
            line = self.line(statement, rows_max.min(ROWS_MAX), out).await?;
            if !matches!(line, Line::Done) {
                break;
            }
        }
        let end = format!(r#"],"inTransaction":{}}}"#, self.is_in_transaction());
        out.piece.add(end.as_bytes());
        Ok(!matches!(line, Line::Broken))
    }

    async fn line<M: Memory>(
        &mut self,
        statement: &Statement<'_>,
        rows_max: u32,
        out: &mut Output<M>,
    ) -> Result<Line, Wrong> {
        let values = parameter::texts(&statement.parameters)?;
        let values: Vec<_> = values.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
        let (began, patience) = (Instant::now(), self.patience());
        let mut running = Running::new(rows_max);
        let work = async {
            let first = running.next_lot();
            let how = |outgoing: &mut BytesMut| {
                wire::describe(outgoing);
                wire::execute(outgoing, first);
                wire::flush(outgoing);
            };
            self.send(&statement.query, &values, how).await?;
            self.carry_on(&mut running, out).await
        };
        let ended = timeout(patience, work).await.unwrap_or(Err(Failure::TooLong));
        let (end, line, error) = match ended {
            Ok(End { error: Some(error), .. }) => {
                (End::default(), Line::Failed, Some(object(error.fields())))
            }
            Ok(end) => (end, Line::Done, None),
            Err(failure) => (End::default(), Line::Broken, Some(told(failure)?)),
        };
        let mut rest = json!({
            "command": end.command,
            "rowCount": end.count,
            "isCut": end.is_cut,
            "milliseconds": began.elapsed().as_secs_f64() * 1000.0,
            "notices": running.notices,
            "noticesLeftOff": running.notices_left_off,
        });
        if let Some(error) = error {
            rest["error"] = error;
        }
        running.rows.end(rest, &mut out.piece);
        out.settle().await?;
        Ok(line)
    }

    /// Reads what a statement brings, asking for more rows as long as there is room.
    async fn carry_on<M: Memory>(
        &mut self,
        running: &mut Running,
        out: &mut Output<M>,
    ) -> Result<End, Failure> {
        let mut end = End::default();
        loop {
            let frame = self.read(&mut end.error, out).await?;
            match frame.tag {
                b'C' => {
                    (end.command, end.count) = wire::command(&frame.body)?;
                    // Of what is only read, the server counts the last lot.
                    end.count = end.count.map(|count| count.max(running.count.into()));
                }
                b's' if running.has_more || out.is_filled(FULL) => end.is_cut = true,
                b's' => {
                    let lot = running.next_lot();
                    self.say(|outgoing| {
                        wire::execute(outgoing, lot);
                        wire::flush(outgoing);
                    })
                    .await?;
                    continue;
                }
                _ if self.is_over(&frame, &mut end.error)? => return Ok(end),
                b'I' | b'E' => {}
                _ => {
                    running.hear(frame, &mut out.piece)?;
                    out.settle().await?;
                    continue;
                }
            }
            // It is done, has shown enough, or failed: what comes next is that the server is ready.
            end.is_cut |= running.has_more;
            self.say(wire::sync).await?;
        }
    }
}

/// What became of a statement.
enum Line {
    Done,
    Failed,
    /// Nothing more can be asked of the session.
    Broken,
}

impl Running {
    fn new(count_max: u32) -> Self {
        let (count, has_more, notices, notices_left_off) = Default::default();
        Self { rows: Rows::new(true, true), count, count_max, has_more, notices, notices_left_off }
    }

    /// How many rows to ask for: in the end one more than is wanted, which says
    /// that there are more.
    fn next_lot(&self) -> u32 {
        LOT.min(self.count_max - self.count + 1)
    }

    fn hear(&mut self, frame: Frame, out: &mut Piece) -> Result<(), Failure> {
        match frame.tag {
            b'T' => self.rows.begin(frame.body, out)?,
            b'D' if self.count == self.count_max => self.has_more = true,
            b'D' => {
                self.rows.add(&frame.body, out)?;
                self.count += 1;
            }
            b'N' if self.notices.len() < NOTICES_MAX && frame.body.len() <= NOTICE_BYTES_MAX => {
                self.notices.push(object(ServerError::new(frame.body).fields()));
            }
            b'N' => self.notices_left_off += 1,
            _ => {}
        }
        Ok(())
    }
}

/// What the result of a statement says that was the session's last.
fn told(failure: Failure) -> Result<Value, Failure> {
    match failure {
        Failure::Server(error) => Ok(object(error.fields())),
        Failure::TooLong => Ok(json!({ "message": failure.to_string(), "code": sqlstate::QUERY_CANCELED })),
        Failure::Copy | Failure::Lost(_) => Ok(json!({ "message": failure.to_string() })),
        Failure::TooLarge(_)
        | Failure::NoRoom
        | Failure::Iterations(_)
        | Failure::TransactionEnded
        | Failure::Protocol(_) => Err(failure),
    }
}

fn object(fields: Vec<(&'static str, String)>) -> Value {
    let fields = fields.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text)));
    Value::Object(fields.collect::<Map<_, _>>())
}

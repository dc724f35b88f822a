//! What a server says, as the client of a pool gets it.

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::WireError;
use coppice_pgwire::encode::{self, ErrorReport};
use coppice_pgwire::session::{self, HEADER_LENGTH, Header};
use coppice_pgwire::sqlstate;
use coppice_pgwire::statement;

use crate::pool::backend::report;
use crate::pool::exchange::{Broken, Exchange};
use crate::pool::pending::Expected;
use crate::pool::statement::{digest_of, shape};

/// Messages that say what has to be known are not longer.
const KNOWN_LENGTH_MAX: usize = 64 << 10;
/// Neither is what describes a statement, which may have 65535 parameters and many columns.
const SHAPE_LENGTH_MAX: usize = statement::COLUMNS_LENGTH_MAX;

/// The function of a server that finds a statement to be another one than it was.
const REVALIDATION: &str = "RevalidateCachedQuery";

/// What becomes of a message.
enum Taken {
    /// It goes on to the client.
    Passed,
    /// It was for the gateway alone.
    Kept,
    /// The client is told that its statement is not any more what it was.
    Stale,
}

impl Exchange<'_> {
    /// Takes what has come from the server.
    pub(crate) fn take_from_server(&mut self) -> Result<(), Broken> {
        let mut received = std::mem::take(&mut self.server.stream.received);
        let taken = self.take_answers(&mut received);
        self.server.stream.received = received;
        taken
    }

    fn take_answers(&mut self, received: &mut BytesMut) -> Result<(), Broken> {
        // Up to here it all goes on to the client.
        let mut end = 0;
        self.state.is_behind = false;
        loop {
            let passing = self.state.passing_down.min(received.len() - end);
            self.state.passing_down -= passing;
            end += passing;
            let Some(header) = Header::decode(&received[end..])? else { break };
            if self.state.is_spent() {
                self.state.is_behind = true;
                break;
            }
            // It ends, and that is for whoever would get it next: the client has all that it asked for, and
            // another session after this one.
            if header.tag == b'E' && self.state.has_begun && !self.is_kept && self.state.is_between() {
                break;
            }
            let is_of_shape = matches!(header.tag, b't' | b'T' | b'n') && self.state.pending.is_shape_due();
            if is_of_shape && header.length() > SHAPE_LENGTH_MAX {
                return Err(WireError::Malformed("description").into());
            }
            let is_short = header.length() <= KNOWN_LENGTH_MAX;
            let is_known = is_of_shape || (is_short && matches!(header.tag, b'Z' | b'S' | b'C' | b'E'));
            if self.state.passing_down > 0 {
                break;
            }
            if is_known && received.len() - end < header.length() {
                self.wait_for(header.length())?;
                break;
            }
            self.state.awaited = None;
            let body = if is_known { end + HEADER_LENGTH..end + header.length() } else { 0..0 };
            let taken = self.take_answer(header.tag, &received[body])?;
            if matches!(taken, Taken::Passed) {
                self.state.passing_down = header.length();
                continue;
            }
            self.pass_on(received, &mut end);
            // What is for the gateway alone is there as a whole.
            received.advance(header.length());
            if matches!(taken, Taken::Stale) {
                self.tell_stale();
            }
        }
        self.pass_on(received, &mut end);
        Ok(())
    }

    /// Takes room for a message of which the rest is still to come: a server may leave it at that.
    fn wait_for(&mut self, length: usize) -> Result<(), Broken> {
        if self.state.awaited.is_none() {
            self.state.awaited = Some(self.library.room.hold(length).map_err(Broken::Refused)?);
        }
        Ok(())
    }

    /// Passes on what is before `end`.
    fn pass_on(&mut self, received: &mut BytesMut, end: &mut usize) {
        self.client.outgoing.extend_from_slice(&received[..*end]);
        received.advance(*end);
        *end = 0;
    }

    /// Takes a message, of which the body is there if something has to be known
    /// of it.
    fn take_answer(&mut self, tag: u8, body: &[u8]) -> Result<Taken, Broken> {
        match tag {
            b'D' | b'd' => self.state.passed_row(),
            // All that is waited for is gone through.
            b'G' => self.state.work(self.state.pending.work_of_copy()),
            _ => self.state.worked_on(body.len()),
        }
        let answer = self.state.pending.answered(tag)?;
        if let Some(watch) = answer.watch {
            let tag = session::text(body);
            self.state.is_suspect |= watch.minds(tag, self.is_kept);
            if tag == b"DISCARD ALL" || tag == b"DEALLOCATE ALL" {
                self.statements.clear();
                self.server.prepared.clear();
            }
        }
        match tag {
            b'Z' => self.state.status = body.first().copied(),
            b'S' => {
                report(&mut self.server.reported, body);
                self.state.surroundings = None;
            }
            b'E' => self.take_error(body),
            b't' if answer.is_ours => self.state.parameters = digest_of([body]),
            _ => {}
        }
        if let Some(of) = answer.shape_of {
            let shape = shape(std::mem::take(&mut self.state.parameters), body)?;
            self.server.prepared.note_shape(&of.content, &of.name, shape);
            if let Some(name) = of.client_name {
                self.statements.note_shape(&name, shape);
            }
        }
        // What it may still answer must not come to another client.
        self.server.is_worn |= answer.is_unsure;
        answer.undone.into_iter().for_each(|undone| self.undo(undone));
        let names_none =
            || session::error_field(body, b'C') == Some(sqlstate::INVALID_SQL_STATEMENT_NAME.as_bytes());
        Ok(match (answer.is_ours, answer.is_stale) {
            (true, _) => Taken::Kept,
            (_, true) if names_none() => Taken::Stale,
            _ => Taken::Passed,
        })
    }

    /// What a server says of a statement whose columns are not any more what its client was told.
    fn tell_stale(&mut self) {
        let report = ErrorReport {
            code: sqlstate::FEATURE_NOT_SUPPORTED,
            message: "cached plan must not change result type",
            hint: Some("Prepare the statement again: what it is about was changed."),
            // By this drivers know that it helps to prepare it again.
            routine: Some(REVALIDATION),
        };
        encode::error(&mut self.client.outgoing, &report);
    }

    fn take_error(&mut self, body: &[u8]) {
        self.state.is_told |= session::error_field(body, b'V').is_some_and(|severity| severity != b"ERROR");
        // A table was changed since another client prepared this here.
        if session::error_field(body, b'R') == Some(REVALIDATION.as_bytes()) {
            self.server.is_worn = true;
        }
    }

    /// Takes back what was noted of a message that the server has skipped.
    fn undo(&mut self, skipped: Expected) {
        match skipped {
            Expected::Parse { made: Some(made), client_name } => {
                self.server.prepared.take_back(made);
                if let Some(name) = client_name {
                    self.statements.remove(&name);
                }
            }
            Expected::Parse { made: None, .. } => self.server.has_unnamed = false,
            // It was asked for, and nobody knows it.
            Expected::Shape(of) => self.server.prepared.let_go(&of.content),
            Expected::ParseUnnamed(former) | Expected::CloseUnnamed(former) => {
                self.statements.unnamed = former.unnamed;
                self.server.has_unnamed = former.is_on_server;
            }
            Expected::Eviction(content, on_server) => self.server.prepared.put_back(content, on_server),
            Expected::CloseOld(name) => self.server.prepared.put_old(name),
            Expected::CloseNamed(name, Some(known)) => {
                // It was there before, so there is room for it.
                let _ = self.statements.insert(&name, known, &self.library.room);
            }
            _ => {}
        }
    }
}

//! What a server says, as the client of a pool gets it.

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::encode;
use coppice_pgwire::session::{self, HEADER_LENGTH, Header};

use crate::pool::backend::report;
use crate::pool::exchange::{Broken, Exchange};
use crate::pool::pending::Expected;

/// Messages that say what has to be known are not longer.
const KNOWN_LENGTH_MAX: usize = 64 << 10;

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
        loop {
            let passing = self.state.passing_down.min(received.len() - end);
            self.state.passing_down -= passing;
            end += passing;
            if self.state.passing_down == 0 && self.state.pending.is_due() {
                self.pass_on(received, &mut end);
                self.answer_own();
            }
            let Some(header) = Header::decode(&received[end..])? else { break };
            let is_known =
                matches!(header.tag, b'Z' | b'S' | b'C' | b'E') && header.length() <= KNOWN_LENGTH_MAX;
            if self.state.passing_down > 0 || (is_known && received.len() - end < header.length()) {
                break;
            }
            let body = if is_known { end + HEADER_LENGTH..end + header.length() } else { 0..0 };
            if self.take_answer(header.tag, &received[body])? {
                self.pass_on(received, &mut end);
                // What is for the gateway alone has no body.
                received.advance(HEADER_LENGTH);
            } else {
                self.state.passing_down = header.length();
            }
        }
        self.pass_on(received, &mut end);
        Ok(())
    }

    /// Passes on what is before `end`.
    fn pass_on(&mut self, received: &mut BytesMut, end: &mut usize) {
        self.client.outgoing.extend_from_slice(&received[..*end]);
        received.advance(*end);
        *end = 0;
    }

    /// Takes a message, of which the body is there if something has to be known
    /// of it. Returns whether it is for the gateway alone.
    fn take_answer(&mut self, tag: u8, body: &[u8]) -> Result<bool, Broken> {
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
            _ => {}
        }
        // What it may still answer must not come to another client.
        self.server.is_worn |= answer.is_unsure;
        answer.undone.into_iter().for_each(|undone| self.undo(undone));
        Ok(answer.is_ours)
    }

    fn take_error(&mut self, body: &[u8]) {
        self.state.is_told |= session::error_field(body, b'V').is_some_and(|severity| severity != b"ERROR");
        // A table was changed since another client prepared this here.
        if session::error_field(body, b'R') == Some(b"RevalidateCachedQuery") {
            self.server.is_worn = true;
        }
    }

    /// Takes back what was noted of a message that the server has skipped.
    fn undo(&mut self, skipped: Expected) {
        match skipped {
            Expected::Parse { name: Some(name), client_name } => {
                self.server.prepared.remove(&name);
                if let Some(name) = client_name {
                    self.statements.remove(&name);
                }
            }
            Expected::Parse { name: None, .. } => self.server.has_unnamed = false,
            Expected::ParseUnnamed(former) | Expected::CloseUnnamed(former) => {
                self.statements.unnamed = former.unnamed;
                self.server.has_unnamed = former.is_on_server;
            }
            Expected::Eviction(name) => {
                self.server.prepared.insert(name);
            }
            Expected::KnownParse(name) => {
                self.statements.remove(&name);
            }
            Expected::KnownClose(name, Some(statement)) => {
                // It was there before, so there is room for it.
                let _ = self.statements.insert(&name, &statement, &self.library.room);
            }
            _ => {}
        }
    }

    /// Gives the answers that are the gateway's to give, as soon as it is their turn.
    pub(crate) fn answer_own(&mut self) {
        if self.state.passing_down > 0 {
            return;
        }
        while let Some(tag) = self.state.pending.due() {
            encode::empty(&mut self.client.outgoing, tag);
        }
    }
}

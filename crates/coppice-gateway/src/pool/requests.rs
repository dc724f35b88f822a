//! What a client of a pool sends, as its session gets it.

use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::session::{self, HEADER_LENGTH, Header, Subject};
use coppice_pgwire::{WireError, encode};

use crate::pool::exchange::{Broken, Exchange};
use crate::pool::pending::{Expected, Former};
use crate::pool::statement::{Statement, Surroundings, Unnamed};
use crate::pool::watch::{Watch, made_up_settings};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Longest message that is read as a whole. Longer ones are passed on as they
/// come, so a connection never takes more memory.
pub(crate) const MESSAGE_LENGTH_MAX: usize = 256 << 10;

/// The first bytes of a client's message, and how many there will be.
struct Message<'a> {
    header: Header,
    /// Of the body, as far as it is there.
    body: &'a [u8],
}

impl Exchange<'_> {
    /// Takes the messages that are there, as long as the server has not enough to
    /// do. Returns whether there were any.
    pub(crate) fn take_from_client(&mut self) -> Result<bool, Broken> {
        let mut received = std::mem::take(&mut self.client.received);
        let taken = self.take_messages(&mut received);
        self.client.received = received;
        taken
    }

    fn take_messages(&mut self, received: &mut BytesMut) -> Result<bool, Broken> {
        let mut takes = false;
        while !self.is_full() && !self.state.has_quit && !received.is_empty() {
            if self.state.passing_up > 0 {
                let length = self.state.passing_up.min(received.len());
                if !self.state.is_dropping {
                    self.server.stream.outgoing.extend_from_slice(&received[..length]);
                }
                received.advance(length);
                self.state.passing_up -= length;
                takes = true;
                continue;
            }
            let Some(header) = Header::decode(received)? else { break };
            // A long message of which so much is there says what has to be known.
            if received.len() < header.length().min(MESSAGE_LENGTH_MAX) {
                break;
            }
            let end = header.length().min(received.len());
            let message = Message { header, body: &received[HEADER_LENGTH..end] };
            self.state.is_stalled = self.must_wait(&message)?;
            if self.state.is_stalled {
                break;
            }
            let used = HEADER_LENGTH + self.take(message)?;
            self.state.passing_up = header.length() - used;
            received.advance(used);
            takes = true;
        }
        self.ask_for_answers();
        Ok(takes)
    }

    /// A server need not answer before it sees a Sync, and answers are what
    /// makes room here.
    fn ask_for_answers(&mut self) {
        let is_crowded = self.is_crowded();
        if is_crowded && !self.state.is_asked {
            encode::empty(&mut self.server.stream.outgoing, b'H');
        }
        self.state.is_asked = is_crowded;
    }

    /// Whether what a message means, or undoes, depends on answers that are still to come.
    fn must_wait(&self, message: &Message<'_>) -> Result<bool, Broken> {
        let is_whole = message.body.len() == message.header.body_length;
        Ok(self.state.pending.is_unsettled()
            && match message.header.tag {
                b'P' | b'B' | b'Q' => true,
                b'D' | b'C' if is_whole => matches!(session::subject(message.body)?, Subject::Statement(_)),
                _ => false,
            })
    }

    /// Takes a message; returns how much of its body was used. The rest of it is
    /// passed on as it comes.
    fn take(&mut self, message: Message<'_>) -> Result<usize, Broken> {
        let Message { header, body } = message;
        let is_complete = body.len() == header.body_length;
        self.state.is_dropping = self.state.pending.is_skipping && !matches!(header.tag, b'S' | b'X');
        if self.state.is_dropping {
            return Ok(0);
        }
        self.state.has_begun = true;
        match header.tag {
            b'P' => return self.take_parse(header, body, is_complete),
            b'B' => return self.take_bind(header, body),
            b'D' | b'C' if is_complete => return self.take_subject(header, body),
            b'Q' => {
                let text = is_complete.then(|| session::text(body));
                let watch = text.map_or(Watch::Always, Watch::of);
                self.settings.learn(&text.map(made_up_settings).unwrap_or_default());
                self.state.is_suspect |= watch == Watch::Always;
                // It ends the unnamed statement.
                self.server.has_unnamed = false;
                self.statements.unnamed = None;
                self.state.pending.sent(Expected::Query(watch));
            }
            b'F' => self.state.pending.sent(Expected::Query(Watch::Tag)),
            b'E' => {
                let watch = self.state.bound.take().unwrap_or(Watch::Tag);
                self.state.pending.sent(Expected::Execute(watch));
            }
            b'S' => self.state.pending.sent(Expected::Sync),
            b'c' | b'f' => self.state.pending.sent(Expected::CopyEnd),
            // A server that refuses one says so out of turn, and skips what follows.
            b'H' if header.body_length > 0 => return Err(WireError::Malformed("flush").into()),
            b'd' | b'H' => {}
            b'X' => {
                self.state.has_quit = true;
                return Ok(body.len());
            }
            _ => return Err(WireError::Malformed("message type").into()),
        }
        encode::begin(&mut self.server.stream.outgoing, header.tag, &[], header.body_length);
        Ok(0)
    }

    fn take_parse(&mut self, header: Header, body: &[u8], is_complete: bool) -> Result<usize, Broken> {
        let is_unnamed = body.first() == Some(&0);
        if is_unnamed {
            let parse = is_complete.then(|| session::parse(body)).transpose()?;
            let watch = parse.as_ref().map_or(Watch::Always, |parse| Watch::of(parse.text));
            self.state.is_suspect |= watch == Watch::Always;
            self.settings.learn(&parse.map(|parse| made_up_settings(parse.text)).unwrap_or_default());
            let unnamed = parse.map(|parse| Unnamed::new(parse.rest, watch, &self.library.room));
            let unnamed = unnamed.transpose().map_err(Broken::Refused)?;
            let former = self.replace_unnamed(unnamed, true);
            self.state.bound = Some(watch);
            self.state.pending.sent(Expected::ParseUnnamed(former));
            encode::begin(&mut self.server.stream.outgoing, header.tag, &[], header.body_length);
            return Ok(0);
        }
        if !is_complete {
            let message = "a prepared statement with a name is too long for a pooled connection";
            let refusal = Refusal::new(Reason::Unsupported, "54000", message);
            return Err(Broken::Refused(
                refusal.with_hint("Prepare it without a name, or connect without -pooler."),
            ));
        }
        let parse = session::parse(body)?;
        let surroundings = self.surroundings();
        let statement = self.library.of(parse.rest, &surroundings).map_err(Broken::Refused)?;
        let name: Box<[u8]> = parse.name.into();
        let mut parsed = Some(statement.name.clone());
        if self.statements.get(&name).is_some() {
            // The server says that there is one already, and keeps that.
            self.prepare(&statement);
            parsed = None;
        } else {
            self.statements.insert(&name, &statement, &self.library.room).map_err(Broken::Refused)?;
            if self.server.prepared.has(&statement) {
                self.state.pending.sent(Expected::KnownParse(name));
                self.answer_own();
                return Ok(body.len());
            }
            self.evict(&statement);
        }
        self.state.pending.sent(Expected::Parse { name: parsed, client_name: Some(name) });
        self.write_parse(&statement);
        Ok(body.len())
    }

    fn take_bind(&mut self, header: Header, body: &[u8]) -> Result<usize, Broken> {
        let bind = session::bind(body)?;
        let statement = self.statement(bind.statement)?;
        let watch = self.have(bind.statement, statement.as_ref());
        self.state.is_suspect |= watch == Some(Watch::Always);
        self.state.bound = watch;
        let name = statement.as_ref().map_or(bind.statement, |statement| statement.name.as_bytes());
        let used = bind.length();
        let parts = [bind.portal, b"\0", name, b"\0"];
        encode::begin(&mut self.server.stream.outgoing, header.tag, &parts, header.body_length - used);
        self.state.pending.sent(Expected::Bind);
        Ok(used)
    }

    /// A Describe or a Close.
    fn take_subject(&mut self, header: Header, body: &[u8]) -> Result<usize, Broken> {
        let subject = session::subject(body)?;
        let outgoing = &mut self.server.stream.outgoing;
        match (header.tag, subject) {
            (b'C', Subject::Statement(name)) if !name.is_empty() => {
                let closed = self.statements.remove(name);
                self.state.pending.sent(Expected::KnownClose(name.into(), closed));
                self.answer_own();
                return Ok(body.len());
            }
            (b'C', Subject::Statement(_)) => {
                encode::begin(outgoing, header.tag, &[body], 0);
                let former = self.replace_unnamed(None, false);
                self.state.pending.sent(Expected::CloseUnnamed(former));
            }
            (b'C', Subject::Portal) => {
                encode::begin(outgoing, header.tag, &[body], 0);
                self.state.pending.sent(Expected::Close);
            }
            (_, Subject::Statement(name)) => {
                let statement = self.statement(name)?;
                self.have(name, statement.as_ref());
                let name = statement.as_ref().map_or(name, |statement| statement.name.as_bytes());
                encode::begin(&mut self.server.stream.outgoing, header.tag, &[b"S", name, b"\0"], 0);
                self.state.pending.sent(Expected::Describe);
            }
            (_, Subject::Portal) => {
                encode::begin(outgoing, header.tag, &[body], 0);
                self.state.pending.sent(Expected::Describe);
            }
        }
        Ok(body.len())
    }

    /// Notes another unnamed statement; returns the one before.
    fn replace_unnamed(&mut self, unnamed: Option<Unnamed>, is_on_server: bool) -> Former {
        Former {
            unnamed: std::mem::replace(&mut self.statements.unnamed, unnamed),
            is_on_server: std::mem::replace(&mut self.server.has_unnamed, is_on_server),
        }
    }

    fn surroundings(&mut self) -> Surroundings {
        let surroundings = || self.settings.surroundings(&self.server.reported);
        *self.state.surroundings.get_or_insert_with(surroundings)
    }

    /// What the client has under this name. Where other settings are in force than
    /// where it was prepared, it is another statement: its literals may mean
    /// something else, also for others with the same text.
    fn statement(&mut self, name: &[u8]) -> Result<Option<Arc<Statement>>, Broken> {
        let surroundings = self.surroundings();
        let Some(statement) = self.statements.get(name) else { return Ok(None) };
        if statement.surroundings == surroundings {
            return Ok(Some(statement.clone()));
        }
        let statement = self.library.of(&statement.rest, &surroundings).map_err(Broken::Refused)?;
        self.statements.replace(name, &statement);
        Ok(Some(statement))
    }

    /// Has the server prepare what the client has under this name, if it has not;
    /// tells what may come of it. A name that nobody has is the server's to refuse.
    fn have(&mut self, name: &[u8], statement: Option<&Arc<Statement>>) -> Option<Watch> {
        if let Some(statement) = statement {
            self.settings.learn(&statement.made_up);
            self.prepare(statement);
            return Some(statement.watch);
        }
        let unnamed = self.statements.unnamed.as_ref().filter(|_| name.is_empty())?;
        if !self.server.has_unnamed {
            self.server.has_unnamed = true;
            encode::begin(&mut self.server.stream.outgoing, b'P', &[b"\0", unnamed.rest()], 0);
            self.state.pending.sent(Expected::Parse { name: None, client_name: None });
        }
        Some(unnamed.watch)
    }

    fn prepare(&mut self, statement: &Arc<Statement>) {
        if !self.server.prepared.has(statement) {
            self.evict(statement);
            self.write_parse(statement);
            self.state
                .pending
                .sent(Expected::Parse { name: Some(statement.name.clone()), client_name: None });
        }
    }

    /// Notes that a statement is going to be on the server, which forgets another
    /// one if it has too many.
    fn evict(&mut self, statement: &Statement) {
        if let Some(evicted) = self.server.prepared.insert(statement.name.clone()) {
            let parts = [b"S", evicted.as_bytes(), b"\0"];
            encode::begin(&mut self.server.stream.outgoing, b'C', &parts, 0);
            self.state.pending.sent(Expected::Eviction(evicted));
        }
    }

    fn write_parse(&mut self, statement: &Statement) {
        let parts = [statement.name.as_bytes(), b"\0", &statement.rest];
        encode::begin(&mut self.server.stream.outgoing, b'P', &parts, 0);
    }
}

//! What a client of a pool sends, as its session gets it.

use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::session::{self, HEADER_LENGTH, Header, Subject};
use coppice_pgwire::{WireError, encode, sqlstate};

use crate::pool::exchange::{Broken, Exchange, MESSAGE_LENGTH_MAX};
use crate::pool::pending::{Expected, Former, ShapeOf};
use crate::pool::prepared::{OnServer, Prepared};
use crate::pool::statement::{Known, Statement, Surroundings, Unnamed};
use crate::pool::watch::{Watch, made_up_settings};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// The first bytes of a client's message, and how many there will be.
struct Message<'a> {
    header: Header,
    /// Of the body, as far as it is there.
    body: &'a [u8],
}

/// What a Bind or a Describe is of.
struct Referred {
    /// On the server.
    name: Box<[u8]>,
    /// What may come of it; none where no client has it, and the server is to say so.
    watch: Option<Watch>,
    /// It has another shape there than the client knows, and the name is that of none.
    is_stale: bool,
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
        while !(self.is_full() || self.state.is_spent() || self.state.has_quit || received.is_empty()) {
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
            if !self.state.has_begun && matches!(header.tag, b'P' | b'B' | b'D') {
                self.close_old();
            }
            self.state.is_stalled = self.must_wait(&message)? || !self.is_ready(&message)?;
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

    /// Whether what a message is of is on the server, of the shape that its client knows. Where it is not, the server
    /// is given it, and the message waits for what comes of that; a server that has it anew in another shape has it
    /// in no other.
    fn is_ready(&mut self, message: &Message<'_>) -> Result<bool, Broken> {
        let is_whole = message.body.len() == message.header.body_length;
        let name = match message.header.tag {
            _ if self.state.pending.is_skipping => return Ok(true),
            b'B' => session::bind(message.body)?.statement,
            b'D' if is_whole => match session::subject(message.body)? {
                Subject::Statement(name) => name,
                Subject::Portal => return Ok(true),
            },
            _ => return Ok(true),
        };
        let Some(Known { statement, shape, .. }) = self.statement(name)? else { return Ok(true) };
        let is_new = match self.server.prepared.find(&statement.content) {
            None => true,
            Some(OnServer { shape: Some(on_server), .. })
                if shape.is_some_and(|shape| shape != *on_server) =>
            {
                self.state.renewed.replace(statement.content) != Some(statement.content)
            }
            Some(OnServer { shape: None, .. }) => return Ok(shape.is_none()),
            Some(_) => return Ok(true),
        };
        if is_new {
            self.make(&statement, None, shape.is_none().then(|| name.into()));
        }
        Ok(!is_new)
    }

    /// Takes a message; returns how much of its body was used. The rest of it is
    /// passed on as it comes.
    fn take(&mut self, message: Message<'_>) -> Result<usize, Broken> {
        let Message { header, body } = message;
        let is_complete = body.len() == header.body_length;
        if header.tag != b'd' {
            self.state.worked_on(body.len());
        }
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
            let refusal = Refusal::new(Reason::Unsupported, sqlstate::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(Broken::Refused(
                refusal.with_hint("Prepare it without a name, or connect without -pooler."),
            ));
        }
        let parse = session::parse(body)?;
        let surroundings = self.surroundings();
        let statement = self.library.of(parse.rest, &surroundings).map_err(Broken::Refused)?;
        let name: Box<[u8]> = parse.name.into();
        if self.statements.get(&name).is_some() {
            // The server says that there is one already, and keeps that.
            let found = self.server.prepared.find(&statement.content).map(|found| found.name.clone());
            let taken = found.unwrap_or_else(|| self.make(&statement, None, None));
            self.state.pending.sent(Expected::Parse { made: None, client_name: Some(name) });
            self.write_parse(&taken, &statement);
            return Ok(body.len());
        }
        let known = Known { statement: statement.clone(), shape: None, is_learnt: false };
        self.statements.insert(&name, known, &self.library.room).map_err(Broken::Refused)?;
        self.make(&statement, Some(name.clone()), Some(name));
        Ok(body.len())
    }

    fn take_bind(&mut self, header: Header, body: &[u8]) -> Result<usize, Broken> {
        let bind = session::bind(body)?;
        let Referred { name, watch, is_stale } = self.refer(bind.statement)?;
        self.state.is_suspect |= watch == Some(Watch::Always);
        self.state.bound = watch;
        let used = bind.length();
        let parts = [bind.portal, b"\0", &name, b"\0"];
        encode::begin(&mut self.server.stream.outgoing, header.tag, &parts, header.body_length - used);
        self.state.pending.sent(if is_stale { Expected::Stale } else { Expected::Bind });
        Ok(used)
    }

    /// A Describe or a Close.
    fn take_subject(&mut self, header: Header, body: &[u8]) -> Result<usize, Broken> {
        let subject = session::subject(body)?;
        let outgoing = &mut self.server.stream.outgoing;
        match (header.tag, subject) {
            (b'C', Subject::Statement(name)) if !name.is_empty() => {
                let closed = self.statements.remove(name);
                self.state.pending.sent(Expected::CloseNamed(name.into(), closed));
                self.write_close(Prepared::NOBODY);
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
                let Referred { name, is_stale, .. } = self.refer(name)?;
                encode::begin(&mut self.server.stream.outgoing, header.tag, &[b"S", &name, b"\0"], 0);
                self.state.pending.sent(if is_stale { Expected::Stale } else { Expected::Describe });
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
    fn statement(&mut self, name: &[u8]) -> Result<Option<Known>, Broken> {
        let surroundings = self.surroundings();
        let Some(known) = self.statements.get(name) else { return Ok(None) };
        if known.statement.surroundings == surroundings {
            return Ok(Some(known.clone()));
        }
        self.state.worked_on(known.statement.rest.len());
        let statement = self.library.of(&known.statement.rest, &surroundings).map_err(Broken::Refused)?;
        self.statements.replace(name, &statement);
        Ok(self.statements.get(name).cloned())
    }

    /// What the server has of what the client has under this name.
    fn refer(&mut self, name: &[u8]) -> Result<Referred, Broken> {
        if let Some(Known { statement, shape, is_learnt }) = self.statement(name)? {
            if !is_learnt {
                self.settings.learn(&statement.made_up);
                self.statements.note_learnt(name);
            }
            let found = self.server.prepared.find(&statement.content);
            let found = found.filter(|found| shape.is_none() || found.shape == shape);
            let name = found.map_or(Prepared::NOBODY, |found| &found.name);
            return Ok(Referred {
                name: name.as_bytes().into(),
                watch: Some(statement.watch),
                is_stale: found.is_none(),
            });
        }
        let unnamed = self.statements.unnamed.as_ref().filter(|_| name.is_empty());
        if let Some(unnamed) = unnamed
            && !self.server.has_unnamed
        {
            self.server.has_unnamed = true;
            encode::begin(&mut self.server.stream.outgoing, b'P', &[b"\0", unnamed.rest()], 0);
            self.state.pending.sent(Expected::Parse { made: None, client_name: None });
        }
        let watch = unnamed.map(|unnamed| unnamed.watch);
        Ok(Referred { name: name.into(), watch, is_stale: false })
    }

    /// Has the server prepare a statement, and say its shape, which from then on is known to the client that knows the
    /// statement by a name. It is a client's own Parse if it has its name for it. A server that has too many forgets
    /// another one.
    fn make(
        &mut self,
        statement: &Arc<Statement>,
        client_name: Option<Box<[u8]>>,
        known_as: Option<Box<[u8]>>,
    ) -> Arc<str> {
        if self.server.prepared.is_full()
            && !self.close_one_old()
            && let Some((content, evicted)) = self.server.prepared.evict()
        {
            self.write_close(&evicted.name);
            self.state.pending.sent(Expected::Eviction(content, evicted));
        }
        let made = self.server.prepared.add(statement.content);
        let (content, name) = (made.content, made.name.clone());
        self.state.pending.sent(Expected::Parse { made: Some(made), client_name });
        self.write_parse(&name, statement);
        encode::begin(&mut self.server.stream.outgoing, b'D', &[b"S", name.as_bytes(), b"\0"], 0);
        // Or it would keep that to itself up to a Sync, for which a message may come first that waits for it.
        encode::empty(&mut self.server.stream.outgoing, b'H');
        let of = ShapeOf { content, name: name.clone(), client_name: known_as };
        self.state.pending.sent(Expected::Shape(of));
        name
    }

    /// Between two transactions there is no portal, which would end with its statement.
    fn close_old(&mut self) {
        while self.close_one_old() {}
    }

    fn close_one_old(&mut self) -> bool {
        let Some(name) = self.server.prepared.pop_old() else { return false };
        self.write_close(&name);
        self.state.pending.sent(Expected::CloseOld(name));
        true
    }

    fn write_close(&mut self, name: &str) {
        encode::begin(&mut self.server.stream.outgoing, b'C', &[b"S", name.as_bytes(), b"\0"], 0);
    }

    fn write_parse(&mut self, name: &str, statement: &Statement) {
        let parts = [name.as_bytes(), b"\0", &statement.rest];
        encode::begin(&mut self.server.stream.outgoing, b'P', &parts, 0);
    }
}

//! Prepared statements of clients, which outlive the sessions that they are in.
//!
//! On servers a statement has a name that follows from its content, so one that
//! many clients prepare is prepared once in a session, and kept once in memory.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use aws_lc_rs::digest;
use coppice_pgwire::session;
use parking_lot::Mutex;

use crate::pool::room::{Held, Room};
use crate::pool::watch::{Watch, made_up_settings};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Statements of one client, and their bytes.
const STATEMENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;
/// Statements that one session of a server has at the same time.
pub(crate) const PREPARED_MAX: usize = 200;
/// Statements that nobody has any more are forgotten when there are so many.
const FORGET_FROM: usize = 1024;

/// A digest of what decides how a statement is read, besides its text.
pub(crate) type Surroundings = [u8; 32];

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Statement {
    /// On servers.
    pub(crate) name: Arc<str>,
    /// Of a Parse, all after the name.
    pub(crate) rest: Box<[u8]>,
    pub(crate) watch: Watch,
    /// Settings that it may make up.
    pub(crate) made_up: Vec<String>,
    /// Where it was read.
    pub(crate) surroundings: Surroundings,
    _held: Held,
}

/// The statements of all clients, by content.
#[derive(Default)]
pub(crate) struct Library {
    shelves: Mutex<Shelves>,
    pub(crate) room: Arc<Room>,
}

#[derive(Default)]
struct Shelves {
    statements: HashMap<String, Weak<Statement>>,
    forget_from: usize,
}

impl Library {
    /// With so much room for statements, and for what else clients have us keep.
    pub(crate) fn new(room: Arc<Room>) -> Self {
        Self { shelves: Mutex::default(), room }
    }

    /// The statement with this content, all after the name of a Parse, as it is
    /// read in these surroundings.
    pub(crate) fn of(&self, rest: &[u8], surroundings: &Surroundings) -> Result<Arc<Statement>, Refusal> {
        let mut content = digest::Context::new(&digest::SHA256);
        content.update(surroundings);
        content.update(rest);
        let digest = content.finish();
        let mut name = "coppice_".to_owned();
        for byte in &digest.as_ref()[..16] {
            let _ = write!(name, "{byte:02x}");
        }
        let mut shelves = self.shelves.lock();
        if let Some(statement) = shelves.statements.get(&name).and_then(Weak::upgrade) {
            return Ok(statement);
        }
        if shelves.statements.len() >= shelves.forget_from {
            shelves.statements.retain(|_, statement| statement.strong_count() > 0);
            shelves.forget_from = FORGET_FROM.max(shelves.statements.len() * 2);
        }
        let text = session::text(rest);
        let statement = Arc::new(Statement {
            name: name.as_str().into(),
            rest: rest.into(),
            watch: Watch::of(text),
            made_up: made_up_settings(text),
            surroundings: *surroundings,
            _held: self.room.hold(rest.len())?,
        });
        shelves.statements.insert(name, Arc::downgrade(&statement));
        Ok(statement)
    }
}

/// What a client has prepared.
#[derive(Default)]
pub(crate) struct ClientStatements {
    named: HashMap<Box<[u8]>, Named>,
    bytes: usize,
    pub(crate) unnamed: Option<Unnamed>,
}

/// A statement that a client has a name for.
struct Named {
    statement: Arc<Statement>,
    _held: Held,
}

/// A client's unnamed statement.
#[derive(Debug)]
pub(crate) struct Unnamed {
    rest: Box<[u8]>,
    pub(crate) watch: Watch,
    _held: Held,
}

impl Unnamed {
    /// Keeps one with this content.
    pub(crate) fn new(rest: &[u8], watch: Watch, room: &Arc<Room>) -> Result<Self, Refusal> {
        Ok(Self { _held: room.hold(rest.len())?, rest: rest.into(), watch })
    }

    /// Of a Parse, all after the name.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.rest
    }
}

impl ClientStatements {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(name).map(|named| &named.statement)
    }

    pub(crate) fn insert(
        &mut self,
        name: &[u8],
        statement: &Arc<Statement>,
        room: &Arc<Room>,
    ) -> Result<(), Refusal> {
        self.remove(name);
        let named = Named { statement: statement.clone(), _held: room.hold(name.len())? };
        self.bytes += name.len() + statement.rest.len();
        self.named.insert(name.into(), named);
        if self.named.len() > STATEMENTS_MAX || self.bytes > BYTES_MAX {
            let message = format!(
                "this pooled connection has more than {STATEMENTS_MAX} prepared statements, or {BYTES_MAX} bytes of them"
            );
            return Err(Refusal::new(Reason::Unsupported, "54000", message)
                .with_hint("Close those that are not needed, or connect without -pooler."));
        }
        Ok(())
    }

    /// Puts one with the same content in its place.
    pub(crate) fn replace(&mut self, name: &[u8], statement: &Arc<Statement>) {
        if let Some(known) = self.named.get_mut(name) {
            known.statement = statement.clone();
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        let removed = self.named.remove(name)?.statement;
        self.bytes -= name.len() + removed.rest.len();
        Some(removed)
    }

    /// After the client asked for it, by SQL.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What a session of a server has prepared, by name: the content of a statement
/// is kept for as long as a client has it, and no longer.
#[derive(Default)]
pub(crate) struct Prepared {
    last_uses: HashMap<Arc<str>, u64>,
    uses: u64,
}

impl Prepared {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.last_uses.len()
    }

    /// Whether a statement is there, which is used now.
    pub(crate) fn has(&mut self, statement: &Statement) -> bool {
        self.uses += 1;
        let found = self.last_uses.get_mut(&statement.name);
        found.map(|used| *used = self.uses).is_some()
    }

    /// Adds one; returns one that has to be closed, if there are too many.
    pub(crate) fn insert(&mut self, name: Arc<str>) -> Option<Arc<str>> {
        self.uses += 1;
        let is_full = self.last_uses.len() >= PREPARED_MAX;
        let oldest = self.last_uses.iter().filter(|_| is_full).min_by_key(|(_, used)| **used);
        let evicted = oldest.map(|(name, _)| name.clone());
        self.last_uses.insert(name, self.uses);
        if let Some(name) = &evicted {
            self.last_uses.remove(name);
        }
        evicted
    }

    /// Takes one out that is not there after all.
    pub(crate) fn remove(&mut self, name: &str) {
        self.last_uses.remove(name);
    }

    pub(crate) fn clear(&mut self) {
        self.last_uses.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<u8> {
        [text.as_bytes(), b"\0\0\0"].concat()
    }

    fn statement(library: &Library, text: &str) -> Arc<Statement> {
        library.of(&parse(text), &Surroundings::default()).expect("there is room")
    }

    #[test]
    fn the_same_content_is_one_statement_and_is_forgotten_after_its_last_client() {
        let library = Library::default();
        let (one, same) = (statement(&library, "select 1"), statement(&library, "select 1"));
        assert!(Arc::ptr_eq(&one, &same));
        assert_ne!(one.name, statement(&library, "select 2").name);
        let elsewhere = library.of(&parse("select 1"), &[1; 32]).expect("there is room");
        assert_ne!(one.name, elsewhere.name, "it may be about another table");
        for number in 0..FORGET_FROM * 3 {
            statement(&library, &format!("select {number} + 1"));
        }
        assert!(library.shelves.lock().statements.len() <= FORGET_FROM + 1);
        assert!(Arc::ptr_eq(&one, &statement(&library, "select 1")));
    }

    #[test]
    fn a_session_forgets_what_was_not_used_for_longest() {
        let (library, mut prepared) = (Library::default(), Prepared::default());
        let statements: Vec<_> =
            (0..=PREPARED_MAX).map(|number| statement(&library, &format!("select {number}"))).collect();
        let (last, first) = statements.split_last().expect("some");
        for statement in first {
            assert!(prepared.insert(statement.name.clone()).is_none());
        }
        assert!(prepared.has(&first[0]), "and is used");
        let evicted = prepared.insert(last.name.clone()).expect("one too many");
        assert_eq!(evicted, first[1].name);
        assert!(prepared.has(last) && !prepared.has(&first[1]));
    }

    #[test]
    fn a_session_keeps_nothing_of_what_no_client_has() {
        let (library, mut prepared) = (Library::default(), Prepared::default());
        let one = statement(&library, "select 1");
        prepared.insert(one.name.clone());
        let content = Arc::downgrade(&one);
        drop(one);
        assert!(content.upgrade().is_none());
        assert!(prepared.has(&statement(&library, "select 1")), "and knows it when it comes again");
    }

    #[test]
    fn what_clients_have_us_keep_takes_room_as_long_as_they_do() {
        let library = Library::default();
        let others = library.room.hold((64 << 20) - (2 << 10)).expect("nearly all");
        let (rest, surroundings) = (parse(&"x".repeat(1 << 10)), Surroundings::default());
        let one = library.of(&rest, &surroundings).expect("the last one");
        assert!(library.of(&rest, &surroundings).is_ok(), "is kept once");
        let mut client = ClientStatements::default();
        let long_name = [b'n'; 1 << 10];
        assert!(client.insert(&long_name, &one, &library.room).is_err());
        assert!(Unnamed::new(&rest, Watch::Tag, &library.room).is_err());
        assert!(client.insert(b"short", &one, &library.room).is_ok());
        drop((one, others));
        client.clear();
        assert!(library.room.hold((64 << 20) - (1 << 10)).is_ok(), "all of it comes back");
    }

    #[test]
    fn a_client_prepares_so_much_and_no_more() {
        let (library, mut client) = (Library::default(), ClientStatements::default());
        let one = statement(&library, "select 1");
        for number in 0..STATEMENTS_MAX {
            assert!(client.insert(number.to_string().as_bytes(), &one, &library.room).is_ok());
        }
        assert_eq!(
            client.insert(b"more", &one, &library.room).err().map(|refusal| refusal.code),
            Some("54000")
        );
        client.clear();
        let long = statement(&library, &"x".repeat(BYTES_MAX / 2));
        assert!(
            client.insert(b"a", &long, &library.room).is_ok()
                && client.insert(b"a", &long, &library.room).is_ok(),
            "once"
        );
        assert!(client.insert(b"b", &long, &library.room).is_err());
        client.remove(b"a");
        client.remove(b"b");
        assert_eq!(client.bytes, 0);
    }
}

//! Prepared statements of clients, which outlive the sessions that they are in.
//!
//! One that many clients prepare is kept once in memory, and once in a session. A
//! client may have prepared it before a table was changed, and a session after
//! that, or the other way round: so its shape is known of both.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use aws_lc_rs::digest;
use bytes::Bytes;
use coppice_pgwire::{WireError, session, sqlstate, statement};
use parking_lot::Mutex;

use crate::pool::room::{Held, Room};
use crate::pool::watch::{Watch, made_up_settings};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Statements of one client, and their bytes.
const STATEMENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;
/// Statements that nobody has any more are forgotten when there are so many.
const FORGET_FROM: usize = 1024;

/// A digest of what decides how a statement is read, besides its text.
pub(crate) type Surroundings = [u8; 32];

/// A digest of what a statement is, and where it is read.
pub(crate) type Content = [u8; 16];

/// A digest of the types of a statement's parameters, and of the names and types of
/// its columns: what a client that has seen them counts on.
pub(crate) type Shape = [u8; 16];

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) content: Content,
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
    statements: HashMap<Content, Weak<Statement>>,
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
        let content = digest_of([&surroundings[..], rest]);
        let mut shelves = self.shelves.lock();
        if let Some(statement) = shelves.statements.get(&content).and_then(Weak::upgrade) {
            return Ok(statement);
        }
        if shelves.statements.len() >= shelves.forget_from {
            shelves.statements.retain(|_, statement| statement.strong_count() > 0);
            shelves.forget_from = FORGET_FROM.max(shelves.statements.len() * 2);
        }
        let text = session::text(rest);
        let statement = Arc::new(Statement {
            content,
            rest: rest.into(),
            watch: Watch::of(text),
            made_up: made_up_settings(text),
            surroundings: *surroundings,
            _held: self.room.hold(rest.len())?,
        });
        shelves.statements.insert(content, Arc::downgrade(&statement));
        Ok(statement)
    }
}

/// The first half of a digest of these, one after the other; what is after the first
/// of them can't be taken for a part of it.
pub(super) fn digest_of<const N: usize>(parts: [&[u8]; N]) -> [u8; 16] {
    let mut all = digest::Context::new(&digest::SHA256);
    for part in parts {
        all.update(&(part.len() as u64).to_le_bytes());
        all.update(part);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&all.finish().as_ref()[..16]);
    half
}

/// The shape that a server describes, by a digest of the body of ParameterDescription, and by the body of
/// RowDescription, which is empty for NoData.
pub(crate) fn shape(parameters: [u8; 16], columns: &[u8]) -> Result<Shape, WireError> {
    let mut seen = vec![];
    if !columns.is_empty() {
        for column in statement::columns(Bytes::copy_from_slice(columns))? {
            seen.extend_from_slice(column.name.as_bytes());
            seen.push(0);
            seen.extend_from_slice(&column.type_id.to_le_bytes());
            seen.extend_from_slice(&column.type_modifier.to_le_bytes());
        }
    }
    Ok(digest_of([&parameters[..], &seen]))
}

/// A statement as a client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) statement: Arc<Statement>,
    /// None before the server has said it.
    pub(crate) shape: Option<Shape>,
    /// Whether what it makes up is among the client's settings.
    pub(crate) is_learnt: bool,
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
    known: Known,
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
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Known> {
        self.named.get(name).map(|named| &named.known)
    }

    pub(crate) fn insert(&mut self, name: &[u8], known: Known, room: &Arc<Room>) -> Result<(), Refusal> {
        self.remove(name);
        let held = room.hold(name.len())?;
        self.bytes += name.len() + known.statement.rest.len();
        self.named.insert(name.into(), Named { known, _held: held });
        if self.named.len() > STATEMENTS_MAX || self.bytes > BYTES_MAX {
            let message = format!(
                "this pooled connection has more than {STATEMENTS_MAX} prepared statements, or {BYTES_MAX} bytes of them"
            );
            return Err(Refusal::new(Reason::Unsupported, sqlstate::PROGRAM_LIMIT_EXCEEDED, message)
                .with_hint("Close those that are not needed, or connect without -pooler."));
        }
        Ok(())
    }

    /// Puts one with the same text in its place, which is read elsewhere.
    pub(crate) fn replace(&mut self, name: &[u8], statement: &Arc<Statement>) {
        if let Some(named) = self.named.get_mut(name) {
            named.known.statement = statement.clone();
            named.known.is_learnt = false;
        }
    }

    /// Notes the shape that the client was told, or is going to be.
    pub(crate) fn note_shape(&mut self, name: &[u8], shape: Shape) {
        if let Some(named) = self.named.get_mut(name) {
            named.known.shape = Some(shape);
        }
    }

    /// Notes that what it makes up is among the client's settings.
    pub(crate) fn note_learnt(&mut self, name: &[u8]) {
        if let Some(named) = self.named.get_mut(name) {
            named.known.is_learnt = true;
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Known> {
        let removed = self.named.remove(name)?.known;
        self.bytes -= name.len() + removed.statement.rest.len();
        Some(removed)
    }

    /// After the client asked for it, by SQL.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
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
        assert_ne!(one.content, statement(&library, "select 2").content);
        let elsewhere = library.of(&parse("select 1"), &[1; 32]).expect("there is room");
        assert_ne!(one.content, elsewhere.content, "it may be about another table");
        for number in 0..FORGET_FROM * 3 {
            statement(&library, &format!("select {number} + 1"));
        }
        assert!(library.shelves.lock().statements.len() <= FORGET_FROM + 1);
        assert!(Arc::ptr_eq(&one, &statement(&library, "select 1")));
    }

    #[test]
    fn a_shape_is_of_types_and_names_and_not_of_tables() {
        let column = |table: u32, of: u32, name: &str| {
            let mut body = vec![0, 1];
            body.extend_from_slice(name.as_bytes());
            body.push(0);
            body.extend_from_slice(&table.to_be_bytes());
            body.extend_from_slice(&[0, 1]);
            body.extend_from_slice(&of.to_be_bytes());
            body.extend_from_slice(&[0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
            body
        };
        let of =
            |parameters: &[u8], columns: &[u8]| shape(digest_of([parameters]), columns).expect("well-formed");
        let (none, one) = (b"\0\0", b"\0\x01\0\0\0\x17");
        let plain = of(none, &column(1, 23, "i"));
        assert_eq!(plain, of(none, &column(2, 23, "i")), "a table that was made again");
        let others = [
            of(none, &column(1, 20, "i")),
            of(none, &column(1, 23, "j")),
            of(one, &column(1, 23, "i")),
            of(none, b""),
        ];
        assert!(!others.contains(&plain), "{others:?}");
        assert!(shape(digest_of([none]), &column(1, 23, "i")[..9]).is_err());
    }

    #[test]
    fn what_clients_have_us_keep_takes_room_as_long_as_they_do() {
        let library = Library::default();
        let others = library.room.hold((64 << 20) - (2 << 10)).expect("nearly all");
        let (rest, surroundings) = (parse(&"x".repeat(1 << 10)), Surroundings::default());
        let one = library.of(&rest, &surroundings).expect("the last one");
        assert!(library.of(&rest, &surroundings).is_ok(), "is kept once");
        let mut client = ClientStatements::default();
        let known = || Known { statement: one.clone(), shape: None, is_learnt: false };
        let long_name = [b'n'; 1 << 10];
        assert!(client.insert(&long_name, known(), &library.room).is_err());
        assert!(Unnamed::new(&rest, Watch::Tag, &library.room).is_err());
        assert!(client.insert(b"short", known(), &library.room).is_ok());
        drop((one, others));
        client.clear();
        assert!(library.room.hold((64 << 20) - (1 << 10)).is_ok(), "all of it comes back");
    }

    #[test]
    fn a_client_prepares_so_much_and_no_more() {
        let (library, mut client) = (Library::default(), ClientStatements::default());
        let known =
            |text: &str| Known { statement: statement(&library, text), shape: None, is_learnt: false };
        for number in 0..STATEMENTS_MAX {
            let one = known("select 1");
            assert!(client.insert(number.to_string().as_bytes(), one, &library.room).is_ok());
        }
        assert_eq!(
            client.insert(b"more", known("select 1"), &library.room).err().map(|refusal| refusal.code),
            Some("54000")
        );
        client.clear();
        let long = || known(&"x".repeat(BYTES_MAX / 2));
        assert!(
            client.insert(b"a", long(), &library.room).is_ok()
                && client.insert(b"a", long(), &library.room).is_ok(),
            "once"
        );
        assert!(client.insert(b"b", long(), &library.room).is_err());
        client.remove(b"a");
        client.remove(b"b");
        assert_eq!(client.bytes, 0);
    }
}

//! Prepared statements of clients, which outlive the sessions that they are in.
//!
//! One that many clients prepare is kept once in memory, and once in a session. A
//! client may have prepared it before a table was changed, and a session after
//! that, or the other way round: so its shape is known of both.

use std::collections::{HashMap, VecDeque};
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
/// Statements that one session of a server has at the same time.
pub(crate) const PREPARED_MAX: usize = 200;
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
fn digest_of<const N: usize>(parts: [&[u8]; N]) -> [u8; 16] {
    let mut all = digest::Context::new(&digest::SHA256);
    for part in parts {
        all.update(&(part.len() as u64).to_le_bytes());
        all.update(part);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&all.finish().as_ref()[..16]);
    half
}

/// The shape that a server describes, by the body of ParameterDescription, and that of
/// RowDescription, which is empty for NoData.
pub(crate) fn shape(parameters: &[u8], columns: &[u8]) -> Result<Shape, WireError> {
    let mut seen = vec![];
    if !columns.is_empty() {
        for column in statement::columns(Bytes::copy_from_slice(columns))? {
            seen.extend_from_slice(column.name.as_bytes());
            seen.push(0);
            seen.extend_from_slice(&column.type_id.to_le_bytes());
            seen.extend_from_slice(&column.type_modifier.to_le_bytes());
        }
    }
    Ok(digest_of([parameters, &seen]))
}

/// A statement as a client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) statement: Arc<Statement>,
    /// None before the server has said it.
    pub(crate) shape: Option<Shape>,
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
        }
    }

    /// Notes the shape that the client was told, or is going to be.
    pub(crate) fn note_shape(&mut self, name: &[u8], shape: Shape) {
        if let Some(named) = self.named.get_mut(name) {
            named.known.shape = Some(shape);
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

/// A statement on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnServer {
    /// Its name there, which no other has had in this session.
    pub(crate) name: Arc<str>,
    /// None before the server has said it.
    pub(crate) shape: Option<Shape>,
}

/// A statement that a session is given.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) content: Content,
    /// On the server.
    pub(crate) name: Arc<str>,
    /// The one with the same content that it takes the place of.
    pub(crate) former: Option<OnServer>,
}

/// What a session of a server has prepared: the content of a statement is kept for
/// as long as a client has it, and no longer.
#[derive(Default)]
pub(crate) struct Prepared {
    statements: HashMap<Content, Entry>,
    /// Names of those that others have taken the place of, in that order.
    old: VecDeque<Arc<str>>,
    uses: u64,
    names: u64,
}

struct Entry {
    on_server: OnServer,
    last_use: u64,
}

impl Prepared {
    /// The name of none.
    pub(crate) const NOBODY: &str = "coppice_0";

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.statements.len() + self.old.len()
    }

    /// The statement with this content, which is used now.
    pub(crate) fn find(&mut self, content: &Content) -> Option<&OnServer> {
        self.uses += 1;
        let entry = self.statements.get_mut(content)?;
        entry.last_use = self.uses;
        Some(&entry.on_server)
    }

    /// Whether one has to be closed before another one is added.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= PREPARED_MAX
    }

    /// Takes out the one that was not used for longest.
    pub(crate) fn evict(&mut self) -> Option<(Content, OnServer)> {
        let oldest = self.statements.iter().min_by_key(|(_, entry)| entry.last_use);
        let content = *oldest?.0;
        Some((content, self.take(&content)?))
    }

    /// Adds one. Another one with the same content stays until it is closed
    /// ([`Prepared::pop_old`]): a portal may be of it.
    pub(crate) fn add(&mut self, content: Content) -> Made {
        self.names += 1;
        let name: Arc<str> = format!("coppice_{}", self.names).into();
        let former = self.take(&content);
        self.old.extend(former.iter().map(|former| former.name.clone()));
        self.insert(content, OnServer { name: name.clone(), shape: None });
        Made { content, name, former }
    }

    /// Undoes that: the server has not got it.
    pub(crate) fn take_back(&mut self, made: Made) {
        self.old.retain(|old| *old != made.name);
        self.take(&made.content);
        if let Some(former) = made.former {
            self.put_back(made.content, former);
        }
    }

    /// Puts one back that was taken out. Where its shape was not known by then, it was told meanwhile, to nobody, or
    /// never will be: then another one has to take its place.
    pub(crate) fn put_back(&mut self, content: Content, on_server: OnServer) {
        self.old.retain(|old| *old != on_server.name);
        match on_server.shape {
            Some(_) => self.insert(content, on_server),
            None => self.old.push_back(on_server.name),
        }
    }

    fn insert(&mut self, content: Content, on_server: OnServer) {
        self.uses += 1;
        self.statements.insert(content, Entry { on_server, last_use: self.uses });
    }

    fn take(&mut self, content: &Content) -> Option<OnServer> {
        self.statements.remove(content).map(|entry| entry.on_server)
    }

    /// Notes what shape one has that was added under this name.
    pub(crate) fn note_shape(&mut self, content: &Content, name: &str, shape: Shape) {
        let entry = self.statements.get_mut(content).filter(|entry| *entry.on_server.name == *name);
        if let Some(entry) = entry {
            entry.on_server.shape = Some(shape);
        }
    }

    /// Lets go of one, whose place another one will take.
    pub(crate) fn let_go(&mut self, content: &Content) {
        let name = self.take(content).map(|on_server| on_server.name);
        self.old.extend(name);
    }

    /// One that others have taken the place of, and that is going to be closed.
    pub(crate) fn pop_old(&mut self) -> Option<Arc<str>> {
        self.old.pop_front()
    }

    /// Puts one back that is not closed after all.
    pub(crate) fn put_old(&mut self, name: Arc<str>) {
        self.old.push_front(name);
    }

    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.old.clear();
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

    fn content(number: usize) -> Content {
        (number as u128).to_le_bytes()
    }

    #[test]
    fn a_session_forgets_what_was_not_used_for_longest() {
        let mut prepared = Prepared::default();
        for number in 0..PREPARED_MAX {
            assert!(!prepared.is_full());
            prepared.add(content(number));
        }
        assert!(prepared.is_full());
        assert!(prepared.find(&content(0)).is_some(), "and is used");
        let (evicted, _) = prepared.evict().expect("one too many");
        assert_eq!(evicted, content(1));
        assert!(prepared.find(&content(0)).is_some() && prepared.find(&content(1)).is_none());
    }

    #[test]
    fn another_statement_of_the_same_content_takes_its_place_and_can_be_taken_back() {
        let mut prepared = Prepared::default();
        let first = prepared.add(content(1));
        prepared.note_shape(&content(1), &first.name, content(7));
        let second = prepared.add(content(1));
        assert_ne!(first.name, second.name);
        prepared.note_shape(&content(1), &first.name, content(8));
        let there = |prepared: &mut Prepared| prepared.find(&content(1)).expect("it is there").clone();
        assert_eq!(there(&mut prepared), OnServer { name: second.name.clone(), shape: None });
        assert_eq!(prepared.len(), 2, "as long as the first one is not closed");
        prepared.let_go(&content(1));
        prepared.take_back(second);
        assert_eq!(there(&mut prepared), OnServer { name: first.name.clone(), shape: Some(content(7)) });
        assert_eq!((prepared.len(), prepared.pop_old()), (1, None));
        prepared.add(content(1));
        assert_eq!(prepared.pop_old().as_ref(), Some(&first.name));
        assert_eq!(prepared.len(), 1);
        prepared.put_old(first.name);
        assert_eq!(prepared.len(), 2, "it was not closed after all");
    }

    #[test]
    fn one_that_was_taken_out_before_its_shape_was_told_is_not_waited_for() {
        let mut prepared = Prepared::default();
        let first = prepared.add(content(1));
        let second = prepared.add(content(1));
        prepared.note_shape(&content(1), &first.name, content(7));
        prepared.let_go(&content(1));
        prepared.take_back(second);
        assert!(prepared.find(&content(1)).is_none());
        assert_eq!((prepared.pop_old(), prepared.pop_old()), (Some(first.name), None));
        // Also where it is skipped itself.
        let first = prepared.add(content(1));
        let second = prepared.add(content(1));
        for made in [second, first] {
            prepared.let_go(&content(1));
            prepared.take_back(made);
        }
        assert!(prepared.find(&content(1)).is_none());
        assert_eq!(prepared.pop_old(), None);
        // And where it was to make room.
        prepared.add(content(1));
        let (evicted, on_server) = prepared.evict().expect("there is one");
        prepared.put_back(evicted, on_server);
        assert!(prepared.find(&content(1)).is_none());
        assert_eq!(prepared.len(), 1);
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
        let of = |parameters, columns: &[u8]| shape(parameters, columns).expect("well-formed");
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
        assert!(shape(none, &column(1, 23, "i")[..9]).is_err());
    }

    #[test]
    fn a_session_keeps_nothing_of_what_no_client_has() {
        let (library, mut prepared) = (Library::default(), Prepared::default());
        let one = statement(&library, "select 1");
        prepared.add(one.content);
        let kept = Arc::downgrade(&one);
        drop(one);
        assert!(kept.upgrade().is_none());
        let again = statement(&library, "select 1");
        assert!(prepared.find(&again.content).is_some(), "and knows it when it comes again");
    }

    #[test]
    fn what_clients_have_us_keep_takes_room_as_long_as_they_do() {
        let library = Library::default();
        let others = library.room.hold((64 << 20) - (2 << 10)).expect("nearly all");
        let (rest, surroundings) = (parse(&"x".repeat(1 << 10)), Surroundings::default());
        let one = library.of(&rest, &surroundings).expect("the last one");
        assert!(library.of(&rest, &surroundings).is_ok(), "is kept once");
        let mut client = ClientStatements::default();
        let known = || Known { statement: one.clone(), shape: None };
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
        let known = |text: &str| Known { statement: statement(&library, text), shape: None };
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

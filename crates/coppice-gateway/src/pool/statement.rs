//! Prepared statements of clients, which outlive the sessions that they are in.
//!
//! On servers a statement has a name that follows from its content, so one that
//! many clients prepare is prepared once in a session, and kept once in memory.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use aws_lc_rs::digest;
use coppice_pgwire::session::Parse;
use parking_lot::Mutex;

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
}

/// The statements of all clients, by content.
#[derive(Default)]
pub(crate) struct Library(Mutex<Shelves>);

#[derive(Default)]
struct Shelves {
    statements: HashMap<String, Weak<Statement>>,
    forget_from: usize,
}

impl Library {
    /// The statement with this content, where names mean what `search_path` says.
    pub(crate) fn of(&self, parse: &Parse<'_>, search_path: &str) -> Arc<Statement> {
        let mut content = digest::Context::new(&digest::SHA256);
        content.update(search_path.as_bytes());
        content.update(b"\0");
        content.update(parse.rest);
        let digest = content.finish();
        let mut name = "coppice_".to_owned();
        for byte in &digest.as_ref()[..16] {
            let _ = write!(name, "{byte:02x}");
        }
        let mut shelves = self.0.lock();
        if let Some(statement) = shelves.statements.get(&name).and_then(Weak::upgrade) {
            return statement;
        }
        if shelves.statements.len() >= shelves.forget_from {
            shelves.statements.retain(|_, statement| statement.strong_count() > 0);
            shelves.forget_from = FORGET_FROM.max(shelves.statements.len() * 2);
        }
        let statement = Arc::new(Statement {
            name: name.as_str().into(),
            rest: parse.rest.into(),
            watch: Watch::of(parse.text),
            made_up: made_up_settings(parse.text),
        });
        shelves.statements.insert(name, Arc::downgrade(&statement));
        statement
    }
}

/// What a client has prepared.
#[derive(Default)]
pub(crate) struct ClientStatements {
    named: HashMap<Box<[u8]>, Arc<Statement>>,
    bytes: usize,
    pub(crate) unnamed: Option<Unnamed>,
}

/// A client's unnamed statement.
pub(crate) struct Unnamed {
    /// Of a Parse, all after the name.
    pub(crate) rest: Box<[u8]>,
    pub(crate) watch: Watch,
}

impl ClientStatements {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(name)
    }

    pub(crate) fn insert(&mut self, name: &[u8], statement: &Arc<Statement>) -> Result<(), Refusal> {
        self.remove(name);
        self.bytes += name.len() + statement.rest.len();
        self.named.insert(name.into(), statement.clone());
        if self.named.len() > STATEMENTS_MAX || self.bytes > BYTES_MAX {
            let message = format!(
                "this pooled connection has more than {STATEMENTS_MAX} prepared statements, or {BYTES_MAX} bytes of them"
            );
            return Err(Refusal::new(Reason::Unsupported, "54000", message)
                .with_hint("Close those that are not needed, or connect without -pooler."));
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        let removed = self.named.remove(name)?;
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
        let rest = parse(text);
        library.of(&Parse { name: b"", rest: &rest, text: text.as_bytes() }, "")
    }

    #[test]
    fn the_same_content_is_one_statement_and_is_forgotten_after_its_last_client() {
        let library = Library::default();
        let (one, same) = (statement(&library, "select 1"), statement(&library, "select 1"));
        assert!(Arc::ptr_eq(&one, &same));
        assert_ne!(one.name, statement(&library, "select 2").name);
        let rest = parse("select 1");
        let elsewhere = library.of(&Parse { name: b"", rest: &rest, text: b"select 1" }, "tenant");
        assert_ne!(one.name, elsewhere.name, "it may be about another table");
        for number in 0..FORGET_FROM * 3 {
            statement(&library, &format!("select {number} + 1"));
        }
        assert!(library.0.lock().statements.len() <= FORGET_FROM + 1);
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
    fn a_client_prepares_so_much_and_no_more() {
        let (library, mut client) = (Library::default(), ClientStatements::default());
        let one = statement(&library, "select 1");
        for number in 0..STATEMENTS_MAX {
            assert!(client.insert(number.to_string().as_bytes(), &one).is_ok());
        }
        assert_eq!(client.insert(b"more", &one).err().map(|refusal| refusal.code), Some("54000"));
        client.clear();
        let long = statement(&library, &"x".repeat(BYTES_MAX / 2));
        assert!(client.insert(b"a", &long).is_ok() && client.insert(b"a", &long).is_ok(), "once");
        assert!(client.insert(b"b", &long).is_err());
        client.remove(b"a");
        client.remove(b"b");
        assert_eq!(client.bytes, 0);
    }
}

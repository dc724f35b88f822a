//! What a session of a server has prepared.
//!
//! Clients come and go, and a session keeps what they have had it prepare: by content, so that the
//! same statement of many clients is there once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::pool::statement::{Content, Shape};

/// Statements that one session of a server has at the same time.
pub(crate) const PREPARED_MAX: usize = 200;

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

    /// How many there have ever been.
    pub(crate) fn made(&self) -> u64 {
        self.names
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
    use crate::pool::statement::{Library, Surroundings};

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
    fn a_session_keeps_nothing_of_what_no_client_has() {
        let (library, mut prepared) = (Library::default(), Prepared::default());
        let statement = || library.of(b"select 1\0\0\0", &Surroundings::default()).expect("there is room");
        let one = statement();
        prepared.add(one.content);
        let kept = Arc::downgrade(&one);
        drop(one);
        assert!(kept.upgrade().is_none());
        let again = statement();
        assert!(prepared.find(&again.content).is_some(), "and knows it when it comes again");
    }
}

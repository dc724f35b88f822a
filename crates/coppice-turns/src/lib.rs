//! Turns at what many share.
//!
//! Work that strangers or tenants cause is done a few at a time. In a line that is served in
//! order, whoever asks for much keeps everybody else waiting; here a turn goes to whoever has
//! the fewest, and among these to whoever has waited longest since the last one. A heavy user
//! waits only behind their own requests.

mod behalf;
mod busy;
mod parted;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinError;

pub use behalf::{Behalf, Name, Shared, carried, step_aside};
pub use busy::{Busy, Work};
pub use parted::PartedTurns;

/// Turns of owners, each named by a `K`.
#[derive(Debug)]
pub struct Turns<K: Clone + Eq + Hash>(Arc<Mutex<State<K>>>);

/// Whoever holds it has a turn until it is dropped.
#[derive(Debug)]
pub struct Turn<K: Clone + Eq + Hash> {
    turns: Turns<K>,
    /// None where nobody's share counts.
    of: Option<K>,
}

#[derive(Debug)]
struct State<K: Clone + Eq + Hash> {
    /// Turns that nobody has.
    free: usize,
    /// Most turns of one owner.
    each: usize,
    /// Grows with each owner that begins to wait.
    clock: u64,
    /// Those who have a turn or wait for one.
    owners: HashMap<K, Owner<K>>,
}

#[derive(Debug)]
struct Owner<K: Clone + Eq + Hash> {
    held: usize,
    /// When it came, or had a turn last.
    waits_since: u64,
    waiting: VecDeque<oneshot::Sender<Turn<K>>>,
}

/// Who has a turn next, and how it is given.
type Next<K> = (K, oneshot::Sender<Turn<K>>);
/// What somebody waits for who came, and who has a turn next.
type Entered<K> = (oneshot::Receiver<Turn<K>>, Option<Next<K>>);

impl<K: Clone + Eq + Hash> Clone for Turns<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash> Turns<K> {
    /// So many at once, and of one owner so many of them.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: all, each, clock: 0, owners: HashMap::new() })))
    }

    /// So many of each owner at once, however many owners there are.
    #[must_use]
    pub fn of_each(each: usize) -> Self {
        Self::new(usize::MAX, each)
    }

    /// Waits for a turn.
    pub async fn take(&self, of: &K) -> Turn<K> {
        match self.take_in_line(of, usize::MAX).await {
            Some(turn) => turn,
            None => std::future::pending().await,
        }
    }

    /// Waits for a turn where fewer than `most` wait for one of the same owner.
    pub async fn take_in_line(&self, of: &K, most: usize) -> Option<Turn<K>> {
        let (comes, next) = self.0.lock().enter(of, most)?;
        self.give(next);
        match comes.await {
            Ok(turn) => Some(turn),
            // Only who has gone is dropped without a turn.
            Err(_) => std::future::pending().await,
        }
    }

    /// A turn that counts as nobody's, if one is free.
    #[must_use]
    pub fn try_take(&self) -> Option<Turn<K>> {
        let mut state = self.0.lock();
        state.free = state.free.checked_sub(1)?;
        Some(Turn { turns: self.clone(), of: None })
    }

    /// Gives a turn to who is next.
    fn give(&self, next: Option<Next<K>>) {
        let Some((next, gives)) = next else { return };
        // Comes back here, and goes to another one, if whoever waited is gone by now.
        drop(gives.send(Turn { turns: self.clone(), of: Some(next) }));
    }
}

impl<K: Clone + Eq + Hash> Owner<K> {
    fn new(now: u64) -> Self {
        Self { held: 0, waits_since: now, waiting: VecDeque::new() }
    }

    /// Whether it has a turn or waits for one, without those in front who are gone.
    fn is_there(&mut self) -> bool {
        while self.waiting.pop_front_if(|waiting| waiting.is_closed()).is_some() {}
        self.held > 0 || !self.waiting.is_empty()
    }
}

// While a turn is free, nobody waits but owners that have as many as they may. So what one of them
// does lets nobody else in then, and not all have to be looked at.
impl<K: Clone + Eq + Hash> State<K> {
    /// Lets one more wait, if fewer than `most` of its owner do. Who could have a turn at once waits
    /// for nobody.
    fn enter(&mut self, of: &K, most: usize) -> Option<Entered<K>> {
        self.clock += 1;
        let (now, free, each) = (self.clock, self.free, self.each);
        let owner = self.owners.entry(of.clone()).or_insert_with(|| Owner::new(now));
        owner.waiting.retain(|waiting| !waiting.is_closed());
        if owner.waiting.is_empty() {
            owner.waits_since = now;
        }
        if owner.waiting.len() >= most && (free == 0 || owner.held >= each) {
            return None;
        }
        let (gives, comes) = oneshot::channel();
        owner.waiting.push_back(gives);
        Some((comes, self.next_of(of)))
    }

    /// Takes a turn back, and a free one for who is next.
    fn end(&mut self, of: Option<&K>) -> Option<Next<K>> {
        let was_scarce = self.free == 0;
        self.free += 1;
        if let Some(owner) = of.and_then(|of| self.owners.get_mut(of)) {
            owner.held -= 1;
        }
        if !was_scarce {
            return self.next_of(of?);
        }
        self.owners.retain(|_, owner| owner.is_there());
        let may_have_one = |owner: &Owner<K>| owner.held < self.each && !owner.waiting.is_empty();
        let owners = self.owners.iter().filter(|(_, owner)| may_have_one(owner));
        let (next, _) = owners.min_by_key(|(_, owner)| (owner.held, owner.waits_since))?;
        self.next_of(&next.clone())
    }

    /// Takes a free turn for an owner who waits and may have one.
    fn next_of(&mut self, of: &K) -> Option<Next<K>> {
        let owner = self.owners.get_mut(of)?;
        if !owner.is_there() {
            self.owners.remove(of);
            return None;
        }
        if self.free == 0 || owner.held >= self.each {
            return None;
        }
        let gives = owner.waiting.pop_front()?;
        self.free -= 1;
        self.clock += 1;
        owner.waits_since = self.clock;
        owner.held += 1;
        Some((of.clone(), gives))
    }
}

impl<K: Clone + Eq + Hash> Drop for Turn<K> {
    fn drop(&mut self) {
        let next = self.turns.0.lock().end(self.of.as_ref());
        self.turns.give(next);
    }
}

/// Does work on a thread that may block. It holds its turns to its end, also when nobody
/// waits for it any more.
///
/// # Errors
/// When the work panics.
pub async fn do_holding<T: Send + 'static>(
    turns: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let work = move || {
        let _turns = turns;
        work()
    };
    tokio::task::spawn_blocking(work).await
}

#[cfg(test)]
mod tests;

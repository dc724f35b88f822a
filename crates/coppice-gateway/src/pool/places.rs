//! Who may have a session of a branch's server, and who waits for one.
//!
//! A branch has so many places for sessions. Who finds neither a session that
//! nobody uses nor a place waits in a queue; first come, first served, whatever
//! key they have.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What a place is worth: a session that can be used by whoever has the same key.
pub(crate) trait Seat: Send + Sized + 'static {
    /// Which clients may share it.
    type Key: Send + Sync + 'static;
    /// Its key.
    fn key(&self) -> &Arc<Self::Key>;
    /// The client that used it last.
    fn client(&self) -> u64;
    /// Gives its place up for another.
    fn into_place(self) -> Place<Self>;
}

/// The places of one branch.
pub(crate) struct Places<S: Seat>(Mutex<State<S>>);

struct State<S: Seat> {
    capacity: usize,
    /// Places that are taken: by sessions in use or not, and by those to be.
    taken: usize,
    /// Sessions that nobody uses, the latest last.
    idle: Vec<S>,
    waiters: VecDeque<Waiter<S>>,
    /// Sessions that their clients keep.
    kept: usize,
}

struct Waiter<S: Seat> {
    key: Arc<S::Key>,
    sender: oneshot::Sender<Grant<S>>,
}

/// What a client gets.
pub(crate) enum Grant<S: Seat> {
    /// A session to use.
    Seat(S),
    /// Leave to make one.
    Place(Place<S>),
}

/// A place, given back when dropped.
pub(crate) struct Place<S: Seat> {
    places: Option<Arc<Places<S>>>,
    is_kept: bool,
    /// When a session was ended for it, which the server may count for a moment.
    pub(crate) vacated: Option<Instant>,
}

/// How many clients there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowd {
    pub(crate) taken: usize,
    pub(crate) kept: usize,
    pub(crate) waiting: usize,
}

impl<S: Seat> Places<S> {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            capacity,
            taken: 0,
            idle: vec![],
            waiters: VecDeque::new(),
            kept: 0,
        })))
    }

    pub(crate) fn crowd(&self) -> Crowd {
        let state = self.0.lock();
        let waiting = state.waiters.iter().filter(|waiter| !waiter.sender.is_closed()).count();
        Crowd { taken: state.taken, kept: state.kept, waiting }
    }

    /// A session or a place, or what will bring one.
    pub(crate) fn take(
        self: &Arc<Self>,
        key: &Arc<S::Key>,
        client: u64,
    ) -> Result<Grant<S>, oneshot::Receiver<Grant<S>>> {
        let mut state = self.0.lock();
        // Who gave up is in nobody's way.
        while state.waiters.front().is_some_and(|waiter| waiter.sender.is_closed()) {
            state.waiters.pop_front();
        }
        let grant = if state.waiters.is_empty() { self.find(&mut state, key, client) } else { None };
        grant.ok_or_else(|| {
            let (sender, receiver) = oneshot::channel();
            state.waiters.push_back(Waiter { key: key.clone(), sender });
            receiver
        })
    }

    fn find(self: &Arc<Self>, state: &mut State<S>, key: &Arc<S::Key>, client: u64) -> Option<Grant<S>> {
        let fits = |seat: &S| Arc::ptr_eq(seat.key(), key);
        let own = state.idle.iter().rposition(|seat| fits(seat) && seat.client() == client);
        if let Some(index) = own.or_else(|| state.idle.iter().rposition(fits)) {
            return Some(Grant::Seat(state.idle.remove(index)));
        }
        if state.taken < state.capacity {
            state.taken += 1;
            return Some(Grant::Place(Place::of(self)));
        }
        // One that nobody uses gives its place to one of another kind.
        (!state.idle.is_empty()).then(|| Grant::Place(state.idle.remove(0).into_place()))
    }

    /// Gives a session back; returns whether nobody took it.
    pub(crate) fn give_back(self: &Arc<Self>, seat: S) -> bool {
        self.pass_on(Grant::Seat(seat))
    }

    /// To whoever waits longest; returns whether nobody does.
    fn pass_on(self: &Arc<Self>, mut grant: Grant<S>) -> bool {
        loop {
            let mut state = self.0.lock();
            let is_over = state.taken > state.capacity;
            let waiter = if is_over { None } else { state.waiters.pop_front() };
            let Some(waiter) = waiter else {
                match grant {
                    Grant::Seat(seat) if !is_over => state.idle.push(seat),
                    Grant::Seat(seat) => {
                        drop(state);
                        drop(seat);
                    }
                    Grant::Place(place) => {
                        place.forget();
                        state.taken -= 1;
                    }
                }
                return true;
            };
            drop(state);
            let fitting = match grant {
                Grant::Seat(seat) if !Arc::ptr_eq(seat.key(), &waiter.key) => Grant::Place(seat.into_place()),
                fitting => fitting,
            };
            match waiter.sender.send(fitting) {
                Ok(()) => return false,
                Err(refused) => grant = refused,
            }
        }
    }

    /// Changes how many there are; whoever waits for one more gets it.
    pub(crate) fn set_capacity(self: &Arc<Self>, capacity: usize) {
        let mut state = self.0.lock();
        state.capacity = capacity.max(1);
        while state.taken < state.capacity && !state.waiters.is_empty() {
            state.taken += 1;
            let place = Place::of(self);
            drop(state);
            self.pass_on(Grant::Place(place));
            state = self.0.lock();
        }
    }

    /// The server takes no more than there are, for now; false when there are none
    /// but the caller's.
    pub(crate) fn shrink(&self) -> bool {
        let mut state = self.0.lock();
        state.capacity = (state.taken - 1).max(1);
        state.taken > 1
    }

    /// Number of sessions that nobody uses.
    pub(crate) fn idle(&self) -> usize {
        self.0.lock().idle.len()
    }

    /// Takes out the sessions that nobody uses and for which this holds.
    pub(crate) fn take_out(&self, is_out: impl FnMut(&mut S) -> bool) -> (Vec<S>, usize) {
        let mut state = self.0.lock();
        let out = state.idle.extract_if(.., is_out).collect();
        (out, state.idle.len())
    }
}

impl<S: Seat> Place<S> {
    fn of(places: &Arc<Places<S>>) -> Self {
        Self { places: Some(places.clone()), is_kept: false, vacated: None }
    }

    fn forget(mut self) {
        self.places = None;
    }

    /// Marks it as kept by its client, or not any more; false when so many are
    /// kept that the rest would have too few.
    pub(crate) fn keep(&mut self, is_kept: bool) -> bool {
        let Some(places) = &self.places else { return false };
        if self.is_kept == is_kept {
            return true;
        }
        let mut state = places.0.lock();
        if is_kept && state.kept >= (state.capacity / 2).max(1) {
            return false;
        }
        if is_kept {
            state.kept += 1
        } else {
            state.kept -= 1
        }
        drop(state);
        self.is_kept = is_kept;
        true
    }
}

impl<S: Seat> Drop for Place<S> {
    fn drop(&mut self) {
        self.keep(false);
        if let Some(places) = self.places.take() {
            let mut next = Self::of(&places);
            next.vacated = Some(Instant::now());
            places.pass_on(Grant::Place(next));
        }
    }
}

/// Values that others have as well, found again by what they are.
pub(crate) struct Shared<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: PartialEq> Shared<T> {
    /// The value that is the same as this one.
    pub(crate) fn of(&self, value: T) -> Arc<T> {
        let mut known = self.0.lock();
        known.retain(|known| known.strong_count() > 0);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|known| **known == value) {
            return same;
        }
        let value = Arc::new(value);
        known.push(Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;

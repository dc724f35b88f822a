//! For whom work is done.
//!
//! Deep below a request its work needs what all share, and nothing there knows whose request it
//! is. So what it is done for goes along with its task, and is asked where turns are given.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Turn, Turns};

tokio::task_local! {
    static CURRENT: Arc<Behalf>;
}

/// Names whoever work is done for.
pub type Name = Arc<str>;

/// See the module.
#[derive(Debug)]
pub struct Behalf(Mutex<Known>);

struct Known {
    of: Name,
    /// Who of those that it answers for.
    part: Name,
    /// Whether the work was let in.
    has_begun: bool,
    /// What it has until it is done, or only waits.
    held: Vec<Box<dyn Send>>,
    /// Where it has turns, and how many.
    at: Vec<(usize, usize)>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("of", &self.of).field("at", &self.at).finish_non_exhaustive()
    }
}

/// A turn of whoever the work is done for; it is over when this is dropped.
#[derive(Debug)]
pub struct Shared {
    behalf: Arc<Behalf>,
    place: usize,
    /// None of work that had one there already.
    _turn: Option<Turn<Name>>,
}

impl Behalf {
    /// Of whoever is known so far.
    #[must_use]
    pub fn new(of: impl Into<Name>) -> Arc<Self> {
        let of = of.into();
        let part = of.clone();
        Arc::new(Self(Mutex::new(Known { of, part, has_begun: false, held: vec![], at: vec![] })))
    }

    /// What the current task works for; none where that is nobody in particular.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Who the current task works for, as far as that is known; empty where that is nobody in particular.
    #[must_use]
    pub fn current_name() -> Name {
        Self::current().map_or_else(|| "".into(), |behalf| behalf.name())
    }

    /// Does work for it.
    pub async fn within<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    /// Who it is, as far as that is known.
    #[must_use]
    pub fn name(&self) -> Name {
        self.0.lock().of.clone()
    }

    /// Who of those that it answers for, as far as that is known.
    #[must_use]
    pub fn part(&self) -> Name {
        self.0.lock().part.clone()
    }

    /// Whether its work was let in before.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.lock().has_begun
    }

    /// Lets its work in: it is known whose it is, and of which `part`, and it has `held` until it is done or
    /// steps aside.
    pub fn begin(&self, of: impl Into<Name>, part: impl Into<Name>, held: impl Send + 'static) {
        let mut known = self.0.lock();
        (known.of, known.part) = (of.into(), part.into());
        known.has_begun = true;
        known.held.push(Box::new(held));
    }

    /// Its work only waits from now on, or does what is counted elsewhere: others are let in. Returns
    /// whether it had anything.
    pub fn step_aside(&self) -> bool {
        let held = std::mem::take(&mut self.0.lock().held);
        // Not under its lock: who is let in may look at it.
        let had_any = !held.is_empty();
        drop(held);
        had_any
    }

    fn count(&self, place: usize, taken: bool) {
        let mut known = self.0.lock();
        match known.at.iter_mut().find(|(at, _)| *at == place) {
            Some((_, count)) if taken => *count += 1,
            Some((_, count)) => *count -= 1,
            None => known.at.push((place, 1)),
        }
    }

    fn has_turn_at(&self, place: usize) -> bool {
        self.0.lock().at.iter().any(|(at, count)| *at == place && *count > 0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.behalf.count(self.place, false);
    }
}

/// As [`Behalf::step_aside`], for the current task's work.
pub fn step_aside() {
    // Work for nobody in particular has nothing to leave.
    let _ = CURRENT.try_with(|behalf| behalf.step_aside());
}

/// Work for a task of its own, which is done for whoever the current one works for.
pub fn carried<T>(work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
    let behalf = Behalf::current();
    // Work may be large, and would be here several times.
    let work = Box::pin(work);
    async move {
        match behalf {
            Some(behalf) => behalf.within(work).await,
            None => work.await,
        }
    }
}

impl Turns<Name> {
    /// A turn for whoever the current task works for; none where that is nobody in particular. Work
    /// that has one here gets a further one at once: it would keep the first one while it waits.
    pub async fn take_for_current(&self) -> Option<Shared> {
        let behalf = Behalf::current()?;
        let place = Arc::as_ptr(&self.0).addr();
        let turn = match behalf.has_turn_at(place) {
            true => None,
            false => Some(self.take(&behalf.name()).await),
        };
        behalf.count(place, true);
        Some(Shared { behalf, place, _turn: turn })
    }
}

//! The pools of all branches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use coppice_core::BranchId;
use coppice_core::organization::Holder;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::pool::backend::{Backend, PoolKey};
use crate::pool::exchange::HELD_MAX;
use crate::pool::places::{Places, Shared};
use crate::pool::room::Room;
use crate::pool::statement::Library;
use crate::pool::unused::Unused;

/// Places before a server has said how many sessions it takes.
const CAPACITY_AT_FIRST: usize = 4;
/// The part of a server's sessions that a pool takes; the others are for
/// connections that are not pooled.
const SHARE: usize = 2;
/// How often it is looked for sessions that nobody uses any more.
const LOOKS_PER_TIMEOUT: u32 = 4;

/// See the module.
#[derive(Default)]
pub(crate) struct Pools {
    by_branch: Mutex<HashMap<BranchId, Weak<Pool>>>,
    /// Bytes that all clients have us keep.
    kept: Arc<AtomicUsize>,
    /// And those of the branches of each holder.
    kept_of: Mutex<HashMap<Holder, Weak<AtomicUsize>>>,
    unused: Arc<AtomicUsize>,
}

/// What the clients of one branch share.
pub(crate) struct Pool {
    pub(crate) places: Arc<Places<Backend>>,
    pub(crate) keys: Shared<PoolKey>,
    pub(crate) library: Library,
    /// How many sessions nobody uses, of all branches.
    unused: Arc<AtomicUsize>,
    is_watched: AtomicBool,
}

impl Pools {
    /// The pool of a branch that this holder answers for.
    pub(crate) fn of(&self, branch: &BranchId, holder: &Holder) -> Arc<Pool> {
        let mut pools = self.by_branch.lock();
        if let Some(pool) = pools.get(branch).and_then(Weak::upgrade) {
            return pool;
        }
        pools.retain(|_, pool| pool.strong_count() > 0);
        let pool = Arc::new(Pool {
            places: Places::new(CAPACITY_AT_FIRST),
            keys: Shared::default(),
            library: Library::new(Room::beside(&self.kept_of(holder), &self.kept)),
            unused: self.unused.clone(),
            is_watched: AtomicBool::new(false),
        });
        pools.insert(branch.clone(), Arc::downgrade(&pool));
        pool
    }

    fn kept_of(&self, holder: &Holder) -> Arc<AtomicUsize> {
        let mut known = self.kept_of.lock();
        if let Some(kept) = known.get(holder).and_then(Weak::upgrade) {
            return kept;
        }
        known.retain(|_, kept| kept.strong_count() > 0);
        let kept = Arc::default();
        known.insert(holder.clone(), Arc::downgrade(&kept));
        kept
    }
}

impl Pool {
    /// Notes how many sessions the server takes.
    pub(crate) fn set_sessions_max(&self, sessions_max: usize) {
        self.places.set_capacity(sessions_max / SHARE);
    }

    /// Takes a session back, which ends when nobody uses it for so long.
    pub(crate) fn give_back(self: &Arc<Self>, mut backend: Backend, idle_timeout: Duration) {
        if !backend.is_fit() {
            return;
        }
        backend.unused = Unused::among(&self.unused, self.places.idle());
        if backend.unused.is_none() {
            return;
        }
        backend.stream.trim(HELD_MAX);
        backend.idle_since = Instant::now();
        let is_unused = self.places.give_back(backend);
        if is_unused && !self.is_watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.clone().watch(idle_timeout));
        }
    }

    /// Ends sessions that nobody uses, or whose server is gone, as long as there
    /// are any that might.
    async fn watch(self: Arc<Self>, idle_timeout: Duration) {
        loop {
            tokio::time::sleep(idle_timeout / LOOKS_PER_TIMEOUT).await;
            let is_out =
                |backend: &mut Backend| backend.idle_since.elapsed() >= idle_timeout || !backend.is_alive();
            let (out, left) = self.places.take_out(is_out);
            drop(out);
            if left > 0 {
                continue;
            }
            self.is_watched.store(false, Ordering::Relaxed);
            // One may have come just before.
            if self.places.idle() == 0 || self.is_watched.swap(true, Ordering::Relaxed) {
                return;
            }
        }
    }
}

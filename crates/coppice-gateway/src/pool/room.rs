//! How much memory the clients of pools have us keep for them.
//!
//! A client without a session costs next to nothing, so there are many; what each
//! may leave here is much when all of them do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::reason::Reason;
use crate::refusal::Refusal;
use coppice_pgwire::sqlstate;

/// What the clients of one pool may have kept together, and those of all.
const POOL_BYTES_MAX: usize = 64 << 20;
const BYTES_MAX: usize = 512 << 20;
/// What those of one pool may have kept whatever the others have.
const OWN_BYTES: usize = 256 << 10;
/// What is taken by anything that is kept, beside its bytes.
const ENTRY_BYTES: usize = 128;

/// The room of one pool.
#[derive(Debug, Default)]
pub(crate) struct Room {
    taken: AtomicUsize,
    /// By all pools of who answers for its branch.
    by_holder: Arc<AtomicUsize>,
    /// By all pools.
    all: Arc<AtomicUsize>,
}

/// A part of it, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    /// That of one more pool.
    pub(crate) fn beside(by_holder: &Arc<AtomicUsize>, all: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), by_holder: by_holder.clone(), all: all.clone() })
    }

    /// Takes room for something with so many bytes.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Refusal> {
        let bytes = bytes + ENTRY_BYTES;
        let own = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let theirs = self.by_holder.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let held = Held { room: self.clone(), bytes };
        // Nobody has more than is left for the others, however many pools they fill.
        if own <= OWN_BYTES || own <= POOL_BYTES_MAX && all + theirs <= BYTES_MAX {
            return Ok(held);
        }
        let whose = if own > POOL_BYTES_MAX { "this branch's pool" } else { "all pools" };
        let message =
            format!("the clients of {whose} have too much memory for prepared statements and settings");
        Err(Refusal::new(Reason::TooMany, sqlstate::OUT_OF_MEMORY, message)
            .with_hint("Close statements that are not needed, or connect without -pooler."))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.room.by_holder.fetch_sub(self.bytes, Ordering::Relaxed);
        self.room.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = (1 << 20) - ENTRY_BYTES;

    #[test]
    fn the_clients_of_a_pool_take_so_much_together_and_it_comes_back() {
        let room = Arc::<Room>::default();
        let held: Vec<_> = (0..64).map(|_| room.hold(PART).ok()).collect();
        assert!(held.iter().all(Option::is_some));
        assert_eq!(room.hold(0).err().map(|refusal| refusal.code), Some("53200"));
        drop(held);
        assert!(room.hold(64 * PART).is_ok());
        assert_eq!(room.taken.load(Ordering::Relaxed), 0, "also what was refused");
    }

    #[test]
    fn all_pools_together_take_so_much_and_leave_as_much_as_each_of_them_has() {
        let all = Arc::default();
        let pools: Vec<_> = (0..9).map(|_| Room::beside(&Arc::default(), &all)).collect();
        let full: Vec<_> = pools[..8].iter().map_while(|room| room.hold(63 << 20).ok()).collect();
        assert_eq!(full.len(), 7);
        assert!(pools[8].hold(40 << 20).is_err());
        let newcomer = pools[8].hold(32 << 20);
        assert!(newcomer.is_ok());
        let rest: Vec<_> =
            pools[7..].iter().flat_map(|room| std::iter::from_fn(|| room.hold(1 << 20).ok())).collect();
        assert!(all.load(Ordering::Relaxed) <= BYTES_MAX);
        let little = Room::beside(&Arc::default(), &all);
        assert!(little.hold(OWN_BYTES - ENTRY_BYTES).is_ok(), "a little is there for each");
        drop((full, newcomer, rest));
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_has_many_branches_leaves_as_much_as_all_of_theirs_have() {
        let (all, theirs) = (Arc::default(), Arc::default());
        let pools: Vec<_> = (0..20).map(|_| Room::beside(&theirs, &all)).collect();
        let fill = |room: &Arc<Room>| std::iter::from_fn(|| room.hold(PART).ok()).collect::<Vec<_>>();
        let taken: Vec<_> = pools.iter().flat_map(fill).collect();
        assert_eq!(taken.len(), 256, "half of all");
        let other = fill(&Room::beside(&Arc::default(), &all));
        assert_eq!(other.len(), 64, "as if nobody else were there");
    }
}

//! How many sessions are kept that nobody uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sessions that nobody uses and that are kept for the next client, of all branches together: there
/// are as many descriptors, and no limit of clients counts them. None has more than a part of them,
/// and each may keep some of its own whatever the others have.
const UNUSED_MAX: usize = 2048;
const OF_BRANCH_MAX: usize = 512;
const OF_BRANCH_MIN: usize = 50;

/// A session that nobody uses, counted for as long as this lives.
pub(crate) struct Unused(Arc<AtomicUsize>);

impl Unused {
    /// Counts one more of a branch that has `own`; none where there are too many.
    pub(crate) fn among(all: &Arc<AtomicUsize>, own: usize) -> Option<Self> {
        let unused = Self(all.clone());
        let others = all.fetch_add(1, Ordering::Relaxed);
        let has_room = own < OF_BRANCH_MAX && others < UNUSED_MAX;
        (own < OF_BRANCH_MIN || has_room).then_some(unused)
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_branch_keeps_so_many_unused_sessions_and_leaves_some_to_each_of_the_others() {
        let all = Arc::default();
        let fill = || (0..UNUSED_MAX).map_while(|own| Unused::among(&all, own)).collect::<Vec<_>>();
        let kept = [fill(), fill(), fill(), fill(), fill()];
        let counts = kept.each_ref().map(Vec::len);
        assert_eq!(counts, [OF_BRANCH_MAX, OF_BRANCH_MAX, OF_BRANCH_MAX, OF_BRANCH_MAX, OF_BRANCH_MIN]);
        drop(kept);
        assert_eq!(all.load(Ordering::Relaxed), 0, "also what was refused");
    }
}

//! Questions about one branch, a few at a time.
//!
//! Strangers cause them, so the sessions and the time that they cost a branch
//! are bounded however many strangers there are. Those of one branch wait for
//! each other, and for no other branch.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Questions about one branch at the same time.
const TURNS: usize = 4;
/// Branches that nobody asks about any more are forgotten when there are so many.
const FORGET_FROM: usize = 1024;

/// What is being asked about, by the name that was sent.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Weak<Semaphore>>>);

impl Turns {
    /// Waits for a turn, which ends when the value is dropped.
    pub(crate) async fn take(&self, branch_name: &str) -> OwnedSemaphorePermit {
        let semaphore = self.of(branch_name);
        semaphore.acquire_owned().await.expect("it is never closed")
    }

    fn of(&self, branch_name: &str) -> Arc<Semaphore> {
        let mut branches = self.0.lock();
        if let Some(semaphore) = branches.get(branch_name).and_then(Weak::upgrade) {
            return semaphore;
        }
        if branches.len() >= FORGET_FROM {
            branches.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(TURNS));
        branches.insert(branch_name.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn a_branch_is_asked_about_a_few_times_at_once_and_others_do_not_wait() {
        let turns = Arc::<Turns>::default();
        let mut taken = vec![];
        for _ in 0..TURNS {
            taken.push(turns.take("one").await);
        }
        let next = tokio::spawn({
            let turns = turns.clone();
            async move { drop(turns.take("one").await) }
        });
        yield_now().await;
        assert!(!next.is_finished());
        drop(turns.take("two").await);
        taken.pop();
        next.await.expect("its turn came");
    }
}

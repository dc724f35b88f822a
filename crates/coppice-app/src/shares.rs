//! Turns at something that all share, of which nobody has more than a share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many turns of each that has some, or waits for one. Whoever holds one then
/// waits for a turn of all, and so keeps nobody waiting who has none.
#[derive(Debug)]
pub struct Shares<K> {
    each: usize,
    turns: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// So many for each.
    pub fn new(each: usize) -> Self {
        Self { each, turns: Mutex::default() }
    }

    /// Waits for one, which ends when the value is dropped.
    pub async fn turn(&self, of: &K) -> OwnedSemaphorePermit {
        let own = {
            let mut turns = self.turns.lock();
            // Those that nobody waits for or holds go.
            turns.retain(|_, turns| Arc::strong_count(turns) > 1);
            turns.entry(of.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
        };
        permit(own).await
    }
}

/// Nothing closes the semaphores of turns.
pub(crate) async fn permit(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    match semaphore.acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_has_its_share_and_is_forgotten_after_its_last_turn() {
        let shares = Shares::new(2);
        let mut held = vec![shares.turn(&"one").await, shares.turn(&"one").await];
        let mut third = Box::pin(shares.turn(&"one"));
        assert!(futures_util::poll!(&mut third).is_pending());
        assert!(futures_util::poll!(Box::pin(shares.turn(&"other"))).is_ready());
        held.pop();
        let third = third.await;
        assert_eq!(shares.turns.lock().len(), 2, "the other's is forgotten by the next one");
        drop((held, third));
        drop(shares.turn(&"other").await);
        assert_eq!(shares.turns.lock().len(), 1);
    }
}

//! How many branches are worked on at a time, and whose are next.

use std::sync::Arc;

use coppice_core::{BranchId, OrganizationId};
use coppice_store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::{Shares, permit};

/// Branches worked on at the same time.
const PLACES: usize = 8;

/// Places of branches that are worked on. Of an organization one branch at a time waits
/// for one together with those of others: however many it has, theirs are next but one.
pub(super) struct Places {
    free: Arc<Semaphore>,
    waiting: Shares<OrganizationId>,
}

impl Default for Places {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(PLACES)), waiting: Shares::new(1) }
    }
}

impl Places {
    /// Waits for a place. Whose a branch is, the metastore is asked only where it has to wait.
    pub(super) async fn take(&self, store: &Store, branch: &BranchId) -> OwnedSemaphorePermit {
        if let Ok(place) = self.free.clone().try_acquire_owned() {
            return place;
        }
        match store.branch_organization(branch).await {
            Ok(Some(organization)) => self.take_of(&organization).await,
            // Then the work itself finds out what is wrong.
            Ok(None) | Err(_) => permit(self.free.clone()).await,
        }
    }

    async fn take_of(&self, organization: &OrganizationId) -> OwnedSemaphorePermit {
        let _turn = self.waiting.turn(organization).await;
        permit(self.free.clone()).await
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn who_has_many_branches_that_wait_is_not_before_all_others() {
        let places = Places::default();
        let [greedy, other] = ["greedy", "other"].map(OrganizationId::from_trusted);
        let mut held = vec![];
        for _ in 0..PLACES {
            held.push(places.take_of(&greedy).await);
        }
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(places.take_of(&greedy))).collect();
        for one in &mut waiting {
            assert!(poll!(one).is_pending());
        }
        let mut late = Box::pin(places.take_of(&other));
        assert!(poll!(&mut late).is_pending());
        held.pop();
        assert!(poll!(&mut late).is_pending(), "one came before it");
        let Poll::Ready(_place) = poll!(&mut waiting[0]) else { panic!("it was first") };
        for one in &mut waiting[1..] {
            assert!(poll!(one).is_pending());
        }
        held.pop();
        assert!(poll!(&mut late).is_ready(), "and no more of the same");
    }
}

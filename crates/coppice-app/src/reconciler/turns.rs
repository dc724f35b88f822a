//! Turns of upgrades, each of which is two servers more.

use std::collections::HashMap;
use std::sync::Arc;

use coppice_core::OrganizationId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Upgrades at a time, on a host.
const PLACES: usize = 2;

/// Who may upgrade a branch now: of an organization one at a time, so that none keeps
/// all others waiting, however long its own take.
pub(super) struct Turns {
    places: Arc<Semaphore>,
    of: Mutex<HashMap<OrganizationId, Arc<Semaphore>>>,
}

/// Held for as long as an upgrade takes.
pub(super) struct Turn {
    _own: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PLACES)), of: Mutex::default() }
    }
}

impl Turns {
    /// Waits until it is the turn of an upgrade of an organization's.
    pub(super) async fn wait(&self, organization: &OrganizationId) -> Turn {
        let own = {
            let mut of = self.of.lock();
            // Those that nobody waits for or holds.
            of.retain(|_, own| Arc::strong_count(own) > 1);
            of.entry(organization.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        // Nothing closes them.
        let turn = async |semaphore: Arc<Semaphore>| match semaphore.acquire_owned().await {
            Ok(permit) => permit,
            Err(_) => std::future::pending().await,
        };
        let own = turn(own).await;
        Turn { _own: own, _place: turn(self.places.clone()).await }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_organization_that_upgrades_much_keeps_nobody_else_waiting() {
        let turns = Turns::default();
        let [greedy, other] = ["greedy", "other"].map(OrganizationId::from_trusted);
        let held = turns.wait(&greedy).await;
        let mut second = std::pin::pin!(turns.wait(&greedy));
        let moment = Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, &mut second).await.is_err(), "it waits for its own");
        let of_other = tokio::time::timeout(Duration::from_secs(60), turns.wait(&other)).await;
        assert!(of_other.is_ok(), "the other does not");
        drop(held);
        assert!(tokio::time::timeout(Duration::from_secs(60), second).await.is_ok(), "then it is its turn");
        drop(of_other);
        turns.wait(&other).await;
        assert_eq!(turns.of.lock().len(), 1, "those that nobody needs are forgotten");
    }
}

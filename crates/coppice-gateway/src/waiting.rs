//! Stage: holding a client until its branch is ready.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use coppice_core::branch::BranchState;
use coppice_core::{BranchId, network};
use coppice_pgwire::sqlstate;
use parking_lot::Mutex;

use crate::connection::{Connection, Duplex};
use crate::reason::Reason;
use crate::refusal::{End, Refusal};
use crate::{Branches, Route};

/// Clients of one address, of IPv6 of a /64, that may wait at the same time. They have not said
/// who they are yet, so an address must not be able to take all places.
const WAITERS_PER_ADDRESS_MAX: usize = 64;

/// Clients that wait, by address.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<IpAddr, usize>>);

struct Waiter<'a> {
    waiters: &'a Waiters,
    address: IpAddr,
}

impl Waiters {
    fn enter(&self, address: IpAddr) -> Result<Waiter<'_>, Refusal> {
        let address = network::source(address);
        let mut counts = self.0.lock();
        let count = counts.entry(address).or_default();
        if *count >= WAITERS_PER_ADDRESS_MAX {
            return Err(Refusal::new(
                Reason::TooMany,
                sqlstate::TOO_MANY_CONNECTIONS,
                "too many connections from this address wait for a branch",
            )
            .with_hint("Try again in a moment."));
        }
        *count += 1;
        Ok(Waiter { waiters: self, address })
    }

    /// Waits for `branch` to come to rest, as long as the client stays.
    pub(crate) async fn wait<S: Duplex>(
        &self,
        client: &mut Connection<S>,
        address: IpAddr,
        branches: &dyn Branches,
        (branch, role): (&BranchId, &str),
        patience: Duration,
    ) -> Result<Option<Route>, End> {
        let _place = self.enter(address)?;
        tokio::select! {
            error = client.gone() => Err(error.into()),
            route = branches.wait_settled(branch, role, patience) => Ok(route.map_err(Refusal::from)?),
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut counts = self.waiters.0.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Whether the server of a branch in this state takes connections.
pub(crate) fn takes_connections(state: BranchState) -> bool {
    match state {
        BranchState::Ready => true,
        BranchState::Creating
        | BranchState::Hibernating
        | BranchState::Hibernated
        | BranchState::Waking
        | BranchState::Updating
        | BranchState::Upgrading
        | BranchState::Failed
        | BranchState::Unknown
        | BranchState::Deleted => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_take_its_own_places_only() {
        let waiters = Waiters::default();
        let enter = |last| waiters.enter(IpAddr::from([127, 0, 0, last]));
        let mut places: Vec<_> = (0..WAITERS_PER_ADDRESS_MAX).map(|_| enter(1).expect("is free")).collect();
        assert_eq!(enter(1).err().map(|refusal| refusal.code), Some("53300"));
        assert!(enter(2).is_ok());
        places.pop();
        assert!(enter(1).is_ok());
        drop(places);
        assert!(waiters.0.lock().is_empty());
    }
}

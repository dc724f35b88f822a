//! Stage: the branch, and what its client has to prove.

use coppice_core::BranchId;
use coppice_core::branch::BranchState;
use coppice_engine::{KeptRole, RoleVerifier};
use tokio::time::Instant;

use crate::Route;
use crate::gateway::Gateway;
use crate::negotiate::Client;
use crate::refusal::{End, Refusal};
use crate::visit::{ATTEMPT_PAUSE, Found, Visit, next_pause, within};
use crate::waiting::takes_connections;

/// How often a branch that changes under a client's feet is looked at again.
const LOOKS_MAX: usize = 10;

impl Gateway {
    /// Looks the branch up, and asks what its client has to prove. A server that
    /// dies meanwhile is asked again when it is back.
    pub(crate) async fn find_with_verifier(
        &self,
        client: &mut Client,
        visit: &mut Visit,
    ) -> Result<(Option<Found>, Option<RoleVerifier>), End> {
        let mut pause = ATTEMPT_PAUSE;
        loop {
            let found = self.find(client, visit).await?;
            match within(visit.deadline, self.verifier(visit, found.as_ref())).await {
                Ok(verifier) => return Ok((found, verifier)),
                // Without a server that should answer, trying again helps nobody.
                Err(end) if !found.is_some_and(|found| takes_connections(found.route.state)) => {
                    return Err(end);
                }
                Err(end) => pause = next_pause(end, pause, visit.deadline).await?,
            }
        }
    }

    async fn verifier(&self, visit: &Visit, found: Option<&Found>) -> Result<Option<RoleVerifier>, End> {
        // Also where no server is asked: neither the wait nor the work tells the difference.
        let _turn = self.questions.take(&visit.destination.branch_name).await;
        let route = match Self::whom_to_ask(visit, found) {
            Ok(route) => route,
            Err(known) => {
                self.branches.ask_nobody().await;
                return Ok(known);
            }
        };
        match self.branches.verifier(route, &visit.destination.role).await {
            Ok(verifier) => Ok(verifier),
            // Nobody can be asked who the client is.
            Err(_) if !takes_connections(route.state) => Err(Refusal::not_ready_for_strangers().into()),
            Err(error) => Err(Refusal::from(error).into()),
        }
    }

    /// The route to the server that has to be asked, else what is known without.
    fn whom_to_ask<'a>(visit: &Visit, found: Option<&'a Found>) -> Result<&'a Route, Option<RoleVerifier>> {
        let found = found.ok_or(None)?;
        match &found.route.kept {
            KeptRole::Verifier(text) => Err(Some(RoleVerifier::Scram(text.clone()))),
            KeptRole::Nothing => Err(None),
            // What an address may not connect to looks to it like what is not there.
            KeptRole::Unknown if takes_connections(found.route.state) || visit.is_admitted(found) => {
                Ok(&found.route)
            }
            KeptRole::Unknown => Err(None),
        }
    }

    /// Looks the branch up, and waits until the client can be authenticated: by
    /// its server, or by what was kept when it was put to sleep.
    async fn find(&self, client: &mut Client, visit: &mut Visit) -> Result<Option<Found>, End> {
        let Some(branch) = visit.destination.branch.clone() else {
            // Looking for one that there is not takes as long as for one that there may be.
            self.look_up(&BranchId::generate(), visit).await?;
            return Ok(None);
        };
        let found = self.look_up(&branch, visit).await?;
        let is_enough = |visit: &Visit, seen: &Found| {
            let is_kept = seen.route.kept != KeptRole::Unknown;
            // Nobody waits for, or wakes, what they may not connect to. Where nothing was
            // kept, only the server can say who the client is.
            !visit.is_admitted(seen) || seen.route.state == BranchState::Hibernated && is_kept
        };
        self.settle(client, &branch, visit, found, is_enough).await
    }

    /// Waits until the branch is at rest, and wakes it if it sleeps; not longer than
    /// until enough is known.
    pub(crate) async fn settle(
        &self,
        client: &mut Client,
        branch: &BranchId,
        visit: &mut Visit,
        mut found: Option<Found>,
        is_enough: fn(&Visit, &Found) -> bool,
    ) -> Result<Option<Found>, End> {
        for _ in 0..LOOKS_MAX {
            let Some(seen) = found.as_ref().filter(|seen| !is_enough(visit, seen)) else { break };
            match seen.route.state {
                BranchState::Ready | BranchState::Failed | BranchState::Deleted => break,
                BranchState::Hibernated => {
                    if !self.wake(branch, visit).await? {
                        break;
                    }
                }
                BranchState::Creating
                | BranchState::Hibernating
                | BranchState::Waking
                | BranchState::Updating
                | BranchState::Upgrading
                | BranchState::Unknown => {}
            }
            found = self.wait(client, branch, visit).await?;
        }
        Ok(found)
    }

    pub(crate) async fn look_up(&self, branch: &BranchId, visit: &Visit) -> Result<Option<Found>, End> {
        let look = self.sessions.look(branch);
        let role = &visit.destination.role;
        let find = async { Ok(self.branches.find(branch, role).await.map_err(Refusal::from)?) };
        let route = within(visit.deadline, find).await?;
        Ok(route.map(|route| Found { route, look }))
    }

    /// Waits until the branch comes to rest. Its time is not the client's.
    async fn wait(
        &self,
        client: &mut Client,
        branch: &BranchId,
        visit: &mut Visit,
    ) -> Result<Option<Found>, End> {
        let began = Instant::now();
        let look = self.sessions.look(branch);
        let (connection, patience) = (&mut client.connection, self.config.wake_timeout);
        let (address, whom) = (visit.client.address, (branch, visit.destination.role.as_str()));
        let route = self.waiters.wait(connection, address, &*self.branches, whom, patience).await?;
        visit.deadline += began.elapsed();
        Ok(route.map(|route| Found { route, look }))
    }

    async fn wake(&self, branch: &BranchId, visit: &Visit) -> Result<bool, End> {
        let is_waking = self.branches.wake(branch, &visit.client).await.map_err(Refusal::from)?;
        if is_waking {
            visit.woken.get_or_init(Instant::now);
        }
        Ok(is_waking)
    }
}

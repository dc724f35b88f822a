//! Stage: from a client that has proved who it is to a session on its branch's server.

use coppice_core::BranchId;
use coppice_core::branch::BranchState;

use crate::Route;
use crate::authenticate::ProvenRole;
use crate::gateway::Gateway;
use crate::lookup::ATTEMPTS_MAX;
use crate::negotiate::Client;
use crate::refusal::{End, Refusal};
use crate::server::{self, Server};
use crate::sessions::{Held, Session};
use crate::visit::{ATTEMPT_PAUSE, Found, Visit, next_pause, within};
use crate::waiting::takes_connections;

/// How often its server is tried.
const REACHES_MAX: usize = 100;

/// What came of opening a session.
enum Opened {
    Session(Box<Server>, Session),
    /// The branch is about to sleep.
    Held(Held),
}

impl Gateway {
    /// Gets an authenticated client to a server. A branch that goes to sleep, or
    /// is woken, meanwhile is waited for: the client notices nothing but time.
    pub(crate) async fn reach(
        &self,
        client: &mut Client,
        visit: &mut Visit,
        mut found: Found,
        proven: &ProvenRole,
    ) -> Result<(Server, Session, Route), End> {
        let user = visit.destination.user_as_sent.clone();
        let unknown = || End::from(Refusal::wrong_password(&user));
        let branch = visit.destination.branch.clone().ok_or_else(unknown)?;
        let mut pause = ATTEMPT_PAUSE;
        for _ in 0..REACHES_MAX {
            found = self.bring_up(client, visit, &branch, found).await?;
            visit.check_address(&found)?;
            if !takes_connections(found.route.state) {
                return Err(Refusal::not_ready(&branch, &found.route).into());
            }
            match within(visit.deadline, self.open(visit, &branch, &found, proven)).await {
                Ok(Opened::Session(server, session)) => return Ok((*server, session, found.route)),
                Ok(Opened::Held(Held(Some(mut hold)))) => {
                    // Over when the sender is gone.
                    let _ = hold.changed().await;
                }
                Ok(Opened::Held(Held(None))) => {}
                Err(end) => pause = next_pause(end, pause, visit.deadline).await?,
            }
            found = self.look_up(&branch, visit).await?.ok_or_else(unknown)?;
            visit.check_address(&found)?;
        }
        Err(Refusal::server_lost().into())
    }

    /// Wakes a sleeping branch, and waits for one that is on its way.
    async fn bring_up(
        &self,
        client: &mut Client,
        visit: &mut Visit,
        branch: &BranchId,
        mut found: Found,
    ) -> Result<Found, End> {
        for _ in 0..ATTEMPTS_MAX {
            match found.route.state {
                BranchState::Ready | BranchState::Failed | BranchState::Deleted => return Ok(found),
                BranchState::Hibernated => {
                    if !self.wake(branch, visit).await? {
                        return Ok(found);
                    }
                }
                BranchState::Creating
                | BranchState::Hibernating
                | BranchState::Waking
                | BranchState::Updating
                | BranchState::Upgrading
                | BranchState::Unknown => {}
            }
            let waited = self.wait(client, branch, visit).await?;
            found = waited.ok_or_else(|| Refusal::wrong_password(&visit.destination.user_as_sent))?;
        }
        Ok(found)
    }

    async fn open(
        &self,
        visit: &Visit,
        branch: &BranchId,
        found: &Found,
        proven: &ProvenRole,
    ) -> Result<Opened, End> {
        let session = match self.sessions.begin(branch, &visit.client, found.holds_seen) {
            Ok(session) => session,
            Err(held) => return Ok(Opened::Held(held)),
        };
        self.branches.prepare(branch, &visit.destination.role).await.map_err(Refusal::from)?;
        let stream = self.branches.open(&found.route).await.map_err(Refusal::from)?;
        let server = server::sign_in(stream, &visit.destination.parameters, proven).await?;
        Ok(Opened::Session(Box::new(server), session))
    }
}

//! Stage: from a client that has proved who it is to a session on its branch's server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use coppice_core::BranchId;
use tokio::time::Instant;

use crate::Route;
use crate::authenticate::ProvenRole;
use crate::gateway::Gateway;
use crate::negotiate::Client;
use crate::refusal::{End, Refusal};
use crate::server::{self, Proof, Server};
use crate::sessions::{Held, Session};
use crate::visit::{ATTEMPT_PAUSE, Found, Visit, next_pause, within};
use crate::waiting::takes_connections;

/// How often its server is tried.
const REACHES_MAX: usize = 100;

/// For so long a replica is asked again that does not know a role yet.
const REPLICA_LAG: Duration = Duration::from_secs(2);

/// Refuses to look for a replica where there is none.
fn check_replicas(visit: &Visit, branch: &BranchId, found: &Found) -> Result<(), Refusal> {
    match visit.destination.reads_only && found.route.replicas_wanted == 0 {
        true => Err(Refusal::no_replica(branch)),
        false => Ok(()),
    }
}

/// What a session begins with that is of another role than its client.
fn parameters_of(role: &str, parameters: &[(String, String)]) -> Vec<(String, String)> {
    let named = |(name, value): &(String, String)| match name.as_str() {
        "user" => (name.clone(), role.to_owned()),
        _ => (name.clone(), value.clone()),
    };
    parameters.iter().map(named).collect()
}

/// What came of opening a session.
enum Opened {
    Session(Box<(Server, Session, Route)>),
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
        let began = Instant::now();
        for _ in 0..REACHES_MAX {
            check_replicas(visit, &branch, &found)?;
            let settled = self.settle(client, &branch, visit, Some(found), |_, _| false).await?;
            found = settled.ok_or_else(unknown)?;
            visit.check_address(&found)?;
            if !takes_connections(found.route.state) {
                return Err(Refusal::not_ready(&branch, &found.route).into());
            }
            match within(visit.deadline, self.open(visit, &branch, &found, proven)).await {
                Ok(Opened::Session(opened)) => return Ok(*opened),
                Ok(Opened::Held(held)) => held.over().await,
                Err(end) => {
                    let end = self.replica_behind(visit, &branch, began, end);
                    pause = next_pause(end, pause, visit.deadline).await?;
                }
            }
            found = self.look_up(&branch, visit).await?.ok_or_else(unknown)?;
            visit.check_address(&found)?;
        }
        Err(Refusal::server_lost().into())
    }

    async fn open(
        &self,
        visit: &Visit,
        branch: &BranchId,
        found: &Found,
        proven: &ProvenRole,
    ) -> Result<Opened, End> {
        let session = match self.sessions.begin(branch, &visit.client, &found.look) {
            Ok(session) => session,
            Err(held) => return Ok(Opened::Held(held)),
        };
        let acting = self.branches.prepare(branch, &visit.destination.role).await.map_err(Refusal::from)?;
        let route = self.choose(visit, branch, &found.route)?;
        let stream = self.branches.open(&route).await.map_err(Refusal::from)?;
        let parameters = &visit.destination.parameters;
        let server = match &acting {
            None => server::sign_in(stream, parameters, Proof::Own(proven)).await?,
            Some(acting) => {
                let parameters = parameters_of(&acting.role, parameters);
                server::sign_in(stream, &parameters, Proof::Password(&acting.password)).await?
            }
        };
        Ok(Opened::Session(Box::new((server, session, route))))
    }

    /// The route to the server that this session goes to: each replica in turn.
    fn choose(&self, visit: &Visit, branch: &BranchId, route: &Route) -> Result<Route, Refusal> {
        if !visit.destination.reads_only {
            return Ok(route.clone());
        }
        let turn = self.replica_turn.fetch_add(1, Ordering::Relaxed);
        let chosen = turn.checked_rem(route.replicas.len()).and_then(|at| route.replicas.get(at));
        let instance = chosen.ok_or_else(|| Refusal::replica_not_ready(branch))?.clone();
        Ok(Route { instance, ..route.clone() })
    }

    /// A role that its primary knows by now may still be on its way to a replica.
    fn replica_behind(&self, visit: &Visit, branch: &BranchId, began: Instant, end: End) -> End {
        match end {
            End::Refused(_) | End::RefusedByServer(_)
                if visit.destination.reads_only && began.elapsed() < REPLICA_LAG =>
            {
                Refusal::replica_not_ready(branch).into()
            }
            end => end,
        }
    }
}

//! What the gateway needs to know about branches, and who tells it.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use coppice_core::branch::BranchState;
use coppice_core::budget::UsedUp;
use coppice_core::organization::Holder;
use coppice_core::project::IpFiltering;
use coppice_core::{BranchId, InstanceId, Result};
use coppice_engine::{BoxedServerStream, KeptRole, RoleVerifier};
use coppice_pgwire::startup::CancelKey;
use zeroize::Zeroizing;

/// Where the sessions of a branch go.
#[derive(Clone, Debug)]
pub struct Route {
    /// The instance that takes writes.
    pub instance: InstanceId,
    /// Those that only read, of which any will do; those that are ready.
    pub replicas: Vec<InstanceId>,
    /// How many of those there should be.
    pub replicas_wanted: u32,
    /// The branch that it is a copy of, at whatever distance; itself when it is no copy.
    pub root: BranchId,
    /// What was last observed of the branch.
    pub state: BranchState,
    /// Why it is in that state, when that is not obvious; empty otherwise.
    pub message: String,
    /// Who answers for it: clients of a holder make room for those of others.
    pub holder: Holder,
    /// Who may connect.
    pub ip_filtering: IpFiltering,
    /// The budget that keeps it asleep, if it sleeps.
    pub used_up: Option<UsedUp>,
    /// What the client's role has to prove, where that is known without the server: while the branch sleeps,
    /// and of logins of keys.
    pub kept: KeptRole,
}

#[cfg(test)]
impl Route {
    /// That of a branch that is ready.
    pub(crate) fn ready(branch: &BranchId) -> Self {
        Self {
            instance: InstanceId::primary(branch),
            replicas: vec![],
            replicas_wanted: 0,
            root: branch.clone(),
            state: BranchState::Ready,
            message: String::new(),
            holder: Holder::from_trusted(branch.as_str()),
            ip_filtering: IpFiltering::default(),
            used_up: None,
            kept: KeptRole::Unknown,
        }
    }
}

/// The role that a session is of, where that is not the one its client signs in as.
pub struct ActingAs {
    /// Its name.
    pub role: String,
    /// Its password, which the platform made: a server asks for no more work than
    /// is usual to prove it.
    pub password: Zeroizing<String>,
}

impl std::fmt::Debug for ActingAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ActingAs({})", self.role)
    }
}

/// Knows the branches and opens connections to their servers.
///
/// It is asked on the threads that pass the bytes of sessions on: what takes more
/// than a moment belongs elsewhere. What [`open`](Self::open) returns stays on them.
#[async_trait]
pub trait Branches: Send + Sync + 'static {
    /// Looks a branch up for a client that signs in as `role`; none when there
    /// is no such branch.
    async fn find(&self, branch: &BranchId, role: &str) -> Result<Option<Route>>;

    /// What `role` has to prove, read from the running server; none when there
    /// is no such role, or clients may not use it.
    async fn verifier(&self, route: &Route, role: &str) -> Result<Option<RoleVerifier>>;

    /// Takes as long as asking a server what a role has to prove, for where
    /// there is none to ask.
    async fn ask_nobody(&self);

    /// Has the server know `role`, for a client that has proved to be it. Returns
    /// whose its session is where `role` is another name of that.
    async fn prepare(&self, branch: &BranchId, role: &str) -> Result<Option<ActingAs>>;

    /// Which of these, each a role on a branch, may have no session any more.
    async fn over(&self, of: &[(BranchId, String)]) -> Result<Vec<(BranchId, String)>>;

    /// Opens a connection to the server, before its startup packet.
    async fn open(&self, route: &Route) -> Result<BoxedServerStream>;

    /// Wakes a sleeping branch for a client; false when a connection may not
    /// wake it. Does not wait. Many calls at once are one wake.
    async fn wake(&self, branch: &BranchId, client: &ClientInfo) -> Result<bool>;

    /// Cancels what a session does that this gateway doesn't have, for one of
    /// another process; false when nobody has it.
    async fn cancel_elsewhere(&self, key: &CancelKey) -> bool;

    /// Waits until the branch is ready, asleep or failed, or `patience` is
    /// over; then tells what is true. None when there is no such branch.
    async fn wait_settled(&self, branch: &BranchId, role: &str, patience: Duration) -> Result<Option<Route>>;
}

/// Who a client says it is; the role is proved before anything is done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The role it signs in as.
    pub role: String,
    /// Its `application_name`; empty when it gave none.
    pub application: String,
    /// Its address.
    pub address: IpAddr,
}

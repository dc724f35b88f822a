//! What the gateway asks about branches and their servers.

use std::sync::Arc;
use std::time::Duration;

use coppice_core::branch::{Branch, BranchState, Goal, MANAGED_ROLE};
use coppice_core::budget::UsedUp;
use coppice_core::login::key_of_login;
use coppice_core::organization::Holder;
use coppice_core::project::IpFiltering;
use coppice_core::{BranchId, Error, InstanceId, Result, VercelLoginId};
use coppice_engine::{BoxedServerStream, KeptRole, RoleVerifier, SharedEngine};
use coppice_store::{KeptVerifier, Store};

use crate::credentials::BranchCredentials;
use crate::kept_roles::open_verifier;
use crate::logins::{ActingAs, Logins};
use crate::reconciler::Reconciler;
use crate::secrets::MasterKey;

/// How often the row is looked at where nobody tells that it changed.
const LOOK: Duration = Duration::from_millis(20);

/// A branch as far as a connection is concerned.
#[derive(Clone, Debug)]
pub struct Connectable {
    /// The branch; its state is what it is about to be, so that nobody is sent
    /// to a server that is going to stop.
    pub branch: Branch,
    /// The branch that it is a copy of, at whatever distance; itself when it is no copy.
    pub root: BranchId,
    /// Replicas that accept connections.
    pub replicas: Vec<InstanceId>,
    /// Who answers for it.
    pub holder: Holder,
    /// Who may connect.
    pub ip_filtering: IpFiltering,
    /// The budget that keeps it asleep, if it sleeps.
    pub used_up: Option<UsedUp>,
    /// What authenticates the client while it sleeps, or can't be woken; that of
    /// the login of a key at any time.
    pub kept: KeptRole,
}

/// Answers the gateway.
#[derive(Clone)]
pub struct Connections {
    store: Store,
    engine: SharedEngine,
    reconciler: Reconciler,
    key: Arc<MasterKey>,
    logins: Logins,
    credentials: BranchCredentials,
}

impl Connections {
    pub(crate) fn new(
        (store, engine, reconciler): (Store, SharedEngine, Reconciler),
        key: Arc<MasterKey>,
        logins: Logins,
        credentials: BranchCredentials,
    ) -> Self {
        Self { store, engine, reconciler, key, logins, credentials }
    }

    /// A branch that is not deleted, for a client that signs in as `role`.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn find(&self, id: &BranchId, role: &str) -> Result<Option<Connectable>> {
        let found = self.store.branch_find_for_connection(id, role).await?;
        let Some(found) = found else { return Ok(None) };
        let mut branch = found.branch;
        if branch.goal == Goal::Hibernated && branch.state != BranchState::Hibernated {
            branch.state = BranchState::Hibernating;
        } else if branch.goal == Goal::Running && branch.state == BranchState::Hibernated {
            branch.state = BranchState::Waking;
        } else if found.serves_meanwhile {
            branch.state = BranchState::Ready;
        }
        if found.is_disabled && branch.state == BranchState::Hibernated {
            branch.message = "its organization is disabled".to_owned();
        }
        let login = self.logins.kept(id, role).await?;
        let is_down = matches!(branch.state, BranchState::Hibernated | BranchState::Failed);
        // Its server may still take what its former owner knows. While it sleeps, the managed role has a new password.
        let knows_nobody = found.hands_over && !(is_down && role == MANAGED_ROLE);
        let kept = match (login, found.kept.filter(|_| is_down)) {
            (Some(login), _) => login,
            (None, _) if knows_nobody => KeptRole::Nothing,
            (None, Some(kept)) => self.kept_role(&branch, role, kept).await?,
            (None, None) => KeptRole::Unknown,
        };
        let (root, replicas) = (found.root, found.replicas);
        let (holder, ip_filtering, used_up) = (found.holder, found.ip_filtering, found.used_up);
        Ok(Some(Connectable { branch, root, replicas, holder, ip_filtering, used_up, kept }))
    }

    async fn kept_role(&self, branch: &Branch, role: &str, kept: KeptVerifier) -> Result<KeptRole> {
        let id = &branch.id;
        let now = self.engine.clean_checkpoint(&branch.volume).await.unwrap_or_else(|error| {
            tracing::warn!(branch = %id, "what branch {id} keeps for its sleep is of no use: {}", error.chain());
            None
        });
        match kept.sealed {
            _ if now.as_ref() != Some(&kept.checkpoint) => Ok(KeptRole::Unknown),
            Some(sealed) => Ok(KeptRole::Verifier(open_verifier(&self.key, id, role, &sealed)?)),
            None => Ok(KeptRole::Nothing),
        }
    }

    /// Waits until a branch comes to rest, or until `patience` is over, and
    /// returns it as it is then for a client that signs in as `role`.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn wait_until_settled(
        &self,
        id: &BranchId,
        role: &str,
        patience: Duration,
    ) -> Result<Option<Connectable>> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let changed = self.reconciler.watch(id);
            let found = self.find(id, role).await?;
            let is_settled = |found: &Connectable| {
                matches!(
                    found.branch.state,
                    BranchState::Ready | BranchState::Hibernated | BranchState::Failed
                )
            };
            if found.as_ref().is_none_or(is_settled) {
                return Ok(found);
            }
            if tokio::time::Instant::now() >= deadline {
                return Ok(found);
            }
            self.reconciler.nudge(id.clone());
            // After a hand-over another process does the work, and only the row tells.
            let look = if self.reconciler.is_stopped() { LOOK } else { patience };
            let _ = tokio::time::timeout_at(deadline, tokio::time::timeout(look, changed)).await;
        }
    }

    /// Has the server of a branch know a role before a client that has proved who
    /// it is signs in there; only logins need that. What Vercel was told is another
    /// name of the managed role, whose session it then is.
    ///
    /// # Errors
    /// `unavailable` when the login is over, or the server does not answer;
    /// `credentials_not_found` when the managed role was changed by SQL.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn prepare_role(&self, branch: &BranchId, role: &str) -> Result<Option<ActingAs>> {
        let over = || Error::unavailable(format!("the login {role} is over"));
        if let Some(login) = VercelLoginId::parse(role) {
            self.store.vercel_login_verifier(branch, &login).await?.ok_or_else(over)?;
            let found = self.find(branch, MANAGED_ROLE).await?.ok_or_else(over)?;
            let password = self.credentials.password_in_force(&found.branch).await?;
            return Ok(Some(ActingAs { role: MANAGED_ROLE, password }));
        }
        let Some(key) = key_of_login(role) else { return Ok(None) };
        let login = self.store.login_in_force(branch, &key).await?.ok_or_else(over)?;
        let instance = InstanceId::primary(branch);
        let made = self.engine.ensure_login(&instance, &login).await;
        made.map_err(|error| Error::unavailable(error.chain()))?;
        // It may have ended, and been taken away, while it was made.
        if self.store.login_in_force(branch, &key).await?.is_none() {
            let _ = self.engine.end_login(&instance, &key).await;
            return Err(over());
        }
        Ok(None)
    }

    /// What a role needs to prove, read from the running server.
    ///
    /// # Errors
    /// `unavailable` when the server does not answer.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn role_verifier(&self, instance: &InstanceId, role: &str) -> Result<Option<RoleVerifier>> {
        self.engine.verifier(instance, role).await.map_err(|error| Error::unavailable(error.chain()))
    }

    /// Takes about as long as [`Connections::role_verifier`], and tells nothing.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn ask_nobody(&self) {
        // An error shows at the next question.
        let _ = self.store.verifier_of_nobody().await;
    }

    /// Opens a connection to a running server.
    ///
    /// # Errors
    /// `unavailable` when the server does not answer.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn open_server(&self, instance: &InstanceId) -> Result<BoxedServerStream> {
        self.engine.open(instance).await.map_err(|error| Error::unavailable(error.chain()))
    }
}

//! Statements that callers of the API have carried out on a branch: as whom.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coppice_core::access::Scope;
use coppice_core::branch::{Branch, BranchState, MANAGED_ROLE, READER_ROLE};
use coppice_core::login::DatabaseRole;
use coppice_core::storage::ChangedBytes;
use coppice_core::target::InBranch;
use coppice_core::{ApiKeyId, BranchId, Error, ErrorCode, InstanceId, Result, VolumeId};
use coppice_engine::SharedEngine;
use coppice_store::Store;
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use crate::Access;
use crate::connections::Connections;
use crate::credentials::BranchCredentials;
use crate::logins::{Logins, login_of};
use crate::rows::{find_branch, find_in_project};
use crate::secrets::MasterKey;
use crate::sleep::Sleep;

/// How long a branch may take to be there for a statement.
const WAKE_PATIENCE: Duration = Duration::from_secs(12);
/// Between looks at a branch whose server does not answer.
const PAUSE: Duration = Duration::from_millis(100);

/// As whom a statement is carried out.
#[derive(Debug)]
pub struct StatementLogin {
    /// The branch.
    pub branch: BranchId,
    /// A role there.
    pub role: String,
    /// Its password.
    pub password: Zeroizing<String>,
}

/// A branch whose schema is compared.
#[derive(Debug)]
pub struct Compared {
    /// What it is called.
    pub name: String,
    /// Where its data is.
    volume: VolumeId,
    /// As whom its catalogue is read.
    pub login: StatementLogin,
}

/// Statements on branches.
#[derive(Clone)]
pub struct Statements {
    store: Store,
    engine: SharedEngine,
    key: Arc<MasterKey>,
    logins: Logins,
    credentials: BranchCredentials,
    connections: Connections,
    sleep: Sleep,
}

impl Statements {
    pub(crate) fn new(
        (store, engine, key): (Store, SharedEngine, Arc<MasterKey>),
        (logins, credentials): (Logins, BranchCredentials),
        connections: Connections,
        sleep: Sleep,
    ) -> Self {
        Self { store, engine, key, logins, credentials, connections, sleep }
    }

    /// As whom the catalogues of a branch and of another one, its parent where none
    /// is named, are read. Both are up then; `agent` is what the client calls itself.
    ///
    /// # Errors
    /// `branch_not_found`, `invalid_field`, `branch_access_denied`, `versions_differ`,
    /// `address_not_allowed`, `branch_hibernated` when one may not be woken,
    /// `branch_not_ready`
    pub async fn logins_to_compare(
        &self,
        access: &Access<InBranch>,
        against: Option<&BranchId>,
        address: IpAddr,
        agent: &str,
    ) -> Result<(Compared, Compared)> {
        let branch = find_branch(&self.store, access).await?;
        let against = against.or(branch.parent.as_ref()).ok_or_else(|| {
            let why = format!("branch {} has no parent: name the branch to compare it with", branch.name);
            Error::invalid_field("against", why)
        })?;
        access.check_other_branch(against)?;
        let against = find_in_project(&self.store, &access.target.within, against).await?;
        let (has, wants) = (branch.spec.version.major, against.spec.version.major);
        if has != wants {
            let (one, other) = (&branch.name, &against.name);
            let public = format!(
                "branch {one} has PostgreSQL {has}, branch {other} has {wants}: definitions of different releases \
                 can't be compared"
            );
            return Err(Error::Conflict { code: ErrorCode::VersionsDiffer, public });
        }
        let (login, other) = tokio::try_join!(
            self.login_as_reader(branch.id.clone(), address, agent),
            self.login_as_reader(against.id.clone(), address, agent)
        )?;
        let compared = |branch: Branch, login| Compared { name: branch.name, volume: branch.volume, login };
        Ok((compared(branch, login), compared(against, other)))
    }

    /// What a branch has of a database, by its object id, that another one has not on
    /// the disk.
    ///
    /// # Errors
    /// `service_unavailable` when its files can't be read, for example because it was
    /// just deleted.
    pub async fn changed_bytes(
        &self,
        branch: &Compared,
        against: &Compared,
        database: u32,
    ) -> Result<ChangedBytes> {
        let found = self.engine.changed_bytes(&branch.volume, &against.volume, database).await;
        found.map_err(|error| Error::unavailable(error.chain()))
    }

    /// As whom a statement is carried out that may only read: the login of a key, so
    /// that it sees no more than by a connection of its own, else the reader, for whom
    /// the branch is up then. `agent` is what the client calls itself.
    ///
    /// # Errors
    /// `branch_not_found`, and for the reader `address_not_allowed`, `branch_hibernated`
    /// when it may not be woken, `budget_reached`, `branch_not_ready`
    pub async fn reader_login(
        &self,
        access: &Access<InBranch>,
        address: IpAddr,
        agent: &str,
    ) -> Result<StatementLogin> {
        let branch = find_branch(&self.store, access).await?.id;
        match login_of(access) {
            Some(login) => self.login_of_key(branch, login).await,
            None => self.login_as_reader(branch, address, agent).await,
        }
    }

    async fn login_of_key(
        &self,
        branch: BranchId,
        login: (&ApiKeyId, DatabaseRole),
    ) -> Result<StatementLogin> {
        let password = self.logins.password(&branch, login).await?;
        Ok(StatementLogin { branch, role: login.0.to_string(), password })
    }

    async fn login_as_reader(
        &self,
        branch: BranchId,
        address: IpAddr,
        agent: &str,
    ) -> Result<StatementLogin> {
        let (password, verifier) = self.key.reader_secret(branch.as_str());
        let by = format!("a statement of {READER_ROLE} from {address} ({agent})");
        let deadline = Instant::now() + WAKE_PATIENCE;
        loop {
            let found = self.connections.find(&branch, READER_ROLE).await?;
            let found = found.ok_or_else(|| Error::branch_not_found(&branch))?;
            // Whom the filter refuses wakes nothing.
            if !found.ip_filtering.admits(address) {
                return Err(address_not_allowed(address));
            }
            match found.branch.state {
                BranchState::Ready => {
                    let instance = InstanceId::primary(&branch);
                    match self.engine.ensure_reader(&instance, &verifier).await {
                        Ok(()) => {
                            return Ok(StatementLogin { branch, role: READER_ROLE.to_owned(), password });
                        }
                        // It falls asleep, or hangs.
                        Err(error) if Instant::now() >= deadline => {
                            return Err(Error::unavailable(error.chain()));
                        }
                        Err(_) => sleep(PAUSE).await,
                    }
                }
                BranchState::Hibernated if !self.sleep.wake_for_client(&branch, &by).await? => {
                    if let Some(used_up) = self.store.budget_of_branch(&branch).await? {
                        return Err(used_up.error());
                    }
                    return Err(Error::Conflict {
                        code: ErrorCode::BranchHibernated,
                        public: format!("branch {branch} is hibernated; wake it first"),
                    });
                }
                BranchState::Failed | BranchState::Deleted => return Err(not_ready(&branch)),
                BranchState::Hibernated
                | BranchState::Creating
                | BranchState::Hibernating
                | BranchState::Waking
                | BranchState::Updating
                | BranchState::Upgrading
                | BranchState::Unknown => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(not_ready(&branch));
                    }
                    self.connections.wait_until_settled(&branch, READER_ROLE, left).await?;
                }
            }
        }
    }

    /// As whom a statement is carried out that may also change something: the
    /// managed role, for callers who may know its password, or the login of a key.
    ///
    /// # Errors
    /// `insufficient_scope`, `role_not_allowed`, `branch_not_found`,
    /// `credentials_not_found`
    pub async fn owner_login(&self, access: &Access<InBranch>) -> Result<StatementLogin> {
        access.check(Scope::CredentialsRead)?;
        let branch = find_branch(&self.store, access).await?;
        if let Some(login) = login_of(access) {
            return self.login_of_key(branch.id, login).await;
        }
        let password = self.credentials.password_in_force(&branch).await?;
        Ok(StatementLogin { branch: branch.id, role: MANAGED_ROLE.to_owned(), password })
    }

    /// Ends a session whose statement did not end in its time. A function can
    /// keep itself from being cancelled, but not from this.
    pub async fn end_statement(&self, login: &StatementLogin, process: u32) {
        let instance = InstanceId::primary(&login.branch);
        if let Err(error) = self.engine.end_session(&instance, &login.role, process).await {
            let branch = &login.branch;
            tracing::warn!(%branch, "a statement on branch {branch} can't be ended: {}", error.chain());
        }
    }
}

fn address_not_allowed(address: IpAddr) -> Error {
    Error::access_denied(
        ErrorCode::AddressNotAllowed,
        format_args!("the address filter of the project does not admit {address}"),
    )
}

fn not_ready(branch: &BranchId) -> Error {
    Error::Conflict {
        code: ErrorCode::BranchNotReady,
        public: format!("branch {branch} is not ready; look at its status"),
    }
}

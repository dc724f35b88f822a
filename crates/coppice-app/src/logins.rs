//! Logins: what a key with a database role gets in place of the managed role's
//! password, what Vercel is told in place of it, and what becomes of them.
//!
//! The gateway asks here who such a login is, awake or asleep, and its server is
//! told right before it is used. So a login is made without a server, and ends at
//! once without one; what is left of it there is taken away while the branch is up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coppice_core::branch::Branch;
use coppice_core::login::{DatabaseRole, key_of_login};
use coppice_core::organization::Holder;
use coppice_core::{ApiKeyId, BranchId, Error, ErrorCode, InstanceId, Result, VercelLoginId};
use coppice_engine::{KeptRole, SharedEngine};
use coppice_failpoint::failpoint;
use coppice_store::{KeptPassword, Store, Tx};
use coppice_turns::{Busy, Turns};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::Access;
use crate::secrets::{MasterKey, new_password, scram_verifier};

/// Servers that logins are taken off at the same time.
const SERVERS_MAX: usize = 8;
/// Of them, those of one holder.
const SERVERS_OF_HOLDER_MAX: usize = 2;
/// How long a branch rests on which one can't be taken off; doubled with each further time.
const REST_FIRST: Duration = Duration::from_secs(1);
const REST_LONGEST: Duration = Duration::from_secs(30);

/// The role that a client's session is of, where that is not the one it signs in as.
pub struct ActingAs {
    /// Its name.
    pub role: &'static str,
    /// Its password.
    pub password: Zeroizing<String>,
}

impl std::fmt::Debug for ActingAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ActingAs({})", self.role)
    }
}

/// What is remembered of ending logins from turn to turn.
#[derive(Debug)]
pub(crate) struct Endings {
    servers: Turns<Holder>,
    /// Branches whose logins are being ended, and those that rest.
    busy: Busy<BranchId>,
    stuck: Mutex<HashMap<BranchId, Stuck>>,
}

/// A branch on which a login could not be ended.
#[derive(Debug)]
struct Stuck {
    at: ApiKeyId,
    /// How often, without one that could be ended in between.
    times: u32,
}

/// What came of ending logins on a branch.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How many were ended.
    pub(crate) count: usize,
    /// The one that could not be.
    stuck_at: Option<ApiKeyId>,
}

impl Default for Endings {
    fn default() -> Self {
        let servers = Turns::new(SERVERS_MAX, SERVERS_OF_HOLDER_MAX);
        Self { servers, busy: Busy::default(), stuck: Mutex::default() }
    }
}

impl Endings {
    /// Behind which login of a branch to begin, so that one that can't be ended keeps no other.
    fn after(&self, branch: &BranchId) -> Option<ApiKeyId> {
        self.stuck.lock().get(branch).map(|stuck| stuck.at.clone())
    }

    /// Notes what came of it, and tells how long the branch rests.
    fn note(&self, branch: &BranchId, ended: Ended) -> Duration {
        let mut stuck = self.stuck.lock();
        let before = stuck.remove(branch).filter(|_| ended.count == 0).map_or(0, |before| before.times);
        let Some(at) = ended.stuck_at else { return Duration::ZERO };
        stuck.insert(branch.clone(), Stuck { at, times: before.saturating_add(1) });
        REST_FIRST.saturating_mul(1 << before.min(10)).min(REST_LONGEST)
    }

    /// Forgets branches that have nothing to be ended.
    fn retain(&self, due: &HashSet<&BranchId>) {
        self.stuck.lock().retain(|branch, _| due.contains(branch));
    }
}

/// The owner that a password is sealed for, as in the store's list of sealed columns.
fn owner(branch: &BranchId, key: &ApiKeyId) -> String {
    format!("{branch} {key}")
}

/// The key that a caller showed and what that may do by SQL, if it has a login
/// of its own.
pub(crate) fn login_of<T>(access: &Access<T>) -> Option<(&ApiKeyId, DatabaseRole)> {
    access.caller.credential.key().zip(access.caller.grant.database_role)
}

/// What keys and Vercel sign in to branches with.
#[derive(Clone)]
pub struct Logins {
    store: Store,
    engine: SharedEngine,
    key: Arc<MasterKey>,
}

impl Logins {
    pub(crate) fn new(store: Store, engine: SharedEngine, key: Arc<MasterKey>) -> Self {
        Self { store, engine, key }
    }

    /// The password of a key's login on a branch, which is made if need be.
    pub(crate) async fn password(
        &self,
        branch: &BranchId,
        (key, role): (&ApiKeyId, DatabaseRole),
    ) -> Result<Zeroizing<String>> {
        let sealed = match self.store.login_password(branch, key).await? {
            Some(sealed) => sealed,
            None => self.store.login_make(branch, key, role, &self.secret(branch, key)).await?,
        };
        self.key.open(&owner(branch, key), &sealed)
    }

    /// Gives a key's login on a branch another password. Its open sessions stay.
    pub(crate) async fn rotate_in_tx(
        &self,
        tx: &mut Tx,
        branch: &Branch,
        (key, role): (&ApiKeyId, DatabaseRole),
        username: &str,
    ) -> Result<()> {
        check_login_name(branch, key, username)?;
        let new = self.secret(&branch.id, key);
        Ok(self.store.login_set_password_in_tx(tx, &branch.id, key, role, &new).await?)
    }

    fn secret(&self, branch: &BranchId, key: &ApiKeyId) -> KeptPassword {
        let password = new_password();
        KeptPassword {
            sealed: self.key.seal(&owner(branch, key), &password),
            verifier: scram_verifier(&password),
        }
    }

    /// What a login has to prove, which is known without its server; none for a
    /// role that is no login.
    pub(crate) async fn kept(&self, branch: &BranchId, role: &str) -> Result<Option<KeptRole>> {
        let verifier = if let Some(key) = key_of_login(role) {
            self.store.login_in_force(branch, &key).await?.map(|login| login.verifier)
        } else if let Some(login) = VercelLoginId::parse(role) {
            self.store.vercel_login_verifier(branch, &login).await?
        } else {
            return Ok(None);
        };
        Ok(Some(verifier.map_or(KeptRole::Nothing, KeptRole::Verifier)))
    }

    /// Which of these, each a role on a branch, are logins that are over.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn over(&self, of: &[(BranchId, String)]) -> Result<Vec<(BranchId, String)>> {
        let (mut of_keys, mut of_vercel, mut over) = (vec![], vec![], vec![]);
        for (branch, role) in of {
            if let Some(key) = key_of_login(role) {
                of_keys.push((branch.clone(), key));
            } else if let Some(login) = VercelLoginId::parse(role) {
                of_vercel.push((branch.clone(), login));
            }
        }
        if !of_keys.is_empty() {
            let ended = self.store.logins_over(&of_keys).await?;
            over.extend(ended.into_iter().map(|(branch, key)| (branch, key.to_string())));
        }
        if !of_vercel.is_empty() {
            let ended = self.store.vercel_logins_over(&of_vercel).await?;
            over.extend(ended.into_iter().map(|(branch, login)| (branch, login.to_string())));
        }
        Ok(over)
    }

    /// Has logins that are over be taken off the servers that are up; to be called every few seconds. A server that
    /// does not answer keeps none of another holder's waiting.
    pub(crate) async fn end_due(&self, endings: &Arc<Endings>) -> Result<()> {
        let due = self.store.logins_to_end().await?;
        endings.retain(&due.iter().map(|(branch, _)| branch).collect());
        for (branch, holder) in due {
            let Some(work) = endings.busy.begin(&branch) else { continue };
            let (logins, endings) = (self.clone(), endings.clone());
            tokio::spawn(async move {
                let turn = endings.servers.take(&holder).await;
                let after = endings.after(&branch);
                let ended = end_due_on(&logins.store, &logins.engine, &branch, after.as_ref()).await;
                drop(turn);
                match ended {
                    Ok(ended) => tokio::time::sleep(endings.note(&branch, ended)).await,
                    Err(error) => {
                        tracing::warn!(%branch, "ending logins on branch {branch}: {}", error.for_log())
                    }
                }
                drop(work);
            });
        }
        Ok(())
    }
}

/// Takes logins that are over off the server of a branch, a page of them, first those behind `after`. It stops at one
/// that can't be ended: the others would most likely take their patience, too.
///
/// # Errors
/// When the metastore fails.
pub(crate) async fn end_due_on(
    store: &Store,
    engine: &SharedEngine,
    branch: &BranchId,
    after: Option<&ApiKeyId>,
) -> Result<Ended> {
    let instance = InstanceId::primary(branch);
    let mut count = 0;
    for key in store.logins_to_end_on(branch, after).await? {
        if let Err(error) = engine.end_login(&instance, &key).await {
            // It is tried again in a while, and again.
            tracing::debug!(%branch, "the login {key} on branch {branch} can't be ended yet: {}", error.chain());
            return Ok(Ended { count, stuck_at: Some(key) });
        }
        failpoint!("logins.ended");
        store.login_forget(branch, &key).await?;
        tracing::info!(%branch, "the login {key} on branch {branch} is over");
        count += 1;
    }
    Ok(Ended { count, stuck_at: None })
}

/// Whether a name means the login of a key, in either of its forms.
///
/// # Errors
/// `invalid_username`
pub(crate) fn check_login_name(branch: &Branch, key: &ApiKeyId, name: &str) -> Result<()> {
    if name == key.as_str() || name == format!("{key}.{}", branch.id) {
        return Ok(());
    }
    let public = format!("only the user {key} is managed with this key");
    Err(Error::invalid(ErrorCode::InvalidUsername, public))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(count: usize, stuck_at: Option<&str>) -> Ended {
        Ended { count, stuck_at: stuck_at.map(ApiKeyId::from_trusted) }
    }

    #[test]
    fn a_branch_that_lets_no_login_be_ended_rests_longer_each_time_and_others_do_not() {
        let (endings, seconds) = (Endings::default(), Duration::from_secs);
        let [held, other] = ["br_1", "br_2"].map(BranchId::from_trusted);
        for rest in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(endings.note(&held, ended(0, Some("key_1"))), seconds(rest));
        }
        assert_eq!(endings.note(&other, ended(0, Some("key_1"))), seconds(1));
        assert_eq!(endings.note(&held, ended(1, Some("key_2"))), seconds(1), "it lets some be ended");
        assert_eq!(endings.note(&held, ended(0, None)), Duration::ZERO);
        assert_eq!(endings.note(&held, ended(0, Some("key_1"))), seconds(1));
        endings.retain(&HashSet::from([&other]));
        assert_eq!(endings.stuck.lock().len(), 1);
    }

    #[test]
    fn a_login_that_cant_be_ended_is_the_last_of_its_branch_the_next_time() {
        let (endings, branch) = (Endings::default(), BranchId::from_trusted("br_1"));
        assert_eq!(endings.after(&branch), None);
        endings.note(&branch, ended(3, Some("key_4")));
        assert_eq!(endings.after(&branch), Some(ApiKeyId::from_trusted("key_4")));
        endings.note(&branch, ended(2, None));
        assert_eq!(endings.after(&branch), None);
    }
}

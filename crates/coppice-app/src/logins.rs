//! Logins: what a key with a database role gets in place of the managed role's
//! password, what Vercel is told in place of it, and what becomes of them.
//!
//! The gateway asks here who such a login is, awake or asleep, and its server is
//! told right before it is used. So a login is made without a server, and ends at
//! once without one; what is left of it there is taken away while the branch is up.

use std::sync::Arc;

use coppice_core::branch::Branch;
use coppice_core::login::{DatabaseRole, key_of_login};
use coppice_core::{ApiKeyId, BranchId, Error, ErrorCode, InstanceId, Result, VercelLoginId};
use coppice_engine::{KeptRole, SharedEngine};
use coppice_failpoint::failpoint;
use coppice_store::{KeptPassword, Store};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::Access;
use crate::secrets::{MasterKey, new_password, scram_verifier};

/// Logins that are taken off servers at the same time.
const AT_ONCE: usize = 8;

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

/// Which of the logins whose time is over were looked at last.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    last: Mutex<Option<(BranchId, ApiKeyId)>>,
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
    pub(crate) async fn rotate(
        &self,
        branch: &Branch,
        (key, role): (&ApiKeyId, DatabaseRole),
        username: &str,
    ) -> Result<()> {
        check_login_name(branch, key, username)?;
        let new = self.secret(&branch.id, key);
        Ok(self.store.login_set_password(&branch.id, key, role, &new).await?)
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

    /// Takes logins that are over off the servers that are up, a page of them; to
    /// be called every few seconds.
    pub(crate) async fn end_due(&self, endings: &Arc<Endings>) -> Result<()> {
        let after = endings.last.lock().take();
        let page = self.store.logins_to_end(after.as_ref()).await?;
        // One server that does not answer keeps few of the others waiting.
        stream::iter(&page).for_each_concurrent(AT_ONCE, |(branch, key)| self.end(branch, key)).await;
        *endings.last.lock() = page.into_iter().next_back();
        Ok(())
    }

    async fn end(&self, branch: &BranchId, key: &ApiKeyId) {
        let ending = async {
            let done = self.engine.end_login(&InstanceId::primary(branch), key).await;
            done.map_err(|error| Error::unavailable(error.chain()))?;
            failpoint!("logins.ended");
            Ok::<_, Error>(self.store.login_forget(branch, key).await?)
        };
        match ending.await {
            Ok(()) => tracing::info!(%branch, "the login {key} on branch {branch} is over"),
            // It is tried again in a moment, and again.
            Err(error) => {
                tracing::debug!(%branch, "the login {key} on branch {branch} can't be ended yet: {}", error.for_log());
            }
        }
    }
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

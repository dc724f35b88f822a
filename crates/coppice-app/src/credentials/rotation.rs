//! The password of a branch's managed role: what it is, and how it is replaced.
//!
//! What the owner of a branch is told is a password that the server accepts, so
//! whoever asks is answered with what the server has: the one that is shown, or
//! the next one while a rotation goes on. A password that the owner set by SQL
//! is neither; only its owner knows it.

use std::time::Duration;

use coppice_core::branch::{Branch, BranchState, Goal, MANAGED_ROLE};
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, InstanceId, Result};
use coppice_engine::SleepingRoles;
use coppice_failpoint::failpoint;
use coppice_store::{KeptPassword, ManagedRole, Tx};
use zeroize::Zeroizing;

use super::BranchCredentials;
use crate::Access;
use crate::idempotency::{branch_of_call, note_effect_in_tx};
use crate::kept_roles::{open_verifier, seal_roles, seal_verifier};
use crate::logins::login_of;
use crate::rows::{find_branch, find_branch_in_tx, lock_in_tx};
use crate::secrets::{new_password, scram_verifier};

/// How long a request waits for a rotation to be done; that goes on after it.
const ROTATION_WAIT: Duration = Duration::from_secs(2);
/// A server that takes longer is not asked which password it has.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// How often row and server are compared while a rotation changes both.
const LOOKS_MAX: u32 = 3;

/// What is known of the verifier that the managed role signs in with.
enum InForce {
    /// Nobody can be asked.
    Unknown,
    /// It can't sign in.
    Nothing,
    /// This one.
    Verifier(String),
}

impl BranchCredentials {
    /// Gives the managed role a new password, or the login of a key with a
    /// database role, which gets it at once. Returns when it is in force, or
    /// after a moment while the work goes on.
    ///
    /// # Errors
    /// `invalid_username`, `project_not_found`, `branch_not_found`
    pub async fn rotate(&self, access: &Access<InBranch>, username: &str) -> Result<()> {
        let branch = find_branch(&self.store, access).await?;
        let login = login_of(access);
        if login.is_none() {
            self.check_username(&branch, username)?;
            if branch_of_call().is_some() {
                return Ok(());
            }
        }
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let branch = find_branch_in_tx(&self.store, &mut tx, access).await?;
        if let Some(login) = login {
            self.logins.rotate_in_tx(&mut tx, &branch, login, username).await?;
            tx.commit().await?;
            return Ok(());
        }
        let id = &branch.id;
        let verifier = self.note_rotation_in_tx(&mut tx, id).await?;
        self.store.vercel_rotation_ask_in_tx(&mut tx, id).await?;
        note_effect_in_tx(&self.store, &mut tx, id).await?;
        tx.commit().await?;
        failpoint!("rotation.noted");
        self.reconciler.nudge(id.clone());
        if let Some(verifier) = verifier {
            let _ = tokio::time::timeout(ROTATION_WAIT, self.rotated(id, &verifier)).await;
        }
        Ok(())
    }

    /// Completes when the server of a branch has this password, or one that was noted later.
    async fn rotated(&self, id: &BranchId, verifier: &str) -> Result<()> {
        loop {
            let work_ended = self.reconciler.watch(id);
            let role = self.store.managed_role(id).await?;
            if role.is_none_or(|role| role.next.is_none() || role.password.verifier == verifier) {
                return Ok(());
            }
            work_ended.await;
        }
    }

    /// Notes that the managed role gets a new password. One that it was about to get is forgotten: the server may have
    /// that already, and somebody have read it whom this one is to keep out. Returns the verifier that the server has
    /// to be told, if it is up, which it is when the transaction is over and the branch nudged.
    ///
    /// # Errors
    /// `branch_not_found`
    pub(crate) async fn note_rotation_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<Option<String>> {
        let password = new_password();
        let new = KeptPassword {
            sealed: self.key.seal(id.as_str(), &password),
            verifier: scram_verifier(&password),
        };
        let role = self.store.managed_role_lock_in_tx(tx, id).await?;
        let role = role.ok_or_else(|| Error::branch_not_found(id))?;
        if role.goal == Goal::Running && role.state == BranchState::Ready {
            self.store.rotation_begin_in_tx(tx, id, &new).await?;
            return Ok(Some(new.verifier));
        }
        let kept = seal_verifier(&self.key, id, MANAGED_ROLE, &new.verifier);
        self.store.rotation_store_in_tx(tx, id, None, &new, &kept).await?;
        Ok(None)
    }

    /// Has a branch be somebody else's: it gets a password that nobody has had, what its former owner gave to roles
    /// is good for nothing, and sessions end. The branch has to be nudged when the transaction is over.
    ///
    /// # Errors
    /// `branch_not_found`
    pub(crate) async fn hand_over_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<()> {
        self.store.hand_over_begin_in_tx(tx, id).await?;
        self.note_rotation_in_tx(tx, id).await?;
        Ok(())
    }

    /// The password that the server of a branch accepts. While a rotation is replaced by another one, the server may
    /// have that of the first, which nobody knows any more; that is waited for, for a moment.
    ///
    /// # Errors
    /// `credentials_not_found` when its owner changed it by SQL, or it is still being replaced.
    pub(crate) async fn password_in_force(&self, branch: &Branch) -> Result<Zeroizing<String>> {
        let patience = tokio::time::sleep(ROTATION_WAIT);
        tokio::pin!(patience);
        let mut looks = 1;
        loop {
            let work_ended = self.reconciler.watch(&branch.id);
            let role = self.store.managed_role(&branch.id).await?;
            let role = role.ok_or_else(|| Error::branch_not_found(&branch.id))?;
            let sealed = match self.verifier_in_force(branch, &role).await? {
                InForce::Unknown => Some(&role.password.sealed),
                InForce::Verifier(verifier) if verifier == role.password.verifier => {
                    Some(&role.password.sealed)
                }
                InForce::Verifier(verifier) => {
                    role.next.as_ref().filter(|next| next.verifier == verifier).map(|next| &next.sealed)
                }
                InForce::Nothing => None,
            };
            if let Some(sealed) = sealed {
                return self.key.open(branch.id.as_str(), sealed);
            }
            if role.next.is_some() || role.is_pending {
                tokio::select! {
                    biased;
                    () = &mut patience => return Err(not_found("is given a new password; ask again in a moment")),
                    () = work_ended => {}
                }
            } else if looks < LOOKS_MAX {
                looks += 1;
            } else {
                return Err(not_found(
                    "was changed by SQL, so only whoever did that knows its password; rotate the credentials to get \
                     a new one",
                ));
            }
        }
    }

    async fn verifier_in_force(&self, branch: &Branch, role: &ManagedRole) -> Result<InForce> {
        let found = match role.state {
            BranchState::Ready => {
                let instance = InstanceId::primary(&branch.id);
                match tokio::time::timeout(LOOK_PATIENCE, self.engine.managed_verifier(&instance)).await {
                    Ok(Ok(found)) => found,
                    // It sleeps by now, or hangs.
                    Ok(Err(_)) | Err(_) => return Ok(InForce::Unknown),
                }
            }
            BranchState::Hibernated | BranchState::Failed => {
                let Some(kept) = &role.kept else { return Ok(InForce::Unknown) };
                let now = self.engine.clean_checkpoint(&branch.volume).await.unwrap_or_default();
                if now.as_ref() != Some(&kept.checkpoint) {
                    return Ok(InForce::Unknown);
                }
                let open = |sealed: &Vec<u8>| open_verifier(&self.key, &branch.id, MANAGED_ROLE, sealed);
                kept.sealed.as_ref().map(open).transpose()?
            }
            BranchState::Creating
            | BranchState::Hibernating
            | BranchState::Waking
            | BranchState::Updating
            | BranchState::Upgrading
            | BranchState::Unknown
            | BranchState::Deleted => return Ok(InForce::Unknown),
        };
        Ok(found.map_or(InForce::Nothing, InForce::Verifier))
    }

    /// Whether a name means the managed role.
    ///
    /// # Errors
    /// `invalid_username`
    pub(crate) fn check_username(&self, branch: &Branch, name: &str) -> Result<()> {
        let with_suffix = name.strip_prefix(MANAGED_ROLE).and_then(|rest| rest.strip_prefix('.'));
        let is_managed = name == MANAGED_ROLE
            || with_suffix == Some(branch.id.as_str())
            || self.user_aliases.iter().any(|alias| alias == name);
        if is_managed {
            return Ok(());
        }
        Err(Error::invalid(ErrorCode::InvalidUsername, format!("only the user {MANAGED_ROLE} is managed")))
    }

    /// Gives every verifier a row of its own that was kept together with the
    /// others of its branch, as older versions did. Where what was kept is more
    /// than is kept now, or can't be opened, it is forgotten: the branch will be
    /// woken to ask who its clients are. Repeatable.
    pub async fn spread_kept(&self) -> Result<()> {
        while let Some((branch, sealed)) = self.store.verifiers_together().await? {
            let opened = self.key.open(branch.as_str(), &sealed).ok();
            let roles = opened.and_then(|text| serde_json::from_str::<SleepingRoles>(&text).ok());
            let roles = roles.filter(SleepingRoles::is_within_bounds);
            if roles.is_none() {
                tracing::warn!(%branch, "what was kept for the sleep of branch {branch} is of no use");
            }
            let rows = roles.map(|roles| seal_roles(&self.key, &branch, roles));
            self.store.verifiers_spread(&branch, rows.as_deref()).await?;
        }
        Ok(())
    }
}

/// What became of the managed role, whose password nobody can be told.
fn not_found(why: &str) -> Error {
    Error::NotFound {
        code: ErrorCode::CredentialsNotFound,
        public: format!("credentials not found: the role {MANAGED_ROLE} {why}"),
    }
}

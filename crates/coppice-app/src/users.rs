//! The caller's own account.

use coppice_core::organization::User;
use coppice_core::{Error, ErrorCode, Result, UserId};

use coppice_store::Store;

use crate::PersonalAccess;
use crate::rows::lock_user_in_tx;

/// Accounts of people, as they see their own.
#[derive(Clone)]
pub struct Users {
    store: Store,
}

impl Users {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// The caller's account.
    pub async fn get(&self, access: &PersonalAccess) -> Result<User> {
        let user = self.store.user_find(&access.user).await?;
        user.ok_or_else(|| account_gone(&access.user))
    }

    /// Renames the caller; without a name nothing changes.
    pub async fn update(&self, access: &PersonalAccess, name: Option<&str>) -> Result<User> {
        let Some(name) = name else { return self.get(access).await };
        let mut tx = self.store.begin().await?;
        lock_user_in_tx(&self.store, &mut tx, &access.user, &access.caller.credential).await?;
        let user = self.store.user_rename_in_tx(&mut tx, &access.user, name).await?;
        tx.commit().await?;
        user.ok_or_else(|| account_gone(&access.user))
    }
}

/// A key dies with its user, so this is a race with the account's removal.
fn account_gone(_id: &UserId) -> Error {
    Error::Unauthenticated { code: ErrorCode::InvalidToken }
}

/// Keeps people who came from Vercel to the organization of their installation, and to
/// the way by which they came: whoever is removed there must not come back by another.
///
/// # Errors
/// `role_not_allowed`
pub(crate) async fn check_not_from_vercel(store: &Store, user: &UserId) -> Result<()> {
    if !store.is_from_vercel(user).await? {
        return Ok(());
    }
    let why = "an account of somebody who comes from Vercel is for the organization of their installation alone, and \
               has no password: come from Vercel, or sign in with another account";
    Err(Error::access_denied(ErrorCode::RoleNotAllowed, why))
}

//! The caller's own account.

use coppice_core::organization::User;
use coppice_core::{Error, ErrorCode, Result, UserId};

use crate::{App, PersonalAccess};

impl App {
    /// The caller's account.
    pub async fn get_user(&self, access: &PersonalAccess) -> Result<User> {
        let user = self.store.user_find(&access.user).await?;
        user.ok_or_else(|| account_gone(&access.user))
    }

    /// Renames the caller; without a name nothing changes.
    pub async fn update_user(&self, access: &PersonalAccess, name: Option<&str>) -> Result<User> {
        let Some(name) = name else { return self.get_user(access).await };
        let user = self.store.user_rename(&access.user, name).await?;
        user.ok_or_else(|| account_gone(&access.user))
    }
}

/// A key dies with its user, so this is a race with the account's removal.
fn account_gone(_id: &UserId) -> Error {
    Error::Unauthenticated { code: ErrorCode::InvalidToken }
}

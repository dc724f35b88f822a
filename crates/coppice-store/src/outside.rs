//! Users whom an outside provider vouches for.

use coppice_core::sign_up::SignUp;
use coppice_core::{UserId, email};

use crate::{Result, Store};

/// What there is under an address that somebody verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifiedUser {
    /// An account, which was perhaps made just now.
    Account(UserId),
    /// An account that must not be used.
    Disabled,
    /// None, and none may be made.
    Absent,
}

impl Store {
    /// Whether a user has a password; false also when there is no such user.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn user_has_password(&self, user: &UserId) -> Result<bool> {
        let query = sqlx::query_scalar("select password is not null from users where id = $1");
        let found: Option<bool> = query.bind(user.as_str()).fetch_optional(&self.pool).await?;
        Ok(found.unwrap_or(false))
    }

    /// The user with this address, without regard to the case of ASCII letters. If there is none
    /// and `sign_up` allows it, one with the id `new` and this name is made.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn user_by_verified_email(
        &self,
        new: &UserId,
        email: &str,
        name: &str,
        sign_up: SignUp,
    ) -> Result<VerifiedUser> {
        let email = email::folded(email);
        let mut tx = self.begin().await?;
        let may_sign_up = match sign_up {
            SignUp::Open => true,
            SignUp::Off => false,
            SignUp::Invite => {
                let invited = sqlx::query_scalar(
                    "select exists (select from invitations where email = $1 and expires_at > now())",
                );
                invited.bind(&email).fetch_one(&mut *tx).await?
            }
        };
        if may_sign_up {
            sqlx::query(
                "insert into users (id, email, name) values ($1, $2, $3) on conflict (lower(email)) do nothing",
            )
            .bind(new.as_str())
            .bind(&email)
            .bind(name)
            .execute(&mut *tx)
            .await?;
        }
        let found: Option<(String, bool)> =
            sqlx::query_as("select id, disabled from users where lower(email) = $1")
                .bind(&email)
                .fetch_optional(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(match found {
            Some((id, false)) => VerifiedUser::Account(UserId::from_trusted(id)),
            Some((_, true)) => VerifiedUser::Disabled,
            None => VerifiedUser::Absent,
        })
    }
}

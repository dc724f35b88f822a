//! Users whom an outside provider vouches for.

use coppice_core::{UserId, email};

use crate::{Holdings, Owner, Result, Store};

/// What there is under an address that somebody verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifiedUser {
    /// An account.
    Account(UserId),
    /// An account that was made just now.
    Made(UserId),
    /// An account that somebody had made without showing that the address is
    /// theirs. From now on it is its owner's: password, sessions, keys and what
    /// clients were allowed are gone.
    Reclaimed(UserId, Holdings),
    /// An account that must not be used.
    Disabled,
    /// None, and none may be made.
    Absent,
}

impl Store {
    /// Whether a user has a password; false also when there is no such user.
    pub async fn user_has_password(&self, user: &UserId) -> Result<bool> {
        let query = sqlx::query_scalar("select password is not null from users where id = $1");
        let found: Option<bool> = query.bind(user.as_str()).fetch_optional(&self.pool).await?;
        Ok(found.unwrap_or(false))
    }

    /// Whether somebody has invited this address, to any organization.
    pub async fn is_invited(&self, address: &str) -> Result<bool> {
        let query = sqlx::query_scalar(
            "select exists (select from invitations where email = $1 and expires_at > now())",
        );
        Ok(query.bind(email::folded(address)).fetch_one(&self.pool).await?)
    }

    /// The user with this address, without regard to the case of ASCII letters,
    /// for whoever shows that it is theirs. If there is none and there may be
    /// one, one with the id `new` and this name is made.
    pub async fn user_by_verified_email(
        &self,
        new: &UserId,
        email: &str,
        name: &str,
        may_be_made: bool,
    ) -> Result<VerifiedUser> {
        let email = email::folded(email);
        let mut tx = self.begin().await?;
        if may_be_made {
            sqlx::query(
                "insert into users (id, email, email_verified, name) values ($1, $2, true, $3)
                 on conflict (lower(email)) do nothing",
            )
            .bind(new.as_str())
            .bind(&email)
            .bind(name)
            .execute(&mut *tx)
            .await?;
        }
        let found: Option<(String, bool, bool)> =
            sqlx::query_as("select id, disabled, email_verified from users where lower(email) = $1")
                .bind(&email)
                .fetch_optional(&mut *tx)
                .await?;
        let found = match found {
            None => VerifiedUser::Absent,
            Some((_, true, _)) => VerifiedUser::Disabled,
            Some((id, false, true)) if id == new.as_str() => VerifiedUser::Made(UserId::from_trusted(id)),
            Some((id, false, true)) => VerifiedUser::Account(UserId::from_trusted(id)),
            Some((id, false, false)) => {
                let user = UserId::from_trusted(id);
                match self.user_reclaim_in_tx(&mut tx, &user, Owner::default()).await? {
                    Some(taken) => VerifiedUser::Reclaimed(user, taken),
                    None => VerifiedUser::Account(user),
                }
            }
        };
        tx.commit().await?;
        Ok(found)
    }
}

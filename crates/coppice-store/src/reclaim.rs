//! Accounts that were made by somebody who did not show that the address is theirs, and what
//! becomes of them once its owner comes.

use std::fmt::{self, Display, Formatter};

use coppice_core::UserId;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// What lets somebody in to an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct Holdings {
    /// Whether it has a password.
    pub has_password: bool,
    /// Whether it has a second factor.
    pub has_second_factor: bool,
    /// Its API keys.
    pub keys: i64,
    /// Sessions of browsers and clients.
    pub sessions: i64,
    /// Clients that were allowed to act for it.
    pub clients: i64,
    /// Organizations that it is a member of, which lets nobody in to it.
    pub organizations: i64,
    /// Those of them that it owns.
    pub owned: i64,
}

impl Holdings {
    /// What the account goes on as when its owner comes, since most often it is the same person who
    /// made it; none where that is nothing.
    pub fn membership(&self) -> Option<String> {
        let of = match self.organizations {
            0 => return None,
            1 => "a member of 1 organization".to_owned(),
            several => format!("a member of {several} organizations"),
        };
        Some(if self.owned == 0 { of } else { format!("{of} and the owner of {}", self.owned) })
    }
}

impl Display for Holdings {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counted = |count: i64, one: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {one}s")),
        };
        let words = [
            self.has_password.then(|| "a password".to_owned()),
            self.has_second_factor.then(|| "a second factor".to_owned()),
            counted(self.keys, "API key"),
            counted(self.sessions, "session"),
            counted(self.clients, "allowed client"),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

/// What whoever has the address of an account is to be known by from then on.
#[derive(Clone, Copy, Default)]
pub struct Owner<'a> {
    /// Their name; as it was when absent.
    pub name: Option<&'a str>,
    /// Hash of their password, as a PHC string, if they have one.
    pub password: Option<&'a str>,
}

impl fmt::Debug for Owner<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

const HOLDINGS: &str = "
    select password is not null as has_password, has_second_factor,
           (select count(*) from api_keys where user_id = $1) as keys,
           (select count(*) from browser_sessions where user_id = $1)
               + (select count(*) from sessions where user_id = $1) as sessions,
           (select count(distinct client_id) from consents where user_id = $1) as clients,
           (select count(*) from members where user_id = $1) as organizations,
           (select count(*) from members where user_id = $1 and role = 'owner') as owned
    from users where id = $1 and not email_verified";

impl Store {
    /// What lets somebody in to an account that nobody has verified; none when it is verified, or
    /// gone.
    pub async fn unverified_holdings(&self, user: &UserId) -> Result<Option<Holdings>> {
        Ok(sqlx::query_as(HOLDINGS).bind(user.as_str()).fetch_optional(&self.pool).await?)
    }

    /// Gives an account that nobody has verified to whoever has its address. Nothing that whoever
    /// made it may know or hold lets anybody in any more; returns what that was. None when it is
    /// verified: it stays as it is.
    pub async fn user_reclaim_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        owner: Owner<'_>,
    ) -> Result<Option<Holdings>> {
        self.user_lock_in_tx(tx, user).await?;
        // Meanwhile its owner may have done so in another window.
        let holdings: Option<Holdings> =
            sqlx::query_as(HOLDINGS).bind(user.as_str()).fetch_optional(&mut **tx).await?;
        if holdings.is_none() {
            return Ok(None);
        }
        sqlx::query(
            "update users set email_verified = true, name = coalesce($2, name), password = $3, totp_sealed = null,
                    totp_step = null, has_second_factor = false
             where id = $1",
        )
        .bind(user.as_str())
        .bind(owner.name)
        .bind(owner.password)
        .execute(&mut **tx)
        .await?;
        self.user_end_sessions_in_tx(tx, user, None).await?;
        for statement in [
            "delete from passkeys where user_id = $1",
            "delete from recovery_codes where user_id = $1",
            "delete from api_keys where user_id = $1",
            "delete from sign_in_sources where user_id = $1",
        ] {
            sqlx::query(statement).bind(user.as_str()).execute(&mut **tx).await?;
        }
        Ok(holdings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lets_somebody_in_is_told_in_words() {
        assert_eq!(Holdings::default().to_string(), "nothing");
        let all = Holdings {
            has_password: true,
            has_second_factor: true,
            keys: 2,
            sessions: 1,
            clients: 3,
            organizations: 4,
            owned: 0,
        };
        let told = "a password, a second factor, 2 API keys, 1 session, 3 allowed clients";
        assert_eq!(all.to_string(), told);
        assert_eq!(all.membership().as_deref(), Some("a member of 4 organizations"));
        let owner = Holdings { organizations: 1, owned: 1, ..all };
        assert_eq!(owner.membership().as_deref(), Some("a member of 1 organization and the owner of 1"));
        assert_eq!(Holdings::default().membership(), None);
    }
}

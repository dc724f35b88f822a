//! The second factor of people: the secret of their codes or a passkey, what
//! helps who has lost that, and sign-ins that wait for it.

use chrono::{DateTime, Utc};
use coppice_core::UserId;
use coppice_core::authentication::Methods;
use serde_json::Value;
use sqlx::FromRow;

use crate::passkeys::PASSKEYS_MAX;
use crate::{Result, Store, Tx};

/// A person's second factor.
#[derive(Clone, FromRow)]
pub struct SecondFactor {
    /// The sealed secret that the codes of their app are made with, if they
    /// have one.
    pub totp_sealed: Option<Vec<u8>>,
    /// How many passkeys they have.
    pub passkeys: i64,
    /// How many recovery codes are left.
    pub recovery_codes: i64,
}

impl std::fmt::Debug for SecondFactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecondFactor({} passkeys, {} recovery codes)", self.passkeys, self.recovery_codes)
    }
}

/// What shows that somebody has their second factor; each is good once.
#[derive(Clone, Copy)]
pub enum SecondProof<'a> {
    /// A code of this time step, by the secret that was found.
    Totp {
        /// The secret, as it was found.
        sealed: &'a [u8],
        /// The step.
        step: i64,
    },
    /// A recovery code.
    Recovery {
        /// Its hash.
        code_hash: &'a str,
    },
    /// A passkey, which signed a question that nobody can answer again.
    Passkey {
        /// Its id.
        id: &'a str,
        /// What was kept of it when it was asked.
        before: &'a Value,
        /// What is kept of it from now on.
        after: &'a Value,
    },
}

impl std::fmt::Debug for SecondProof<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Totp { .. } => "Totp",
            Self::Recovery { .. } => "Recovery",
            Self::Passkey { .. } => "Passkey",
        })
    }
}

/// What is a second factor.
#[derive(Clone, Copy)]
pub enum AddedFactor<'a> {
    /// An authenticator app.
    Totp {
        /// Its sealed secret.
        sealed: &'a [u8],
        /// The step of the code that showed that they have it.
        step: i64,
    },
    /// A passkey.
    Passkey {
        /// What devices know it by.
        id: &'a str,
        /// What the person calls it.
        name: &'a str,
        /// What is kept of it.
        credential: &'a Value,
    },
}

impl std::fmt::Debug for AddedFactor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Totp { .. } => "Totp",
            Self::Passkey { .. } => "Passkey",
        })
    }
}

/// What came of adding a second factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// It is the first one.
    First,
    /// There was one before.
    Another,
    /// It can't be added: there is an app, there are too many passkeys, or the
    /// session it is added in has ended.
    Refused,
}

/// A second factor to be added.
#[derive(Clone, Copy)]
pub struct NewSecondFactor<'a> {
    /// Whose.
    pub user: &'a UserId,
    /// What it is.
    pub factor: AddedFactor<'a>,
    /// Hashes of the recovery codes, which count if it is the first one.
    pub recovery_codes: &'a [String],
    /// Hash of the browser session it is added in.
    pub session: &'a str,
}

impl std::fmt::Debug for NewSecondFactor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewSecondFactor({})", self.user)
    }
}

/// Somebody who has shown the first factor.
#[derive(Clone, Debug)]
pub struct HalfSignIn {
    /// Hash of what the browser keeps.
    pub id_hash: String,
    /// Who.
    pub user: UserId,
    /// Their address.
    pub email: String,
    /// Whether they were asked just now who they are.
    pub was_asked: bool,
    /// What they have shown.
    pub methods: Methods,
}

/// A sign-in that is to wait for the second factor.
#[derive(Clone, Copy)]
pub struct NewHalfSignIn<'a> {
    /// Hash of what the browser keeps.
    pub id_hash: &'a str,
    /// Who.
    pub user: &'a UserId,
    /// The hash that their password was compared with, if that is how they
    /// showed who they are.
    pub password: Option<&'a str>,
    /// Whether they were asked just now who they are.
    pub was_asked: bool,
    /// What they have shown.
    pub methods: &'a Methods,
    /// When it is too late.
    pub expires_at: DateTime<Utc>,
}

impl std::fmt::Debug for NewHalfSignIn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewHalfSignIn({})", self.user)
    }
}

#[derive(FromRow)]
struct HalfSignInRow {
    id_hash: String,
    user_id: String,
    email: String,
    was_asked: bool,
    methods: Vec<String>,
}

impl Store {
    /// A person's second factor, if they have one.
    pub async fn second_factor_find(&self, user: &UserId) -> Result<Option<SecondFactor>> {
        let query = sqlx::query_as(
            "select totp_sealed, (select count(*) from passkeys where user_id = u.id) as passkeys,
                    (select count(*) from recovery_codes where user_id = u.id) as recovery_codes
             from users u where id = $1 and has_second_factor",
        );
        Ok(query.bind(user.as_str()).fetch_optional(&self.pool).await?)
    }

    /// Adds a second factor. The first one ends every session of theirs: none of
    /// them has shown it, and of a cookie there may be copies.
    pub async fn second_factor_add_in_tx(&self, tx: &mut Tx, new: &NewSecondFactor<'_>) -> Result<Addition> {
        let user = new.user.as_str();
        self.user_lock_in_tx(tx, new.user).await?;
        let had_one: Option<bool> = sqlx::query_scalar("select has_second_factor from users where id = $1")
            .bind(user)
            .fetch_optional(&mut **tx)
            .await?;
        if !self.factor_insert_in_tx(tx, user, new.factor).await?
            || !self.browser_session_lives_in_tx(tx, new.user, new.session).await?
        {
            return Ok(Addition::Refused);
        }
        if had_one == Some(true) {
            return Ok(Addition::Another);
        }
        self.recovery_codes_replace_in_tx(tx, new.user, new.recovery_codes).await?;
        self.user_end_sessions_in_tx(tx, new.user, None).await?;
        Ok(Addition::First)
    }

    async fn factor_insert_in_tx(&self, tx: &mut Tx, user: &str, factor: AddedFactor<'_>) -> Result<bool> {
        let inserted = match factor {
            AddedFactor::Totp { sealed, step } => {
                sqlx::query(
                    "update users set totp_sealed = $2, totp_step = $3, has_second_factor = true
                     where id = $1 and totp_sealed is null",
                )
                .bind(user)
                .bind(sealed)
                .bind(step)
                .execute(&mut **tx)
                .await?
            }
            AddedFactor::Passkey { id, name, credential } => {
                sqlx::query("update users set has_second_factor = true where id = $1")
                    .bind(user)
                    .execute(&mut **tx)
                    .await?;
                sqlx::query(
                    "insert into passkeys (id, user_id, name, credential) select $2, $1, $3, $4
                     where (select count(*) from passkeys where user_id = $1) < $5
                     on conflict do nothing",
                )
                .bind(user)
                .bind(id)
                .bind(name)
                .bind(credential)
                .bind(PASSKEYS_MAX as i64)
                .execute(&mut **tx)
                .await?
            }
        };
        Ok(inserted.rows_affected() == 1)
    }

    /// Uses a proof up. False when it was used before, or is none (any more).
    /// The user's row is locked until the transaction ends.
    pub async fn second_factor_use_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        proof: SecondProof<'_>,
    ) -> Result<bool> {
        self.user_lock_in_tx(tx, user).await?;
        let user = user.as_str();
        let statement = match proof {
            SecondProof::Totp { sealed, step } => sqlx::query(
                "update users set totp_step = $2 where id = $1 and totp_sealed = $3 and totp_step < $2",
            )
            .bind(user)
            .bind(step)
            .bind(sealed),
            SecondProof::Recovery { code_hash } => {
                sqlx::query("delete from recovery_codes where user_id = $1 and code_hash = $2")
                    .bind(user)
                    .bind(code_hash)
            }
            SecondProof::Passkey { id, before, after } => sqlx::query(
                "update passkeys set credential = $4, last_used_at = now()
                 where user_id = $1 and id = $2 and credential = $3",
            )
            .bind(user)
            .bind(id)
            .bind(before)
            .bind(after),
        };
        Ok(statement.execute(&mut **tx).await?.rows_affected() == 1)
    }

    /// Gives a person other recovery codes than those until now.
    pub async fn recovery_codes_replace_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        hashes: &[String],
    ) -> Result<()> {
        sqlx::query("delete from recovery_codes where user_id = $1")
            .bind(user.as_str())
            .execute(&mut **tx)
            .await?;
        sqlx::query("insert into recovery_codes (user_id, code_hash) select $1, unnest($2::text[])")
            .bind(user.as_str())
            .bind(hashes)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Removes all that is a person's second factor, ends every session of theirs,
    /// and lets their keys count as made without. False when they have none.
    pub async fn second_factor_remove_in_tx(&self, tx: &mut Tx, user: &UserId) -> Result<bool> {
        let done = sqlx::query(
            "update users set totp_sealed = null, totp_step = null, has_second_factor = false
             where id = $1 and has_second_factor",
        )
        .bind(user.as_str())
        .execute(&mut **tx)
        .await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        self.recovery_codes_replace_in_tx(tx, user, &[]).await?;
        for statement in [
            "delete from passkeys where user_id = $1",
            "update api_keys set with_second_factor = false where user_id = $1",
        ] {
            sqlx::query(statement).bind(user.as_str()).execute(&mut **tx).await?;
        }
        self.user_end_sessions_in_tx(tx, user, None).await?;
        Ok(true)
    }

    /// Lets somebody wait for their second factor. False when they are disabled
    /// or gone, or have another password by now.
    pub async fn half_sign_in_insert(&self, new: &NewHalfSignIn<'_>) -> Result<bool> {
        let done = sqlx::query(
            "insert into half_sign_ins (id_hash, user_id, was_asked, methods, expires_at)
             select $1, u.id, $3, $4, $5 from users u
             where u.id = $2 and not u.disabled and ($6::text is null or u.password = $6)
             for share of u",
        )
        .bind(new.id_hash)
        .bind(new.user.as_str())
        .bind(new.was_asked)
        .bind(new.methods.words())
        .bind(new.expires_at)
        .bind(new.password)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// A sign-in that waits for the second factor.
    pub async fn half_sign_in_find(&self, id_hash: &str) -> Result<Option<HalfSignIn>> {
        let row: Option<HalfSignInRow> = sqlx::query_as(
            "select h.id_hash, h.user_id, u.email, h.was_asked, h.methods
             from half_sign_ins h join users u on u.id = h.user_id
             where h.id_hash = $1 and h.expires_at > now() and not u.disabled",
        )
        .bind(id_hash)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| HalfSignIn {
            id_hash: row.id_hash,
            user: UserId::from_trusted(row.user_id),
            email: row.email,
            was_asked: row.was_asked,
            methods: row.methods.into(),
        }))
    }

    /// Ends the waiting. False when it has ended.
    pub async fn half_sign_in_end_in_tx(&self, tx: &mut Tx, id_hash: &str) -> Result<bool> {
        let done = sqlx::query("delete from half_sign_ins where id_hash = $1 and expires_at > now()")
            .bind(id_hash)
            .execute(&mut **tx)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

//! The second factor of people: the secret of their codes, what helps who has
//! lost it, and sign-ins that wait for it.

use chrono::{DateTime, Utc};
use coppice_core::UserId;
use coppice_core::authentication::Methods;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// A person's second factor.
#[derive(Clone, FromRow)]
pub struct SecondFactor {
    /// The sealed secret that their codes are made with.
    pub totp_sealed: Vec<u8>,
    /// How many recovery codes are left.
    pub recovery_codes: i64,
}

impl std::fmt::Debug for SecondFactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecondFactor({} recovery codes)", self.recovery_codes)
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
}

impl std::fmt::Debug for SecondProof<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Totp { .. } => "Totp",
            Self::Recovery { .. } => "Recovery",
        })
    }
}

/// A second factor to be added.
#[derive(Clone, Copy)]
pub struct NewSecondFactor<'a> {
    /// Whose.
    pub user: &'a UserId,
    /// The sealed secret.
    pub totp_sealed: &'a [u8],
    /// The step of the code that showed that they have it.
    pub step: i64,
    /// Hashes of the recovery codes.
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
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn second_factor_find(&self, user: &UserId) -> Result<Option<SecondFactor>> {
        let query = sqlx::query_as(
            "select totp_sealed, (select count(*) from recovery_codes where user_id = u.id) as recovery_codes
             from users u where id = $1 and totp_sealed is not null",
        );
        Ok(query.bind(user.as_str()).fetch_optional(&self.pool).await?)
    }

    /// Adds a second factor, and ends every session of theirs: none of them has
    /// shown it, and of a cookie there may be copies. False when there is one,
    /// or the session it is added in has ended.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn second_factor_add_in_tx(&self, tx: &mut Tx, new: &NewSecondFactor<'_>) -> Result<bool> {
        let added = sqlx::query(
            "update users set totp_sealed = $2, totp_step = $3 where id = $1 and totp_sealed is null",
        )
        .bind(new.user.as_str())
        .bind(new.totp_sealed)
        .bind(new.step)
        .execute(&mut **tx)
        .await?;
        if added.rows_affected() == 0 || !self.browser_session_lives_in_tx(tx, new.user, new.session).await? {
            return Ok(false);
        }
        self.recovery_codes_replace_in_tx(tx, new.user, new.recovery_codes).await?;
        self.user_end_sessions_in_tx(tx, new.user, None).await?;
        Ok(true)
    }

    /// Uses a proof up. False when it was used before, or is none (any more).
    /// The user's row is locked until the transaction ends.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn second_factor_use_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        proof: SecondProof<'_>,
    ) -> Result<bool> {
        let done =
            match proof {
                SecondProof::Totp { sealed, step } => sqlx::query(
                    "update users set totp_step = $2 where id = $1 and totp_sealed = $3 and totp_step < $2",
                )
                .bind(user.as_str())
                .bind(step)
                .bind(sealed)
                .execute(&mut **tx)
                .await?,
                SecondProof::Recovery { code_hash } => {
                    self.user_lock_in_tx(tx, user).await?;
                    sqlx::query("delete from recovery_codes where user_id = $1 and code_hash = $2")
                        .bind(user.as_str())
                        .bind(code_hash)
                        .execute(&mut **tx)
                        .await?
                }
            };
        Ok(done.rows_affected() == 1)
    }

    /// Gives a person other recovery codes than those until now.
    ///
    /// # Errors
    /// When the metastore can't be reached.
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

    /// Removes a person's second factor, ends every session of theirs, and lets
    /// their keys count as made without. False when they have none.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn second_factor_remove_in_tx(&self, tx: &mut Tx, user: &UserId) -> Result<bool> {
        let done = sqlx::query(
            "update users set totp_sealed = null, totp_step = null where id = $1 and totp_sealed is not null",
        )
        .bind(user.as_str())
        .execute(&mut **tx)
        .await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        self.recovery_codes_replace_in_tx(tx, user, &[]).await?;
        sqlx::query("update api_keys set with_second_factor = false where user_id = $1")
            .bind(user.as_str())
            .execute(&mut **tx)
            .await?;
        self.user_end_sessions_in_tx(tx, user, None).await?;
        Ok(true)
    }

    /// Lets somebody wait for their second factor. False when they are disabled
    /// or gone, or have another password by now.
    ///
    /// # Errors
    /// When the metastore can't be reached.
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
    ///
    /// # Errors
    /// When the metastore can't be reached.
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
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn half_sign_in_end_in_tx(&self, tx: &mut Tx, id_hash: &str) -> Result<bool> {
        let done = sqlx::query("delete from half_sign_ins where id_hash = $1 and expires_at > now()")
            .bind(id_hash)
            .execute(&mut **tx)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

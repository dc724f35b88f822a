//! Passkeys of people, and what browsers are asked about them.

use chrono::{DateTime, Utc};
use coppice_core::UserId;
use serde_json::Value;
use sqlx::FromRow;

use crate::{Renewed, Result, Store, Tx};

/// Most passkeys of one person.
pub const PASSKEYS_MAX: usize = 20;

/// A passkey of a person.
#[derive(Clone, Debug, FromRow)]
pub struct PasskeyRow {
    /// What devices know it by.
    pub id: String,
    /// What the person calls it.
    pub name: String,
    /// Its public half, and what was last seen of it.
    pub credential: Value,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// When it was last shown.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// What became of a passkey that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasskeyRemoval {
    /// It is gone.
    Done,
    /// It is the only second factor: the transaction must not be committed.
    Last,
    /// There is none.
    Absent,
}

impl Store {
    /// A person's passkeys, the first one first.
    pub async fn passkey_list(&self, user: &UserId) -> Result<Vec<PasskeyRow>> {
        let query = sqlx::query_as(
            "select id, name, credential, created_at, last_used_at from passkeys
             where user_id = $1 order by created_at, id",
        );
        Ok(query.bind(user.as_str()).fetch_all(&self.pool).await?)
    }

    /// Removes a passkey of a person who has another second factor, and ends
    /// every session of theirs but the `renewed` one. The user's row is locked until
    /// the transaction ends.
    pub async fn passkey_remove_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        id: &str,
        renewed: Renewed<'_>,
    ) -> Result<PasskeyRemoval> {
        self.user_lock_in_tx(tx, user).await?;
        let done = sqlx::query("delete from passkeys where user_id = $1 and id = $2")
            .bind(user.as_str())
            .bind(id)
            .execute(&mut **tx)
            .await?;
        if done.rows_affected() == 0 {
            return Ok(PasskeyRemoval::Absent);
        }
        let has_another: bool = sqlx::query_scalar(
            "select totp_sealed is not null or exists (select from passkeys where user_id = u.id)
             from users u where id = $1",
        )
        .bind(user.as_str())
        .fetch_one(&mut **tx)
        .await?;
        if !has_another {
            return Ok(PasskeyRemoval::Last);
        }
        self.user_end_sessions_in_tx(tx, user, Some(renewed)).await?;
        Ok(PasskeyRemoval::Done)
    }

    /// Keeps what a browser is asked, in the place of what it was asked before.
    pub async fn passkey_question_keep(
        &self,
        holder: &str,
        kept: &Value,
        expires_at: DateTime<Utc>,
    ) -> Result<()> {
        sqlx::query(
            "insert into passkey_questions (holder, kept, expires_at) values ($1, $2, $3)
             on conflict (holder) do update set kept = excluded.kept, expires_at = excluded.expires_at",
        )
        .bind(holder)
        .bind(kept)
        .bind(expires_at)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Takes what a browser was asked: nobody answers it again. None when it
    /// was answered, or too long ago.
    pub async fn passkey_question_take(&self, holder: &str) -> Result<Option<Value>> {
        let query = sqlx::query_scalar(
            "with taken as (delete from passkey_questions where holder = $1 returning kept, expires_at)
             select kept from taken where expires_at > now()",
        );
        Ok(query.bind(holder).fetch_optional(&self.pool).await?)
    }
}

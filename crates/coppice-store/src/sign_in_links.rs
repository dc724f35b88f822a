//! Links that sign somebody in, once.

use chrono::{DateTime, Utc};
use coppice_core::UserId;

use crate::{Result, Store, Tx};

impl Store {
    /// Makes a link for a user. False when they are disabled or gone.
    pub async fn sign_in_link_insert_in_tx(
        &self,
        tx: &mut Tx,
        id_hash: &str,
        user: &UserId,
        expires_at: DateTime<Utc>,
    ) -> Result<bool> {
        let done = sqlx::query(
            "insert into sign_in_links (id_hash, user_id, expires_at)
             select $1, u.id, $3 from users u where u.id = $2 and not u.disabled for share of u",
        )
        .bind(id_hash)
        .bind(user.as_str())
        .bind(expires_at)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The address of whom a link signs in; none when it is of no use any more.
    pub async fn sign_in_link_find(&self, id_hash: &str) -> Result<Option<String>> {
        let email = sqlx::query_scalar(
            "select u.email from sign_in_links l join users u on u.id = l.user_id
             where l.id_hash = $1 and l.expires_at > now() and not u.disabled",
        )
        .bind(id_hash)
        .fetch_optional(&self.pool)
        .await?;
        Ok(email)
    }

    /// Uses a link up; returns the user whom it signs in.
    pub async fn sign_in_link_take(&self, id_hash: &str) -> Result<Option<UserId>> {
        let user: Option<String> = sqlx::query_scalar(
            "delete from sign_in_links where id_hash = $1 and expires_at > now() returning user_id",
        )
        .bind(id_hash)
        .fetch_optional(&self.pool)
        .await?;
        Ok(user.map(UserId::from_trusted))
    }
}

//! The clients that act for a person, or may without a question: what lists them, and what takes
//! that from one.

use chrono::{DateTime, Utc};
use coppice_core::UserId;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// Most clients that are listed of a person.
pub const ALLOWED_CLIENTS_LISTED: usize = 200;

/// What one client is to a person.
#[derive(Clone, Debug, FromRow)]
pub struct AllowedClient {
    /// Its id.
    pub client_id: String,
    /// Since when.
    pub since: DateTime<Utc>,
    /// Everything that its sessions have, or that it gets without a question.
    pub scopes: Vec<String>,
    /// How many sessions it has.
    pub sessions: i64,
    /// Whether one of them goes on without the browser's.
    pub is_offline: bool,
}

impl Store {
    /// The clients that have a session of a person, or would get one without a question, as a
    /// device that was allowed in and has not come for it yet; the newest first, [`ALLOWED_CLIENTS_LISTED`] at most.
    pub async fn allowed_client_list(&self, user: &UserId) -> Result<Vec<AllowedClient>> {
        let query = sqlx::query_as(
            "with allowed as (
                 select client_id, granted_at as since, scopes, null as session, false as is_offline
                 from consents where user_id = $1
                 union all
                 select client_id, created_at, scopes, id, is_offline
                 from sessions where user_id = $1 and idle_until > now() and expires_at > now()
                 union all
                 select client_id, now(), scopes, null, false
                 from device_codes where user_id = $1 and state = 'allowed' and expires_at > now())
             select a.client_id, min(a.since) as since, count(distinct a.session) as sessions,
                    bool_or(a.is_offline) as is_offline,
                    coalesce(array_agg(distinct s.scope) filter (where s.scope is not null), '{}') as scopes
             from allowed a left join lateral unnest(a.scopes) s (scope) on true
             group by a.client_id order by min(a.since) desc, a.client_id limit $2",
        );
        let query = query.bind(user.as_str()).bind(i64::try_from(ALLOWED_CLIENTS_LISTED).unwrap_or(i64::MAX));
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Ends the sessions of a client for a person, and what would become one without a question.
    /// False when there was nothing of it.
    pub async fn allowed_client_end_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        client_id: &str,
    ) -> Result<bool> {
        // Whoever redeems at the same time holds the user's row: see `user_end_sessions_in_tx`.
        self.user_lock_in_tx(tx, user).await?;
        let mut ended = 0;
        for statement in [
            "delete from sessions where user_id = $1 and client_id = $2",
            "delete from authorization_codes where user_id = $1 and client_id = $2 and used_at is null",
            "delete from device_codes where user_id = $1 and client_id = $2",
            "delete from consents where user_id = $1 and client_id = $2",
        ] {
            let done = sqlx::query(statement).bind(user.as_str()).bind(client_id).execute(&mut **tx).await?;
            ended += done.rows_affected();
        }
        Ok(ended > 0)
    }
}

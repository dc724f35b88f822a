//! Clients that registered themselves, what people allowed clients, and the
//! keys that tokens are signed with.

use chrono::{DateTime, Utc};
use coppice_core::UserId;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// Clients with a session that who answers for them keeps, however many others register.
const KEPT_OF_EACH: i64 = 10;

/// A client that registered itself.
#[derive(Clone, Debug, FromRow)]
pub struct RegisteredClient {
    /// Its id.
    pub id: String,
    /// What people are shown.
    pub name: String,
    /// Where people may be sent back to.
    pub redirect_uris: Vec<String>,
}

/// A key that tokens are signed with.
#[derive(Clone, Debug, FromRow)]
pub struct SigningKeyRow {
    /// Its id.
    pub id: String,
    /// How it is used.
    pub algorithm: String,
    /// The private half, sealed for its id.
    pub private_sealed: Vec<u8>,
    /// The public half.
    pub public_jwk: serde_json::Value,
    /// From when on it signs.
    pub signs_from: DateTime<Utc>,
    /// Until when it is published, if that is known.
    pub published_until: Option<DateTime<Utc>>,
}

impl Store {
    /// Keeps a client. Where there are `max` already, others make room: the oldest of those that
    /// nobody signed in to, beyond a tenth of all that stays for whoever comes now; then of who
    /// has most, first what they have no session of. False when each is of somebody who has a
    /// session of it and no more than [`KEPT_OF_EACH`].
    pub async fn oauth_client_insert(&self, client: &RegisteredClient, max: i64) -> Result<bool> {
        let done = sqlx::query(
            "with known as (select count(*) as count from oauth_clients),
                  placed as (
                      select c.id, c.last_used_at is null as is_new, l.client_id is not null as is_living,
                             coalesce(c.last_used_at, c.created_at) as since,
                             row_number() over (
                                 partition by c.last_used_at is null, u.holder
                                 order by l.client_id is not null desc,
                                          coalesce(c.last_used_at, c.created_at) desc, c.id) as place
                      from oauth_clients c left join users u on u.id = c.user_id left join
                           (select distinct client_id from sessions
                            where idle_until > now() and expires_at > now()) l on l.client_id = c.id),
                  gone as (delete from oauth_clients where id in (
                               select c.id from oauth_clients c join placed p on p.id = c.id
                               where p.is_new or not p.is_living or p.place > $5
                               order by case when not p.is_new then 1 when p.place > $4 / 10 then 0 else 2 end,
                                        p.place desc, p.is_living, p.since, c.id
                               limit (select greatest(count - $4 + 1, 0) from known)
                               for update of c skip locked)
                           returning id),
                  ended as (delete from sessions where client_id in (select id from gone))
             insert into oauth_clients (id, name, redirect_uris)
             select $1, $2, $3 from known where known.count - (select count(*) from gone) < $4",
        )
        .bind(&client.id)
        .bind(&client.name)
        .bind(&client.redirect_uris)
        .bind(max)
        .bind(KEPT_OF_EACH)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// A client that registered itself.
    pub async fn oauth_client_find(&self, id: &str) -> Result<Option<RegisteredClient>> {
        let query = sqlx::query_as("select id, name, redirect_uris from oauth_clients where id = $1");
        Ok(query.bind(id).fetch_optional(&self.pool).await?)
    }

    /// Notes that a session of a client begins, if it registered itself.
    pub(crate) async fn oauth_client_note_used_in_tx(
        &self,
        tx: &mut Tx,
        id: &str,
        user: &UserId,
    ) -> Result<()> {
        sqlx::query(
            "update oauth_clients set last_used_at = now(), user_id = coalesce(user_id, $2) where id = $1",
        )
        .bind(id)
        .bind(user.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// What a person allowed a client at this place before, for the resource `api` or `agents`: what was allowed for
    /// the API is for agents, too.
    pub async fn consent_find(
        &self,
        user: &UserId,
        client_id: &str,
        redirect_uri: &str,
        resource: &str,
    ) -> Result<Option<Vec<String>>> {
        let query = sqlx::query_scalar(
            "select scopes from consents
             where user_id = $1 and client_id = $2 and redirect_uri = $3 and resource in ('api', $4)",
        );
        let query = query.bind(user.as_str()).bind(client_id).bind(redirect_uri).bind(resource);
        let given: Vec<Vec<String>> = query.fetch_all(&self.pool).await?;
        Ok((!given.is_empty()).then(|| given.concat()))
    }

    /// Keeps what a person allows a client at this place from now on, for the resource `api` or `agents`.
    pub async fn consent_grant_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        client_id: &str,
        redirect_uri: &str,
        resource: &str,
        scopes: &[String],
    ) -> Result<()> {
        sqlx::query(
            "insert into consents as c (user_id, client_id, redirect_uri, resource, scopes)
             values ($1, $2, $3, $4, $5)
             on conflict (user_id, client_id, redirect_uri, resource) do update set granted_at = now(),
                 scopes = array(select distinct unnest(c.scopes || excluded.scopes))",
        )
        .bind(user.as_str())
        .bind(client_id)
        .bind(redirect_uri)
        .bind(resource)
        .bind(scopes)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Every key that is published, newest first.
    pub async fn signing_key_list(&self) -> Result<Vec<SigningKeyRow>> {
        let query = sqlx::query_as(
            "select id, algorithm, private_sealed, public_jwk, signs_from, published_until from signing_keys
             where published_until is null or published_until > now()
             order by signs_from desc, id",
        );
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Adds a key; not if there is one that signs from `unless_since` on or
    /// later. Those before it are published for a day after it begins to sign,
    /// or, if `forget_others`, not any more.
    pub async fn signing_key_add(
        &self,
        key: &SigningKeyRow,
        unless_since: Option<DateTime<Utc>>,
        forget_others: bool,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        // Processes that start at the same time agree on one.
        sqlx::query("lock table signing_keys in share row exclusive mode").execute(&mut *tx).await?;
        let is_there: bool =
            sqlx::query_scalar("select exists (select from signing_keys where signs_from >= $1)")
                .bind(unless_since)
                .fetch_one(&mut *tx)
                .await?;
        if is_there {
            return Ok(false);
        }
        if forget_others {
            sqlx::query("delete from signing_keys").execute(&mut *tx).await?;
        }
        sqlx::query(
            "update signing_keys set published_until = $1 + interval '1 day' where published_until is null",
        )
        .bind(key.signs_from)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "insert into signing_keys (id, algorithm, private_sealed, public_jwk, signs_from)
             values ($1, $2, $3, $4, $5)",
        )
        .bind(&key.id)
        .bind(&key.algorithm)
        .bind(&key.private_sealed)
        .bind(&key.public_jwk)
        .bind(key.signs_from)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }
}

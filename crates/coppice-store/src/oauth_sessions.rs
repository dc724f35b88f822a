//! Clients that act for somebody: their sessions, and the codes and tokens
//! that these come from.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::authentication::Methods;
use coppice_core::organization::User;
use coppice_core::{SessionId, UserId};
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// A session to be begun.
#[derive(Clone, Debug)]
pub struct NewSession<'a> {
    /// Its id.
    pub id: &'a SessionId,
    /// For whom it acts.
    pub user: &'a UserId,
    /// Who acts.
    pub client_id: &'a str,
    /// What it may do.
    pub scopes: &'a [String],
    /// What its tokens are for: `api` or `agents`.
    pub resource: &'a str,
    /// Hash of the browser's session it came from, if it is known.
    pub browser_session: Option<&'a str>,
    /// Whether it goes on without the browser's.
    pub is_offline: bool,
    /// When the person showed who they are.
    pub signed_in_at: DateTime<Utc>,
    /// How they showed it.
    pub methods: &'a Methods,
    /// See [`coppice_core::access::Caller::is_stale`].
    pub is_stale: bool,
    /// When it ends unless it is used before.
    pub idle_until: DateTime<Utc>,
    /// When it ends in any case.
    pub expires_at: DateTime<Utc>,
}

/// A session that has not ended.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// For whom it acts.
    pub user: User,
    /// Who acts.
    pub client_id: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// What its tokens are for: `api` or `agents`.
    pub resource: String,
    /// Whether it goes on without the browser's.
    pub is_offline: bool,
    /// When the person showed who they are.
    pub signed_in_at: DateTime<Utc>,
    /// How they showed it.
    pub methods: Methods,
    /// When it ends in any case.
    pub expires_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct SessionRow {
    id: String,
    user_id: String,
    email: String,
    email_verified: bool,
    name: String,
    user_created_at: DateTime<Utc>,
    client_id: String,
    scopes: Vec<String>,
    resource: String,
    is_offline: bool,
    signed_in_at: DateTime<Utc>,
    methods: Vec<String>,
    expires_at: DateTime<Utc>,
}

impl From<SessionRow> for Session {
    fn from(row: SessionRow) -> Self {
        Self {
            id: SessionId::from_trusted(row.id),
            user: User {
                id: UserId::from_trusted(row.user_id),
                email: row.email,
                is_email_verified: row.email_verified,
                name: row.name,
                created_at: row.user_created_at,
            },
            client_id: row.client_id,
            scopes: row.scopes,
            resource: row.resource,
            is_offline: row.is_offline,
            signed_in_at: row.signed_in_at,
            methods: row.methods.into(),
            expires_at: row.expires_at,
        }
    }
}

/// A code, and what was asked for with it.
#[derive(Clone, Debug, FromRow)]
pub struct AuthorizationCode {
    /// Hash of what the client gets.
    pub code_hash: String,
    /// Whose it is.
    pub client_id: String,
    /// Where it was sent.
    pub redirect_uri: String,
    /// What the client has to prove.
    pub challenge: Option<String>,
    /// What was granted.
    pub scopes: Vec<String>,
    /// What for: `api` or `agents`.
    pub resource: String,
    /// What the client binds the ID token to.
    pub nonce: Option<String>,
    /// Who granted it.
    pub user_id: String,
    /// Hash of the browser's session it was granted in.
    pub browser_session: Option<String>,
    /// When the person showed who they are.
    pub signed_in_at: DateTime<Utc>,
    /// How they showed it.
    #[sqlx(try_from = "Vec<String>")]
    pub methods: Methods,
    /// See [`NewSession::is_stale`].
    pub is_stale: bool,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
}

/// What is found under a code.
#[derive(Clone, Debug)]
pub enum CodeMatch {
    /// It was not used before; from now on it is.
    Fresh(Box<AuthorizationCode>),
    /// It was used before. What was made from it has ended now.
    Used,
}

/// What is found under a refresh token that is replaced at each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshMatch {
    /// It may be used.
    Usable,
    /// It was replaced a while ago.
    Replaced,
}

impl Store {
    /// Begins a session. False when its user is disabled or gone, or the browser's session has ended.
    pub async fn session_insert_in_tx(&self, tx: &mut Tx, new: &NewSession<'_>) -> Result<bool> {
        // By itself: a statement that waits for the user sees a browser's session that ended meanwhile.
        self.user_hold_in_tx(tx, new.user).await?;
        let done = sqlx::query(
            "insert into sessions (id, user_id, client_id, scopes, browser_session, is_offline, signed_in_at,
                                   idle_until, expires_at, methods, resource, is_stale)
             select $1, u.id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
             from users u where u.id = $2 and not u.disabled
               and ($5 is null or exists (select from browser_sessions where id_hash = $5 and user_id = u.id))",
        )
        .bind(new.id.as_str())
        .bind(new.user.as_str())
        .bind(new.client_id)
        .bind(new.scopes)
        .bind(new.browser_session)
        .bind(new.is_offline)
        .bind(new.signed_in_at)
        .bind(new.idle_until)
        .bind(new.expires_at)
        .bind(new.methods.words())
        .bind(new.resource)
        .bind(new.is_stale)
        .execute(&mut **tx)
        .await?;
        let is_begun = done.rows_affected() == 1;
        if is_begun {
            self.oauth_client_note_used_in_tx(tx, new.client_id, new.user).await?;
        }
        Ok(is_begun)
    }

    /// A session that has not ended, of a user who is not disabled.
    pub async fn session_find_in_tx(&self, tx: &mut Tx, id: &SessionId) -> Result<Option<Session>> {
        let row: Option<SessionRow> = sqlx::query_as(
            "select s.id, s.user_id, u.email, u.email_verified, u.name, u.created_at as user_created_at,
                    s.client_id, s.scopes, s.resource, s.is_offline, s.signed_in_at, s.methods, s.expires_at
             from sessions s join users u on u.id = s.user_id
             where s.id = $1 and not u.disabled and s.idle_until > now() and s.expires_at > now()",
        )
        .bind(id.as_str())
        .fetch_optional(&mut **tx)
        .await?;
        Ok(row.map(Session::from))
    }

    /// Notes that a session is used.
    pub async fn session_extend_in_tx(
        &self,
        tx: &mut Tx,
        id: &SessionId,
        idle_until: DateTime<Utc>,
    ) -> Result<()> {
        sqlx::query("update sessions set idle_until = greatest(idle_until, $2) where id = $1")
            .bind(id.as_str())
            .bind(idle_until)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Ends a session, if it is this client's. False when there is none.
    pub async fn session_end(&self, id: &SessionId, client_id: &str) -> Result<bool> {
        let done = sqlx::query("delete from sessions where id = $1 and client_id = $2")
            .bind(id.as_str())
            .bind(client_id)
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Keeps a refresh token that will be replaced. It may be there: requests for it can have crossed.
    pub async fn refresh_token_insert_in_tx(
        &self,
        tx: &mut Tx,
        id_hash: &str,
        session: &SessionId,
    ) -> Result<()> {
        sqlx::query(
            "insert into refresh_tokens (id_hash, session_id) values ($1, $2) on conflict do nothing",
        )
        .bind(id_hash)
        .bind(session.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Replaces a refresh token by its successor. For `grace` it can be used again, as requests may have
    /// crossed, but not once the successor was used. One of ours that is not there any more was replaced long
    /// ago.
    pub async fn refresh_token_replace_in_tx(
        &self,
        tx: &mut Tx,
        (id_hash, successor_hash): (&str, &str),
        session: &SessionId,
        grace: TimeDelta,
    ) -> Result<RefreshMatch> {
        // A successor without a row is being made by a request that this one crosses.
        let done = sqlx::query(
            "update refresh_tokens set replaced_at = coalesce(replaced_at, now())
             where id_hash = $1 and session_id = $2
               and (replaced_at is null
                    or replaced_at > now() - make_interval(secs => $3)
                       and not exists (select from refresh_tokens n
                                       where n.id_hash = $4 and n.replaced_at is not null))",
        )
        .bind(id_hash)
        .bind(session.as_str())
        .bind(grace.num_seconds() as f64)
        .bind(successor_hash)
        .execute(&mut **tx)
        .await?;
        Ok(if done.rows_affected() == 1 { RefreshMatch::Usable } else { RefreshMatch::Replaced })
    }

    /// Keeps a code.
    pub async fn code_insert_in_tx(&self, tx: &mut Tx, code: &AuthorizationCode) -> Result<()> {
        sqlx::query(
            "insert into authorization_codes (code_hash, client_id, redirect_uri, challenge, scopes, nonce,
                                              user_id, browser_session, signed_in_at, expires_at, methods,
                                              resource, is_stale)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(&code.code_hash)
        .bind(&code.client_id)
        .bind(&code.redirect_uri)
        .bind(&code.challenge)
        .bind(&code.scopes)
        .bind(&code.nonce)
        .bind(&code.user_id)
        .bind(&code.browser_session)
        .bind(code.signed_in_at)
        .bind(code.expires_at)
        .bind(code.methods.words())
        .bind(&code.resource)
        .bind(code.is_stale)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Uses a code up, whatever comes of it.
    pub async fn code_use_in_tx(&self, tx: &mut Tx, code_hash: &str) -> Result<Option<CodeMatch>> {
        // As in `user_hold_in_tx`.
        sqlx::query(
            "select from users
             where id = (select user_id from authorization_codes where code_hash = $1) for share",
        )
        .bind(code_hash)
        .execute(&mut **tx)
        .await?;
        let fresh: Option<AuthorizationCode> = sqlx::query_as(
            "update authorization_codes set used_at = now() where code_hash = $1 and used_at is null
             returning code_hash, client_id, redirect_uri, challenge, scopes, resource, nonce, user_id, browser_session,
                       signed_in_at, methods, is_stale, expires_at",
        )
        .bind(code_hash)
        .fetch_optional(&mut **tx)
        .await?;
        if let Some(fresh) = fresh {
            return Ok(Some(CodeMatch::Fresh(Box::new(fresh))));
        }
        sqlx::query(
            "delete from sessions where id = (select session_id from authorization_codes where code_hash = $1)",
        )
        .bind(code_hash)
        .execute(&mut **tx)
        .await?;
        let used: Option<i32> = sqlx::query_scalar("select 1 from authorization_codes where code_hash = $1")
            .bind(code_hash)
            .fetch_optional(&mut **tx)
            .await?;
        Ok(used.map(|_| CodeMatch::Used))
    }

    /// Notes what was made from a code.
    pub async fn code_note_session_in_tx(
        &self,
        tx: &mut Tx,
        code_hash: &str,
        session: &SessionId,
    ) -> Result<()> {
        sqlx::query("update authorization_codes set session_id = $2 where code_hash = $1")
            .bind(code_hash)
            .bind(session.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}

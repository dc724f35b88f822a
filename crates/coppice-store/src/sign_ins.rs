//! People at their browsers: passwords, browser sessions, and how often
//! something was tried.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::authentication::Methods;
use coppice_core::{UserId, email};
use sqlx::FromRow;

use crate::{Result, Store, StoreError, Tx};

/// Places from where a user signed in that are remembered.
const SOURCES_MAX: i64 = 32;

/// Which password another one may take the place of.
#[derive(Clone, Copy)]
pub enum OldPassword<'a> {
    /// Any password, or none.
    Any,
    /// The one with this hash; none where there must be none.
    Exactly(Option<&'a str>),
}

impl std::fmt::Debug for OldPassword<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Any => "Any",
            Self::Exactly(_) => "Exactly",
        })
    }
}

/// A browser session to be begun.
#[derive(Clone, Copy)]
pub struct NewBrowserSession<'a> {
    /// Hash of what the browser keeps.
    pub id_hash: &'a str,
    /// Who.
    pub user: &'a UserId,
    /// The hash that their password was compared with, if that is how they
    /// showed who they are.
    pub password: Option<&'a str>,
    /// Whether they were asked just now who they are.
    pub was_asked: bool,
    /// How they showed it.
    pub methods: &'a Methods,
    /// When it ends in any case.
    pub expires_at: DateTime<Utc>,
    /// The browser's earlier session, which ends.
    pub replaced: Option<&'a str>,
}

impl std::fmt::Debug for NewBrowserSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewBrowserSession({})", self.user)
    }
}

/// A browser session that goes on when every other one ends. Somebody may have copied what the browser keeps, so that it
/// keeps something else from then on.
#[derive(Clone, Copy)]
pub struct Renewed<'a> {
    /// Hash of what it kept until now.
    pub old: &'a str,
    /// Hash of what it will.
    pub new: &'a str,
}

impl std::fmt::Debug for Renewed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Renewed")
    }
}

/// A browser in which somebody is signed in.
#[derive(Clone, Debug)]
pub struct BrowserSession {
    /// Hash of what its cookie says.
    pub id_hash: String,
    /// Who.
    pub user: UserId,
    /// Their address.
    pub email: String,
    /// When they signed in.
    pub signed_in_at: DateTime<Utc>,
    /// Whether they showed then who they are; else an outside provider may
    /// have known it from earlier.
    pub was_asked: bool,
    /// How they showed it.
    pub methods: Methods,
}

#[derive(FromRow)]
struct BrowserSessionRow {
    id_hash: String,
    user_id: String,
    email: String,
    signed_in_at: DateTime<Utc>,
    was_asked: bool,
    methods: Vec<String>,
}

/// How often something was tried within a span of time.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Attempts {
    /// This time included.
    pub count: i32,
    /// When the span began.
    pub began_at: DateTime<Utc>,
}

impl Store {
    /// Keeps the hash of a new password. Every session of the user ends but
    /// the `renewed` one. False when there is no such user, their password is not `old`, or
    /// the `renewed` session has ended.
    pub async fn user_set_password(
        &self,
        id: &UserId,
        hash: &str,
        old: OldPassword<'_>,
        renewed: Option<Renewed<'_>>,
    ) -> Result<bool> {
        let (is_any, old) = match old {
            OldPassword::Any => (true, None),
            OldPassword::Exactly(old) => (false, old),
        };
        let mut tx = self.begin().await?;
        let done = sqlx::query(
            "update users set password = $2 where id = $1 and ($3 or password is not distinct from $4)",
        )
        .bind(id.as_str())
        .bind(hash)
        .bind(is_any)
        .bind(old)
        .execute(&mut *tx)
        .await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(Renewed { old, .. }) = renewed
            && !self.browser_session_lives_in_tx(&mut tx, id, old).await?
        {
            return Ok(false);
        }
        self.user_end_sessions_in_tx(&mut tx, id, renewed).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Ends every session of a user but the `renewed` one, and every session of a client; clients
    /// have to ask for leave anew, as whoever was signed in may have given it to one of theirs. The
    /// user's row has to be changed before: whoever signs in or redeems at the
    /// same time holds that row, so their session is either seen here, or it is
    /// not begun.
    pub(crate) async fn user_end_sessions_in_tx(
        &self,
        tx: &mut Tx,
        id: &UserId,
        renewed: Option<Renewed<'_>>,
    ) -> Result<()> {
        for statement in [
            "delete from sessions where user_id = $1",
            // What was allowed and not yet redeemed.
            "delete from authorization_codes where user_id = $1 and used_at is null",
            "delete from device_codes where user_id = $1",
            "delete from consents where user_id = $1",
            "delete from half_sign_ins where user_id = $1",
            "delete from sign_in_links where user_id = $1",
        ] {
            sqlx::query(statement).bind(id.as_str()).execute(&mut **tx).await?;
        }
        let (old, new) = renewed.map(|renewed| (renewed.old, renewed.new)).unzip();
        for statement in [
            "delete from browser_sessions where user_id = $1 and ($2 is null or id_hash <> $2)",
            "update browser_sessions set id_hash = $3 where user_id = $1 and id_hash = $2",
        ] {
            sqlx::query(statement).bind(id.as_str()).bind(old).bind(new).execute(&mut **tx).await?;
        }
        Ok(())
    }

    /// Begins a browser session, in the place of the browser's earlier one.
    /// False when its user is disabled or gone, has another password by now, or
    /// a second factor that they have not shown.
    pub async fn browser_session_insert_in_tx(
        &self,
        tx: &mut Tx,
        new: &NewBrowserSession<'_>,
    ) -> Result<bool> {
        // The users first, as everywhere.
        if let Some(replaced) = new.replaced {
            self.browser_session_lock_in_tx(tx, replaced, Some(new.user)).await?;
        }
        let done = sqlx::query(
            "insert into browser_sessions (id_hash, user_id, was_asked, methods, expires_at)
             select $1, u.id, $3, $6, $4 from users u
             where u.id = $2 and not u.disabled and ($5::text is null or u.password = $5)
               and ($7 or not u.has_second_factor)
             for share of u",
        )
        .bind(new.id_hash)
        .bind(new.user.as_str())
        .bind(new.was_asked)
        .bind(new.expires_at)
        .bind(new.password)
        .bind(new.methods.words())
        .bind(new.methods.has_second_factor())
        .execute(&mut **tx)
        .await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(replaced) = new.replaced {
            self.browser_session_end_in_tx(tx, replaced).await?;
        }
        Ok(true)
    }

    /// Whether a user's browser session goes on. If it does, it goes on until the
    /// transaction ends, and no password is set before.
    pub async fn browser_session_lives_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        id_hash: &str,
    ) -> Result<bool> {
        self.user_hold_in_tx(tx, user).await?;
        let query = sqlx::query_scalar(
            "select exists (select from browser_sessions where id_hash = $1 and user_id = $2)",
        );
        Ok(query.bind(id_hash).bind(user.as_str()).fetch_one(&mut **tx).await?)
    }

    /// The session of a browser, unless it has ended, was not used for `idle`,
    /// or its user is disabled. Being looked for is a use.
    pub async fn browser_session_find(
        &self,
        id_hash: &str,
        idle: TimeDelta,
    ) -> Result<Option<BrowserSession>> {
        let row: Option<BrowserSessionRow> = sqlx::query_as(
            "update browser_sessions b set last_seen_at = now() from users u
             where b.id_hash = $1 and b.user_id = u.id and not u.disabled
               and b.expires_at > now() and b.last_seen_at > now() - make_interval(secs => $2)
             returning b.id_hash, b.user_id, u.email, b.signed_in_at, b.was_asked, b.methods",
        )
        .bind(id_hash)
        .bind(idle.num_seconds() as f64)
        .fetch_optional(&self.relaxed)
        .await?;
        Ok(row.map(|row| BrowserSession {
            id_hash: row.id_hash,
            user: UserId::from_trusted(row.user_id),
            email: row.email,
            signed_in_at: row.signed_in_at,
            was_asked: row.was_asked,
            methods: row.methods.into(),
        }))
    }

    /// Ends a browser session, and those of clients that end with it.
    pub async fn browser_session_end(&self, id_hash: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        self.browser_session_lock_in_tx(&mut tx, id_hash, None).await?;
        self.browser_session_end_in_tx(&mut tx, id_hash).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Locks the user of a browser session that is to end, and whoever signs in in its place. Who does something by
    /// right of a session holds its user, so that what they do is seen afterwards, or they see that it has ended.
    async fn browser_session_lock_in_tx(
        &self,
        tx: &mut Tx,
        id_hash: &str,
        next: Option<&UserId>,
    ) -> Result<()> {
        // In one order, as two browsers may pass from one to the other of the same two people.
        sqlx::query(
            "select from users where id = $2 or id = (select user_id from browser_sessions where id_hash = $1)
             order by id for no key update",
        )
        .bind(id_hash)
        .bind(next.map(UserId::as_str))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// To be done when its user is locked.
    async fn browser_session_end_in_tx(&self, tx: &mut Tx, id_hash: &str) -> Result<()> {
        for statement in [
            "delete from sessions where browser_session = $1 and not is_offline",
            // What was allowed and not yet redeemed.
            "delete from authorization_codes where browser_session = $1 and used_at is null",
            "delete from device_codes where browser_session = $1 and state = 'allowed'",
            "delete from browser_sessions where id_hash = $1",
        ] {
            sqlx::query(statement).bind(id_hash).execute(&mut **tx).await?;
        }
        Ok(())
    }

    /// Counts an attempt; what is older than `span` is forgotten.
    pub async fn attempt_count(&self, kind: &str, who: &str, span: TimeDelta) -> Result<Attempts> {
        let counted = sqlx::query_as(
            "insert into attempts as a (kind, who, count) values ($1, $2, 1)
             on conflict (kind, who) do update set
                 count = case when a.began_at < now() - make_interval(secs => $3) then 1
                              else least(a.count, 1000000) + 1 end,
                 began_at = case when a.began_at < now() - make_interval(secs => $3) then now()
                                 else a.began_at end
             returning count, began_at",
        );
        Ok(counted.bind(kind).bind(who).bind(span.num_seconds() as f64).fetch_one(&self.relaxed).await?)
    }

    /// Takes an attempt back: it did no harm.
    pub async fn attempt_take_back(&self, kind: &str, who: &str) -> Result<()> {
        sqlx::query("update attempts set count = count - 1 where kind = $1 and who = $2 and count > 0")
            .bind(kind)
            .bind(who)
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }

    /// Forgets attempts, as if there had been none.
    pub async fn attempts_forget(&self, kind: &str, who: &str) -> Result<()> {
        sqlx::query("delete from attempts where kind = $1 and who = $2")
            .bind(kind)
            .bind(who)
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }

    /// Whether somebody has signed in from `source` to the account of an address of mail.
    pub async fn sign_in_source_is_known(&self, email: &str, source: &str) -> Result<bool> {
        let query = "select exists (select from sign_in_sources s join users u on u.id = s.user_id
                                    where lower(u.email) = $1 and s.source = $2)";
        Ok(sqlx::query_scalar(query).bind(email::folded(email)).bind(source).fetch_one(&self.pool).await?)
    }

    /// Notes from where a user signed in; the last [`SOURCES_MAX`] are kept.
    pub async fn sign_in_source_note(&self, user: &UserId, source: &str) -> Result<()> {
        let query = sqlx::query(
            "with noted as (insert into sign_in_sources (user_id, source) values ($1, $2)
                            on conflict (user_id, source) do update set seen_at = now())
             delete from sign_in_sources where user_id = $1 and source in
                 (select source from sign_in_sources where user_id = $1 and source <> $2
                  order by seen_at desc offset $3)",
        );
        query.bind(user.as_str()).bind(source).bind(SOURCES_MAX - 1).execute(&self.relaxed).await?;
        Ok(())
    }

    /// Removes what nobody needs any more of signing in, as much of it as can be.
    ///
    /// # Errors
    /// The first that came up; what is unrelated is removed all the same.
    pub async fn sign_in_purge(&self, idle: TimeDelta) -> Result<()> {
        let mut removed = self.browser_sessions_purge(idle).await;
        for statement in [
            "delete from sessions where least(idle_until, expires_at) < now() - interval '1 hour'",
            // Long enough to notice that one is used again.
            "delete from authorization_codes where expires_at < now() - interval '1 day'",
            "delete from device_codes where expires_at < now() - interval '1 hour'",
            "delete from half_sign_ins where expires_at < now()",
            "delete from sign_in_links where expires_at < now()",
            "delete from passkey_questions where expires_at < now()",
            // A token with our signature that has no row counts as replaced.
            "delete from refresh_tokens where replaced_at < now() - interval '1 day'",
            "delete from attempts where began_at < now() - interval '1 day'",
            "delete from sign_in_sources where seen_at < now() - interval '90 days'",
            "delete from oauth_clients c where coalesce(last_used_at, created_at) < now() - interval '90 days'
             and not exists (select from sessions s where s.client_id = c.id)",
            "delete from oauth_clients where last_used_at is null and created_at < now() - interval '1 day'",
            "delete from signing_keys where published_until < now()",
        ] {
            let done = sqlx::query(statement).execute(&self.relaxed).await;
            removed = removed.and(done.map(drop).map_err(StoreError::from));
        }
        removed
    }

    /// Ends the browser sessions that have expired or were not used for `idle`, as signing out does.
    async fn browser_sessions_purge(&self, idle: TimeDelta) -> Result<()> {
        let over: Vec<String> = sqlx::query_scalar(
            "select id_hash from browser_sessions where expires_at < now()
             or last_seen_at < now() - make_interval(secs => $1)",
        )
        .bind(idle.num_seconds() as f64)
        .fetch_all(&self.relaxed)
        .await?;
        let mut ended = Ok(());
        for id_hash in &over {
            ended = ended.and(self.browser_session_end(id_hash).await);
        }
        ended
    }
}

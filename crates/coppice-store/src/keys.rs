//! API keys. How a request finds the key it came with is in `credentials.rs`.

use chrono::{DateTime, Utc};
use coppice_core::access::{CredentialId, Grant, Principal};
use coppice_core::api_key::{ApiKey, MakerStanding, Review, ReviewReason};
use coppice_core::authentication::Methods;
use coppice_core::login::DatabaseRole;
use coppice_core::{ApiKeyId, OrganizationId, SessionId, UserId};
use sqlx::FromRow;

use crate::logins::database_role_from;
use crate::members::role_from;
use crate::{Result, Store, StoreError, Tx};

const COLUMNS: &str = "k.id, k.name, k.preview, k.scopes, k.projects, k.branches, k.own_branches, k.branches_max, k.database_role, \
    k.created_at, k.expiry, k.last_used, k.created_by, k.created_by_key";

/// A key to be inserted. The key itself is never stored.
#[derive(Debug)]
pub struct NewApiKey<'a> {
    /// Its record.
    pub id: &'a ApiKeyId,
    /// Who it acts as.
    pub principal: &'a Principal,
    /// For people.
    pub name: &'a str,
    /// See `ApiKeySecret::preview`.
    pub preview: &'a str,
    /// Keyed hash of the whole key, in hex.
    pub hash: &'a str,
    /// What it allows.
    pub grant: &'a Grant,
    /// When it ends, if it does.
    pub expiry: Option<DateTime<Utc>>,
    /// The user who makes it, if a user does.
    pub created_by: Option<&'a UserId>,
    /// What whoever makes it has shown; none when the platform makes it. A
    /// person's key counts as a second factor only if that did.
    pub made_with: Option<&'a CredentialId>,
}

/// A key that is there no more.
#[derive(Debug, FromRow)]
pub struct DeletedKey {
    /// Of its record.
    pub id: String,
    /// For people.
    pub name: String,
}

#[derive(FromRow)]
struct KeyRow {
    id: String,
    name: String,
    preview: String,
    scopes: Vec<String>,
    projects: Vec<String>,
    branches: Vec<String>,
    own_branches: bool,
    branches_max: Option<i32>,
    database_role: Option<String>,
    created_at: DateTime<Utc>,
    expiry: Option<DateTime<Utc>>,
    last_used: Option<DateTime<Utc>>,
    created_by: Option<String>,
    created_by_key: Option<String>,
}

impl TryFrom<KeyRow> for ApiKey {
    type Error = StoreError;

    fn try_from(row: KeyRow) -> Result<Self> {
        Ok(Self {
            id: ApiKeyId::from_trusted(row.id),
            name: row.name,
            preview: row.preview,
            grant: Grant {
                scopes: row.scopes,
                projects: row.projects,
                branches: row.branches,
                own_branches: row.own_branches,
                branches_max: row.branches_max.map(i32::unsigned_abs),
                database_role: row.database_role.map(database_role_from).transpose()?,
            },
            created_at: row.created_at,
            expiry: row.expiry,
            last_used: row.last_used,
            created_by: row.created_by.map(UserId::from_trusted),
            created_by_key: row.created_by_key.map(ApiKeyId::from_trusted),
            review: None,
        })
    }
}

/// A key with what its maker is now, where that matters.
#[derive(FromRow)]
struct ListedRow {
    #[sqlx(flatten)]
    key: KeyRow,
    /// None for a key of a user, which does what its user may, and for one
    /// that has ended.
    maker: Option<String>,
    maker_role: Option<String>,
    maker_disabled: bool,
}

impl TryFrom<ListedRow> for ApiKey {
    type Error = StoreError;

    fn try_from(row: ListedRow) -> Result<Self> {
        let key = Self::try_from(row.key)?;
        let Some(maker) = row.maker.map(UserId::from_trusted) else { return Ok(key) };
        let role = row.maker_role.map(role_from).transpose()?;
        let reason = ReviewReason::of(&key.grant, MakerStanding { role, is_disabled: row.maker_disabled });
        Ok(Self { review: reason.map(|reason| Review { reason, maker }), ..key })
    }
}

/// The two owner columns: user, organization.
pub(crate) fn owner(principal: &Principal) -> (Option<&str>, Option<&str>) {
    match principal {
        Principal::User(id) => (Some(id.as_str()), None),
        Principal::Organization(id) => (None, Some(id.as_str())),
    }
}

impl Store {
    /// Keys of a user or an organization, oldest first; all of them, or those
    /// that were made with one of some keys, at whatever distance. Served by
    /// indexes `api_keys_user`, `api_keys_organization` and
    /// `key_lines_ancestor`.
    pub async fn key_list(&self, of: &Principal, made_with: Option<&[String]>) -> Result<Vec<ApiKey>> {
        let (user, organization) = owner(of);
        let sql = format!(
            "select {COLUMNS}, m.role as maker_role, coalesce(u.disabled, false) as maker_disabled,
                    case when k.organization_id is null or k.expiry <= now() then null else k.maker end as maker
             from api_keys k
             left join users u on u.id = k.maker
             left join members m on m.organization_id = k.organization_id and m.user_id = k.maker
             where (k.user_id = $1 or k.organization_id = $2)
                 and ($3::text[] is null
                      or k.id in (select key_id from key_lines where ancestor_id = any($3)))
             order by k.created_at, k.id"
        );
        let rows: Vec<ListedRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(user)
            .bind(organization)
            .bind(made_with)
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(ApiKey::try_from).collect()
    }

    /// Keys of an organization that a user answers for and that have not
    /// ended, oldest first. Served by index `api_keys_organization`.
    pub async fn key_list_by_maker_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        maker: &UserId,
    ) -> Result<Vec<ApiKey>> {
        let sql = format!(
            "select {COLUMNS} from api_keys k
             where k.organization_id = $1 and k.maker = $2 and (k.expiry is null or k.expiry > now())
             order by k.created_at, k.id"
        );
        let rows: Vec<KeyRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(maker.as_str())
            .fetch_all(&mut **tx)
            .await?;
        rows.into_iter().map(ApiKey::try_from).collect()
    }

    /// How many keys a user or an organization has, without those that jobs got by themselves.
    pub async fn key_count_in_tx(&self, tx: &mut Tx, of: &Principal) -> Result<u32> {
        let (user, organization) = owner(of);
        let count: i64 = sqlx::query_scalar(
            "select count(*) from api_keys k where (user_id = $1 or organization_id = $2)
                 and not exists (select from github_jobs where key_id = k.id)",
        )
        .bind(user)
        .bind(organization)
        .fetch_one(&mut **tx)
        .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// How many keys led to a key, each made with the one before, also where those are gone.
    pub async fn key_makers_count_in_tx(&self, tx: &mut Tx, key: &ApiKeyId) -> Result<u32> {
        let query = sqlx::query_scalar("select count(*) from key_lines where key_id = $1");
        let count: i64 = query.bind(key.as_str()).fetch_one(&mut **tx).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Inserts a key and returns its record.
    pub async fn key_insert_in_tx(&self, tx: &mut Tx, key: &NewApiKey<'_>) -> Result<ApiKey> {
        let (user, organization) = owner(key.principal);
        let sql = format!(
            "insert into api_keys as k (id, user_id, organization_id, name, preview, hash, scopes, projects,
                                        branches, expiry, created_by, created_by_key, maker,
                                        own_branches, branches_max, database_role, with_second_factor)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                     coalesce($11, (select maker from api_keys where id = $12)), $16, $17, $18,
                     $2 is not null and (
                         exists (select from sessions where id = $13 and $14 = any(methods))
                         or exists (select from browser_sessions where id_hash = $15 and $14 = any(methods))
                         or exists (select from api_keys where id = $12 and with_second_factor)))
             returning {COLUMNS}"
        );
        let row: KeyRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(key.id.as_str())
            .bind(user)
            .bind(organization)
            .bind(key.name)
            .bind(key.preview)
            .bind(key.hash)
            .bind(&key.grant.scopes)
            .bind(&key.grant.projects)
            .bind(&key.grant.branches)
            .bind(key.expiry)
            .bind(key.created_by.map(UserId::as_str))
            .bind(key.made_with.and_then(CredentialId::key).map(ApiKeyId::as_str))
            .bind(key.made_with.and_then(CredentialId::session).map(SessionId::as_str))
            .bind(Methods::SECOND_FACTOR)
            .bind(key.made_with.and_then(CredentialId::browser))
            .bind(key.grant.own_branches)
            .bind(key.grant.branches_max.map(u32::cast_signed))
            .bind(key.grant.database_role.map(DatabaseRole::as_str))
            .fetch_one(&mut **tx)
            .await?;
        row.try_into()
    }

    /// Keeps a key or session from ending before the transaction ends, and tells whether it has a second factor, as
    /// [`crate::Membership::has_second_factor`]; none when it was ended meanwhile, or has expired. Whoever holds its
    /// user before, keeps that factor from being removed as well.
    pub async fn credential_hold_in_tx(
        &self,
        tx: &mut Tx,
        credential: &CredentialId,
    ) -> Result<Option<bool>> {
        let query = match credential {
            CredentialId::Key(key) => sqlx::query_scalar(
                "select user_id is null or with_second_factor from api_keys
                 where id = $1 and (expiry is null or expiry > now()) for key share",
            )
            .bind(key.as_str()),
            CredentialId::Session(session) => {
                sqlx::query_scalar("select $2 = any(methods) from sessions where id = $1 for key share")
                    .bind(session.as_str())
                    .bind(Methods::SECOND_FACTOR)
            }
            CredentialId::Browser(hash) => sqlx::query_scalar(
                "select $2 = any(methods) from browser_sessions where id_hash = $1 for key share",
            )
            .bind(hash)
            .bind(Methods::SECOND_FACTOR),
            CredentialId::Vercel(installation) => sqlx::query_scalar(
                "select true from vercel_installations where id = $1 and ending_at is null for share",
            )
            .bind(installation.as_str()),
        };
        Ok(query.fetch_optional(&mut **tx).await?)
    }

    /// How many branches that a key made may exist at once, and how many do;
    /// none where that is not limited. Nobody else counts them until the
    /// transaction ends.
    pub async fn key_branches_in_tx(&self, tx: &mut Tx, key: &ApiKeyId) -> Result<Option<(u32, u32)>> {
        let max: Option<Option<i32>> =
            sqlx::query_scalar("select branches_max from api_keys where id = $1 for no key update")
                .bind(key.as_str())
                .fetch_optional(&mut **tx)
                .await?;
        let Some(max) = max.flatten() else { return Ok(None) };
        let count: i64 =
            sqlx::query_scalar("select count(*) from branches where made_with = $1 and deleted_at is null")
                .bind(key.as_str())
                .fetch_one(&mut **tx)
                .await?;
        Ok(Some((max.unsigned_abs(), u32::try_from(count).unwrap_or(u32::MAX))))
    }

    /// Deletes those of the keys that belong to `of`; `with_made` also those
    /// that were made with one of them, at whatever distance and wherever that
    /// belongs, or is gone. Whoever wants all of these keeps `of` from making
    /// keys until the transaction ends.
    pub async fn key_delete_in_tx(
        &self,
        tx: &mut Tx,
        of: &Principal,
        ids: &[String],
        with_made: bool,
    ) -> Result<Vec<DeletedKey>> {
        let (user, organization) = owner(of);
        let query = sqlx::query_as(
            "delete from api_keys
             where id = any($3 || array(select key_id from key_lines where $4 and ancestor_id = any($3)))
                 and (user_id = $1 or organization_id = $2)
             returning id, name",
        );
        Ok(query.bind(user).bind(organization).bind(ids).bind(with_made).fetch_all(&mut **tx).await?)
    }

    /// Forgets what keys that are gone were made with, where none of their branches is there or counts for a
    /// budget of this month. What keys that are there were made with stays known, also where that is gone.
    pub async fn key_line_purge(&self) -> Result<()> {
        sqlx::query(
            "delete from key_lines l
             where not exists (select from api_keys k where k.id = l.key_id)
                 and not exists (
                     select from usage_branches u where u.made_with = l.key_id
                         and (exists (select from branches b where b.id = u.branch_id)
                              or exists (select from usage_periods p where p.branch_id = u.branch_id)
                              or exists (select from usage_days d where d.branch_id = u.branch_id
                                             and d.day >= date_trunc('month', now(), 'UTC'))))",
        )
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Notes that keys were used, at most once a minute each.
    pub async fn key_note_used(&self, ids: &[String]) -> Result<()> {
        sqlx::query(
            "update api_keys set last_used = now()
             where id = any($1) and (last_used is null or last_used < now() - interval '1 minute')",
        )
        .bind(ids)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }
}

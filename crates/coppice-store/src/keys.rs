//! API keys, looked up by the keyed hash of the whole key.

use chrono::{DateTime, Utc};
use coppice_core::access::{Caller, Grant, Principal};
use coppice_core::{ApiKeyId, OrganizationId, UserId};
use sqlx::FromRow;

use crate::{Result, Store, Tx};

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
}

/// A key that was found.
#[derive(Debug)]
pub struct KeyMatch {
    /// Who calls, with what.
    pub caller: Caller,
    /// Whether the user behind a user key is disabled.
    pub is_user_disabled: bool,
}

#[derive(FromRow)]
struct KeyRow {
    id: String,
    user_id: Option<String>,
    organization_id: Option<String>,
    scopes: Vec<String>,
    projects: Vec<String>,
    branches: Vec<String>,
    expiry: Option<DateTime<Utc>>,
    disabled: bool,
}

impl Store {
    /// Finds a key by its hash (index `api_keys_hash_key`).
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn key_find(&self, hash: &str) -> Result<Option<KeyMatch>> {
        let row: Option<KeyRow> = sqlx::query_as(
            "select k.id, k.user_id, k.organization_id, k.scopes, k.projects, k.branches, k.expiry,
                    coalesce(u.disabled, false) as disabled
             from api_keys k
             left join users u on u.id = k.user_id
             left join organizations o on o.id = k.organization_id
             where k.hash = $1 and o.deleted_at is null",
        )
        .bind(hash)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.and_then(|row| {
            let principal = match (row.user_id, row.organization_id) {
                (Some(user), _) => Principal::User(UserId::from_trusted(user)),
                (None, Some(organization)) => {
                    Principal::Organization(OrganizationId::from_trusted(organization))
                }
                // The schema has exactly one of both.
                (None, None) => return None,
            };
            let grant = Grant { scopes: row.scopes, projects: row.projects, branches: row.branches };
            let caller = Caller { principal, key: ApiKeyId::from_trusted(row.id), grant, expiry: row.expiry };
            Some(KeyMatch { caller, is_user_disabled: row.disabled })
        }))
    }

    /// Inserts a key.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn key_insert_in_tx(&self, tx: &mut Tx, key: &NewApiKey<'_>) -> Result<()> {
        let (user, organization) = match key.principal {
            Principal::User(id) => (Some(id.as_str()), None),
            Principal::Organization(id) => (None, Some(id.as_str())),
        };
        sqlx::query(
            "insert into api_keys (id, user_id, organization_id, name, preview, hash, scopes, projects,
                                   branches, expiry, created_by)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $2)",
        )
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
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Replaces the hash and preview of a key: the old secret ends at once.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn key_replace_secret(&self, id: &ApiKeyId, hash: &str, preview: &str) -> Result<()> {
        sqlx::query("update api_keys set hash = $2, preview = $3 where id = $1")
            .bind(id.as_str())
            .bind(hash)
            .bind(preview)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

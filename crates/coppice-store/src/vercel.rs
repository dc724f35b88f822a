//! Installations of our integration on Vercel.

use chrono::{DateTime, Utc};
use coppice_core::vercel::VercelInstallation;
use coppice_core::{OrganizationId, VercelInstallationId};
use serde_json::Value;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

const COLUMNS: &str = "id, account_id, organization_id, ending_at is not null as is_ending, \
    coalesce(ending_at < now() - interval '24 hours', false) as is_overdue, cascading";

/// What Vercel says of an installation.
#[derive(Clone, Copy, Debug)]
pub struct VercelNote<'a> {
    /// By which we may act on it there.
    pub access_token_sealed: &'a [u8],
    /// How that is shown.
    pub token_type: &'a str,
    /// What it lets us do.
    pub scopes: &'a [String],
    /// When which policy was accepted.
    pub accepted_policies: &'a Value,
    /// Who installed it.
    pub account: &'a Value,
}

#[derive(FromRow)]
struct InstallationRow {
    id: String,
    account_id: String,
    organization_id: String,
    is_ending: bool,
    is_overdue: bool,
    cascading: bool,
}

impl From<InstallationRow> for VercelInstallation {
    fn from(row: InstallationRow) -> Self {
        Self {
            id: VercelInstallationId::from_trusted(row.id),
            account: row.account_id,
            organization: OrganizationId::from_trusted(row.organization_id),
            is_ending: row.is_ending,
            is_overdue: row.is_overdue,
            is_cascading: row.cascading,
        }
    }
}

impl Store {
    /// An installation, if it is known.
    pub async fn vercel_installation(&self, id: &VercelInstallationId) -> Result<Option<VercelInstallation>> {
        let sql = format!("select {COLUMNS} from vercel_installations where id = $1");
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.as_str());
        let row: Option<InstallationRow> = self.reads.optional(query).await?;
        Ok(row.map(VercelInstallation::from))
    }

    /// Writes a new installation down.
    ///
    /// # Errors
    /// A unique violation of `vercel_installations_pkey` when it is known.
    pub async fn vercel_installation_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: &VercelInstallationId,
        account: &str,
        organization: &OrganizationId,
        note: VercelNote<'_>,
    ) -> Result<()> {
        sqlx::query(
            "insert into vercel_installations (access_token_sealed, token_type, scopes, accepted_policies,
                account, id, account_id, organization_id) values ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(note.access_token_sealed)
        .bind(note.token_type)
        .bind(note.scopes)
        .bind(note.accepted_policies)
        .bind(note.account)
        .bind(id.as_str())
        .bind(account)
        .bind(organization.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Writes down what Vercel says now; false when it was deleted.
    pub async fn vercel_installation_update(
        &self,
        id: &VercelInstallationId,
        note: VercelNote<'_>,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update vercel_installations set access_token_sealed = $1, token_type = $2, scopes = $3,
                accepted_policies = $4, account = $5, updated_at = now()
             where id = $6 and ending_at is null",
        )
        .bind(note.access_token_sealed)
        .bind(note.token_type)
        .bind(note.scopes)
        .bind(note.accepted_policies)
        .bind(note.account)
        .bind(id.as_str())
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Marks an installation deleted; one that was stays, and takes its projects along if that is asked for now.
    pub async fn vercel_installation_end(&self, id: &VercelInstallationId, is_cascading: bool) -> Result<()> {
        sqlx::query(
            "update vercel_installations set ending_at = coalesce(ending_at, now()), cascading = cascading or $2
             where id = $1",
        )
        .bind(id.as_str())
        .bind(is_cascading)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Marks an installation deleted that was made before a moment.
    pub async fn vercel_installation_removed(
        &self,
        id: &VercelInstallationId,
        when: DateTime<Utc>,
    ) -> Result<()> {
        sqlx::query(
            "update vercel_installations set ending_at = coalesce(ending_at, now())
             where id = $1 and created_at <= $2",
        )
        .bind(id.as_str())
        .bind(when)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// By what an installation can be acted on at Vercel, encrypted.
    pub async fn vercel_installation_token(&self, id: &VercelInstallationId) -> Result<Option<Vec<u8>>> {
        let sql = "select access_token_sealed from vercel_installations where id = $1";
        Ok(sqlx::query_scalar(sql).bind(id.as_str()).fetch_optional(&self.pool).await?)
    }

    /// Installations whose deletion is not finished, the oldest first.
    pub async fn vercel_installations_ending(&self) -> Result<Vec<VercelInstallation>> {
        let sql = format!(
            "select {COLUMNS} from vercel_installations where ending_at is not null order by ending_at, id"
        );
        let rows: Vec<InstallationRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(VercelInstallation::from).collect())
    }

    /// Forgets an installation whose deletion is finished.
    pub async fn vercel_installation_forget_in_tx(
        &self,
        tx: &mut Tx,
        id: &VercelInstallationId,
    ) -> Result<()> {
        sqlx::query("delete from vercel_installations where id = $1 and ending_at is not null")
            .bind(id.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}

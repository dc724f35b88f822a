//! Webhooks: where events of organizations are sent to.

use chrono::{DateTime, Utc};
use coppice_core::webhook::{FORMER_SECRET_HOURS, Interest, Webhook};
use coppice_core::{OrganizationId, WebhookId};
use sqlx::FromRow;

use crate::{Result, Store, Tx};

const COLUMNS: &str = "id, url, description, types, projects, enabled, gone, created_at, updated_at,
    case when former_until > now() then former_until end as former_until";

/// A webhook to be inserted.
#[derive(Debug)]
pub struct NewWebhook<'a> {
    /// Its id.
    pub id: &'a WebhookId,
    /// Where to.
    pub url: &'a str,
    /// For people.
    pub description: &'a str,
    /// Which events.
    pub interest: &'a Interest,
    /// What it signs with, encrypted.
    pub secret_sealed: &'a [u8],
}

#[derive(FromRow)]
struct WebhookRow {
    id: String,
    url: String,
    description: String,
    types: Vec<String>,
    projects: Vec<String>,
    enabled: bool,
    gone: bool,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    former_until: Option<DateTime<Utc>>,
}

impl From<WebhookRow> for Webhook {
    fn from(row: WebhookRow) -> Self {
        Self {
            id: WebhookId::from_trusted(row.id),
            url: row.url,
            description: row.description,
            interest: Interest { types: row.types, projects: row.projects },
            is_enabled: row.enabled,
            is_gone: row.gone,
            former_secret_until: row.former_until,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl Store {
    /// Webhooks of an organization, oldest first.
    pub async fn webhook_list(&self, organization: &OrganizationId) -> Result<Vec<Webhook>> {
        let sql =
            format!("select {COLUMNS} from webhooks where organization_id = $1 order by created_at, id");
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str());
        let rows: Vec<WebhookRow> = self.reads.all(query).await?;
        Ok(rows.into_iter().map(Webhook::from).collect())
    }

    /// A webhook of an organization.
    pub async fn webhook_find(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
    ) -> Result<Option<Webhook>> {
        let sql = format!("select {COLUMNS} from webhooks where organization_id = $1 and id = $2");
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str()).bind(id.as_str());
        let row: Option<WebhookRow> = self.reads.optional(query).await?;
        Ok(row.map(Webhook::from))
    }

    /// As [`Store::webhook_find`]; nobody changes it until the transaction ends.
    pub async fn webhook_lock_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        id: &WebhookId,
    ) -> Result<Option<Webhook>> {
        let sql = format!("select {COLUMNS} from webhooks where organization_id = $1 and id = $2 for update");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(organization.as_str()).bind(id.as_str());
        let row: Option<WebhookRow> = query.fetch_optional(&mut **tx).await?;
        Ok(row.map(Webhook::from))
    }

    /// How many webhooks an organization has.
    pub async fn webhook_count_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<u32> {
        let query = sqlx::query_scalar("select count(*) from webhooks where organization_id = $1");
        let count: i64 = query.bind(organization.as_str()).fetch_one(&mut **tx).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Inserts a webhook and returns its record.
    pub async fn webhook_insert_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        new: &NewWebhook<'_>,
    ) -> Result<Webhook> {
        let sql = format!(
            "insert into webhooks (id, organization_id, url, description, types, projects, secret_sealed)
             values ($1, $2, $3, $4, $5, $6, $7) returning {COLUMNS}"
        );
        let row: WebhookRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(new.id.as_str())
            .bind(organization.as_str())
            .bind(new.url)
            .bind(new.description)
            .bind(&new.interest.types)
            .bind(&new.interest.projects)
            .bind(new.secret_sealed)
            .fetch_one(&mut **tx)
            .await?;
        Ok(row.into())
    }

    /// Changes what its owner says of a webhook. One that is turned on is not gone.
    pub async fn webhook_update_in_tx(&self, tx: &mut Tx, webhook: &Webhook) -> Result<Webhook> {
        let sql = format!(
            "update webhooks set url = $2, description = $3, types = $4, projects = $5, enabled = $6,
                 gone = gone and not $6, updated_at = now()
             where id = $1 returning {COLUMNS}"
        );
        let row: WebhookRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(webhook.id.as_str())
            .bind(&webhook.url)
            .bind(&webhook.description)
            .bind(&webhook.interest.types)
            .bind(&webhook.interest.projects)
            .bind(webhook.is_enabled)
            .fetch_one(&mut **tx)
            .await?;
        Ok(row.into())
    }

    /// Gives a webhook another secret; the one that it has signs as well for
    /// [`FORMER_SECRET_HOURS`].
    pub async fn webhook_rotate_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        id: &WebhookId,
        secret_sealed: &[u8],
    ) -> Result<Option<Webhook>> {
        let sql = format!(
            "update webhooks set former_secret_sealed = secret_sealed, secret_sealed = $3,
                 former_until = now() + make_interval(hours => $4), updated_at = now()
             where organization_id = $1 and id = $2 returning {COLUMNS}"
        );
        let row: Option<WebhookRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(id.as_str())
            .bind(secret_sealed)
            .bind(FORMER_SECRET_HOURS as i32)
            .fetch_optional(&mut **tx)
            .await?;
        Ok(row.map(Webhook::from))
    }

    /// Deletes a webhook with its deliveries; false when there is none.
    pub async fn webhook_delete(&self, organization: &OrganizationId, id: &WebhookId) -> Result<bool> {
        let query = sqlx::query("delete from webhooks where organization_id = $1 and id = $2");
        let done = query.bind(organization.as_str()).bind(id.as_str()).execute(&self.pool).await?;
        Ok(done.rows_affected() == 1)
    }

    /// Forgets secrets that sign no more.
    pub async fn webhook_forget_former_secrets(&self) -> Result<()> {
        sqlx::query(
            "update webhooks set former_secret_sealed = null, former_until = null where former_until <= now()",
        )
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }
}

//! Organizations.

use chrono::{DateTime, Utc};
use coppice_core::access::Principal;
use coppice_core::organization::{BillingStatus, Organization, UsageTier};
use coppice_core::{OrganizationId, UserId};
use sqlx::FromRow;
use sqlx::postgres::PgRow;

use crate::{Result, Store, Tx};

const COLUMNS: &str = "o.id, o.name, o.disabled_by_admin, o.billing_status, o.usage_tier, o.admin_reason, \
    o.billing_reason, o.last_updated, o.created_at";

#[derive(FromRow)]
struct OrganizationRow {
    id: String,
    name: String,
    disabled_by_admin: bool,
    billing_status: String,
    usage_tier: String,
    admin_reason: String,
    billing_reason: String,
    last_updated: DateTime<Utc>,
    created_at: DateTime<Utc>,
}

/// Reads the columns of an organization.
pub(crate) fn organization_from(row: &PgRow) -> Result<Organization> {
    Ok(OrganizationRow::from_row(row)?.into())
}

impl From<OrganizationRow> for Organization {
    fn from(row: OrganizationRow) -> Self {
        Self {
            id: OrganizationId::from_trusted(row.id),
            name: row.name,
            disabled_by_admin: row.disabled_by_admin,
            billing_status: BillingStatus::parse(&row.billing_status),
            usage_tier: if row.usage_tier == "t2" { UsageTier::T2 } else { UsageTier::T1 },
            admin_reason: row.admin_reason,
            billing_reason: row.billing_reason,
            last_updated: row.last_updated,
            created_at: row.created_at,
        }
    }
}

impl Store {
    /// Organizations a caller belongs to, oldest first; an organization's key
    /// belongs to that one. Served by index `members_user`.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_list(&self, principal: &Principal) -> Result<Vec<Organization>> {
        let (user, own) = match principal {
            Principal::User(id) => (Some(id.as_str()), None),
            Principal::Organization(id) => (None, Some(id.as_str())),
        };
        let sql = format!(
            "select {COLUMNS} from organizations o
             where o.deleted_at is null and (o.id = $2
                or o.id = any (array(select m.organization_id from members m where m.user_id = $1)))
             order by o.created_at, o.id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(user).bind(own);
        let rows: Vec<OrganizationRow> = self.reads.all(query).await?;
        Ok(rows.into_iter().map(Organization::from).collect())
    }

    /// Inserts an organization with its owner and returns it.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
        name: &str,
        owner: &UserId,
    ) -> Result<Organization> {
        let sql = format!("insert into organizations as o (id, name) values ($1, $2) returning {COLUMNS}");
        let row: OrganizationRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(name)
            .fetch_one(&mut **tx)
            .await?;
        sqlx::query("insert into members (organization_id, user_id, role) values ($1, $2, 'owner')")
            .bind(id.as_str())
            .bind(owner.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(row.into())
    }

    /// Renames an organization and returns it; none when it is deleted.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_rename(&self, id: &OrganizationId, name: &str) -> Result<Option<Organization>> {
        let sql = format!(
            "update organizations o set name = $2 where id = $1 and deleted_at is null returning {COLUMNS}"
        );
        let row: Option<OrganizationRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(name)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(Organization::from))
    }

    /// Marks an organization deleted and ends its keys and memberships; false
    /// when it already was.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_delete_in_tx(&self, tx: &mut Tx, id: &OrganizationId) -> Result<bool> {
        let done =
            sqlx::query("update organizations set deleted_at = now() where id = $1 and deleted_at is null")
                .bind(id.as_str())
                .execute(&mut **tx)
                .await?;
        for ended in [
            "delete from api_keys where organization_id = $1",
            "delete from members where organization_id = $1",
        ] {
            sqlx::query(ended).bind(id.as_str()).execute(&mut **tx).await?;
        }
        Ok(done.rows_affected() == 1)
    }

    /// Sets what the operator says of an organization, and puts its branches to
    /// sleep, or wakes those that were put to sleep by that. Returns how many
    /// branches that concerns; none when there is no such organization.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_set_disabled(
        &self,
        id: &OrganizationId,
        is_disabled: bool,
        reason: &str,
    ) -> Result<Option<u32>> {
        let mut tx = self.begin().await?;
        if !self.organization_lock_in_tx(&mut tx, id).await? {
            return Ok(None);
        }
        let is_enabled: bool = sqlx::query_scalar(
            "update organizations set disabled_by_admin = $2, admin_reason = $3, last_updated = now()
             where id = $1 returning not disabled_by_admin and billing_status = 'ok'",
        )
        .bind(id.as_str())
        .bind(is_disabled)
        .bind(reason)
        .fetch_one(&mut *tx)
        .await?;
        let statement = if is_enabled {
            "with woken as (
                 update branches b set goal = 'running', resumes_with_organization = false,
                     generation = generation + 1, idle_since = now()
                 from projects p where p.id = b.project_id and p.organization_id = $1
                   and b.goal = 'hibernated' and b.resumes_with_organization and b.deleted_at is null
                 returning b.id)
             insert into awake_periods (branch_id, cause, woken_by)
             select id, 'organization', 'its organization being enabled' from woken"
        } else {
            "with asleep as (
                 update branches b set goal = 'hibernated', resumes_with_organization = true,
                     generation = generation + 1
                 from projects p where p.id = b.project_id and p.organization_id = $1
                   and b.goal = 'running' and b.deleted_at is null
                 returning b.id)
             update awake_periods set ended_at = now(), end_cause = 'organization'
             where branch_id in (select id from asleep) and ended_at is null"
        };
        let done = sqlx::query(statement).bind(id.as_str()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Some(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX)))
    }

    /// Every organization that is not deleted, oldest first.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_list_all(&self) -> Result<Vec<Organization>> {
        let sql = format!(
            "select {COLUMNS} from organizations o where o.deleted_at is null order by o.created_at, o.id"
        );
        let rows: Vec<OrganizationRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(Organization::from).collect())
    }

    /// How many organizations a user owns.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_count_owned_in_tx(&self, tx: &mut Tx, user: &UserId) -> Result<u32> {
        let count: i64 =
            sqlx::query_scalar("select count(*) from members where user_id = $1 and role = 'owner'")
                .bind(user.as_str())
                .fetch_one(&mut **tx)
                .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Makes creations in one organization wait for each other, so that quotas
    /// are counted right, until the transaction ends; false when it is deleted.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_lock_in_tx(&self, tx: &mut Tx, id: &OrganizationId) -> Result<bool> {
        let row =
            sqlx::query("select from organizations where id = $1 and deleted_at is null for no key update")
                .bind(id.as_str())
                .fetch_optional(&mut **tx)
                .await?;
        Ok(row.is_some())
    }

    /// Forgets organizations that were deleted over 30 days ago.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_purge(&self) -> Result<u64> {
        let done = sqlx::query(
            "delete from organizations o where deleted_at < now() - interval '30 days'
               and not exists (select from projects p where p.organization_id = o.id)",
        )
        .execute(&self.relaxed)
        .await?;
        Ok(done.rows_affected())
    }
}

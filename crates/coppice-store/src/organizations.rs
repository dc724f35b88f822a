//! Organizations.

use chrono::{DateTime, Utc};
use coppice_core::access::Principal;
use coppice_core::organization::{BillingStatus, Holder, Organization, UsageTier};
use coppice_core::{BranchId, OrganizationId, UserId};
use sqlx::FromRow;
use sqlx::postgres::PgRow;

use crate::{Result, Store, Tx};

const COLUMNS: &str = "o.id, o.name, o.disabled_by_admin, o.billing_status, o.usage_tier, o.admin_reason, \
    o.billing_reason, o.requires_second_factor, o.last_updated, o.created_at";

#[derive(FromRow)]
struct OrganizationRow {
    id: String,
    name: String,
    disabled_by_admin: bool,
    billing_status: String,
    usage_tier: String,
    admin_reason: String,
    billing_reason: String,
    requires_second_factor: bool,
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
            requires_second_factor: row.requires_second_factor,
            last_updated: row.last_updated,
            created_at: row.created_at,
        }
    }
}

impl Store {
    /// Who answers for an organization.
    pub async fn organization_holder(&self, id: &OrganizationId) -> Result<Holder> {
        let query = sqlx::query_scalar("select holder_of($1)").bind(id.as_str());
        let holder: String = query.fetch_one(&self.pool).await?;
        Ok(Holder::from_trusted(holder))
    }

    /// Organizations a caller belongs to, oldest first; an organization's key
    /// belongs to that one. Served by index `members_user`.
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

    /// Inserts an organization with its owner, if it has one, and returns it.
    pub async fn organization_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
        name: &str,
        owner: Option<&UserId>,
    ) -> Result<Organization> {
        let sql = format!("insert into organizations as o (id, name) values ($1, $2) returning {COLUMNS}");
        let row: OrganizationRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(name)
            .fetch_one(&mut **tx)
            .await?;
        if let Some(owner) = owner {
            sqlx::query("insert into members (organization_id, user_id, role) values ($1, $2, 'owner')")
                .bind(id.as_str())
                .bind(owner.as_str())
                .execute(&mut **tx)
                .await?;
        }
        Ok(row.into())
    }

    /// Changes what is given of an organization, which the transaction has locked, and returns it.
    pub async fn organization_update_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
        name: Option<&str>,
        requires_second_factor: Option<bool>,
    ) -> Result<Organization> {
        let sql = format!(
            "update organizations o set name = coalesce($2, name),
                    requires_second_factor = coalesce($3, requires_second_factor)
             where id = $1 returning {COLUMNS}"
        );
        let row: OrganizationRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(name)
            .bind(requires_second_factor)
            .fetch_one(&mut **tx)
            .await?;
        Ok(row.into())
    }

    /// Marks an organization deleted and ends its keys, memberships and invitations; false
    /// when it already was.
    pub async fn organization_delete_in_tx(&self, tx: &mut Tx, id: &OrganizationId) -> Result<bool> {
        let done =
            sqlx::query("update organizations set deleted_at = now() where id = $1 and deleted_at is null")
                .bind(id.as_str())
                .execute(&mut **tx)
                .await?;
        for ended in [
            "delete from api_keys where organization_id = $1",
            "delete from members where organization_id = $1",
            "delete from invitations where organization_id = $1",
        ] {
            sqlx::query(ended).bind(id.as_str()).execute(&mut **tx).await?;
        }
        Ok(done.rows_affected() == 1)
    }

    /// Sets what the operator says of an organization, and puts its branches to
    /// sleep, or wakes those that were put to sleep by that. Returns how many
    /// branches that concerns; none when there is no such organization.
    pub async fn organization_set_disabled(
        &self,
        id: &OrganizationId,
        is_disabled: bool,
        reason: &str,
    ) -> Result<Option<u32>> {
        let mut tx = self.begin().await?;
        if self.organization_lock_in_tx(&mut tx, id).await?.is_none() {
            return Ok(None);
        }
        sqlx::query(
            "update organizations set disabled_by_admin = $2, admin_reason = $3, last_updated = now()
             where id = $1",
        )
        .bind(id.as_str())
        .bind(is_disabled)
        .bind(reason)
        .execute(&mut *tx)
        .await?;
        let branches = self.organization_apply_status_in_tx(&mut tx, id).await?;
        tx.commit().await?;
        Ok(Some(branches))
    }

    /// Sets whether an organization's databases are paid for, or its deletion
    /// asked for, with the same effect on its branches as
    /// [`Store::organization_set_disabled`]. The organization must be locked by
    /// the transaction.
    pub async fn organization_set_billing_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
        status: BillingStatus,
        reason: &str,
    ) -> Result<u32> {
        sqlx::query(
            "update organizations set billing_status = $2, billing_reason = $3, last_updated = now()
             where id = $1 and (billing_status, billing_reason) <> ($2, $3)",
        )
        .bind(id.as_str())
        .bind(status.as_str())
        .bind(reason)
        .execute(&mut **tx)
        .await?;
        self.organization_apply_status_in_tx(tx, id).await
    }

    /// Sets how much trust an organization has earned; false when there is no
    /// such organization.
    pub async fn organization_set_tier(&self, id: &OrganizationId, tier: UsageTier) -> Result<bool> {
        let mut tx = self.begin().await?;
        let is_set = self.organization_set_tier_in_tx(&mut tx, id, tier).await?;
        tx.commit().await?;
        Ok(is_set)
    }

    /// As [`Store::organization_set_tier`], as part of something.
    pub async fn organization_set_tier_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
        tier: UsageTier,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update organizations set usage_tier = $2, last_updated = now()
             where id = $1 and deleted_at is null",
        )
        .bind(id.as_str())
        .bind(tier.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Organizations whose deletion was asked for and can be done.
    pub async fn organization_list_deletable(&self) -> Result<Vec<OrganizationId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "select o.id from organizations o
             where o.billing_status = 'deletion_requested' and o.deleted_at is null
               and not exists (select from projects p
                               where p.organization_id = o.id and p.deleted_at is null)",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().map(OrganizationId::from_trusted).collect())
    }

    /// The billing status of an organization, which is locked until the
    /// transaction ends; none when it is deleted.
    pub async fn organization_billing_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
    ) -> Result<Option<BillingStatus>> {
        let status: Option<String> = sqlx::query_scalar(
            "select billing_status from organizations where id = $1 and deleted_at is null for no key update",
        )
        .bind(id.as_str())
        .fetch_optional(&mut **tx)
        .await?;
        Ok(status.as_deref().map(BillingStatus::parse))
    }

    /// Puts the branches of a disabled organization to sleep, or wakes those of
    /// an enabled one that were put to sleep by that. Returns how many.
    async fn organization_apply_status_in_tx(&self, tx: &mut Tx, id: &OrganizationId) -> Result<u32> {
        let is_enabled: bool = sqlx::query_scalar(
            "select not disabled_by_admin and billing_status = 'ok' from organizations where id = $1",
        )
        .bind(id.as_str())
        .fetch_one(&mut **tx)
        .await?;
        if is_enabled {
            let woken = resume_in_tx(tx, id, "organization", "its organization being enabled").await?;
            return Ok(u32::try_from(woken.len()).unwrap_or(u32::MAX));
        }
        let done = sqlx::query(
            "with asleep as (
                 update branches b set goal = 'hibernated', resumes_when_allowed = true,
                     generation = generation + 1
                 from projects p where p.id = b.project_id and p.organization_id = $1
                   and b.goal = 'running' and b.deleted_at is null
                 returning b.id)
             update awake_periods set ended_at = now(), end_cause = 'organization'
             where branch_id in (select id from asleep) and ended_at is null",
        )
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX))
    }

    /// Every organization that is not deleted, oldest first.
    pub async fn organization_list_all(&self) -> Result<Vec<Organization>> {
        let sql = format!(
            "select {COLUMNS} from organizations o where o.deleted_at is null order by o.created_at, o.id"
        );
        let rows: Vec<OrganizationRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(Organization::from).collect())
    }

    /// What an organization is called; none when it is deleted.
    pub async fn organization_name(&self, id: &OrganizationId) -> Result<Option<String>> {
        let query = sqlx::query_scalar("select name from organizations where id = $1 and deleted_at is null");
        Ok(query.bind(id.as_str()).fetch_optional(&self.pool).await?)
    }

    /// How many organizations a user owns.
    pub async fn organization_count_owned_in_tx(&self, tx: &mut Tx, user: &UserId) -> Result<u32> {
        let count: i64 =
            sqlx::query_scalar("select count(*) from members where user_id = $1 and role = 'owner'")
                .bind(user.as_str())
                .fetch_one(&mut **tx)
                .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Makes creations in one organization wait for each other, so that quotas
    /// are counted right, until the transaction ends. Until then the
    /// organization stays as it is returned, enabled or disabled; none when it
    /// is deleted.
    pub async fn organization_lock_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
    ) -> Result<Option<Organization>> {
        let sql = format!(
            "select {COLUMNS} from organizations o where o.id = $1 and o.deleted_at is null for no key update"
        );
        let row: Option<OrganizationRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.as_str()).fetch_optional(&mut **tx).await?;
        Ok(row.map(Organization::from))
    }

    /// Forgets organizations that were deleted over 30 days ago.
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

/// Wakes the branches of an organization that were put to sleep because it was
/// disabled or a budget used up, as far as neither is so. The organization must
/// be locked by the transaction. Returns them.
pub(crate) async fn resume_in_tx(
    tx: &mut Tx,
    id: &OrganizationId,
    cause: &str,
    by: &str,
) -> Result<Vec<BranchId>> {
    let woken: Vec<String> = sqlx::query_scalar(
        "with woken as (
             update branches b set goal = 'running', resumes_when_allowed = false,
                 generation = generation + 1, idle_since = now()
             from projects p join organizations o on o.id = p.organization_id
             where p.id = b.project_id and o.id = $1 and not o.disabled_by_admin and o.billing_status = 'ok'
               and b.goal = 'hibernated' and b.resumes_when_allowed and b.deleted_at is null
             returning b.id),
         begun as (
             insert into awake_periods (branch_id, cause, woken_by) select id, $2, $3 from woken)
         select id from woken",
    )
    .bind(id.as_str())
    .bind(cause)
    .bind(by)
    .fetch_all(&mut **tx)
    .await?;
    Ok(woken.into_iter().map(BranchId::from_trusted).collect())
}

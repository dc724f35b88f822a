//! Projects.

use chrono::{DateTime, Utc};
use coppice_core::project::{AllowedRange, IpFiltering, Project, ProjectConfiguration, ScaleToZero};
use coppice_core::{OrganizationId, ProjectId};
use sqlx::FromRow;
use sqlx::types::Json;

use crate::{Result, Store, Tx};

const COLUMNS: &str = "id, organization_id, name, base_scale_to_zero, base_inactivity_minutes, \
    child_scale_to_zero, child_inactivity_minutes, child_expiry_hours, ip_filtering_enabled, ip_ranges, created_at, updated_at";

#[derive(FromRow)]
struct ProjectRow {
    id: String,
    organization_id: String,
    name: String,
    base_scale_to_zero: bool,
    base_inactivity_minutes: i32,
    child_scale_to_zero: bool,
    child_inactivity_minutes: i32,
    child_expiry_hours: i32,
    ip_filtering_enabled: bool,
    ip_ranges: Json<Vec<AllowedRange>>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

pub(crate) fn scale_to_zero(enabled: bool, minutes: i32) -> ScaleToZero {
    ScaleToZero { enabled, inactivity_period_minutes: minutes.unsigned_abs() }
}

impl From<ProjectRow> for Project {
    fn from(row: ProjectRow) -> Self {
        Self {
            id: ProjectId::from_trusted(row.id),
            organization: OrganizationId::from_trusted(row.organization_id),
            name: row.name,
            configuration: ProjectConfiguration {
                base_branches: scale_to_zero(row.base_scale_to_zero, row.base_inactivity_minutes),
                child_branches: scale_to_zero(row.child_scale_to_zero, row.child_inactivity_minutes),
                child_expiry_hours: row.child_expiry_hours.unsigned_abs(),
                ip_filtering: IpFiltering { enabled: row.ip_filtering_enabled, ranges: row.ip_ranges.0 },
            },
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl Store {
    /// Projects of an organization, oldest first; with `only`, no others than
    /// those, and with `owning`, only those that own one of these branches.
    /// Served by index `projects_organization`.
    pub async fn project_list(
        &self,
        organization: &OrganizationId,
        only: Option<&[String]>,
        owning: Option<&[String]>,
    ) -> Result<Vec<Project>> {
        let sql = format!(
            "select {COLUMNS} from projects p
             where organization_id = $1 and deleted_at is null and ($2::text[] is null or id = any($2))
               and ($3::text[] is null or exists (select from branches b where b.project_id = p.id
                    and b.id = any($3) and b.deleted_at is null))
             order by created_at, id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str()).bind(only).bind(owning);
        let rows: Vec<ProjectRow> = self.reads.all(query).await?;
        Ok(rows.into_iter().map(Project::from).collect())
    }

    /// One project of an organization.
    pub async fn project_find(
        &self,
        organization: &OrganizationId,
        id: &ProjectId,
    ) -> Result<Option<Project>> {
        let sql = format!(
            "select {COLUMNS} from projects where id = $2 and organization_id = $1 and deleted_at is null"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str()).bind(id.as_str());
        let row: Option<ProjectRow> = self.reads.optional(query).await?;
        Ok(row.map(Project::from))
    }

    /// As [`Store::project_find`], and makes other changes of the project and
    /// creations of branches in it wait until the transaction ends.
    pub async fn project_lock_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        id: &ProjectId,
    ) -> Result<Option<Project>> {
        let sql = format!(
            "select {COLUMNS} from projects where id = $2 and organization_id = $1 and deleted_at is null
             for no key update"
        );
        let row: Option<ProjectRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(id.as_str())
            .fetch_optional(&mut **tx)
            .await?;
        Ok(row.map(Project::from))
    }

    /// Whether an organization has a project that is not deleted.
    pub async fn project_exists_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<bool> {
        Ok(sqlx::query_scalar(
            "select exists (select from projects where organization_id = $1 and deleted_at is null)",
        )
        .bind(organization.as_str())
        .fetch_one(&mut **tx)
        .await?)
    }

    /// How many projects an organization has, and how many of any fate it made
    /// within the last hour.
    pub async fn project_count_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
    ) -> Result<(u32, u32)> {
        let (present, recent): (i64, i64) = sqlx::query_as(
            "select count(*) filter (where deleted_at is null),
                    count(*) filter (where created_at > now() - interval '1 hour')
             from projects where organization_id = $1",
        )
        .bind(organization.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok((u32::try_from(present).unwrap_or(u32::MAX), u32::try_from(recent).unwrap_or(u32::MAX)))
    }

    /// Seconds until an organization has made fewer than `max` projects within
    /// an hour.
    pub async fn project_room_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        max: u32,
    ) -> Result<u32> {
        let seconds: Option<i32> = sqlx::query_scalar(
            "select greatest(1, ceil(extract(epoch from created_at + interval '1 hour' - now()))::integer)
             from projects where organization_id = $1
             order by created_at desc offset greatest($2 - 1, 0) limit 1",
        )
        .bind(organization.as_str())
        .bind(i64::from(max))
        .fetch_optional(&mut **tx)
        .await?;
        Ok(seconds.unwrap_or(3600).unsigned_abs())
    }

    /// Inserts a project and returns it.
    pub async fn project_insert_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        id: &ProjectId,
        name: &str,
        configuration: &ProjectConfiguration,
    ) -> Result<Project> {
        let sql = format!(
            "insert into projects (organization_id, id, name, base_scale_to_zero, base_inactivity_minutes,
                 child_scale_to_zero, child_inactivity_minutes, ip_filtering_enabled, ip_ranges,
                 child_expiry_hours)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) returning {COLUMNS}"
        );
        let row: ProjectRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(id.as_str())
            .bind(name)
            .bind(configuration.base_branches.enabled)
            .bind(configuration.base_branches.inactivity_period_minutes as i32)
            .bind(configuration.child_branches.enabled)
            .bind(configuration.child_branches.inactivity_period_minutes as i32)
            .bind(configuration.ip_filtering.enabled)
            .bind(Json(&configuration.ip_filtering.ranges))
            .bind(configuration.child_expiry_hours as i32)
            .fetch_one(&mut **tx)
            .await?;
        Ok(row.into())
    }

    /// Changes a project that is locked, and returns it.
    pub async fn project_update_in_tx(
        &self,
        tx: &mut Tx,
        id: &ProjectId,
        name: &str,
        configuration: &ProjectConfiguration,
    ) -> Result<Project> {
        let sql = format!(
            "update projects set name = $2, base_scale_to_zero = $3, base_inactivity_minutes = $4,
                 child_scale_to_zero = $5, child_inactivity_minutes = $6, ip_filtering_enabled = $7,
                 ip_ranges = $8, child_expiry_hours = $9, updated_at = now()
             where id = $1 returning {COLUMNS}"
        );
        let row: ProjectRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(name)
            .bind(configuration.base_branches.enabled)
            .bind(configuration.base_branches.inactivity_period_minutes as i32)
            .bind(configuration.child_branches.enabled)
            .bind(configuration.child_branches.inactivity_period_minutes as i32)
            .bind(configuration.ip_filtering.enabled)
            .bind(Json(&configuration.ip_filtering.ranges))
            .bind(configuration.child_expiry_hours as i32)
            .fetch_one(&mut **tx)
            .await?;
        Ok(row.into())
    }

    /// Marks a project deleted; false when it already was, or never existed.
    pub async fn project_delete_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        id: &ProjectId,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update projects set deleted_at = now() where id = $2 and organization_id = $1 and deleted_at is null",
        )
        .bind(organization.as_str())
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

//! Branches: what their owners say of them. Sleeping and waking is in
//! `sleep.rs`, the reconciler's work in `work.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use coppice_core::backup::{BackupConfiguration, BackupTime};
use coppice_core::branch::{Branch, BranchSpec, BranchState, Goal};
use coppice_core::image::PostgresVersion;
use coppice_core::labels::Labels;
use coppice_core::lsn::Lsn;
use coppice_core::project::ScaleToZero;
use coppice_core::storage::Fullness;
use coppice_core::{ApiKeyId, BranchId, HostId, InstanceId, OrganizationId, ProjectId, RegionId, VolumeId};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres};

use crate::projects::scale_to_zero;
use crate::{BaseMoment, NewVolume, Result, Store, StoreError, Tx};

pub(crate) const COLUMNS: &str = "b.id, p.organization_id, b.project_id, b.name, b.description, b.labels, \
    b.parent_id, b.region, b.image_major, b.image_minor, b.instance_type, b.replicas, b.storage_gib, b.parameters, \
    b.preload_libraries, b.scale_to_zero, b.inactivity_minutes, b.protected, b.expires_at, b.backup_retention_days, \
    b.backup_day, b.backup_minute, b.goal, b.generation, b.state, b.message, b.fullness, \
    b.volume_id, b.replacement_id, b.password_sealed, b.made_with, b.idle_since, b.created_at, b.updated_at, \
    (select count(*) from instances n where n.branch_id = b.id and n.is_ready and n.role <> 'primary') as ready_replicas";

#[derive(FromRow)]
pub(crate) struct BranchRow {
    id: String,
    organization_id: String,
    project_id: String,
    name: String,
    description: String,
    labels: Json<Labels>,
    parent_id: Option<String>,
    region: String,
    image_major: i32,
    image_minor: i32,
    instance_type: String,
    replicas: i32,
    storage_gib: i32,
    parameters: Json<BTreeMap<String, String>>,
    preload_libraries: Vec<String>,
    scale_to_zero: bool,
    inactivity_minutes: i32,
    protected: bool,
    expires_at: Option<DateTime<Utc>>,
    backup_retention_days: i16,
    backup_day: Option<i16>,
    backup_minute: i16,
    goal: String,
    generation: i64,
    state: String,
    ready_replicas: i64,
    message: String,
    fullness: String,
    volume_id: String,
    replacement_id: Option<String>,
    password_sealed: Vec<u8>,
    made_with: Option<String>,
    idle_since: DateTime<Utc>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

pub(crate) fn version(major: i32, minor: i32) -> PostgresVersion {
    PostgresVersion { major: major.unsigned_abs(), minor: minor.unsigned_abs() }
}

impl TryFrom<BranchRow> for Branch {
    type Error = StoreError;

    fn try_from(row: BranchRow) -> Result<Self> {
        let goal = Goal::parse(&row.goal)
            .ok_or_else(|| StoreError::UnknownValue { what: "goal", value: row.goal })?;
        let state = BranchState::parse(&row.state)
            .ok_or_else(|| StoreError::UnknownValue { what: "state", value: row.state })?;
        let fullness = Fullness::parse(&row.fullness)
            .ok_or_else(|| StoreError::UnknownValue { what: "fullness", value: row.fullness })?;
        Ok(Self {
            id: BranchId::from_trusted(row.id),
            organization: OrganizationId::from_trusted(row.organization_id),
            project: ProjectId::from_trusted(row.project_id),
            name: row.name,
            description: row.description,
            labels: row.labels.0,
            parent: row.parent_id.map(BranchId::from_trusted),
            spec: BranchSpec {
                region: RegionId::from_trusted(row.region),
                version: version(row.image_major, row.image_minor),
                instance_type: row.instance_type,
                replicas: row.replicas.unsigned_abs(),
                storage_gib: row.storage_gib.unsigned_abs(),
                parameters: row.parameters.0,
                preload_libraries: row.preload_libraries,
            },
            scale_to_zero: scale_to_zero(row.scale_to_zero, row.inactivity_minutes),
            is_protected: row.protected,
            expires_at: row.expires_at,
            backups: BackupConfiguration {
                retention_days: u32::from(row.backup_retention_days.unsigned_abs()),
                time: BackupTime {
                    day: row.backup_day.and_then(|day| u8::try_from(day).ok()),
                    minute: row.backup_minute.unsigned_abs(),
                },
            },
            goal,
            generation: row.generation,
            state,
            ready_replicas: u32::try_from(row.ready_replicas).unwrap_or_default(),
            message: row.message,
            fullness,
            volume: VolumeId::from_trusted(row.volume_id),
            replacement: row.replacement_id.map(VolumeId::from_trusted),
            password_sealed: row.password_sealed,
            made_with: row.made_with.map(ApiKeyId::from_trusted),
            idle_since: row.idle_since,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// A branch to be inserted, with its volume and its primary.
#[derive(Debug)]
pub struct NewBranch<'a> {
    /// The branch.
    pub id: &'a BranchId,
    /// Its project.
    pub project: &'a ProjectId,
    /// The branch it is made from.
    pub parent: Option<&'a BranchId>,
    /// The volume its data is copied from; none means the image's template.
    pub source: Option<&'a VolumeId>,
    /// The place in that volume's log to go back to; none means as it is.
    pub moment: Option<Lsn>,
    /// The base in the store that it is made from instead, and up to which time.
    pub base: Option<&'a BaseMoment>,
    /// Unique in the project.
    pub name: &'a str,
    /// For people.
    pub description: &'a str,
    /// What it is told apart by.
    pub labels: &'a Labels,
    /// What it is made of.
    pub spec: &'a BranchSpec,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZero,
    /// When it is deleted; none is never.
    pub expires_at: Option<DateTime<Utc>>,
    /// What is kept of what it was.
    pub backups: BackupConfiguration,
    /// The key that it is made with, if it is one.
    pub made_with: Option<&'a ApiKeyId>,
    /// The volume to be made.
    pub volume: &'a VolumeId,
    /// The host that will hold it.
    pub host: &'a HostId,
    /// The managed role's password, encrypted.
    pub password_sealed: &'a [u8],
    /// The managed role's SCRAM-SHA-256 verifier.
    pub managed_role_verifier: &'a str,
}

/// What its owner says of a branch, beside what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchNote<'a> {
    /// Unique in the project.
    pub name: &'a str,
    /// For people.
    pub description: &'a str,
    /// What it is told apart by.
    pub labels: Cow<'a, Labels>,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZero,
    /// Whether it can't be deleted, and does not expire.
    pub is_protected: bool,
    /// When it is deleted; none is never.
    pub expires_at: Option<DateTime<Utc>>,
    /// What is kept of what it was.
    pub backups: BackupConfiguration,
}

impl<'a> BranchNote<'a> {
    /// What its owner says of a branch now.
    pub fn of(branch: &'a Branch) -> Self {
        Self {
            name: &branch.name,
            description: &branch.description,
            labels: Cow::Borrowed(&branch.labels),
            scale_to_zero: branch.scale_to_zero,
            is_protected: branch.is_protected,
            expires_at: branch.expires_at,
            backups: branch.backups,
        }
    }
}

/// Numbers that quotas are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchQuotas {
    /// Branches of the project.
    pub in_project: u32,
    /// Branches of the organization.
    pub in_organization: u32,
    /// Branches of the organization made within an hour, also deleted ones.
    pub recent: u32,
}

impl Store {
    /// Inserts a branch with its volume and primary.
    ///
    /// # Errors
    /// A unique violation of `branches_name` when the name is taken.
    pub async fn branch_insert_in_tx(&self, tx: &mut Tx, new: &NewBranch<'_>) -> Result<()> {
        sqlx::query(
            "insert into branches (id, project_id, parent_id, name, description, region, image_major,
                 image_minor, instance_type, replicas, storage_gib, parameters, preload_libraries,
                 scale_to_zero, inactivity_minutes, goal, state, volume_id, password_sealed,
                 managed_role_verifier, expires_at, made_with, backup_retention_days, backup_day, backup_minute,
                 labels, root_id)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 'running',
                 'creating', $16, $17, $18, $19, $20, $21, $22, $23, $24, (select coalesce(root_id, id) from branches where id = $3))",
        )
        .bind(new.id.as_str())
        .bind(new.project.as_str())
        .bind(new.parent.map(BranchId::as_str))
        .bind(new.name)
        .bind(new.description)
        .bind(new.spec.region.as_str())
        .bind(new.spec.version.major as i32)
        .bind(new.spec.version.minor as i32)
        .bind(&new.spec.instance_type)
        .bind(new.spec.replicas as i32)
        .bind(new.spec.storage_gib as i32)
        .bind(Json(&new.spec.parameters))
        .bind(&new.spec.preload_libraries)
        .bind(new.scale_to_zero.enabled)
        .bind(new.scale_to_zero.inactivity_period_minutes as i32)
        .bind(new.volume.as_str())
        .bind(new.password_sealed)
        .bind(new.managed_role_verifier)
        .bind(new.expires_at)
        .bind(new.made_with.map(ApiKeyId::as_str))
        .bind(new.backups.retention_days as i16)
        .bind(new.backups.time.day.map(i16::from))
        .bind(new.backups.time.minute as i16)
        .bind(Json(new.labels))
        .execute(&mut **tx)
        .await?;
        let volume = NewVolume {
            id: new.volume,
            host: new.host,
            branch: new.id,
            source: new.source,
            moment: new.moment,
            base: new.base,
            version: new.spec.version,
        };
        self.volume_insert_in_tx(tx, &volume).await?;
        sqlx::query(
            "insert into instances (id, branch_id, ordinal, role, volume_id, host_id)
             values ($1, $2, 1, 'primary', $3, $4)",
        )
        .bind(InstanceId::primary(new.id).as_str())
        .bind(new.id.as_str())
        .bind(new.volume.as_str())
        .bind(new.host.as_str())
        .execute(&mut **tx)
        .await?;
        self.awake_begin_in_tx(tx, new.id).await
    }

    /// Branches of a project, oldest first; with `only`, no others than those.
    /// Served by index `branches_project`.
    pub async fn branch_list(
        &self,
        organization: &OrganizationId,
        project: &ProjectId,
        only: Option<&[String]>,
    ) -> Result<Vec<Branch>> {
        let sql = format!(
            "select {COLUMNS} from branches b join projects p on p.id = b.project_id
             where b.project_id = $1 and b.deleted_at is null and ($2::text[] is null or b.id = any($2))
               and p.organization_id = $3 and p.deleted_at is null
             order by b.created_at, b.id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(project.as_str())
            .bind(only)
            .bind(organization.as_str());
        let rows: Vec<BranchRow> = self.reads.all(query).await?;
        rows.into_iter().map(Branch::try_from).collect()
    }

    /// How deep a branch stands in its tree (a base branch: 1) and how many
    /// children it has.
    pub async fn branch_place_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<(u32, u32)> {
        let (depth, children): (i64, i64) = sqlx::query_as(
            "with recursive line as (
                 select id, parent_id from branches where id = $1
                 union all select b.id, b.parent_id from branches b join line on b.id = line.parent_id)
             select (select count(*) from line),
                    (select count(*) from branches where parent_id = $1 and deleted_at is null)",
        )
        .bind(id.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok((u32::try_from(depth).unwrap_or(u32::MAX), u32::try_from(children).unwrap_or(u32::MAX)))
    }

    /// Numbers that quotas are checked against.
    pub async fn branch_quotas_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        project: &ProjectId,
    ) -> Result<BranchQuotas> {
        let (in_project, in_organization, recent): (i64, i64, i64) = sqlx::query_as(
            "select count(*) filter (where b.project_id = $2 and b.deleted_at is null),
                    count(*) filter (where b.deleted_at is null),
                    count(*) filter (where b.created_at > now() - interval '1 hour')
             from branches b join projects p on p.id = b.project_id where p.organization_id = $1",
        )
        .bind(organization.as_str())
        .bind(project.as_str())
        .fetch_one(&mut **tx)
        .await?;
        let number = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(BranchQuotas {
            in_project: number(in_project),
            in_organization: number(in_organization),
            recent: number(recent),
        })
    }

    /// Seconds until an organization has made fewer than `max` branches within
    /// an hour.
    pub async fn branch_room_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        max: u32,
    ) -> Result<u32> {
        let seconds: Option<i32> = sqlx::query_scalar(
            "select greatest(1, ceil(extract(epoch from b.created_at + interval '1 hour' - now()))::integer)
             from branches b join projects p on p.id = b.project_id where p.organization_id = $1
             order by b.created_at desc offset greatest($2 - 1, 0) limit 1",
        )
        .bind(organization.as_str())
        .bind(i64::from(max))
        .fetch_optional(&mut **tx)
        .await?;
        Ok(seconds.unwrap_or(3600).unsigned_abs())
    }

    /// A branch of a project of an organization; none of them deleted.
    pub async fn branch_find_in(
        &self,
        organization: &OrganizationId,
        project: &ProjectId,
        id: &BranchId,
    ) -> Result<Option<Branch>> {
        let row: Option<BranchRow> = self.reads.optional(query_in(organization, project, id)).await?;
        row.map(Branch::try_from).transpose()
    }

    /// As [`Store::branch_find_in`], on the caller's connection: to ask for a
    /// second one while holding a first can wait forever.
    pub async fn branch_find_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        project: &ProjectId,
        id: &BranchId,
    ) -> Result<Option<Branch>> {
        let row = query_in(organization, project, id).fetch_optional(&mut **tx).await?;
        row.map(|row| Branch::try_from(BranchRow::from_row(&row)?)).transpose()
    }

    /// Whether a branch of a project has a name.
    pub async fn branch_has_name_in_tx(&self, tx: &mut Tx, project: &ProjectId, name: &str) -> Result<bool> {
        let query =
            "select exists (select from branches where project_id = $1 and name = $2 and deleted_at is null)";
        Ok(sqlx::query_scalar(query).bind(project.as_str()).bind(name).fetch_one(&mut **tx).await?)
    }

    /// Changes what its owner says of a branch.
    ///
    /// # Errors
    /// A unique violation of `branches_name` when the name is taken.
    pub async fn branch_update_in_tx(&self, tx: &mut Tx, id: &BranchId, note: &BranchNote<'_>) -> Result<()> {
        sqlx::query(
            "update branches set name = $2, description = $3, scale_to_zero = $4, inactivity_minutes = $5,
                 protected = $6, expires_at = $7, backup_retention_days = $8, backup_day = $9, backup_minute = $10,
                 labels = $11, updated_at = now(),
                 idle_since = case when (scale_to_zero, inactivity_minutes) = ($4, $5) then idle_since
                              else now() end
             where id = $1 and deleted_at is null",
        )
        .bind(id.as_str())
        .bind(note.name)
        .bind(note.description)
        .bind(note.scale_to_zero.enabled)
        .bind(note.scale_to_zero.inactivity_period_minutes as i32)
        .bind(note.is_protected)
        .bind(note.expires_at)
        .bind(note.backups.retention_days as i16)
        .bind(note.backups.time.day.map(i16::from))
        .bind(note.backups.time.minute as i16)
        .bind(Json(note.labels.as_ref()))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }
}

fn query_in<'q>(
    organization: &'q OrganizationId,
    project: &'q ProjectId,
    id: &'q BranchId,
) -> Query<'q, Postgres, PgArguments> {
    let sql = format!(
        "select {COLUMNS} from branches b join projects p on p.id = b.project_id
         where b.id = $3 and p.id = $2 and p.organization_id = $1
           and b.deleted_at is null and p.deleted_at is null"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str()).bind(project.as_str()).bind(id.as_str())
}

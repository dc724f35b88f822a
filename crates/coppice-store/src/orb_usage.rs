//! Sealed usage on its way to Orb: rows come in the transaction that seals an
//! hour (`migrations/0521_marketplace_former.sql`) and go when Orb has said that it has them.

use chrono::{DateTime, Utc};
use coppice_core::usage::Meter;
use coppice_core::{BranchId, OrganizationId, ProjectId};
use sqlx::FromRow;

use crate::{Result, Store, StoreError};

/// What a branch used in an hour, or a correction of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrbUsage {
    /// The branch.
    pub branch: BranchId,
    /// When the hour began.
    pub hour: DateTime<Utc>,
    /// What was counted.
    pub meter: Meter,
    /// The type of the instances, where those are counted; else empty.
    pub instance_type: String,
    /// 0, or which correction it is.
    pub correction: i32,
    /// How much, a whole number in the unit of the meter.
    pub quantity: String,
    /// Whose it is.
    pub organization: OrganizationId,
    /// The branch's project.
    pub project: ProjectId,
}

#[derive(FromRow)]
struct Row {
    branch_id: String,
    hour: DateTime<Utc>,
    meter: String,
    instance_type: String,
    correction: i32,
    quantity: String,
    organization_id: String,
    project_id: String,
}

impl TryFrom<Row> for OrbUsage {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self> {
        Ok(Self {
            meter: Meter::parse(&row.meter)
                .ok_or_else(|| StoreError::UnknownValue { what: "meter", value: row.meter.clone() })?,
            branch: BranchId::from_trusted(row.branch_id),
            hour: row.hour,
            instance_type: row.instance_type,
            correction: row.correction,
            quantity: row.quantity,
            organization: OrganizationId::from_trusted(row.organization_id),
            project: ProjectId::from_trusted(row.project_id),
        })
    }
}

impl Store {
    /// Usage that is to be sent, up to `count`, the oldest first: of hours that began before `before`, or of the
    /// others.
    pub async fn orb_usage_due(
        &self,
        before: DateTime<Utc>,
        is_before: bool,
        count: u32,
    ) -> Result<Vec<OrbUsage>> {
        let rows: Vec<Row> = sqlx::query_as(
            "select branch_id, hour, meter, instance_type, correction, quantity::text as quantity,
                    organization_id, project_id
             from orb_usage where due_at <= now() and (hour < $1) = $2
             order by hour, branch_id limit $3",
        )
        .bind(before)
        .bind(is_before)
        .bind(i64::from(count))
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(OrbUsage::try_from).collect()
    }

    /// Orb has it. What is left of credits may be another now.
    pub async fn orb_usage_sent(&self, sent: &[OrbUsage]) -> Result<()> {
        let mut tx = self.begin().await?;
        let keys = Keys::of(sent);
        sqlx::query(
            "delete from orb_usage q
             using unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::integer[])
                 as k (branch_id, hour, meter, instance_type, correction)
             where (q.branch_id, q.hour, q.meter, q.instance_type, q.correction)
                 = (k.branch_id, k.hour, k.meter, k.instance_type, k.correction)",
        )
        .bind(keys.branches)
        .bind(keys.hours)
        .bind(keys.meters)
        .bind(keys.instance_types)
        .bind(keys.corrections)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update orb_customers set asked = asked + 1, due_at = now() where organization_id = any($1)",
        )
        .bind(sent.iter().map(|one| one.organization.as_str()).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Orb does not take it, and says why; it is tried again after so many seconds.
    pub async fn orb_usage_refused(&self, refused: &OrbUsage, why: &str, seconds: u32) -> Result<()> {
        let keys = Keys::of(std::slice::from_ref(refused));
        sqlx::query(
            "update orb_usage set refused = $6, due_at = now() + make_interval(secs => $7)
             where branch_id = any($1) and hour = any($2) and meter = any($3) and instance_type = any($4)
               and correction = any($5)",
        )
        .bind(keys.branches)
        .bind(keys.hours)
        .bind(keys.meters)
        .bind(keys.instance_types)
        .bind(keys.corrections)
        .bind(why)
        .bind(f64::from(seconds))
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// Columns of what tells rows apart.
struct Keys<'a> {
    branches: Vec<&'a str>,
    hours: Vec<DateTime<Utc>>,
    meters: Vec<&'a str>,
    instance_types: Vec<&'a str>,
    corrections: Vec<i32>,
}

impl<'a> Keys<'a> {
    fn of(rows: &'a [OrbUsage]) -> Self {
        Self {
            branches: rows.iter().map(|row| row.branch.as_str()).collect(),
            hours: rows.iter().map(|row| row.hour).collect(),
            meters: rows.iter().map(|row| row.meter.as_str()).collect(),
            instance_types: rows.iter().map(|row| row.instance_type.as_str()).collect(),
            corrections: rows.iter().map(|row| row.correction).collect(),
        }
    }
}

//! What was measured of instances: writing samples and reading history. Merging
//! and forgetting is in `metric_upkeep.rs`.

use chrono::{DateTime, Utc};
use coppice_core::organization::Holder;
use coppice_core::storage::Fullness;
use coppice_core::{BranchId, HostId, InstanceId, VolumeId};
use coppice_telemetry::metrics::{Bucket, Level, METRICS, Merged, Piece, Progress, Sample};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use crate::{Result, Store, StoreError};

/// An instance that runs, as far as the metastore knows.
#[derive(Clone, Debug)]
pub struct MeasuredInstance {
    /// The instance.
    pub id: InstanceId,
    /// Its branch.
    pub branch: BranchId,
    /// Who answers for the organization that has it.
    pub holder: Holder,
    /// The volume with its data.
    pub volume: VolumeId,
    /// Its size, by name.
    pub instance_type: String,
    /// Most that its data may take, in GiB.
    pub storage_gib: u32,
    /// How full that was last.
    pub fullness: Fullness,
    /// For how many days what it was is kept.
    pub retention_days: u32,
}

/// A sample to be kept.
#[derive(Clone, Debug)]
pub struct TakenSample {
    /// Of which instance.
    pub instance: InstanceId,
    /// When.
    pub at: DateTime<Utc>,
    /// Its values.
    pub sample: Sample,
}

/// What there is to read of a branch.
#[derive(Clone, Debug)]
pub struct MetricHistory {
    /// How far the levels are.
    pub progress: Progress,
    /// Instances that the branch has.
    pub instances: Vec<InstanceId>,
    /// Instances with a series, those included that the branch no longer has.
    pub series: Vec<(i32, InstanceId)>,
}

#[derive(FromRow)]
struct InstanceRow {
    id: String,
    branch_id: String,
    holder: String,
    volume_id: String,
    instance_type: String,
    storage_gib: i32,
    fullness: String,
    backup_retention_days: i16,
}

#[derive(FromRow)]
struct HistoryRow {
    quarters: DateTime<Utc>,
    hours: DateTime<Utc>,
    instances: Vec<String>,
    series: Vec<i32>,
    series_instances: Vec<String>,
}

struct SeriesRow(i32, Bucket);

/// A level's table.
pub(crate) fn table(level: Level) -> &'static str {
    match level {
        Level::Sample => "metric_samples",
        Level::Quarter => "metric_quarters",
        Level::Hour => "metric_hours",
    }
}

impl FromRow<'_, PgRow> for SeriesRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (series, at) = (row.try_get(0)?, row.try_get(1)?);
        if row.len() == 3 {
            let readings: Vec<Option<f64>> = row.try_get(2)?;
            return Ok(Self(series, Bucket::of_readings(at, readings)));
        }
        let mut bucket = Bucket { at, values: [None; METRICS] };
        let counts: Vec<i32> = row.try_get(2)?;
        let [sums, mins, maxs]: [Vec<Option<f64>>; 3] = [row.try_get(3)?, row.try_get(4)?, row.try_get(5)?];
        for (index, value) in bucket.values.iter_mut().enumerate() {
            let number = |list: &[Option<f64>]| list.get(index).copied().flatten();
            let count = counts.get(index).copied().unwrap_or_default();
            if let (1.., Some(sum), Some(min), Some(max)) =
                (count, number(&sums), number(&mins), number(&maxs))
            {
                *value = Some(Merged { count: count.unsigned_abs(), sum, min, max });
            }
        }
        Ok(Self(series, bucket))
    }
}

/// The values as PostgreSQL writes an array.
fn array(sample: &Sample) -> String {
    let values = sample.0.iter().map(|value| value.map_or("NULL".to_owned(), |value| value.to_string()));
    format!("{{{}}}", values.collect::<Vec<_>>().join(","))
}

impl Store {
    /// Instances of a host that should run and were seen ready, replicas among them; also
    /// those that serve while their branch is made something else.
    pub async fn metric_instances(&self, host: &HostId) -> Result<Vec<MeasuredInstance>> {
        let serving = "b.goal = 'running' and (i.role = 'primary' or i.is_ready)
                       and (b.state = 'ready' or b.state in ('updating', 'upgrading') and b.replacement_id is not null)";
        self.instances_where(host, serving).await
    }

    /// Instances of a host whose servers may be writing, whatever is said of their branches.
    pub async fn storage_instances(&self, host: &HostId) -> Result<Vec<MeasuredInstance>> {
        self.instances_where(host, "b.state not in ('hibernated', 'deleted')").await
    }

    async fn instances_where(&self, host: &HostId, condition: &'static str) -> Result<Vec<MeasuredInstance>> {
        let sql = format!(
            "with found as materialized (
                 select i.id, i.branch_id, p.organization_id, i.volume_id, b.instance_type, b.storage_gib,
                        b.fullness, b.backup_retention_days
                 from instances i join branches b on b.id = i.branch_id join projects p on p.id = b.project_id
                 where i.host_id = $1 and {condition}),
             held as materialized (
                 select organization_id, holder_of(organization_id) as holder
                 from (select distinct organization_id from found) o)
             select id, branch_id, holder, volume_id, instance_type, storage_gib, fullness, backup_retention_days
             from found join held using (organization_id)"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(host.as_str());
        let rows: Vec<InstanceRow> = self.reads.all(query).await?;
        let instances = rows.into_iter().map(|row| {
            Ok(MeasuredInstance {
                id: InstanceId::from_trusted(row.id),
                branch: BranchId::from_trusted(row.branch_id),
                holder: Holder::from_trusted(row.holder),
                volume: VolumeId::from_trusted(row.volume_id),
                instance_type: row.instance_type,
                storage_gib: row.storage_gib.unsigned_abs(),
                fullness: Fullness::parse(&row.fullness)
                    .ok_or(StoreError::UnknownValue { what: "fullness", value: row.fullness })?,
                retention_days: u32::from(row.backup_retention_days.unsigned_abs()),
            })
        });
        instances.collect()
    }

    /// Keeps samples. Those of deleted branches, and those that come after
    /// their time was merged, are left out.
    ///
    /// # Errors
    /// When the metastore can't be reached, or no partition holds their time.
    pub async fn metric_add(&self, samples: &[TakenSample]) -> Result<()> {
        let instances: Vec<_> = samples.iter().map(|taken| taken.instance.as_str()).collect();
        let times: Vec<_> = samples.iter().map(|taken| taken.at).collect();
        let values: Vec<_> = samples.iter().map(|taken| array(&taken.sample)).collect();
        let insert = || {
            sqlx::query(
                "insert into metric_samples (series_id, at, readings)
                 select s.id, taken.at, taken.readings::double precision[]
                 from unnest($1::text[], $2::timestamptz[], $3::text[]) as taken (instance_id, at, readings)
                 join metric_series s on s.instance_id = taken.instance_id
                 where taken.at >= (select quarters from metric_progress)
                 on conflict do nothing",
            )
            .bind(&instances)
            .bind(&times)
            .bind(&values)
        };
        let added = insert().execute(&self.relaxed).await?.rows_affected();
        if added == samples.len() as u64 {
            return Ok(());
        }
        let begun = sqlx::query(
            "insert into metric_series (instance_id, branch_id)
             select i.id, i.branch_id from instances i join branches b on b.id = i.branch_id
             where i.id = any($1) and b.deleted_at is null
               and not exists (select from metric_series s where s.instance_id = i.id)
             on conflict do nothing",
        )
        .bind(&instances)
        .execute(&self.relaxed)
        .await?;
        if begun.rows_affected() > 0 {
            insert().execute(&self.relaxed).await?;
        }
        Ok(())
    }

    /// What there is to read of a branch.
    pub async fn metric_history(&self, branch: &BranchId) -> Result<MetricHistory> {
        let query = sqlx::query(
            "select p.quarters, p.hours, array(select id from instances where branch_id = $1) as instances,
                    array(select id from metric_series where branch_id = $1 order by id) as series,
                    array(select instance_id from metric_series where branch_id = $1 order by id)
                        as series_instances
             from metric_progress p",
        )
        .bind(branch.as_str());
        let row: HistoryRow = self.reads.optional(query).await?.ok_or(sqlx::Error::RowNotFound)?;
        let ids = row.series_instances.into_iter().map(InstanceId::from_trusted);
        Ok(MetricHistory {
            progress: Progress { quarters: row.quarters, hours: row.hours },
            instances: row.instances.into_iter().map(InstanceId::from_trusted).collect(),
            series: row.series.into_iter().zip(ids).collect(),
        })
    }

    /// What was recorded of some series, oldest first. Served by the primary
    /// keys of the partitions that the piece touches.
    pub async fn metric_read(&self, series: &[i32], piece: &Piece) -> Result<Vec<(i32, Bucket)>> {
        let columns = match piece.level {
            Level::Sample => "series_id, at, readings",
            Level::Quarter | Level::Hour => "series_id, at, counts, sums, mins, maxs",
        };
        let sql = format!(
            "select {columns} from {} where series_id = any($1) and at >= $2 and at < $3 order by at",
            table(piece.level)
        );
        let query =
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(series.to_vec()).bind(piece.from).bind(piece.until);
        let rows: Vec<SeriesRow> = self.reads.all(query).await?;
        Ok(rows.into_iter().map(|SeriesRow(series, bucket)| (series, bucket)).collect())
    }
}

//! Looking after what was measured: partitions, merging, forgetting.
//!
//! Every step is one transaction under one lock, so that any may be the last
//! before a crash, and several control planes do nothing twice.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_telemetry::metrics::{Level, Progress, floor};
use sqlx::AssertSqlSafe;

use crate::metric_history::table;
use crate::{Result, Store, Tx};

/// Partitions that are there before they are needed, besides the current one.
const PARTITIONS_AHEAD: i32 = 2;
/// Samples may be written this much later than they were taken.
const LATE: TimeDelta = TimeDelta::seconds(60);
/// Time that is merged in one transaction.
const MERGED_AT_ONCE: TimeDelta = TimeDelta::hours(6);
/// Series forgotten in one transaction.
const FORGOTTEN_AT_ONCE: i64 = 50;

/// A partition of a level's table.
struct Partition {
    name: String,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
}

impl Partition {
    /// The one that holds a time, or follows it by `index` others.
    fn at(level: Level, time: DateTime<Utc>, index: i32) -> Self {
        let width = level.partition();
        let from = floor(time, width) + width * index;
        let name = format!("{}_{}", table(level), from.format("%Y%m%d"));
        Self { name, from, until: from + width }
    }

    /// Reads what [`Partition::at`] wrote.
    fn named(level: Level, name: &str) -> Option<Self> {
        let date = name.strip_prefix(table(level))?.strip_prefix('_')?;
        let date = chrono::NaiveDate::parse_from_str(date, "%Y%m%d").ok()?;
        let from = date.and_hms_opt(0, 0, 0)?.and_utc();
        Some(Self { name: name.to_owned(), from, until: from + level.partition() })
    }
}

impl Store {
    /// A transaction of whoever looks after what was measured. It gives up
    /// rather than make writers wait behind a reader that does not end.
    async fn upkeep(&self) -> Result<Tx> {
        let mut tx = self.relaxed.begin().await?;
        sqlx::raw_sql(
            "select pg_advisory_xact_lock(hashtext('coppice_metrics')); set local lock_timeout = '2s'",
        )
        .execute(&mut *tx)
        .await?;
        Ok(tx)
    }

    async fn partitions(&self, tx: &mut Tx, level: Level) -> Result<Vec<Partition>> {
        let names: Vec<String> = sqlx::query_scalar(
            "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = $1::text::regclass order by c.relname",
        )
        .bind(table(level))
        .fetch_all(&mut **tx)
        .await?;
        Ok(names.iter().filter_map(|name| Partition::named(level, name)).collect())
    }

    /// Makes sure that what is measured now and soon has a place.
    ///
    /// # Errors
    /// When the metastore can't be reached, or is busy with these tables.
    pub async fn metric_make_room(&self, now: DateTime<Utc>) -> Result<()> {
        let mut tx = self.upkeep().await?;
        let progress = progress(&mut tx).await?;
        for level in Level::ALL {
            let known = self.partitions(&mut tx, level).await?;
            // What was not merged before a long rest is merged into its own time.
            let first = match level {
                Level::Sample => now,
                Level::Quarter => progress.quarters.max(oldest_merged(now)),
                Level::Hour => progress.hours.max(oldest_merged(now)),
            };
            let mut index = 0;
            loop {
                let partition = Partition::at(level, first.min(now), index);
                if partition.from > now + level.partition() * PARTITIONS_AHEAD {
                    break;
                }
                index += 1;
                if known.iter().any(|known| known.name == partition.name) {
                    continue;
                }
                let Partition { name, from, until } = partition;
                // Attaching makes nobody wait who writes to other partitions.
                let make = format!(
                    "create table {name} (like {parent} including all);
                     alter table {parent} attach partition {name}
                         for values from ('{from}') to ('{until}')",
                    parent = table(level),
                    from = from.to_rfc3339(),
                    until = until.to_rfc3339(),
                );
                sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut *tx).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Drops what is older than its level is kept and merged into the next one.
    ///
    /// # Errors
    /// When the metastore can't be reached, or somebody reads for long.
    pub async fn metric_drop_old(&self, now: DateTime<Utc>) -> Result<()> {
        let mut tx = self.upkeep().await?;
        let progress = progress(&mut tx).await?;
        for level in Level::ALL {
            let merged_until = match level {
                Level::Sample => progress.quarters,
                Level::Quarter => progress.hours,
                Level::Hour => DateTime::<Utc>::MAX_UTC,
            };
            let kept_since = (now - level.retention()).min(merged_until);
            for partition in self.partitions(&mut tx, level).await? {
                if partition.until <= kept_since {
                    let drop = format!("drop table {}", partition.name);
                    sqlx::query(AssertSqlSafe(drop)).execute(&mut *tx).await?;
                }
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Merges some more of what is complete by `now`; returns whether
    /// everything that is complete is merged.
    pub async fn metric_merge(&self, now: DateTime<Utc>) -> Result<bool> {
        let mut tx = self.upkeep().await?;
        let stored = progress(&mut tx).await?;
        // A clock that was ahead must not keep samples out until its time has come.
        let before = Progress {
            quarters: stored.quarters.min(floor(now, Level::Quarter.width())),
            hours: stored.hours.min(floor(now, Level::Hour.width())),
        };
        let oldest = oldest_merged(now);
        let quarters_from = before.quarters.max(oldest);
        let complete = floor(now - LATE, Level::Quarter.width());
        let quarters = complete.min(quarters_from + MERGED_AT_ONCE).max(before.quarters);
        let hours = floor(quarters, Level::Hour.width()).max(before.hours);
        if quarters > quarters_from {
            sqlx::query(MERGE_QUARTERS).bind(quarters_from).bind(quarters).execute(&mut *tx).await?;
        }
        if hours > before.hours {
            sqlx::query(MERGE_HOURS).bind(before.hours.max(oldest)).bind(hours).execute(&mut *tx).await?;
        }
        if (quarters, hours) != (stored.quarters, stored.hours) {
            sqlx::query("update metric_progress set quarters = $1, hours = $2")
                .bind(quarters)
                .bind(hours)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(quarters >= complete)
    }

    /// Removes what was measured of deleted branches; returns whether nothing
    /// of them is left.
    pub async fn metric_forget(&self) -> Result<bool> {
        let mut tx = self.upkeep().await?;
        let gone: Vec<i32> = sqlx::query_scalar(
            "select s.id from metric_series s left join branches b on b.id = s.branch_id
             where b.id is null or b.goal = 'deleted' limit $1",
        )
        .bind(FORGOTTEN_AT_ONCE)
        .fetch_all(&mut *tx)
        .await?;
        if !gone.is_empty() {
            for level in Level::ALL {
                let delete = format!("delete from {} where series_id = any($1)", table(level));
                sqlx::query(AssertSqlSafe(delete)).bind(&gone).execute(&mut *tx).await?;
            }
            sqlx::query("delete from metric_series where id = any($1)").bind(&gone).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok((gone.len() as i64) < FORGOTTEN_AT_ONCE)
    }
}

/// Samples from before that are gone.
fn oldest_merged(now: DateTime<Utc>) -> DateTime<Utc> {
    floor(now - Level::Sample.retention() * 2, Level::Hour.width())
}

async fn progress(tx: &mut Tx) -> Result<Progress> {
    let (quarters, hours) =
        sqlx::query_as("select quarters, hours from metric_progress").fetch_one(&mut **tx).await?;
    Ok(Progress { quarters, hours })
}

const MERGE_QUARTERS: &str = "insert into metric_quarters (series_id, at, counts, sums, mins, maxs)
    select series_id, quarter, array_agg(count order by place), array_agg(sum order by place),
           array_agg(min order by place), array_agg(max order by place)
    from (select series_id, date_bin('15 minutes', at, 'epoch') as quarter, place, count(reading)::integer as count,
                 sum(reading) as sum, min(reading) as min, max(reading) as max
          from metric_samples cross join lateral unnest(readings) with ordinality as each (reading, place)
          where at >= $1 and at < $2 group by series_id, quarter, place) merged
    group by series_id, quarter
    on conflict do nothing";

const MERGE_HOURS: &str = "insert into metric_hours (series_id, at, counts, sums, mins, maxs)
    select series_id, hour, array_agg(count order by place), array_agg(sum order by place),
           array_agg(min order by place), array_agg(max order by place)
    from (select series_id, date_bin('1 hour', at, 'epoch') as hour, place, sum(count)::integer as count,
                 sum(sum) as sum, min(min) as min, max(max) as max
          from metric_quarters
          cross join lateral unnest(counts, sums, mins, maxs) with ordinality as each (count, sum, min, max, place)
          where at >= $1 and at < $2 group by series_id, hour, place) merged
    group by series_id, hour
    on conflict do nothing";

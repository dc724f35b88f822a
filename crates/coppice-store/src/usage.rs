//! Metering: which time counts, what was read of branches, and the hours that
//! are sealed. Periods begin and end by triggers on branches
//! (`migrations/0270_usage.sql`), in the statements that change what a branch
//! should be. What comes of it is in `usage_report.rs`.

use std::time::Instant;

use chrono::{DateTime, Utc};
use coppice_core::usage::{LastTurn, Meter, Witness};
use coppice_core::{BranchId, HostId, VolumeId};

use crate::{Result, Store, Tx};

/// An hour is sealed so long after its end: a transaction counts from its
/// beginning, and none takes longer.
const GRACE_SECONDS: f64 = 120.0;
/// Nothing is sealed so long after time began to count anew: the clock may have
/// leapt, and be put right.
const CALM_SECONDS: f64 = 600.0;
/// What hours were made of is kept for so many days after they are sealed.
const KEPT_DAYS: i32 = 3;
/// What others were told of an hour, or never took, is kept for so many days.
pub(crate) const BILLED_KEPT_DAYS: i32 = 400;
/// Storage counts in steps of so many bytes, so that a branch that is written
/// to does not make a row at every look.
const STORAGE_STEP: u64 = 1 << 20;

/// Parts of a statement that say in `measured` what was used in the hours of an
/// array; with `$2`, by the branches of that organization alone.
pub(crate) fn measured(hours: &str) -> String {
    let length = "least(p.ended_at, s.ended_at) - greatest(p.began_at, s.began_at)";
    let overlaps = "p.began_at < s.ended_at and (p.ended_at is null or p.ended_at > s.began_at)";
    let concerns = "($2::text is null or branch_id in (select branch_id from metered))";
    format!(
        "spans as (
             select h.hour, greatest(w.began_at, h.hour) as began_at,
                    least(w.until, h.hour + interval '1 hour') as ended_at
             from unnest({hours}) as h (hour)
             join usage_witnessed w on w.began_at < h.hour + interval '1 hour' and w.until > h.hour),
         metered as (
             select branch_id from usage_branches where organization_id = $2),
         pieces as (
             select s.hour, branch_id, case when p.is_awake then 'awake' else 'asleep' end as meter,
                    case when p.is_awake then p.instance_type else '' end as instance_type,
                    case when p.is_awake then p.instances else 1 end as amount, {length} as length
             from spans s join usage_periods p on {overlaps} where {concerns}
             union all
             select s.hour, branch_id, part.meter, '', part.bytes, {length}
             from spans s join usage_storage p on {overlaps}
             cross join lateral (values ('storage', p.bytes - p.shared_bytes), ('shared', p.shared_bytes))
                 as part (meter, bytes) where {concerns}),
         measured as (
             select hour, branch_id, meter, instance_type,
                    sum(amount * (extract(epoch from length) * 1000000))::numeric(40, 0) as quantity
             from pieces group by hour, branch_id, meter, instance_type
             union all
             select hour, branch_id, 'egress', '', bytes::numeric(40, 0)
             from usage_egress where hour in (select unnest({hours})) and {concerns})"
    )
}

/// What was read of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageReading {
    /// The branch.
    pub branch: BranchId,
    /// What its files take, where that is known.
    pub stored: Option<StoredBytes>,
    /// What its clients were sent since the last reading.
    pub egress_bytes: u64,
}

/// What the files of a branch take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBytes {
    /// All of it.
    pub total: u64,
    /// Of that, what another branch pays for.
    pub shared: u64,
}

/// A branch whose files are on a host, and what they were copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeteredVolume {
    /// The branch.
    pub branch: BranchId,
    /// What it has its data in.
    pub volume: VolumeId,
    /// The volume that this one was made from, while anything is known of it.
    pub parent: Option<VolumeId>,
}

/// A turn of the meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageTurn {
    /// The metastore's time.
    pub now: DateTime<Utc>,
    /// The same by the clock of this process that nobody sets.
    pub seen: Instant,
    /// Until when time had counted before; none when it never did.
    pub counted_until: Option<DateTime<Utc>>,
    /// Which time counts from here on.
    pub witness: Witness,
}

impl Store {
    /// A transaction of whoever turns the meter; others wait for it.
    async fn usage_upkeep(&self) -> Result<(Tx, DateTime<Utc>)> {
        let mut tx = self.begin().await?;
        let sealed_until = sqlx::query_scalar("select sealed_until from usage_meter for update");
        let sealed_until = sealed_until.fetch_one(&mut *tx).await?;
        Ok((tx, sealed_until))
    }

    /// Notes that a control plane is there, whose last turn was at `last`, by the metastore's time
    /// and by `clock`, which nobody sets.
    ///
    /// Both are read when there is nothing left to wait for: a metastore with much to do lets this
    /// wait for a connection, or for another turn, and a time between the one reading and the other
    /// would be taken for a leap.
    pub async fn usage_turn(
        &self,
        last: Option<(DateTime<Utc>, Instant)>,
        clock: impl FnOnce() -> Instant + Send,
    ) -> Result<UsageTurn> {
        let (mut tx, _) = self.usage_upkeep().await?;
        // Read first: then it is not later than the metastore's time.
        let seen = clock();
        // `now()` is when the transaction began, before it waited for the one before it.
        let (now, counted_until): (DateTime<Utc>, Option<DateTime<Utc>>) =
            sqlx::query_as("select clock_timestamp(), (select max(until) from usage_witnessed)")
                .fetch_one(&mut *tx)
                .await?;
        let last = last.map(|(at, before)| LastTurn { at, ago: seen.saturating_duration_since(before) });
        let witness = Witness::of(now, counted_until, last);
        match witness {
            Witness::GoesOn => count_until(&mut tx, now).await?,
            Witness::Resumes { until } => {
                count_until(&mut tx, until).await?;
                begin_to_count(&mut tx, now).await?;
            }
            Witness::Waits => {}
            Witness::TurnsBack => {
                turn_back(&mut tx, now).await?;
                begin_to_count(&mut tx, now).await?;
            }
        }
        tx.commit().await?;
        Ok(UsageTurn { now, seen, counted_until, witness })
    }

    /// Branches whose files are on a host, those in the trash among them.
    pub async fn usage_volumes(&self, host: &HostId) -> Result<Vec<MeteredVolume>> {
        let query = sqlx::query(
            "select b.id, v.id, v.parent_volume_id from branches b join volumes v on v.id = b.volume_id
             where v.host_id = $1 and v.state in ('present', 'admitted') and b.goal <> 'deleted'",
        );
        let rows: Vec<(String, String, Option<String>)> = self.reads.all(query.bind(host.as_str())).await?;
        let volume = |(branch, volume, parent): (_, _, Option<String>)| MeteredVolume {
            branch: BranchId::from_trusted(branch),
            volume: VolumeId::from_trusted(volume),
            parent: parent.map(VolumeId::from_trusted),
        };
        Ok(rows.into_iter().map(volume).collect())
    }

    /// Writes down what was read of branches. Storage of one that is being
    /// changed is left for the next time.
    pub async fn usage_note(&self, readings: &[UsageReading]) -> Result<()> {
        let mut tx = self.relaxed.begin().await?;
        let known = readings.iter().filter_map(|read| Some((&read.branch, read.stored?)));
        note_storage(&mut tx, &known.collect::<Vec<_>>()).await?;
        let sent: Vec<_> = readings.iter().filter(|read| read.egress_bytes > 0).collect();
        sqlx::query(
            "insert into usage_egress (branch_id, hour, bytes)
             select r.branch_id, date_trunc('hour', usage_moment(null), 'UTC'), sum(r.bytes)
             from unnest($1::text[], $2::bigint[]) as r (branch_id, bytes) group by r.branch_id
             on conflict (branch_id, hour) do update set bytes = usage_egress.bytes + excluded.bytes",
        )
        .bind(sent.iter().map(|read| read.branch.as_str()).collect::<Vec<_>>())
        .bind(
            sent.iter().map(|read| i64::try_from(read.egress_bytes).unwrap_or(i64::MAX)).collect::<Vec<_>>(),
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Writes down for good what was used in the oldest hour that is over;
    /// returns it, or none when there is no such hour. One that was sealed
    /// already, before the clock was set back, stays as it is.
    pub async fn usage_seal(&self) -> Result<Option<DateTime<Utc>>> {
        let (mut tx, hour) = self.usage_upkeep().await?;
        let is_due: bool = sqlx::query_scalar(
            "select $1 + interval '1 hour' + make_interval(secs => $2) <= now()
                and coalesce((select until >= $1 + interval '1 hour'
                                     and until - began_at >= make_interval(secs => $3)
                              from usage_witnessed order by until desc, began_at desc limit 1), false)",
        )
        .bind(hour)
        .bind(GRACE_SECONDS)
        .bind(CALM_SECONDS)
        .fetch_one(&mut *tx)
        .await?;
        if !is_due {
            return Ok(None);
        }
        let is_first = sqlx::query("insert into usage_sealed (hour) values ($1) on conflict do nothing");
        if is_first.bind(hour).execute(&mut *tx).await?.rows_affected() == 1 {
            let sql = format!(
                "with {measured}
                 insert into usage_hours (branch_id, hour, meter, instance_type, quantity)
                 select branch_id, hour, meter, instance_type, quantity from measured where quantity > 0",
                measured = measured("$1::timestamptz[]"),
            );
            let seal = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(vec![hour]).bind(None::<String>);
            seal.execute(&mut *tx).await?;
        }
        // Hours in which nobody was there are passed over.
        sqlx::query(
            "update usage_meter set sealed_until = (
                 select date_trunc('hour', min(greatest(w.began_at, $1 + interval '1 hour')), 'UTC')
                 from usage_witnessed w where w.until >= $1 + interval '1 hour')",
        )
        .bind(hour)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Some(hour))
    }

    /// Forgets what sealed hours were made of.
    pub async fn usage_purge(&self) -> Result<()> {
        for forget in [
            "delete from usage_periods where ended_at < now() - make_interval(days => $1)
                 and ended_at < (select sealed_until from usage_meter)",
            "delete from usage_storage where ended_at < now() - make_interval(days => $1)
                 and ended_at < (select sealed_until from usage_meter)",
            "delete from usage_egress where hour < now() - make_interval(days => $1)
                 and hour < (select sealed_until from usage_meter)",
            // The newest says until when time counted.
            "delete from usage_witnessed where until < now() - make_interval(days => $1)
                 and until < (select sealed_until from usage_meter)
                 and until < (select max(until) from usage_witnessed)",
        ] {
            sqlx::query(forget).bind(KEPT_DAYS).execute(&self.relaxed).await?;
        }
        Ok(())
    }

    /// Forgets what others were told of hours long ago, and what was to be told of them and never was. Returns how many
    /// rows those were.
    pub async fn usage_purge_billed(&self) -> Result<u64> {
        let mut untold = 0;
        for (forget, is_untold) in [
            (
                "delete from marketplace_records where hour < now() - make_interval(days => $1) and told_at is not null",
                false,
            ),
            ("delete from marketplace_records where hour < now() - make_interval(days => $1)", true),
            ("delete from marketplace_usage where hour < now() - make_interval(days => $1)", true),
            ("delete from orb_usage where hour < now() - make_interval(days => $1)", true),
        ] {
            let done = sqlx::query(forget).bind(BILLED_KEPT_DAYS).execute(&self.relaxed).await?;
            untold += if is_untold { done.rows_affected() } else { 0 };
        }
        Ok(untold)
    }

    /// Puts a sealed hour right by a difference, for a reason that people can
    /// read. False when the hour is not sealed, or nothing is known of the branch.
    pub async fn usage_correct(
        &self,
        branch: &BranchId,
        hour: DateTime<Utc>,
        (meter, instance_type): (Meter, &str),
        difference: i64,
        reason: &str,
    ) -> Result<bool> {
        let done = sqlx::query(
            "insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
             select u.branch_id, s.hour, $3, $4, 1 + coalesce((
                        select max(h.correction) from usage_hours h
                        where (h.branch_id, h.hour, h.meter, h.instance_type) = ($1, $2, $3, $4)), 0), $5, $6
             from usage_branches u, usage_sealed s where u.branch_id = $1 and s.hour = $2",
        )
        .bind(branch.as_str())
        .bind(hour)
        .bind(meter.as_str())
        .bind(instance_type)
        .bind(difference)
        .bind(reason)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

impl StoredBytes {
    /// In whole steps: at least as much as there is, and of what is shared at most.
    fn stepped(self) -> (i64, i64) {
        let bytes = |steps: u64| i64::try_from(steps.saturating_mul(STORAGE_STEP)).unwrap_or(i64::MAX);
        let total = self.total.div_ceil(STORAGE_STEP);
        (bytes(total), bytes((self.shared / STORAGE_STEP).min(total)))
    }
}

/// Begins a period of storage for branches that take another amount now. The
/// branch's own period is locked meanwhile, so that its end comes before or after.
async fn note_storage(tx: &mut Tx, known: &[(&BranchId, StoredBytes)]) -> Result<()> {
    let branches: Vec<_> = known.iter().map(|(branch, _)| branch.as_str()).collect();
    let (bytes, shared): (Vec<_>, Vec<_>) = known.iter().map(|(_, stored)| stored.stepped()).unzip();
    let changed: Vec<(String, i64, i64, DateTime<Utc>)> = sqlx::query_as(
        "select p.branch_id, r.bytes, r.shared,
                usage_moment((select coalesce(s.ended_at, s.began_at) from usage_storage s
                              where s.branch_id = p.branch_id order by s.began_at desc limit 1))
         from unnest($1::text[], $2::bigint[], $3::bigint[]) as r (branch_id, bytes, shared)
         join usage_periods p on p.branch_id = r.branch_id and p.ended_at is null
         where not exists (select from usage_storage s
                           where s.branch_id = r.branch_id and s.ended_at is null
                             and (s.bytes, s.shared_bytes) = (r.bytes, r.shared))
         for update of p skip locked",
    )
    .bind(branches)
    .bind(bytes)
    .bind(shared)
    .fetch_all(&mut **tx)
    .await?;
    let branches: Vec<_> = changed.iter().map(|(branch, ..)| branch.as_str()).collect();
    let bytes: Vec<_> = changed.iter().map(|(_, bytes, ..)| *bytes).collect();
    let shared: Vec<_> = changed.iter().map(|(_, _, shared, _)| *shared).collect();
    let moments: Vec<_> = changed.iter().map(|(.., moment)| *moment).collect();
    for statement in [
        "delete from usage_storage s using unnest($1::text[], $2::timestamptz[]) as r (branch_id, moment)
         where s.branch_id = r.branch_id and s.ended_at is null and s.began_at >= r.moment",
        "update usage_storage s set ended_at = r.moment
         from unnest($1::text[], $2::timestamptz[]) as r (branch_id, moment)
         where s.branch_id = r.branch_id and s.ended_at is null",
    ] {
        sqlx::query(statement).bind(&branches).bind(&moments).execute(&mut **tx).await?;
    }
    sqlx::query(
        "insert into usage_storage (branch_id, began_at, bytes, shared_bytes)
         select * from unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[])",
    )
    .bind(&branches)
    .bind(&moments)
    .bind(&bytes)
    .bind(&shared)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn count_until(tx: &mut Tx, until: DateTime<Utc>) -> Result<()> {
    sqlx::query(
        "update usage_witnessed set until = greatest(until, $1)
         where began_at = (select began_at from usage_witnessed order by until desc, began_at desc limit 1)",
    )
    .bind(until)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn begin_to_count(tx: &mut Tx, now: DateTime<Utc>) -> Result<()> {
    sqlx::query("insert into usage_witnessed (began_at, until) values ($1, $1) on conflict do nothing")
        .bind(now)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The clock was set back: nothing is noted for later than now, so that what
/// comes is counted when it comes. Hours that are sealed stay.
async fn turn_back(tx: &mut Tx, now: DateTime<Utc>) -> Result<()> {
    for statement in [
        "delete from usage_witnessed where began_at >= $1",
        "update usage_witnessed set until = $1 where until > $1",
        "delete from usage_periods where ended_at is not null and began_at >= $1",
        "update usage_periods set ended_at = $1 where ended_at > $1",
        "update usage_periods set began_at = $1 where began_at > $1",
        "delete from usage_storage where ended_at is not null and began_at >= $1",
        "update usage_storage set ended_at = $1 where ended_at > $1",
        "update usage_storage set began_at = $1 where began_at > $1",
        "delete from usage_egress where hour > $1",
        "update usage_meter set sealed_until = date_trunc('hour', $1, 'UTC') where sealed_until > $1",
    ] {
        sqlx::query(statement).bind(now).execute(&mut **tx).await?;
    }
    sqlx::query(
        "with moved as (delete from usage_labels where from_hour > labels_hour() returning *)
         insert into usage_labels (branch_id, from_hour, labels)
         select distinct on (branch_id) branch_id, labels_hour(), labels from moved order by branch_id, from_hour desc
         on conflict (branch_id, from_hour) do update set labels = excluded.labels",
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

//! The ledger of when branches were awake and who used them. Periods begin and
//! end in the statements that change a branch's goal (`sleep.rs`).

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::awake::{
    APPLICATIONS_MAX, ApplicationUse, AwakePeriod, NewUse, OTHER_APPLICATIONS, SleepCause, WakeCause,
};
use coppice_core::{BranchId, ProjectId};
use sqlx::FromRow;
use sqlx::types::Json;

use crate::{Result, Store, StoreError, Tx};

/// Rows of one period: the names that are told apart, and the others.
const USES_MAX: i64 = APPLICATIONS_MAX as i64 + 1;

#[derive(FromRow)]
struct PeriodRow {
    began_at: DateTime<Utc>,
    cause: String,
    woken_by: String,
    ended_at: Option<DateTime<Utc>>,
    end_cause: Option<String>,
    uses: Json<Vec<UseRow>>,
}

#[derive(FromRow)]
struct NewestRow {
    id: String,
    #[sqlx(flatten)]
    period: PeriodRow,
}

#[derive(serde::Deserialize)]
struct UseRow {
    application: String,
    sessions: u32,
    open_seconds: f64,
    last_used: DateTime<Utc>,
}

impl TryFrom<PeriodRow> for AwakePeriod {
    type Error = StoreError;

    fn try_from(row: PeriodRow) -> Result<Self> {
        let unknown = |what, value: &str| StoreError::UnknownValue { what, value: value.to_owned() };
        let cause = WakeCause::parse(&row.cause).ok_or_else(|| unknown("wake cause", &row.cause))?;
        let end_cause = row.end_cause.as_deref();
        let end_cause = end_cause
            .map(|text| SleepCause::parse(text).ok_or_else(|| unknown("sleep cause", text)))
            .transpose()?;
        let uses = row.uses.0.into_iter().map(|used| ApplicationUse {
            application: used.application,
            sessions: used.sessions,
            open_for: Duration::try_from_secs_f64(used.open_seconds).unwrap_or_default(),
            last_used: used.last_used,
        });
        Ok(Self {
            began_at: row.began_at,
            cause,
            woken_by: row.woken_by,
            ended: row.ended_at.zip(end_cause),
            uses: uses.collect(),
        })
    }
}

impl Store {
    /// Notes that a branch is awake from its creation on.
    pub(crate) async fn awake_begin_in_tx(&self, tx: &mut Tx, branch: &BranchId) -> Result<()> {
        sqlx::query("insert into awake_periods (branch_id, cause) values ($1, 'creation')")
            .bind(branch.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// The newest `count` times in which a branch was awake, newest first.
    pub async fn awake_list(&self, branch: &BranchId, count: u32) -> Result<Vec<AwakePeriod>> {
        let query = sqlx::query(
            "select p.began_at, p.cause, p.woken_by, p.ended_at, p.end_cause, coalesce(
                 (select jsonb_agg(to_jsonb(u))
                  from (select * from awake_uses used
                        where used.branch_id = p.branch_id and used.began_at = p.began_at
                        order by open_seconds desc, application limit $3) u), '[]') as uses
             from awake_periods p where p.branch_id = $1 order by p.began_at desc limit $2",
        )
        .bind(branch.as_str())
        .bind(i64::from(count))
        // Rows of earlier releases can be more.
        .bind(USES_MAX);
        let rows: Vec<PeriodRow> = self.reads.all(query).await?;
        rows.into_iter().map(AwakePeriod::try_from).collect()
    }

    /// The newest time in which each branch of a project was awake.
    pub async fn awake_newest(&self, project: &ProjectId) -> Result<Vec<(BranchId, AwakePeriod)>> {
        let query = sqlx::query(
            "select b.id, p.began_at, p.cause, p.woken_by, p.ended_at, p.end_cause, coalesce(
                 (select jsonb_agg(to_jsonb(u))
                  from (select * from awake_uses used
                        where used.branch_id = p.branch_id and used.began_at = p.began_at
                        order by open_seconds desc, application limit $2) u), '[]') as uses
             from branches b
             cross join lateral (select * from awake_periods where branch_id = b.id
                                 order by began_at desc limit 1) p
             where b.project_id = $1 and b.deleted_at is null",
        )
        .bind(project.as_str())
        .bind(USES_MAX);
        let rows: Vec<NewestRow> = self.reads.all(query).await?;
        rows.into_iter().map(|row| Ok((BranchId::from_trusted(row.id), row.period.try_into()?))).collect()
    }

    /// Notes that the server of a branch had ended by itself.
    pub async fn awake_note_crash(&self, branch: &BranchId) -> Result<()> {
        sqlx::query("insert into awake_crashes (branch_id) values ($1) on conflict do nothing")
            .bind(branch.as_str())
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }

    /// The newest `count` times at which that was found, newest first.
    pub async fn awake_crashes(&self, branch: &BranchId, count: u32) -> Result<Vec<DateTime<Utc>>> {
        let query = sqlx::query(
            "select found_at from awake_crashes where branch_id = $1 order by found_at desc limit $2",
        );
        let rows: Vec<(DateTime<Utc>,)> =
            self.reads.all(query.bind(branch.as_str()).bind(i64::from(count))).await?;
        Ok(rows.into_iter().map(|(found_at,)| found_at).collect())
    }

    /// Adds to the newest period of each branch. Names that it does not have yet
    /// count as others when it has as many as are told apart.
    pub async fn awake_note_uses(&self, uses: &[NewUse]) -> Result<()> {
        let branches: Vec<_> = uses.iter().map(|used| used.branch.as_str()).collect();
        let applications: Vec<_> = uses.iter().map(|used| used.application.as_str()).collect();
        let sessions: Vec<_> = uses.iter().map(|used| used.sessions as i32).collect();
        let seconds: Vec<_> = uses.iter().map(|used| used.open_for.as_secs_f64()).collect();
        sqlx::query(
            "with noted as (
                 select u.branch_id, p.began_at, u.application, sum(u.sessions) as sessions, sum(u.seconds) as seconds
                 from unnest($1::text[], $2::text[], $3::integer[], $4::double precision[])
                          as u (branch_id, application, sessions, seconds)
                 cross join lateral (select began_at from awake_periods where branch_id = u.branch_id
                                     order by began_at desc limit 1) p
                 group by u.branch_id, p.began_at, u.application),
             placed as (
                 select n.*, k.application is not null as is_known,
                        row_number() over (partition by n.branch_id, k.application is null
                                           order by n.application) as place,
                        (select count(*) from awake_uses c
                         where c.branch_id = n.branch_id and c.began_at = n.began_at) as known
                 from noted n left join awake_uses k using (branch_id, began_at, application))
             insert into awake_uses (branch_id, began_at, application, sessions, open_seconds)
             select branch_id, began_at, case when is_known or known + place <= $5 then application else $6 end,
                    sum(sessions)::integer, sum(seconds)
             from placed group by 1, 2, 3
             on conflict (branch_id, began_at, application) do update set
                 sessions = awake_uses.sessions + excluded.sessions,
                 open_seconds = awake_uses.open_seconds + excluded.open_seconds,
                 last_used = excluded.last_used",
        )
        .bind(branches)
        .bind(applications)
        .bind(sessions)
        .bind(seconds)
        .bind(USES_MAX - 1)
        .bind(OTHER_APPLICATIONS)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Forgets what ended more than `days` ago.
    pub async fn awake_purge(&self, days: u32) -> Result<()> {
        sqlx::query("delete from awake_periods where ended_at < now() - make_interval(days => $1)")
            .bind(days as i32)
            .execute(&self.relaxed)
            .await?;
        sqlx::query("delete from awake_crashes where found_at < now() - make_interval(days => $1)")
            .bind(days as i32)
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }
}

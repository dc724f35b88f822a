//! Drills: bases that are restored for proof.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::backup::{DrillReport, DrillResult};
use coppice_core::branch::Branch;
use coppice_core::lsn::Lsn;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId};
use sqlx::{FromRow, Row as _};

use crate::bases::stored_lsn;
use crate::branches::{BranchRow, COLUMNS};
use crate::{Result, Store, StoreError};

/// What turns are called here.
const QUEUE: &str = "drill";

/// A branch whose newest base is to be restored for proof.
#[derive(Clone, Debug)]
pub struct DueDrill {
    /// The branch.
    pub branch: Branch,
    /// The base, by its name.
    pub base: String,
    /// Whether somebody waits for it.
    pub is_wanted: bool,
    /// How far the log of its volume is in the store, if it goes on there.
    pub log_stored: Option<Lsn>,
}

/// What is known of the drills of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drills {
    /// When the last one ended, and what came of it; none when there was none.
    pub last: Option<(DateTime<Utc>, DrillReport)>,
    /// When the last one that passed ended.
    pub verified_at: Option<DateTime<Utc>>,
}

#[derive(FromRow)]
struct DrillsRow {
    branch_id: String,
    ended_at: Option<DateTime<Utc>>,
    result: Option<String>,
    message: String,
    verified_at: Option<DateTime<Utc>>,
}

impl DrillsRow {
    fn read(self) -> Result<(BranchId, Drills)> {
        let last = match self.ended_at.zip(self.result) {
            Some((at, result)) => {
                let known = DrillResult::parse(&result);
                let result =
                    known.ok_or(StoreError::UnknownValue { what: "result of a drill", value: result })?;
                Some((at, DrillReport::new(result, self.message)))
            }
            None => None,
        };
        Ok((BranchId::from_trusted(self.branch_id), Drills { last, verified_at: self.verified_at }))
    }
}

impl Store {
    /// The branch of a host whose turn it is: one that somebody waits for; else, unless
    /// `every` is none, one whose last drill is `every` or longer ago. By turns of their
    /// holders, so that nobody's many new branches come before everybody else's; of one
    /// holder the branch whose last drill, or beginning, is longest ago. One that did not
    /// pass is repeated after a day, and a branch that is younger than that is left alone.
    pub async fn drill_due(&self, host: &HostId, every: Option<Duration>) -> Result<Option<DueDrill>> {
        let sql = format!(
            "select {COLUMNS}, x.name as base, w.is_wanted, v.stored_lsn::text as log_stored
             from branches b join projects p on p.id = b.project_id
             join volumes v on v.id = b.volume_id
             cross join lateral (select name from bases where volume_id = v.id order by taken_at desc limit 1) x
             left join drills d on d.branch_id = b.id
             left join holder_turns t on t.queue = '{QUEUE}' and t.holder = holder_of(p.organization_id)
             cross join lateral (select coalesce(d.wanted_at > coalesce(d.ended_at, '-infinity'), false)) w (is_wanted)
             where v.host_id = $1 and v.state = 'admitted' and b.goal in ('running', 'hibernated')
               and (w.is_wanted
                    or $2 is not null and b.created_at < now() - interval '1 day'
                       and (d.ended_at is null
                            or d.ended_at < now() - case d.result when 'passed' then make_interval(secs => $2)
                                                                  else interval '1 day' end))
             order by w.is_wanted desc, t.had_at nulls first, coalesce(d.ended_at, b.created_at) limit 1"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(host.as_str());
        let row = query.bind(every.map(|every| every.as_secs_f64())).fetch_optional(&self.pool).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(DueDrill {
            branch: Branch::try_from(BranchRow::from_row(&row)?)?,
            base: row.try_get("base")?,
            is_wanted: row.try_get("is_wanted")?,
            log_stored: stored_lsn(row.try_get("log_stored")?)?,
        }))
    }

    /// Has a drill of a branch be held as soon as possible. Tells since when it is
    /// waited for; none when there is no such branch, or it has no base.
    pub async fn drill_want(&self, branch: &BranchId) -> Result<Option<DateTime<Utc>>> {
        Ok(sqlx::query_scalar(
            "insert into drills (branch_id, wanted_at)
             select b.id, now() from branches b
             where b.id = $1 and b.goal in ('running', 'hibernated')
               and exists (select from bases where volume_id = b.volume_id)
             on conflict (branch_id) do update set wanted_at = now() returning wanted_at",
        )
        .bind(branch.as_str())
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Records what came of a drill, unless its branch was deleted meanwhile; its holder had a turn.
    pub async fn drill_note(
        &self,
        branch: &BranchId,
        base: &str,
        began_at: DateTime<Utc>,
        report: &DrillReport,
    ) -> Result<()> {
        sqlx::query(
            "insert into drills (branch_id, base, began_at, ended_at, result, message, verified_at)
             select b.id, $2, $3, now(), $4, $5, case $4 when 'passed' then now() end
             from branches b where b.id = $1 and b.goal <> 'deleted'
             on conflict (branch_id) do update set base = excluded.base, began_at = excluded.began_at,
                 ended_at = excluded.ended_at, result = excluded.result, message = excluded.message,
                 verified_at = coalesce(excluded.verified_at, drills.verified_at)",
        )
        .bind(branch.as_str())
        .bind(base)
        .bind(began_at)
        .bind(report.result.as_str())
        .bind(&report.message)
        .execute(&self.pool)
        .await?;
        let holder = self.branch_holder(branch).await?;
        self.holder_turn_note(QUEUE, holder.iter().map(Holder::as_str)).await;
        Ok(())
    }

    /// What is known of the drills of these branches; nothing of those without any.
    pub async fn drill_list(&self, branches: &[BranchId]) -> Result<Vec<(BranchId, Drills)>> {
        let ids: Vec<_> = branches.iter().map(ToString::to_string).collect();
        let query =
            "select branch_id, ended_at, result, message, verified_at from drills where branch_id = any($1)";
        let rows: Vec<DrillsRow> = sqlx::query_as(query).bind(&ids).fetch_all(&self.pool).await?;
        rows.into_iter().map(DrillsRow::read).collect()
    }

    /// A branch of a host whose last drill failed, and why; none when there is none.
    pub async fn drill_failure(&self, host: &HostId) -> Result<Option<(BranchId, String)>> {
        let found: Option<(String, String)> = sqlx::query_as(
            "select d.branch_id, d.message from drills d
             join branches b on b.id = d.branch_id and b.goal in ('running', 'hibernated')
             join volumes v on v.id = b.volume_id and v.host_id = $1
             where d.result = 'failed' order by d.ended_at limit 1",
        )
        .bind(host.as_str())
        .fetch_optional(&self.pool)
        .await?;
        Ok(found.map(|(branch, message)| (BranchId::from_trusted(branch), message)))
    }
}

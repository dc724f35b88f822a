//! Budgets: what there is of each, what is used, and what follows from that.

use chrono::{DateTime, NaiveDate, Utc};
use coppice_core::budget::{BudgetCovers, THRESHOLDS, UsedUp};
use coppice_core::{ApiKeyId, BranchId, OrganizationId, ProjectId};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgExecutor, Row as _};

use crate::organizations::resume_in_tx;
use crate::{Result, Store, StoreError, Tx};

/// What may be used in a month of UTC before branches are put to sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The id of the organization, project, branch or key that it is of.
    pub subject: String,
    /// Which of those.
    pub covers: BudgetCovers,
    /// What that is called; none for a key that is deleted.
    pub name: Option<String>,
    /// The project of a project or branch.
    pub project: Option<ProjectId>,
    /// How much: an exact decimal.
    pub limit: String,
    /// Of what: a currency, or instance-hours.
    pub unit: String,
    /// The month in which it was found to be used up.
    pub exhausted_in: Option<NaiveDate>,
    /// The greatest part, in percent, that was told to be reached this month of
    /// this much; 0 when nothing was.
    pub told: u32,
    /// When it was last set.
    pub updated_at: DateTime<Utc>,
}

/// How much of a budget was found to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReach {
    /// Of which budget.
    pub subject: String,
    /// How much there was of it then.
    pub limit: String,
    /// Of what.
    pub unit: String,
    /// The greatest part, in percent, that is reached; 0 when none is.
    pub reached: u32,
    /// Whether branches have to sleep for it.
    pub is_used_up: bool,
}

/// What followed from how much of budgets is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetOutcome {
    /// Branches that are to do something else now.
    pub changed: Vec<BranchId>,
    /// What was told: of which budget, and which part in percent.
    pub told: Vec<(String, u32)>,
}

#[derive(FromRow)]
struct BudgetRow {
    subject_id: String,
    covers: String,
    name: Option<String>,
    project_id: Option<String>,
    limit_amount: String,
    unit: String,
    exhausted_in: Option<NaiveDate>,
    told: i32,
    updated_at: DateTime<Utc>,
}

impl TryFrom<BudgetRow> for Budget {
    type Error = StoreError;

    fn try_from(row: BudgetRow) -> Result<Self> {
        Ok(Self {
            covers: covers(&row.covers)?,
            subject: row.subject_id,
            name: row.name,
            project: row.project_id.map(ProjectId::from_trusted),
            limit: row.limit_amount,
            unit: row.unit,
            exhausted_in: row.exhausted_in,
            told: row.told.unsigned_abs(),
            updated_at: row.updated_at,
        })
    }
}

fn covers(text: &str) -> Result<BudgetCovers> {
    let unknown = || StoreError::UnknownValue { what: "whose use a budget counts", value: text.to_owned() };
    BudgetCovers::parse(text).ok_or_else(unknown)
}

impl Store {
    /// Organizations that have a budget.
    pub async fn budget_organizations(&self) -> Result<Vec<OrganizationId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "select distinct g.organization_id from budgets g
             join organizations o on o.id = g.organization_id and o.deleted_at is null order by 1",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().map(OrganizationId::from_trusted).collect())
    }

    /// The metastore's time, and the budgets of an organization: its own first,
    /// then by what they are of. Served by index `budgets_organization`.
    pub async fn budget_list(&self, organization: &OrganizationId) -> Result<(DateTime<Utc>, Vec<Budget>)> {
        let now = sqlx::query_scalar("select now()").fetch_one(&self.pool).await?;
        let rows: Vec<BudgetRow> = sqlx::query_as(
            "select g.subject_id, g.covers, coalesce(b.name, p.name, k.name, o.name) as name, g.project_id,
                    g.limit_amount::text as limit_amount, g.unit, g.exhausted_in, g.updated_at,
                    coalesce((select max(w.threshold) from budget_warnings w
                              where (w.subject_id, w.limit_amount, w.unit) = (g.subject_id, g.limit_amount, g.unit)
                                and w.month = date_trunc('month', $2 at time zone 'UTC')::date), 0)::integer as told
             from budgets g
             left join branches b on b.id = g.branch_id
             left join projects p on p.id = g.project_id
             left join api_keys k on k.id = g.subject_id
             left join organizations o on o.id = g.subject_id
             where g.organization_id = $1
             order by g.covers <> 'organization', g.covers <> 'project', g.covers <> 'branch', name, g.subject_id",
        )
        .bind(organization.as_str())
        .bind(now)
        .fetch_all(&self.pool)
        .await?;
        Ok((now, rows.into_iter().map(Budget::try_from).collect::<Result<_>>()?))
    }

    /// Sets the budget of an organization, or of a project, branch or key that it
    /// has; false when the subject is nothing of that.
    pub async fn budget_set_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        subject: &str,
        (limit, unit): (&str, &str),
    ) -> Result<bool> {
        let done = sqlx::query(
            "insert into budgets (subject_id, covers, project_id, branch_id, organization_id, limit_amount, unit)
             select s.*, $2, $3::numeric, $4 from (
                 select $1::text as id, 'organization', null::text, null::text where $1 = $2
                 union all
                 select id, 'project', id, null from projects
                 where id = $1 and organization_id = $2 and deleted_at is null
                 union all
                 select b.id, 'branch', p.id, b.id from branches b join projects p on p.id = b.project_id
                 where b.id = $1 and p.organization_id = $2 and b.deleted_at is null
                 union all
                 select id, 'key', null, null from api_keys where id = $1 and organization_id = $2) s
             on conflict (subject_id) do update
                 set limit_amount = excluded.limit_amount, unit = excluded.unit, updated_at = now()",
        )
        .bind(subject)
        .bind(organization.as_str())
        .bind(limit)
        .bind(unit)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// How many budgets an organization has.
    pub async fn budget_count_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<u32> {
        let query = sqlx::query_scalar("select count(*) from budgets where organization_id = $1");
        let count: i64 = query.bind(organization.as_str()).fetch_one(&mut **tx).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Removes a budget, and wakes what slept for it alone. The transaction must
    /// have locked the organization. Returns those branches; none when there is
    /// no such budget.
    pub async fn budget_delete_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        subject: &str,
    ) -> Result<Option<Vec<BranchId>>> {
        let done = sqlx::query("delete from budgets where organization_id = $1 and subject_id = $2")
            .bind(organization.as_str())
            .bind(subject)
            .execute(&mut **tx)
            .await?;
        match done.rows_affected() {
            0 => Ok(None),
            _ => resume_in_tx(tx, organization, "budget", HEALED).await.map(Some),
        }
    }

    /// Writes down how much of budgets is used in a month, tells what was not
    /// told of it, puts the branches to sleep that have to, and wakes those that
    /// may again. A budget that was set anew meanwhile is left for the next time.
    /// The transaction must have locked the organization.
    pub async fn budget_apply_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        month: NaiveDate,
        reaches: &[BudgetReach],
    ) -> Result<BudgetOutcome> {
        let mut told = vec![];
        for reach in reaches {
            let done = sqlx::query(
                "update budgets set exhausted_in = case when $4 then $5 end
                 where (subject_id, limit_amount, unit) = ($1, $2::numeric, $3)",
            )
            .bind(&reach.subject)
            .bind(&reach.limit)
            .bind(&reach.unit)
            .bind(reach.is_used_up)
            .bind(month)
            .execute(&mut **tx)
            .await?;
            if done.rows_affected() == 1
                && let Some(threshold) = tell_in_tx(tx, reach, month).await?
            {
                told.push((reach.subject.clone(), threshold));
            }
        }
        let mut changed = sleep_in_tx(tx, organization).await?;
        changed.extend(resume_in_tx(tx, organization, "budget", HEALED).await?);
        Ok(BudgetOutcome { changed, told })
    }

    /// What was told long ago is forgotten.
    pub async fn budget_purge(&self) -> Result<()> {
        let forget = "delete from budget_warnings where warned_at < now() - interval '400 days'";
        sqlx::query(forget).execute(&self.relaxed).await?;
        Ok(())
    }

    /// The budget that would keep a branch asleep that is made in a project, with
    /// a key or without one. The transaction must have locked the organization.
    pub async fn budget_in_the_way_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        key: Option<&ApiKeyId>,
    ) -> Result<Option<UsedUp>> {
        let sql = format!(
            "select {USED_UP} from projects p
             join budgets g on g.subject_id = exhausted_budget(p.organization_id, p.id, null, $2) where p.id = $1"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(project.as_str());
        let row = query.bind(key.map(ApiKeyId::as_str)).fetch_optional(&mut **tx).await?;
        row.as_ref().map_or(Ok(None), used_up)
    }

    /// The budget that keeps a branch asleep.
    pub async fn budget_of_branch(&self, branch: &BranchId) -> Result<Option<UsedUp>> {
        of_branch(&self.pool, branch).await
    }

    /// As [`Store::budget_of_branch`], in a transaction that has locked the
    /// organization.
    pub async fn budget_of_branch_in_tx(&self, tx: &mut Tx, branch: &BranchId) -> Result<Option<UsedUp>> {
        of_branch(&mut **tx, branch).await
    }
}

/// What wakes branches that slept for a budget, for people.
const HEALED: &str = "its budget having room again";
/// Columns of a budget `g` that keeps branches asleep.
pub(crate) const USED_UP: &str =
    "g.covers as budget_covers, g.limit_amount::text as budget_limit, g.unit as budget_unit,
        (g.exhausted_in + interval '1 month')::date as budget_until";

/// Reads that, where there is such a budget.
pub(crate) fn used_up(row: &PgRow) -> Result<Option<UsedUp>> {
    let Some(text) = row.try_get::<Option<String>, _>("budget_covers")? else { return Ok(None) };
    Ok(Some(UsedUp {
        covers: covers(&text)?,
        limit: row.try_get("budget_limit")?,
        unit: row.try_get("budget_unit")?,
        until: row.try_get("budget_until")?,
    }))
}

async fn of_branch(executor: impl PgExecutor<'_>, branch: &BranchId) -> Result<Option<UsedUp>> {
    let sql = format!(
        "select {USED_UP} from branches b join projects p on p.id = b.project_id
         join budgets g on g.subject_id = exhausted_budget(p.organization_id, p.id, b.id, b.made_with)
         where b.id = $1 and b.goal <> 'deleted'"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(branch.as_str()).fetch_optional(executor).await?;
    row.as_ref().map_or(Ok(None), used_up)
}

/// Tells the greatest part that is reached, unless it was told: of several that
/// are reached at once only that one. Returns it if it was told now.
async fn tell_in_tx(tx: &mut Tx, reach: &BudgetReach, month: NaiveDate) -> Result<Option<u32>> {
    let reached: Vec<i16> =
        THRESHOLDS.into_iter().filter(|part| *part <= reach.reached).map(|part| part as i16).collect();
    let told: Option<i32> = sqlx::query_scalar(
        "with told as (
             insert into budget_warnings (organization_id, subject_id, month, limit_amount, unit, threshold)
             select g.organization_id, g.subject_id, $2, g.limit_amount, g.unit, part
             from budgets g, unnest($3::smallint[]) as part where g.subject_id = $1
             on conflict do nothing returning threshold)
         insert into events (organization_id, project_id, branch_id, type, data)
         select g.organization_id, g.project_id, g.branch_id, 'budget.reached', jsonb_strip_nulls(jsonb_build_object(
             'organization_id', g.organization_id, 'project_id', g.project_id, 'branch_id', g.branch_id,
             'key_id', case g.covers when 'key' then g.subject_id end, 'covers', g.covers,
             'threshold', t.threshold, 'limit', g.limit_amount::text, 'unit', g.unit,
             'month', to_char($2::timestamp, 'YYYY-MM')))
         from budgets g, (select max(threshold) as threshold from told) t
         where g.subject_id = $1 and t.threshold is not null returning (data->>'threshold')::integer",
    )
    .bind(&reach.subject)
    .bind(month)
    .bind(reached)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(told.map(i32::unsigned_abs))
}

/// Puts the branches of an organization to sleep that a budget keeps asleep.
/// Afterwards, branches with scale-to-zero wait for a connection, and the others
/// resume.
async fn sleep_in_tx(tx: &mut Tx, organization: &OrganizationId) -> Result<Vec<BranchId>> {
    let asleep: Vec<String> = sqlx::query_scalar(
        "with asleep as (
             update branches b set goal = 'hibernated', resumes_when_allowed = not b.scale_to_zero,
                 generation = generation + 1
             from projects p
             where p.id = b.project_id and p.organization_id = $1 and b.goal = 'running' and b.deleted_at is null
               and exhausted_budget(p.organization_id, p.id, b.id, b.made_with) is not null
             returning b.id),
         ended as (
             update awake_periods set ended_at = now(), end_cause = 'budget'
             where branch_id in (select id from asleep) and ended_at is null)
         select id from asleep",
    )
    .bind(organization.as_str())
    .fetch_all(&mut **tx)
    .await?;
    Ok(asleep.into_iter().map(BranchId::from_trusted).collect())
}

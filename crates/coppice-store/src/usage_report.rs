//! What organizations used: hours that are sealed, and what is known of those
//! that are not.

use chrono::{DateTime, Utc};
use coppice_core::labels::Labels;
use coppice_core::usage::Meter;
use coppice_core::{BranchId, OrganizationId, ProjectId};
use sqlx::FromRow;
use sqlx::types::Json;

use crate::usage::measured;
use crate::usage_spans::Spans;
use crate::{Result, Store, StoreError};

/// What is told apart in a report of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageGrouping {
    /// Projects.
    pub by_project: bool,
    /// Branches; with their projects.
    pub by_branch: bool,
    /// Labels that branches had.
    pub by_labels: Option<ByLabels>,
    /// Times.
    pub by: Option<UsageStep>,
}

/// Labels that are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByLabels {
    /// All of them.
    All,
    /// Those with these keys.
    Of(Vec<String>),
}

/// Times that are told apart; all in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageStep {
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Months.
    Month,
}

impl UsageStep {
    fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// Of what a report is made.
#[derive(Clone, Debug)]
pub struct UsageQuery<'a> {
    /// Of this organization.
    pub organization: &'a OrganizationId,
    /// From this hour on.
    pub from: DateTime<Utc>,
    /// Up to this hour, which is not part of it.
    pub to: DateTime<Utc>,
    /// What is told apart.
    pub grouping: UsageGrouping,
    /// Times at which prices change, in order: what was used before and after
    /// is told apart.
    pub boundaries: &'a [DateTime<Utc>],
    /// Whether hours are left out that are billed at a marketplace.
    pub is_own_only: bool,
    /// Most rows.
    pub rows_max: u32,
}

/// What was used of one thing. What is not told apart is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The project, and what it was last called.
    pub project: Option<(ProjectId, String)>,
    /// The branch, and what it was last called.
    pub branch: Option<(BranchId, String)>,
    /// The labels that the branch had, of those that are told apart.
    pub labels: Option<Labels>,
    /// When the time began in which it was used.
    pub began_at: Option<DateTime<Utc>>,
    /// How many of the boundaries came before.
    pub period: usize,
    /// What was counted.
    pub meter: Meter,
    /// The type of the instances, where instances are counted; else empty.
    pub instance_type: String,
    /// How much, a whole number in the unit of the meter.
    pub quantity: String,
}

#[derive(FromRow)]
struct Row {
    project_id: Option<String>,
    project_name: Option<String>,
    branch_id: Option<String>,
    branch_name: Option<String>,
    labels: Option<Json<Labels>>,
    began_at: Option<DateTime<Utc>>,
    period: i32,
    meter: String,
    instance_type: String,
    quantity: String,
}

impl TryFrom<Row> for UsageRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self> {
        let meter = Meter::parse(&row.meter)
            .ok_or_else(|| StoreError::UnknownValue { what: "meter", value: row.meter.clone() })?;
        Ok(Self {
            project: row.project_id.map(ProjectId::from_trusted).zip(row.project_name),
            branch: row.branch_id.map(BranchId::from_trusted).zip(row.branch_name),
            labels: row.labels.map(|labels| labels.0),
            began_at: row.began_at,
            period: usize::try_from(row.period).unwrap_or_default(),
            meter,
            instance_type: row.instance_type,
            quantity: row.quantity,
        })
    }
}

/// Parts of `used` with what is sealed: of the days `$10` and the hours `$11`. Days are read by hours of which some are
/// left out, since they are billed at a marketplace, and those of branches that got other labels in them.
fn sealed(query: &UsageQuery<'_>) -> String {
    let (days, hours) = match query.is_own_only {
        false => ("$10".to_owned(), "$11".to_owned()),
        true => own_times(),
    };
    let part = |table: &str, at: &str, which: &str| {
        format!(
            "select u.branch_id, u.{at} as at, u.meter, u.instance_type, u.quantity
             from {table} u join metered using (branch_id) {which} union all "
        )
    };
    let hours = part("usage_hours", "hour", &format!("where u.hour = any({hours})"));
    if query.grouping.by_labels.is_none() {
        return part("usage_days", "day", &format!("where u.day = any({days})")) + &hours;
    }
    let changed = format!(
        "select l.branch_id, d.day from labels l join unnest({days}::timestamptz[]) as d (day)
             on l.from_hour > d.day and l.from_hour < d.day + interval '24 hours'"
    );
    let alike = format!("where u.day = any({days}) and (u.branch_id, u.day) not in ({changed})");
    let other = format!(
        "join (select distinct * from ({changed}) c) c on c.branch_id = u.branch_id
             and u.hour >= c.day and u.hour < c.day + interval '24 hours'"
    );
    part("usage_days", "day", &alike) + &part("usage_hours", "hour", &other) + &hours
}

/// SQL for the times that are not billed at a marketplace: days of `$10` without such an hour; and other hours, of the
/// remaining days and of `$11`.
fn own_times() -> (String, String) {
    let hours_of_day = "generate_series(day, day + interval '23 hours', interval '1 hour') as h (hour)";
    let is_mixed = format!("exists (select from {hours_of_day} where is_billed_at_aws($2, hour))");
    let days = format!("array(select day from unnest($10::timestamptz[]) as d (day) where not {is_mixed})");
    let hours = format!(
        "array(select hour from (
                   select unnest($11::timestamptz[]) as hour
                   union all
                   select hour from unnest($10::timestamptz[]) as d (day), {hours_of_day} where {is_mixed}) h
               where not is_billed_at_aws($2, hour))"
    );
    (days, hours)
}

impl Store {
    /// Before when every hour is sealed.
    pub async fn usage_sealed_until(&self) -> Result<DateTime<Utc>> {
        Ok(sqlx::query_scalar("select sealed_until from usage_meter").fetch_one(&self.pool).await?)
    }

    /// What was used. Instance types are always told apart, prices are theirs.
    /// One statement: an hour is either sealed or it is not.
    pub async fn usage_report(&self, query: &UsageQuery<'_>) -> Result<Vec<UsageRow>> {
        let sql = format!(
            "with hours as materialized (
                 select array(select h.hour from usage_meter m,
                     generate_series(greatest(m.sealed_until, $3), least(now(), $4 - interval '1 microsecond'),
                                     interval '1 hour') as h (hour)
                     where not exists (select from usage_sealed s where s.hour = h.hour)
                         and not ($9 and is_billed_at_aws($2, h.hour))) as open),
             {measured},
             labels as materialized (
                 select branch_id, from_hour, lead(from_hour) over (partition by branch_id order by from_hour) as until_hour,
                        case when $13::text[] is null then labels
                             else (select coalesce(jsonb_object_agg(key, labels -> key), '{{}}')
                                   from unnest($13) as k (key) where labels ? key) end as labels
                 from usage_labels join metered using (branch_id) where $12),
             used as ({sealed} select branch_id, hour as at, meter, instance_type, quantity from measured)
             select case when $5 or $6 then b.project_id end as project_id,
                    case when $5 or $6 then b.project_name end as project_name,
                    case when $6 then b.branch_id end as branch_id,
                    case when $6 then b.branch_name end as branch_name,
                    case when $12 then coalesce(l.labels, '{{}}') end as labels,
                    case when $7::text is not null then date_trunc($7, u.at, 'UTC') end as began_at,
                    width_bucket(u.at, $1::timestamptz[]) as period, u.meter, u.instance_type, sum(u.quantity)::text as quantity
             from used u join usage_branches b using (branch_id)
             left join labels l on l.branch_id = u.branch_id
                 and u.at >= l.from_hour and (l.until_hour is null or u.at < l.until_hour)
             group by 1, 2, 3, 4, 5, 6, 7, 8, 9 having sum(u.quantity) <> 0
             order by 6, 2, 1, 4, 3, 5, 8, 9, 7 limit $8",
            measured = measured("(select open from hours)"),
            sealed = sealed(query),
        );
        let spans = match query.grouping.by {
            Some(UsageStep::Hour) => Spans::by_hours(query.from, query.to),
            Some(UsageStep::Day | UsageStep::Month) | None => {
                Spans::by_days(query.from, query.to, query.boundaries)
            }
        };
        let keys = match &query.grouping.by_labels {
            Some(ByLabels::Of(keys)) => Some(keys.clone()),
            Some(ByLabels::All) | None => None,
        };
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            // Planned for the hours that are asked for, which may be few or all.
            .persistent(false)
            .bind(query.boundaries.to_vec())
            .bind(query.organization.as_str())
            .bind(query.from)
            .bind(query.to)
            .bind(query.grouping.by_project)
            .bind(query.grouping.by_branch)
            .bind(query.grouping.by.map(UsageStep::as_str))
            .bind(i64::from(query.rows_max))
            .bind(query.is_own_only)
            .bind(spans.days)
            .bind(spans.hours)
            .bind(query.grouping.by_labels.is_some())
            .bind(keys)
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(UsageRow::try_from).collect()
    }
}

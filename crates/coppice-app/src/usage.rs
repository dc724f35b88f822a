//! What organizations used, as they ask for it.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::amount::{Decimal, Whole};
use coppice_core::usage::Meter;
use coppice_core::{BranchId, Error, ErrorCode, ProjectId, Result};
use coppice_store::{UsageGrouping, UsageQuery, UsageRow};

use crate::{Access, App};

/// Most lines of a report.
const LINES_MAX: usize = 10_000;
/// Longest time of a report.
const DAYS_MAX: i64 = 400;

/// Which usage is asked for.
#[derive(Clone, Debug)]
pub struct UsageRequest {
    /// From the hour on that holds this time.
    pub from: DateTime<Utc>,
    /// Up to the end of the hour before this time, or that holds it.
    pub to: DateTime<Utc>,
    /// What is told apart.
    pub grouping: UsageGrouping,
    /// Whether instance types are, too.
    pub by_instance_type: bool,
}

/// What was used of one thing. What is not told apart is none.
#[derive(Clone, Debug)]
pub struct UsageLine {
    /// The project, and what it was last called.
    pub project: Option<(ProjectId, String)>,
    /// The branch, and what it was last called.
    pub branch: Option<(BranchId, String)>,
    /// When its time began.
    pub began_at: Option<DateTime<Utc>>,
    /// The type of the instances.
    pub instance_type: Option<String>,
    /// What was counted.
    pub meter: Meter,
    /// How much, in what that is shown in.
    pub quantity: Decimal,
}

/// What an organization used.
#[derive(Clone, Debug)]
pub struct UsageReport {
    /// From this hour on.
    pub from: DateTime<Utc>,
    /// Up to this hour.
    pub to: DateTime<Utc>,
    /// What was used before is certain.
    pub sealed_until: DateTime<Utc>,
    /// By time, project, branch, meter and instance type.
    pub lines: Vec<UsageLine>,
}

impl App {
    /// What an organization used.
    ///
    /// # Errors
    /// `invalid_time_range`, `invalid_query_parameter`
    pub async fn usage(&self, access: &Access, request: &UsageRequest) -> Result<UsageReport> {
        let (from, to) = hours(request)?;
        let sealed_until = self.store.usage_sealed_until().await?;
        let query = UsageQuery {
            organization: &access.organization.id,
            from,
            to,
            grouping: request.grouping,
            boundaries: &[DateTime::UNIX_EPOCH],
            // Each type makes a row there, and perhaps none here.
            rows_max: (LINES_MAX * 8) as u32,
        };
        let rows = self.store.usage_report(&query).await?;
        let is_cut = rows.len() as u32 == query.rows_max;
        let lines = lines(rows, request.by_instance_type)?;
        if is_cut || lines.len() > LINES_MAX {
            let why = format!("this has more than {LINES_MAX} rows: ask for less time, or tell less apart");
            return Err(Error::invalid_query("groupBy", why));
        }
        Ok(UsageReport { from, to, sealed_until, lines })
    }
}

/// The full hours that are meant.
fn hours(request: &UsageRequest) -> Result<(DateTime<Utc>, DateTime<Utc>)> {
    let refused =
        |why: &str| Error::invalid(ErrorCode::InvalidTimeRange, format!("invalid time range: {why}"));
    let hour = TimeDelta::hours(1);
    let from = request.from.duration_trunc(hour).map_err(|_| refused("from is too far away"))?;
    let to = request.to.duration_trunc(hour).map_err(|_| refused("to is too far away"))?;
    let to = if to < request.to { to + hour } else { to };
    if to < from {
        return Err(refused("to is before from"));
    }
    match to - from > TimeDelta::days(DAYS_MAX) {
        true => Err(refused(&format!("it can have at most {DAYS_MAX} days"))),
        false => Ok((from, to)),
    }
}

/// Puts rows of instance types together where those are not told apart.
fn lines(rows: Vec<UsageRow>, by_instance_type: bool) -> Result<Vec<UsageLine>> {
    let mut lines: Vec<(UsageRow, Whole)> = vec![];
    for mut row in rows {
        if !by_instance_type {
            row.instance_type.clear();
        }
        let quantity: Whole = row.quantity.parse().map_err(Error::internal)?;
        let key = |row: &UsageRow| (row.began_at, row.project.clone(), row.branch.clone(), row.meter);
        // Rows of one line follow each other.
        match lines.last_mut() {
            Some((last, sum)) if key(last) == key(&row) && last.instance_type == row.instance_type => {
                *sum += quantity;
            }
            _ => lines.push((row, quantity)),
        }
    }
    let line = |(row, quantity): (UsageRow, Whole)| UsageLine {
        project: row.project,
        branch: row.branch,
        began_at: row.began_at,
        instance_type: Some(row.instance_type).filter(|kind| !kind.is_empty()),
        meter: row.meter,
        quantity: row.meter.shown(&quantity),
    };
    Ok(lines.into_iter().map(line).collect())
}

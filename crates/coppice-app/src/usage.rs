//! What organizations used, as they ask for it.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::amount::{Decimal, Whole};
use coppice_core::labels::Labels;
use coppice_core::price_list::{PriceList, cost};
use coppice_core::usage::Meter;
use coppice_core::{BranchId, Error, ErrorCode, ProjectId, Result};
use coppice_store::{Store, UsageGrouping, UsageQuery, UsageRow};

use crate::Access;
use crate::billing::began;

/// Most lines of a report.
const LINES_MAX: usize = 10_000;
/// Decimals of what a part costs.
const COST_DECIMALS: u32 = 6;
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

/// What was used of one thing. A field by which the answer is not grouped is none.
#[derive(Clone, Debug)]
pub struct UsageLine {
    /// The project, and what it was last called.
    pub project: Option<(ProjectId, String)>,
    /// The branch, and what it was last called.
    pub branch: Option<(BranchId, String)>,
    /// The labels that the branch had, of those that are told apart.
    pub labels: Option<Labels>,
    /// When its time began.
    pub began_at: Option<DateTime<Utc>>,
    /// The type of the instances.
    pub instance_type: Option<String>,
    /// What was counted.
    pub meter: Meter,
    /// How much, in what that is shown in.
    pub quantity: Decimal,
    /// What it costs, where anybody is charged: the sum of its parts with one
    /// price, each rounded once.
    pub cost: Option<Decimal>,
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
    /// By time, project, branch, labels, meter and instance type.
    pub lines: Vec<UsageLine>,
    /// In what costs are, where anybody is charged.
    pub currency: Option<String>,
}

/// What organizations used, and what that costs.
#[derive(Clone)]
pub struct UsageReports {
    store: Store,
    /// What is charged, if anybody is.
    prices: Option<PriceList>,
}

impl UsageReports {
    pub(crate) fn new(store: Store, prices: Option<PriceList>) -> Self {
        Self { store, prices }
    }

    /// What an organization used.
    ///
    /// # Errors
    /// `invalid_time_range`, `invalid_query_parameter`
    pub async fn report(&self, access: &Access, request: &UsageRequest) -> Result<UsageReport> {
        let (from, to) = hours(request)?;
        let sealed_until = self.store.usage_sealed_until().await?;
        let prices = self.prices.as_ref();
        let boundaries = prices.map_or_else(|| vec![from], |prices| prices.boundaries(from, to));
        let query = UsageQuery {
            organization: &access.organization.id,
            from,
            to,
            grouping: request.grouping.clone(),
            boundaries: &boundaries,
            is_own_only: false,
            // Each type makes a row there, and perhaps none here.
            rows_max: (LINES_MAX * 8) as u32,
        };
        let rows = self.store.usage_report(&query).await?;
        let is_cut = rows.len() as u32 == query.rows_max;
        let cost = |row: &UsageRow, quantity: &Whole| {
            let at = began(&boundaries, row);
            let price = prices?.unit_price(row.meter, &row.instance_type, at);
            let cost = price.map(|price| cost(quantity, price, row.meter, at, COST_DECIMALS));
            Some(cost.unwrap_or_else(|| Decimal::new(0.into(), i64::from(COST_DECIMALS))))
        };
        let lines = lines(rows, request.by_instance_type, cost)?;
        if is_cut || lines.len() > LINES_MAX {
            let why = format!("this has more than {LINES_MAX} rows: ask for less time, or tell less apart");
            return Err(Error::invalid_query("groupBy", why));
        }
        let currency = prices.map(|prices| prices.currency.clone());
        Ok(UsageReport { from, to, sealed_until, lines, currency })
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
fn lines(
    rows: Vec<UsageRow>,
    by_instance_type: bool,
    cost_of: impl Fn(&UsageRow, &Whole) -> Option<Decimal>,
) -> Result<Vec<UsageLine>> {
    let mut lines: Vec<(UsageRow, Whole, Option<Decimal>)> = vec![];
    for mut row in rows {
        let quantity: Whole = row.quantity.parse().map_err(Error::internal)?;
        let cost = cost_of(&row, &quantity);
        if !by_instance_type {
            row.instance_type.clear();
        }
        let key = |row: &UsageRow| {
            (row.began_at, row.project.clone(), row.branch.clone(), row.labels.clone(), row.meter)
        };
        // Rows of one line follow each other.
        match lines.last_mut() {
            Some((last, sum, costs)) if key(last) == key(&row) && last.instance_type == row.instance_type => {
                *sum += quantity;
                *costs = costs.take().zip(cost).map(|(costs, cost)| costs + cost);
            }
            _ => lines.push((row, quantity, cost)),
        }
    }
    let line = |(row, quantity, cost): (UsageRow, Whole, Option<Decimal>)| UsageLine {
        project: row.project,
        branch: row.branch,
        labels: row.labels,
        began_at: row.began_at,
        instance_type: Some(row.instance_type).filter(|kind| !kind.is_empty()),
        meter: row.meter,
        quantity: row.meter.shown(&quantity),
        cost,
    };
    Ok(lines.into_iter().map(line).collect())
}

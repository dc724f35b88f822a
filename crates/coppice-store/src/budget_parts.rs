//! What was used of budgets: days of sealed hours, and what is known of the
//! hours that are not.

use chrono::{DateTime, Utc};
use coppice_core::OrganizationId;
use coppice_core::usage::Meter;

use crate::usage::measured;
use crate::{Result, Store, StoreError};

/// Something that was used of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetPart {
    /// Of which budget.
    pub subject: String,
    /// How many of the boundaries came before.
    pub period: usize,
    /// What was counted.
    pub meter: Meter,
    /// The type of the instances, where instances are counted; else empty.
    pub instance_type: String,
    /// How much, a whole number in the unit of the meter.
    pub quantity: String,
}

impl Store {
    /// What was used of each budget of an organization from the beginning of a
    /// month on, by branches that are there or were. `boundaries` are times at
    /// which prices change, in order: what was used before and after is told apart.
    pub async fn budget_parts(
        &self,
        organization: &OrganizationId,
        (from, to): (DateTime<Utc>, DateTime<Utc>),
        boundaries: &[DateTime<Utc>],
    ) -> Result<Vec<BudgetPart>> {
        let sql = format!(
            "with hours as materialized (
                 select array(select h.hour from usage_meter m,
                     generate_series(greatest(m.sealed_until, $3), least(now(), $4 - interval '1 microsecond'),
                                     interval '1 hour') as h (hour)
                     where not exists (select from usage_sealed s where s.hour = h.hour)) as open),
             {measured},
             used as (
                 select branch_id, day as at, meter, instance_type, quantity
                 from usage_days join metered using (branch_id) where day >= $3 and day < $4
                 union all
                 select branch_id, hour, meter, instance_type, quantity from measured),
             by_branch as (
                 select branch_id, width_bucket(at, $1::timestamptz[]) as period, meter, instance_type,
                        sum(quantity) as quantity
                 from used group by 1, 2, 3, 4)
             select g.subject_id, u.period, u.meter, u.instance_type, sum(u.quantity)::text
             from by_branch u join usage_branches b using (branch_id)
             join budgets g on g.organization_id = $2
                 and (g.subject_id in (b.organization_id, b.project_id, b.branch_id, b.made_with)
                      or exists (select from key_lines l
                                 where l.key_id = b.made_with and l.ancestor_id = g.subject_id))
             group by 1, 2, 3, 4 order by 1, 2, 3, 4",
            measured = measured("(select open from hours)"),
        );
        let rows: Vec<(String, i32, String, String, String)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(boundaries.to_vec())
            .bind(organization.as_str())
            .bind(from)
            .bind(to)
            .fetch_all(&self.pool)
            .await?;
        let part = |(subject, period, meter, instance_type, quantity): (_, i32, String, _, _)| {
            let known = Meter::parse(&meter);
            let meter = known.ok_or(StoreError::UnknownValue { what: "meter", value: meter })?;
            let period = usize::try_from(period).unwrap_or_default();
            Ok(BudgetPart { subject, period, meter, instance_type, quantity })
        };
        rows.into_iter().map(part).collect()
    }
}

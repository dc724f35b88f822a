//! Reports, which read days where they can, held against sums of hours.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::OrganizationId;
use coppice_store::{ByLabels, UsageGrouping, UsageQuery, UsageRow, UsageStep};
use sqlx::AssertSqlSafe;

use super::{Metered, branch_id};

/// Random numbers, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn chance(&mut self) -> bool {
        self.roll(2) == 0
    }
}

/// Sealed hours of nine days and open ones, of branches in two projects; and subscriptions at AWS Marketplace, of which
/// one has ended, one paid for an organization that was deleted, and one goes on.
const ROWS: &str = "
insert into organizations (id, name) values ('x', 'x');
insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
    select 'b' || n, 'branch ' || n, 'p' || n % 2, 'project ' || n % 2, case n when 7 then 'x' else 'o' end
    from generate_series(1, 7) n;
insert into usage_sealed (hour)
    select generate_series(timestamptz '2026-02-20T00:00:00Z', '2026-03-01T10:00:00Z', '1 hour');
insert into usage_hours (branch_id, hour, meter, instance_type, quantity)
    select 'b' || n, hour, meter, kind, (hashint8(n * 7919 + extract(epoch from hour)::bigint)::bigint + 2147483648)
        * (case meter when 'storage' then 1048576 else 1 end)::numeric
    from usage_sealed, generate_series(1, 7) n,
        (values ('awake', 'micro'), ('awake', 'small'), ('asleep', ''), ('storage', ''), ('egress', '')) m (meter, kind)
    where hashint8(n + extract(epoch from hour)::bigint + length(meter || kind)) % 3 <> 0;
insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
    select branch_id, hour, meter, instance_type, 1, -quantity / 2, 'half of it' from usage_hours
    where hashint8(extract(epoch from hour)::bigint) % 11 = 0;
insert into usage_labels (branch_id, from_hour, labels) values
    ('b1', '2026-02-20T00:00:00Z', '{\"team\": \"shop\", \"env\": \"dev\"}'),
    ('b1', '2026-02-23T00:00:00Z', '{\"team\": \"shop\"}'),
    ('b1', '2026-02-25T09:00:00Z', '{\"team\": \"blog\", \"env\": \"prod\"}'),
    ('b1', '2026-02-25T10:00:00Z', '{\"team\": \"shop\"}'),
    ('b2', '2026-02-28T23:00:00Z', '{\"env\": \"dev\"}'),
    ('b3', '2026-02-21T06:00:00Z', '{\"env\": \"dev\"}'), ('b3', '2026-02-22T00:00:00Z', '{}'),
    ('b7', '2026-02-24T15:00:00Z', '{\"team\": \"shop\"}');
insert into marketplace_subscriptions (license_id, license_arn, account_id, organization_id, billed_from, bound_at, ended_at)
    values ('was', 'arn:was', '1', 'o', '2026-02-21T05:00:00Z', now(), '2026-02-22T09:20:00Z'),
           ('never', 'arn:never', '1', 'o', '2026-02-26T00:00:00Z', now(), '2026-02-25T09:00:00Z'),
           ('other', 'arn:other', '2', null, '2026-02-24T00:00:00Z', now(), null),
           ('is', 'arn:is', '1', 'o', '2026-02-27T00:00:00Z', now(), null);
insert into marketplace_former (license_id, organization_id, billed_from) values ('other', 'x', '2026-02-24T12:00:00Z')";

/// By hours alone, open ones by ranges; as rows of all that a report tells apart.
const EXPECTED: &str = "
with parts as (
    select p.branch_id, h.hour, case when is_awake then 'awake' else 'asleep' end as meter,
        case when is_awake then instance_type else '' end as instance_type,
        (extract(epoch from upper(t) - lower(t)) * 1000000)::numeric(40, 0)
            * case when is_awake then instances else 1 end as quantity
    from usage_periods p, usage_witnessed w,
        generate_series(timestamptz '2026-03-01T11:00:00Z', '2026-03-01T13:00:00Z', '1 hour') h (hour),
        lateral (select tstzrange(p.began_at, p.ended_at) * tstzrange(w.began_at, w.until)
                        * tstzrange(h.hour, h.hour + interval '1 hour') as t) x
    where not isempty(t) and not exists (select from usage_sealed s where s.hour = h.hour)
    union all
    select branch_id, hour, meter, instance_type, quantity from usage_hours)
select case when $1 or $2 then b.project_id end, case when $2 then b.branch_id end,
    case when $9 then (
        select coalesce(jsonb_object_agg(key, value) filter (where $10::text[] is null or key = any($10)), '{}')
        from jsonb_each((select labels from usage_labels l where l.branch_id = b.branch_id and l.from_hour <= hour
                         order by from_hour desc limit 1)))::text end,
    date_trunc($3, hour, 'UTC'), width_bucket(hour, $4), meter, instance_type, sum(quantity)::text
from parts join usage_branches b using (branch_id)
where organization_id = $5 and hour >= $6 and hour < $7 and not ($8 and is_billed_at_aws($5, hour))
group by 1, 2, 3, 4, 5, 6, 7 having sum(quantity) <> 0";

/// Project, branch, labels, time, period, meter, and type of the instances.
type Key = (Option<String>, Option<String>, Option<String>, Option<DateTime<Utc>>, i32, String, String);

fn key_of(row: &UsageRow) -> Key {
    (
        row.project.as_ref().map(|(project, _)| project.to_string()),
        row.branch.as_ref().map(|(branch, _)| branch.to_string()),
        row.labels.as_ref().map(|labels| format!("{labels:?}").replace(['{', '}'], "")),
        row.began_at,
        i32::try_from(row.period).unwrap(),
        row.meter.as_str().to_owned(),
        row.instance_type.clone(),
    )
}

fn hour(number: u64) -> DateTime<Utc> {
    "2026-02-20T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::hours(number as i64)
}

impl Metered {
    async fn expected(&mut self, query: &UsageQuery<'_>) -> BTreeMap<Key, String> {
        let step = query.grouping.by.map(|step| match step {
            UsageStep::Hour => "hour",
            UsageStep::Day => "day",
            UsageStep::Month => "month",
        });
        let (by_labels, keys) = match &query.grouping.by_labels {
            None => (false, None),
            Some(ByLabels::All) => (true, None),
            Some(ByLabels::Of(keys)) => (true, Some(keys.clone())),
        };
        type Text = Option<String>;
        type Row = (Text, Text, Text, Option<DateTime<Utc>>, i32, String, String, String);
        let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(EXPECTED))
            .bind(query.grouping.by_project)
            .bind(query.grouping.by_branch)
            .bind(step)
            .bind(query.boundaries.to_vec())
            .bind(query.organization.as_str())
            .bind(query.from)
            .bind(query.to)
            .bind(query.is_own_only)
            .bind(by_labels)
            .bind(keys)
            .fetch_all(&mut self.sql)
            .await
            .unwrap();
        let pair = |(project, branch, labels, at, period, meter, kind, quantity): Row| {
            // A map as Rust shows it, without its braces.
            let labels = labels.map(|labels: String| labels.replace(['{', '}'], ""));
            ((project, branch, labels, at, period, meter, kind), quantity)
        };
        rows.into_iter().map(pair).collect()
    }
}

#[tokio::test]
async fn a_report_is_the_sum_of_its_hours_whatever_is_asked() {
    let mut metered = Metered::new().await;
    metered.run(ROWS).await;
    metered.make(&branch_id(1)).await;
    metered.meter(70).await;
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let mut compared = 0;
    for round in 0..300 {
        let organization = OrganizationId::from_trusted(if dice.roll(5) == 0 { "x" } else { "o" });
        // Whole days as often as others.
        let unit = if dice.chance() { 24 } else { 1 };
        let (one, other) = (dice.roll(264 / unit) * unit, dice.roll(264 / unit) * unit);
        let (from, to) = (hour(one.min(other)), hour(one.max(other)));
        let mut boundaries: Vec<_> = (0..dice.roll(4)).map(|_| hour(dice.roll(24 * 9))).collect();
        boundaries.push(DateTime::UNIX_EPOCH);
        boundaries.sort();
        let by = [None, Some(UsageStep::Hour), Some(UsageStep::Day), Some(UsageStep::Month)];
        let of = |keys: &[&str]| Some(ByLabels::Of(keys.iter().map(|key| (*key).to_owned()).collect()));
        let by_labels = [None, None, Some(ByLabels::All), of(&["team"]), of(&["env", "never"])];
        let grouping = UsageGrouping {
            by_project: dice.chance(),
            by_branch: dice.chance(),
            by_labels: by_labels[dice.roll(5) as usize].clone(),
            by: by[dice.roll(4) as usize],
        };
        let query = UsageQuery {
            organization: &organization,
            from,
            to,
            grouping,
            boundaries: &boundaries,
            is_own_only: dice.chance(),
            rows_max: 100_000,
        };
        let expected = metered.expected(&query).await;
        let rows = metered.store.usage_report(&query).await.unwrap();
        compared += rows.len();
        let found: BTreeMap<_, _> = rows.iter().map(|row| (key_of(row), row.quantity.clone())).collect();
        assert_eq!(found.len(), rows.len(), "round {round}: {query:?}");
        assert_eq!(found, expected, "round {round}: {query:?}");
    }
    assert!(compared > 10_000, "only {compared} rows were compared");
}

//! Metering.

mod history;
mod labels;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::usage::{LastTurn, Meter, Witness};
use coppice_core::{BranchId, OrganizationId};
use coppice_store::{Store, StoredBytes, UsageGrouping, UsageQuery, UsageReading, UsageRow, UsageTurn};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::postgres::{Postgres, migrate};
use crate::{connect, with_rows};

const CLOCK: &str = "create schema test; create table test.clock (at timestamptz);
    insert into test.clock values ('2026-03-01T11:58:00Z');
    create function public.now() returns timestamptz language sql stable
        as $$ select at from test.clock $$;
    create function public.clock_timestamp() returns timestamptz language sql stable
        as $$ select at from test.clock $$";
/// A copy of a database has none of its settings.
const FIND_CLOCK: &str = "do $$ begin
        execute format('alter database %I set search_path = public, pg_catalog', current_database());
    end $$";

/// A metastore whose clock the test sets, with an organization `o` and a project `p`.
pub(crate) struct Metered {
    _server: Postgres,
    pub(crate) store: Store,
    /// Another control plane.
    pub(crate) other: Store,
    sql: PgConnection,
    now: DateTime<Utc>,
}

impl Metered {
    pub(crate) async fn new() -> Self {
        let server = Postgres::shared();
        let options = server.database_from("metered", async |options| {
            let (_, mut sql) = connect(&options).await;
            sqlx::raw_sql(CLOCK).execute(&mut sql).await.unwrap();
            sqlx::raw_sql(FIND_CLOCK).execute(&mut sql).await.unwrap();
            migrate(options).await;
        });
        let (_, mut sql) = connect(&options).await;
        sqlx::raw_sql(FIND_CLOCK).execute(&mut sql).await.unwrap();
        let (store, mut sql) = with_rows(&options).await;
        sqlx::raw_sql("delete from branches").execute(&mut sql).await.unwrap();
        let (other, _) = connect(&options).await;
        Self { _server: server, store, other, sql, now: "2026-03-01T11:58:00Z".parse().unwrap() }
    }

    pub(crate) async fn run(&mut self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut self.sql).await.unwrap();
    }

    pub(crate) async fn number(&mut self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut self.sql).await.unwrap()
    }

    pub(crate) async fn set_clock(&mut self, now: DateTime<Utc>) {
        self.now = now;
        sqlx::query("update test.clock set at = $1").bind(now).execute(&mut self.sql).await.unwrap();
    }

    async fn pass(&mut self, time: TimeDelta) {
        self.set_clock(self.now + time).await;
    }

    pub(crate) async fn make(&mut self, branch: &str) {
        self.make_many(&[branch.to_owned()]).await;
    }

    async fn make_many(&mut self, branches: &[String]) {
        let branches =
            format!("unnest(array['{}']) with ordinality as b (id, number)", branches.join("', '"));
        self.run(&format!(
            "begin;
             insert into branches (id, project_id, name, description, region, image_major, image_minor,
                 instance_type, replicas, storage_gib, parameters, preload_libraries, scale_to_zero,
                 inactivity_minutes, goal, state, volume_id, password_sealed, managed_role_verifier)
             select id, 'p', id, '', 'local', 18, 0, 'micro', 0, 1, '{{}}', '{{}}', true, 5,
                 'running', 'ready', 'v' || id, '', '' from {branches};
             insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 select 'v' || id, 'h', id, 'present', number + (select count(*) from volumes), 18, 0
                 from {branches};
             commit"
        ))
        .await;
    }

    /// A turn a minute of one control plane, for so long.
    async fn meter(&mut self, minutes: i64) {
        let mut last = None;
        for _ in 0..=minutes {
            let turn = take_turn(&self.store, last).await;
            while self.store.usage_seal().await.unwrap().is_some() {}
            last = Some(LastTurn { at: turn.now, ago: Duration::from_secs(60) });
            self.pass(TimeDelta::minutes(1)).await;
        }
    }

    async fn report(&self, grouping: UsageGrouping) -> Vec<UsageRow> {
        let organization = OrganizationId::from_trusted("o");
        let query = UsageQuery {
            organization: &organization,
            from: "2026-01-01T00:00:00Z".parse().unwrap(),
            to: "2027-01-01T00:00:00Z".parse().unwrap(),
            grouping,
            boundaries: &[DateTime::UNIX_EPOCH],
            is_own_only: false,
            rows_max: 1000,
        };
        self.store.usage_report(&query).await.unwrap()
    }

    async fn total(&self, meter: Meter, instance_type: &str) -> i128 {
        let rows = self.report(UsageGrouping::default()).await;
        let rows = rows.iter().filter(|row| row.meter == meter && row.instance_type == instance_type);
        rows.map(|row| row.quantity.parse::<i128>().unwrap()).sum()
    }
}

/// A turn of a control plane that had its last one so long ago.
async fn take_turn(store: &Store, last: Option<LastTurn>) -> UsageTurn {
    let began = Instant::now();
    let ago = last.map_or(Duration::ZERO, |last| last.ago);
    store.usage_turn(last.map(|last| (last.at, began)), || began + ago).await.unwrap()
}

pub(crate) fn branch_id(number: usize) -> String {
    format!("b{number:025}")
}

const SECOND: i128 = 1_000_000;

#[tokio::test]
async fn a_branch_counts_by_what_it_was_to_be_and_is_known_after_its_end() {
    let mut metered = Metered::new().await;
    let id = branch_id(1);
    take_turn(&metered.store, None).await;
    metered.make(&id).await;
    let reading = |bytes| UsageReading {
        branch: BranchId::from_trusted(branch_id(1)),
        stored: Some(StoredBytes { total: bytes, shared: (3 << 20) + 5 }),
        egress_bytes: 7,
    };
    metered.store.usage_note(&[reading(10 << 20)]).await.unwrap();
    metered.meter(9).await;
    metered.run("update branches set goal = 'hibernated'").await;
    metered.store.usage_note(&[reading((10 << 20) + 1)]).await.unwrap();
    metered.meter(4).await;
    metered.run("update branches set goal = 'running', instance_type = 'small', replicas = 2").await;
    metered.meter(0).await;
    metered.run("update branches set name = 'last'; update projects set name = 'shop'").await;
    metered.run("update branches set goal = 'deleted', deleted_at = now()").await;
    metered.run("delete from branches; delete from projects; delete from organizations").await;
    metered.meter(180).await;

    assert_eq!(metered.total(Meter::Awake, "micro").await, 600 * SECOND);
    assert_eq!(metered.total(Meter::Asleep, "").await, 300 * SECOND);
    assert_eq!(metered.total(Meter::Awake, "small").await, 3 * 60 * SECOND, "each instance counts");
    let bytes = (7 << 20) * 600 * SECOND + (8 << 20) * 360 * SECOND;
    assert_eq!(metered.total(Meter::Storage, "").await, bytes, "in steps of a MiB");
    assert_eq!(metered.total(Meter::Shared, "").await, (3 << 20) * 960 * SECOND);
    assert_eq!(metered.total(Meter::Egress, "").await, 14);
    let rows = metered.report(UsageGrouping { by_branch: true, ..UsageGrouping::default() }).await;
    assert!(
        rows.iter()
            .all(|row| row.branch.as_ref().is_some_and(|(of, name)| of.as_str() == id && name == "last"))
    );
    assert!(rows.iter().all(|row| row.project.as_ref().is_some_and(|(_, name)| name == "shop")));
    assert_eq!(metered.number("select count(*) from usage_periods where ended_at is null").await, 0);
}

#[tokio::test]
async fn a_branch_that_flips_all_the_time_pays_for_each_part_of_it_and_no_more() {
    let mut metered = Metered::new().await;
    take_turn(&metered.store, None).await;
    metered.make(&branch_id(1)).await;
    for second in 0..120 {
        let kind = if second % 2 == 0 { "micro" } else { "small" };
        metered.run(&format!("update branches set instance_type = '{kind}'")).await;
        metered.run("update branches set goal = 'hibernated'; update branches set goal = 'running'").await;
        metered.pass(TimeDelta::milliseconds(600)).await;
        metered.run("update branches set goal = 'hibernated'").await;
        metered.pass(TimeDelta::milliseconds(400)).await;
    }
    for _tenth_of_a_second in 0..100 {
        metered.run("update branches set goal = 'running'").await;
        metered.pass(TimeDelta::milliseconds(60)).await;
        metered.run("update branches set goal = 'hibernated'").await;
        metered.pass(TimeDelta::milliseconds(40)).await;
    }
    // Made and gone between two turns.
    metered.make(&branch_id(2)).await;
    metered.pass(TimeDelta::milliseconds(1)).await;
    metered
        .run(&format!(
            "update branches set goal = 'deleted', deleted_at = now() where id = '{}'",
            branch_id(2)
        ))
        .await;
    metered.run("update branches set goal = 'trashed', deleted_at = now(), purge_at = now() where goal <> 'deleted'").await;
    take_turn(&metered.store, None).await;
    assert_eq!(metered.total(Meter::Awake, "micro").await, 36 * SECOND + 1000);
    assert_eq!(metered.total(Meter::Awake, "small").await, 42 * SECOND);
    assert_eq!(metered.total(Meter::Asleep, "").await, 52 * SECOND + 1000, "one in the trash sleeps");
}

#[tokio::test]
async fn a_sealed_hour_is_corrected_by_a_row_and_never_changed() {
    let mut metered = Metered::new().await;
    let (id, hour) = (BranchId::from_trusted(branch_id(1)), "2026-03-01T12:00:00Z".parse().unwrap());
    metered.make(id.as_str()).await;
    metered.meter(66).await;
    let correct =
        |difference, why| metered.store.usage_correct(&id, hour, (Meter::Awake, "micro"), difference, why);
    assert!(correct(-5, "the machine stood still").await.unwrap());
    assert!(correct(2, "not so long").await.unwrap());
    assert!(
        !metered
            .store
            .usage_correct(&id, hour + TimeDelta::hours(5), (Meter::Awake, "micro"), 1, "x")
            .await
            .unwrap()
    );
    let sealed = "select sum(quantity)::bigint from usage_hours where meter = 'awake' and hour = '2026-03-01T12:00:00Z'";
    assert_eq!(metered.number(sealed).await, 3_600_000_000 - 3);
    let changed = sqlx::raw_sql("update usage_hours set quantity = 0").execute(&mut metered.sql).await;
    assert!(changed.unwrap_err().to_string().contains("corrected by a new row"));
}

#[tokio::test]
async fn time_without_a_control_plane_and_leaps_of_the_clock_cost_nothing() {
    let mut metered = Metered::new().await;
    metered.make(&branch_id(1)).await;
    metered.meter(4).await;
    metered.pass(TimeDelta::hours(7)).await;
    metered.meter(4).await;
    let turn = take_turn(&metered.store, None).await;
    // The clock leaps by years, and is put right.
    metered.pass(TimeDelta::days(3000)).await;
    let last = LastTurn { at: turn.now, ago: Duration::from_secs(30) };
    let leapt = take_turn(&metered.store, Some(last)).await;
    assert_eq!(leapt.witness, Witness::Resumes { until: turn.now + TimeDelta::seconds(30) });
    while metered.store.usage_seal().await.unwrap().is_some() {}
    let last = LastTurn { at: leapt.now, ago: Duration::from_secs(60) };
    metered.set_clock(turn.now + TimeDelta::seconds(90)).await;
    assert_eq!(take_turn(&metered.store, Some(last)).await.witness, Witness::TurnsBack);
    metered.meter(1).await;
    metered.run("update branches set goal = 'hibernated'").await;
    metered.meter(150).await;
    // Before the pause, between it and the leap, until the leap was noticed, and after it.
    let expected = 4 * 60 + 5 * 60 + 30 + 2 * 60;
    assert_eq!(metered.total(Meter::Awake, "micro").await, expected * SECOND);
    let sealed = metered.number("select count(*) from usage_sealed").await;
    assert!(sealed < 10, "hours in which nobody was there are passed over, not sealed: {sealed}");
}

#[tokio::test]
async fn what_others_were_told_is_forgotten_after_400_days_and_its_hours_stay_as_they_were() {
    let mut metered = Metered::new().await;
    metered
        .run(
            "insert into marketplace_subscriptions (license_id, license_arn, account_id) values ('l-1', 'arn:l-1', '1');
             insert into marketplace_records (license_id, dimension, hour, quantity, due_at, told_at)
                 select 'l-1', 'd', date_trunc('hour', now()) - make_interval(days => days), 1, null, now()
                 from unnest(array[401, 399]) days;
             insert into orb_usage (branch_id, hour, meter, instance_type, correction, quantity, organization_id, project_id)
                 select 'b', date_trunc('hour', now()) - make_interval(days => days), 'asleep', '', 0, 1, 'o', 'p'
                 from unnest(array[401, 399]) days",
        )
        .await;
    assert_eq!(metered.store.usage_purge_billed().await.unwrap(), 1, "one was never told");
    assert_eq!(metered.number("select count(*) from marketplace_records").await, 1);
    assert_eq!(metered.number("select count(*) from orb_usage").await, 1);
    let mut tx = metered.store.begin().await.unwrap();
    for (days, is_known) in [(401, true), (399, true), (398, false)] {
        let hour = (metered.now - TimeDelta::days(days)).duration_trunc(TimeDelta::hours(1)).unwrap();
        let known = metered.store.record_exists_in_tx(&mut tx, "l-1", "d", hour).await.unwrap();
        assert_eq!(known, is_known, "{days} days ago");
    }
}

#[tokio::test]
async fn time_that_a_turn_waits_for_counts_as_any_other() {
    let mut metered = Metered::new().await;
    let (began, waited) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let first = metered.store.usage_turn(None, || began).await.unwrap();
    let mut holder = metered.other.begin().await.unwrap();
    sqlx::raw_sql("select from usage_meter for update").execute(&mut *holder).await.unwrap();
    metered.pass(TimeDelta::seconds(60)).await;
    let (store, has_waited) = (metered.store.clone(), waited.clone());
    let turn = tokio::spawn(async move {
        let passed = || Duration::from_secs(if has_waited.load(Ordering::Relaxed) { 100 } else { 60 });
        store.usage_turn(Some((first.now, first.seen)), || began + passed()).await.unwrap()
    });
    let waits = "select count(*) from pg_locks where not granted and pid in
         (select pid from pg_stat_activity where datname = current_database())";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while metered.number(waits).await == 0 {
        assert!(tokio::time::Instant::now() < deadline && !turn.is_finished(), "it does not wait");
        tokio::task::yield_now().await;
    }
    metered.pass(TimeDelta::seconds(40)).await;
    waited.store(true, Ordering::Relaxed);
    holder.commit().await.unwrap();
    let turn = turn.await.unwrap();
    assert_eq!(
        (turn.now - first.now, turn.seen - began),
        (TimeDelta::seconds(100), Duration::from_secs(100))
    );
    assert_eq!(turn.witness, Witness::GoesOn);
}

//! Metering, held against PostgreSQL's arithmetic of ranges.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::usage::{LastTurn, Meter, Witness};
use coppice_core::{BranchId, OrganizationId};
use coppice_store::{Store, StoredBytes, UsageGrouping, UsageQuery, UsageReading, UsageRow};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::postgres::Postgres;
use crate::{connect, with_rows};

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
        let options = server.database().await;
        let (_, mut sql) = connect(&options).await;
        sqlx::raw_sql(
            "create schema test; create table test.clock (at timestamptz);
             insert into test.clock values ('2026-03-01T11:58:00Z');
             create function public.now() returns timestamptz language sql stable
                 as $$ select at from test.clock $$;
             do $$ begin
                 execute format('alter database %I set search_path = public, pg_catalog', current_database());
             end $$",
        )
        .execute(&mut sql)
        .await
        .unwrap();
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
            let turn = self.store.usage_turn(last).await.unwrap();
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

pub(crate) fn branch_id(number: usize) -> String {
    format!("b{number:025}")
}

const SECOND: i128 = 1_000_000;

#[tokio::test]
async fn a_branch_counts_by_what_it_was_to_be_and_is_known_after_its_end() {
    let mut metered = Metered::new().await;
    let id = branch_id(1);
    metered.store.usage_turn(None).await.unwrap();
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
    metered.store.usage_turn(None).await.unwrap();
    metered.make(&branch_id(1)).await;
    for second in 0..120 {
        let kind = if second % 2 == 0 { "micro" } else { "small" };
        metered.run(&format!("update branches set instance_type = '{kind}'")).await;
        metered.run("update branches set goal = 'hibernated'; update branches set goal = 'running'").await;
        metered.pass(TimeDelta::milliseconds(600)).await;
        metered.run("update branches set goal = 'hibernated'").await;
        metered.pass(TimeDelta::milliseconds(400)).await;
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
    metered.store.usage_turn(None).await.unwrap();
    assert_eq!(metered.total(Meter::Awake, "micro").await, 36 * SECOND + 1000);
    assert_eq!(metered.total(Meter::Awake, "small").await, 36 * SECOND);
    assert_eq!(metered.total(Meter::Asleep, "").await, 48 * SECOND + 1000, "one in the trash sleeps");
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
    let turn = metered.store.usage_turn(None).await.unwrap();
    // The clock leaps by years, and is put right.
    metered.pass(TimeDelta::days(3000)).await;
    let last = LastTurn { at: turn.now, ago: Duration::from_secs(30) };
    let leapt = metered.store.usage_turn(Some(last)).await.unwrap();
    assert_eq!(leapt.witness, Witness::Resumes { until: turn.now + TimeDelta::seconds(30) });
    while metered.store.usage_seal().await.unwrap().is_some() {}
    let last = LastTurn { at: leapt.now, ago: Duration::from_secs(60) };
    metered.set_clock(turn.now + TimeDelta::seconds(90)).await;
    assert_eq!(metered.store.usage_turn(Some(last)).await.unwrap().witness, Witness::TurnsBack);
    metered.meter(1).await;
    metered.run("update branches set goal = 'hibernated'").await;
    metered.meter(150).await;
    // Before the pause, between it and the leap, until the leap was noticed, and after it.
    let expected = 4 * 60 + 5 * 60 + 30 + 2 * 60;
    assert_eq!(metered.total(Meter::Awake, "micro").await, expected * SECOND);
    let sealed = metered.number("select count(*) from usage_sealed").await;
    assert!(sealed < 10, "hours in which nobody was there are passed over, not sealed: {sealed}");
}

/// A history as a seed decides it, held against ranges at every seal.
struct History {
    metered: Metered,
    seed: u64,
    /// What branches were to be: with the time from which on, and the time until.
    log: Vec<Segment>,
    living: Vec<usize>,
    made: usize,
    /// The last turns of two control planes, and how much time has passed since
    /// by a clock that nobody sets.
    last: [Option<LastTurn>; 2],
    /// What was expected of hours when they were sealed.
    sealed: BTreeMap<DateTime<Utc>, Vec<Expected>>,
}

#[derive(Clone, Debug)]
struct Segment {
    branch: String,
    began_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    what: String,
    amount: i64,
}

type Expected = (String, String, String);

impl History {
    fn roll(&mut self, sides: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % sides
    }

    fn end(&mut self, branch: &str, kind: &str) {
        let now = self.metered.now;
        for segment in &mut self.log {
            if segment.branch == branch && segment.ended_at.is_none() && segment.what.starts_with(kind) {
                segment.ended_at = Some(now);
            }
        }
    }

    fn begin(&mut self, branch: &str, what: String, amount: i64) {
        let (branch, began_at) = (branch.to_owned(), self.metered.now);
        self.log.push(Segment { branch, began_at, ended_at: None, what, amount });
    }

    async fn pass(&mut self) {
        let micros = match self.roll(4) {
            0 => self.roll(2_000_000),
            1 => self.roll(60_000_000),
            _ => self.roll(140_000_000),
        };
        self.metered.pass(TimeDelta::microseconds(micros as i64)).await;
        for last in self.last.iter_mut().flatten() {
            last.ago += Duration::from_micros(micros);
        }
    }

    async fn turn(&mut self, plane: usize) {
        let store = if plane == 0 { &self.metered.store } else { &self.metered.other };
        let turn = store.usage_turn(self.last[plane]).await.unwrap();
        self.last[plane] = Some(LastTurn { at: turn.now, ago: Duration::ZERO });
        if turn.witness == Witness::TurnsBack {
            let now = self.metered.now;
            self.log.retain(|segment| segment.ended_at.is_none() || segment.began_at < now);
            for segment in &mut self.log {
                segment.began_at = segment.began_at.min(now);
                segment.ended_at = segment.ended_at.map(|at| at.min(now));
            }
        }
    }

    async fn change(&mut self) {
        let place = self.roll(self.living.len().max(1) as u64) as usize;
        let branch = self.living.get(place).copied();
        match (branch, self.roll(10)) {
            (None, _) | (_, 0) => {
                self.made += 1;
                let id = branch_id(self.made);
                self.metered.make(&id).await;
                self.begin(&id, "awake micro".to_owned(), 1);
                self.living.push(self.made);
            }
            (Some(number), 1) => {
                let id = branch_id(number);
                self.metered
                    .run(&format!(
                        "update branches set goal = 'deleted', deleted_at = now() where id = '{id}'"
                    ))
                    .await;
                self.end(&id, "");
                self.living.retain(|living| *living != number);
            }
            (Some(number), 2..=4) => {
                let (id, mib) = (BranchId::from_trusted(branch_id(number)), self.roll(50));
                let (bytes, shared) = (mib << 20, self.roll(mib + 1) << 20);
                let reading = UsageReading {
                    branch: id.clone(),
                    stored: Some(StoredBytes { total: bytes, shared }),
                    egress_bytes: 0,
                };
                self.metered.store.usage_note(&[reading]).await.unwrap();
                self.end(id.as_str(), "s");
                self.begin(id.as_str(), "storage ".to_owned(), (bytes - shared) as i64);
                self.begin(id.as_str(), "shared ".to_owned(), shared as i64);
            }
            (Some(number), 5..=6) => {
                let id = branch_id(number);
                self.metered.run(&format!("update branches set goal = 'hibernated' where id = '{id}'")).await;
                self.end(&id, "a");
                self.begin(&id, "asleep ".to_owned(), 1);
            }
            (Some(number), _) => {
                let (id, kind, replicas) =
                    (branch_id(number), ["micro", "2xlarge"][self.roll(2) as usize], self.roll(5));
                self.metered
                    .run(&format!(
                        "update branches set goal = 'running', instance_type = '{kind}', replicas = {replicas}
                         where id = '{id}'"
                    ))
                    .await;
                self.end(&id, "a");
                self.begin(&id, format!("awake {kind}"), replicas as i64 + 1);
            }
        }
    }

    /// Makes many at once.
    async fn make_many(&mut self, count: usize) {
        let numbers: Vec<_> = (1..=count).map(|number| self.made + number).collect();
        let ids: Vec<_> = numbers.iter().map(|number| branch_id(*number)).collect();
        self.metered.make_many(&ids).await;
        for id in &ids {
            self.begin(id, "awake micro".to_owned(), 1);
        }
        self.living.extend(numbers);
        self.made += count;
    }

    /// Has one in ten sleep, by one statement.
    async fn change_many(&mut self) {
        let digit = self.roll(10) as usize;
        self.metered
            .run(&format!(
                "update branches set goal = 'hibernated' where right(id, 1) = '{digit}' and goal <> 'deleted'"
            ))
            .await;
        for number in self.living.clone().into_iter().filter(|number| number % 10 == digit) {
            let id = branch_id(number);
            self.end(&id, "a");
            self.begin(&id, "asleep ".to_owned(), 1);
        }
    }

    /// What was used in an hour, by ranges.
    async fn by_ranges(&mut self, hour: DateTime<Utc>) -> Vec<Expected> {
        let column = |of: fn(&Segment) -> String| self.log.iter().map(of).collect::<Vec<_>>();
        let (branches, what) = (column(|one| one.branch.clone()), column(|one| one.what.clone()));
        let began: Vec<_> = self.log.iter().map(|one| one.began_at).collect();
        let ended: Vec<_> = self.log.iter().map(|one| one.ended_at).collect();
        let amounts: Vec<_> = self.log.iter().map(|one| one.amount).collect();
        sqlx::query_as(
            "with counted as (select range_agg(tstzrange(began_at, until)) as times from usage_witnessed),
             parts as (
                 select l.branch, l.what, l.amount,
                        unnest(tstzmultirange(tstzrange(l.began_at, l.ended_at)) * c.times
                               * tstzmultirange(tstzrange($6, $6 + interval '1 hour'))) as part
                 from unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[])
                      as l (branch, what, began_at, ended_at, amount), counted c)
             select branch, what, round(sum(amount * extract(epoch from upper(part) - lower(part)) * 1000000))::text
             from parts group by branch, what having sum(amount * extract(epoch from upper(part) - lower(part))) > 0
             order by branch, what",
        )
        .bind(branches)
        .bind(what)
        .bind(began)
        .bind(ended)
        .bind(amounts)
        .bind(hour)
        .fetch_all(&mut self.metered.sql)
        .await
        .unwrap()
    }

    /// Both control planes seal, and one of them dies in the middle of it.
    async fn seal(&mut self) {
        let abandoned = Duration::from_micros(self.roll(3000));
        let (one, other) = (self.metered.store.clone(), self.metered.other.clone());
        let dies = async { tokio::time::timeout(abandoned, one.usage_seal()).await.map(drop) };
        let (_, sealed) = tokio::join!(dies, other.usage_seal());
        sealed.unwrap();
        let hours: Vec<DateTime<Utc>> = sqlx::query_scalar("select hour from usage_sealed")
            .fetch_all(&mut self.metered.sql)
            .await
            .unwrap();
        for hour in hours {
            if !self.sealed.contains_key(&hour) {
                let expected = self.by_ranges(hour).await;
                self.sealed.insert(hour, expected);
            }
        }
    }

    async fn check(&mut self, seed: u64) {
        let rows: Vec<(DateTime<Utc>, String, String, String)> = sqlx::query_as(
            "select hour, branch_id, meter || ' ' || instance_type, quantity::text from usage_hours order by 1, 2, 3",
        )
        .fetch_all(&mut self.metered.sql)
        .await
        .unwrap();
        let mut found = BTreeMap::<DateTime<Utc>, Vec<Expected>>::new();
        for (hour, branch, what, quantity) in rows {
            found.entry(hour).or_default().push((branch, what, quantity));
        }
        let expected: BTreeMap<_, _> = self.sealed.iter().filter(|(_, rows)| !rows.is_empty()).collect();
        assert_eq!(found.iter().collect::<BTreeMap<_, _>>(), expected, "seed {seed}");
        let overlapping = "select count(*) from usage_periods a join usage_periods b using (branch_id)
             where a.began_at < b.began_at and coalesce(a.ended_at, 'infinity') > b.began_at";
        assert_eq!(self.metered.number(overlapping).await, 0, "seed {seed}");
        let overlapping = overlapping.replace("usage_periods", "usage_storage");
        assert_eq!(self.metered.number(&overlapping).await, 0, "seed {seed}");
    }
}

impl History {
    /// Days are what their hours are, and budgets count what is reported.
    async fn check_budgets(&mut self, seed: u64) {
        let days =
            "select count(*) from (select branch_id, day, meter, instance_type, quantity from usage_days
             except all select branch_id, date_trunc('day', hour, 'UTC'), meter, instance_type, sum(quantity)
             from usage_hours group by 1, 2, 3, 4) x";
        assert_eq!(self.metered.number(days).await, 0, "seed {seed}");
        self.metered
            .run(
                "insert into budgets (subject_id, organization_id, covers, project_id, limit_amount, unit)
                 values ('o', 'o', 'organization', null, 1, 'EUR'), ('p', 'o', 'project', 'p', 1, 'EUR')",
            )
            .await;
        let month = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let (from, to) = (month("2026-03-01T00:00:00Z"), month("2026-04-01T00:00:00Z"));
        let organization = OrganizationId::from_trusted("o");
        let parts = self.metered.store.budget_parts(&organization, (from, to), &[from]).await.unwrap();
        let counted = |subject: &str| {
            let of_it = parts.iter().filter(|part| part.subject == subject);
            of_it
                .map(|part| ((part.meter, part.instance_type.clone()), part.quantity.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        let rows = self.metered.report(UsageGrouping::default()).await.into_iter();
        let reported: BTreeMap<_, _> =
            rows.map(|row| ((row.meter, row.instance_type), row.quantity)).collect();
        assert_eq!(counted("o"), reported, "seed {seed}");
        assert_eq!(counted("p"), reported, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_hours_are_what_ranges_say_of_any_history() {
    let mut sealed_rows = 0;
    // In the last one there are thousands.
    for (seed, crowd, steps) in [(1, 0, 200), (2, 0, 200), (3, 0, 200), (4, 3000, 120)] {
        let metered = Metered::new().await;
        let sealed = BTreeMap::new();
        let (log, living) = (vec![], vec![]);
        let mut history =
            History { metered, seed: seed * 0x9E37_79B9, log, living, made: 0, last: [None; 2], sealed };
        if crowd > 0 {
            history.make_many(crowd).await;
        }
        for _ in 0..steps {
            history.pass().await;
            match history.roll(100) {
                0 => history.last = [None; 2],
                1 => {
                    let step = history.roll(9000) as i64 - 5000;
                    // Whoever notices sets things right, before anything else happens here.
                    history.turn(0).await;
                    history.metered.pass(TimeDelta::seconds(if step.abs() < 15 { 0 } else { step })).await;
                    history.turn(0).await;
                }
                2..=5 if crowd > 0 => history.change_many().await,
                2..=39 => history.change().await,
                40..=69 => history.turn(0).await,
                _ => history.turn(1).await,
            }
            history.seal().await;
        }
        history.check(seed).await;
        history.check_budgets(seed).await;
        sealed_rows += history.sealed.values().map(Vec::len).sum::<usize>();
        let open = history.metered.now.duration_trunc(TimeDelta::hours(1)).unwrap();
        let is_open = !history.sealed.contains_key(&open);
        let reported: i128 = {
            let rows = history.metered.report(UsageGrouping::default()).await;
            rows.iter().map(|row| row.quantity.parse::<i128>().unwrap()).sum()
        };
        let mut expected: i128 = 0;
        let mut hour = history.metered.store.usage_sealed_until().await.unwrap();
        while hour <= open && is_open {
            if !history.sealed.contains_key(&hour) {
                expected += sum(&history.by_ranges(hour).await);
            }
            hour += TimeDelta::hours(1);
        }
        expected += history.sealed.values().map(|rows| sum(rows)).sum::<i128>();
        assert!(!is_open || reported == expected, "seed {seed}: {reported} is not {expected}");
    }
    assert!(sealed_rows > 3000, "only {sealed_rows} rows were sealed");
}

fn sum(rows: &[Expected]) -> i128 {
    rows.iter().map(|(.., quantity)| quantity.parse::<i128>().unwrap()).sum()
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

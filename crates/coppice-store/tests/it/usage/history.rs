//! Random histories, held against PostgreSQL's arithmetic of ranges.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::usage::{LastTurn, Witness};
use coppice_core::{BranchId, OrganizationId};
use coppice_store::{StoredBytes, UsageGrouping, UsageReading};

use super::{Metered, branch_id, take_turn};

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
        let turn = take_turn(store, self.last[plane]).await;
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

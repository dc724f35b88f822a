//! What was measured, from its first sample to its end.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::{BranchId, InstanceId};
use coppice_store::{Store, TakenSample};
use coppice_telemetry::metrics::{Aggregation, Bucket, Level, Metric, Plan, Sample, points};
use sqlx::PgConnection;

use crate::postgres::Postgres;
use crate::with_rows;

const BRANCH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";
const LEVELS: [&str; 3] = ["metric_samples", "metric_quarters", "metric_hours"];

/// A whole hour that is not now, so that nothing is right by chance.
fn noon() -> DateTime<Utc> {
    "2031-05-04T12:00:00Z".parse().unwrap()
}

/// A store in which everything until `now` is merged.
async fn at(server: &Postgres, now: DateTime<Utc>) -> (Store, PgConnection) {
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::query("update metric_progress set quarters = $1, hours = $1")
        .bind(now)
        .execute(&mut sql)
        .await
        .unwrap();
    store.metric_make_room(now).await.unwrap();
    (store, sql)
}

fn taken(at: DateTime<Utc>, cpu: Option<f64>, disk: Option<f64>) -> TakenSample {
    let mut sample = Sample::default();
    sample.0[Metric::Cpu.index()] = cpu;
    sample.0[Metric::Disk.index()] = disk;
    TakenSample { instance: InstanceId::from_trusted("i"), at, sample }
}

async fn merge_all(store: &Store, now: DateTime<Utc>) {
    while !store.metric_merge(now).await.unwrap() {}
}

async fn count(sql: &mut PgConnection, from: &str) -> i64 {
    let query = format!("select count(*) from {from}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(sql).await.unwrap()
}

async fn partitions(sql: &mut PgConnection, table: &str) -> Vec<String> {
    let query =
        "select inhrelid::regclass::text from pg_inherits where inhparent = $1::text::regclass order by 1";
    sqlx::query_scalar(query).bind(table).fetch_all(sql).await.unwrap()
}

async fn read(store: &Store, start: DateTime<Utc>, end: DateTime<Utc>, now: DateTime<Utc>) -> Vec<Bucket> {
    let history = store.metric_history(&BranchId::from_trusted(BRANCH)).await.unwrap();
    let plan = Plan::new(start, end, now, &history.progress);
    let series: Vec<_> = history.series.iter().map(|(id, _)| *id).collect();
    let mut buckets = vec![];
    for piece in &plan.pieces {
        buckets
            .extend(store.metric_read(&series, piece).await.unwrap().into_iter().map(|(_, bucket)| bucket));
    }
    plan.steps(buckets)
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_samples_answer_as_the_samples_did() {
    let server = Postgres::shared();
    let (store, mut sql) = at(&server, noon()).await;
    // Two hours and a half, a hole in them, and a metric that is not always there.
    let samples: Vec<_> = (0..600)
        .filter(|number| !(200..300).contains(number))
        .map(|number| {
            let value = (number * 7919 % 1000) as f64 / 8.0;
            taken(
                noon() + TimeDelta::seconds(number * 15),
                Some(value),
                (number % 3 == 0).then_some(1e9 + value),
            )
        })
        .collect();
    store.metric_add(&samples).await.unwrap();
    store.metric_add(&samples[..10]).await.unwrap();
    assert_eq!(count(&mut sql, "metric_samples").await, 500, "written twice is written once");

    let end = noon() + TimeDelta::minutes(150) - TimeDelta::seconds(1);
    let start = noon() - TimeDelta::days(2);
    let unmerged = read(&store, start, end, end).await;
    let later = end + TimeDelta::minutes(40);
    merge_all(&store, later).await;
    assert_eq!(count(&mut sql, "metric_hours").await, 3);
    let merged = read(&store, start, end, later).await;
    assert_eq!(
        merged.iter().map(|step| step.at).collect::<Vec<_>>(),
        unmerged.iter().map(|step| step.at).collect::<Vec<_>>()
    );
    for metric in [Metric::Cpu, Metric::Disk, Metric::Memory] {
        for aggregation in [Aggregation::Min, Aggregation::Max] {
            assert_eq!(points(&merged, metric, aggregation), points(&unmerged, metric, aggregation));
        }
        let means = [&merged, &unmerged].map(|steps| points(steps, metric, Aggregation::Avg));
        for (one, other) in means[0].iter().zip(&means[1]) {
            assert!((one.value - other.value).abs() <= other.value.abs() * 1e-5, "{one:?} {other:?}");
        }
    }
    // What is merged is merged once, and what comes too late is left out.
    merge_all(&store, later).await;
    store.metric_add(&[taken(noon() + TimeDelta::seconds(1), Some(0.0), None)]).await.unwrap();
    assert_eq!(count(&mut sql, "metric_samples").await, 500);
    let hours = read(&store, noon() - TimeDelta::days(10), end, later).await;
    let counts: u32 =
        hours.iter().filter_map(|step| step.values[Metric::Cpu.index()]).map(|merged| merged.count).sum();
    assert_eq!((hours.len(), counts), (3, 500));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_that_is_not_over_is_answered_from_what_there_is() {
    const BYTES: f64 = 123_456_789_013.0;
    let server = Postgres::shared();
    let (store, _) = at(&server, noon()).await;
    let samples: Vec<_> = (0..35)
        .map(|minute| taken(noon() + TimeDelta::minutes(minute), Some(minute as f64), Some(BYTES)))
        .collect();
    store.metric_add(&samples).await.unwrap();
    let now = noon() + TimeDelta::minutes(35);
    store.metric_merge(now).await.unwrap();
    let steps = read(&store, noon() - TimeDelta::days(20), now, now).await;
    let max = points(&steps, Metric::Cpu, Aggregation::Max);
    let avg = points(&steps, Metric::Cpu, Aggregation::Avg);
    assert_eq!(max.iter().map(|point| (point.at, point.value)).collect::<Vec<_>>(), [(noon(), 34.0)]);
    assert_eq!(avg[0].value, 17.0);
    for aggregation in [Aggregation::Min, Aggregation::Avg, Aggregation::Max] {
        assert_eq!(points(&steps, Metric::Disk, aggregation)[0].value, BYTES, "with all its digits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_made_ahead_and_dropped_when_they_are_too_old() {
    let server = Postgres::shared();
    let (store, mut sql) = at(&server, noon()).await;
    let days = ["20310504", "20310505", "20310506"].map(|day| format!("metric_samples_{day}"));
    assert_eq!(partitions(&mut sql, "metric_samples").await, days);
    store.metric_make_room(noon()).await.unwrap();
    assert_eq!(partitions(&mut sql, "metric_samples").await, days, "nothing is made twice");
    for hour in (0..72).step_by(4) {
        let time = noon() + TimeDelta::hours(hour);
        store.metric_make_room(time).await.unwrap();
        store.metric_add(&[taken(time, Some(1.0), None)]).await.unwrap();
        store.metric_drop_old(time).await.unwrap();
    }
    let kept = noon() + TimeDelta::hours(72);
    store.metric_drop_old(kept).await.unwrap();
    assert_eq!(count(&mut sql, "metric_samples").await, 18, "what is not merged is not dropped");
    merge_all(&store, kept).await;
    store.metric_drop_old(kept).await.unwrap();
    // Noon of the 7th: what was before noon of the 5th may go, whole days do.
    assert_eq!(partitions(&mut sql, "metric_samples").await[0], "metric_samples_20310505");
    assert_eq!(count(&mut sql, "metric_samples").await, 15);
    let steps = read(&store, noon(), kept, kept).await;
    let counted: u32 = steps.iter().filter_map(|step| step.values[0]).map(|merged| merged.count).sum();
    assert_eq!(counted, 18, "its history goes on");

    for level in Level::ALL {
        let end = kept + level.retention() + level.partition() * 2;
        store.metric_make_room(end).await.unwrap();
        merge_all(&store, end).await;
        store.metric_drop_old(end).await.unwrap();
    }
    for table in LEVELS {
        assert_eq!(count(&mut sql, table).await, 0, "{table}");
        let left = partitions(&mut sql, table).await.len();
        assert!(left < 16, "{table} has {left} partitions");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_long_rest_everything_that_is_left_is_merged() {
    let server = Postgres::shared();
    let (store, mut sql) = at(&server, noon()).await;
    let samples: Vec<_> =
        (0..4).map(|number| taken(noon() + TimeDelta::minutes(number), Some(3.0), None)).collect();
    store.metric_add(&samples).await.unwrap();
    let weeks_later = noon() + TimeDelta::days(80);
    store.metric_make_room(weeks_later).await.unwrap();
    store.metric_add(&[taken(weeks_later, Some(5.0), None)]).await.unwrap();
    merge_all(&store, weeks_later).await;
    store.metric_drop_old(weeks_later).await.unwrap();
    assert_eq!(count(&mut sql, "metric_samples").await, 1, "only the new one");
    // Resting for a day loses nothing.
    let next = weeks_later + TimeDelta::days(1);
    store.metric_make_room(next).await.unwrap();
    merge_all(&store, next).await;
    assert_eq!(count(&mut sql, "metric_hours where maxs[1] = 5").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_clock_was_ahead_samples_are_taken_again() {
    let server = Postgres::shared();
    let (store, mut sql) = at(&server, noon()).await;
    store.metric_make_room(noon() + TimeDelta::days(2)).await.unwrap();
    merge_all(&store, noon() + TimeDelta::days(2)).await;
    let sample = [taken(noon() + TimeDelta::minutes(1), Some(1.0), None)];
    store.metric_add(&sample).await.unwrap();
    assert_eq!(count(&mut sql, "metric_samples").await, 0, "its time is merged");
    merge_all(&store, noon() + TimeDelta::minutes(1)).await;
    store.metric_add(&sample).await.unwrap();
    assert_eq!(count(&mut sql, "metric_samples").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_measured_goes_with_its_branch() {
    let server = Postgres::shared();
    let (store, mut sql) = at(&server, noon()).await;
    let samples: Vec<_> =
        (0..90).map(|minute| taken(noon() + TimeDelta::minutes(minute), Some(1.0), None)).collect();
    store.metric_add(&samples).await.unwrap();
    merge_all(&store, noon() + TimeDelta::minutes(90)).await;
    store.metric_forget().await.unwrap();
    for table in LEVELS {
        assert!(count(&mut sql, table).await > 0, "{table}");
    }
    sqlx::query("update branches set goal = 'deleted', deleted_at = now()").execute(&mut sql).await.unwrap();
    assert!(store.metric_forget().await.unwrap());
    // A look that began before.
    store.metric_add(&[taken(noon() + TimeDelta::minutes(91), Some(1.0), None)]).await.unwrap();
    for table in LEVELS.into_iter().chain(["metric_series"]) {
        assert_eq!(count(&mut sql, table).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_control_planes_look_after_the_same_history() {
    let server = Postgres::shared();
    let (store, mut sql) = at(&server, noon()).await;
    let samples: Vec<_> =
        (0..240).map(|number| taken(noon() + TimeDelta::seconds(number * 15), Some(2.0), None)).collect();
    store.metric_add(&samples).await.unwrap();
    let now = noon() + TimeDelta::hours(30);
    let work = async || {
        store.metric_make_room(now).await.unwrap();
        merge_all(&store, now).await;
        store.metric_drop_old(now).await.unwrap();
    };
    tokio::join!(work(), work(), work());
    assert_eq!(count(&mut sql, "metric_hours").await, 1);
    assert_eq!(count(&mut sql, "metric_hours where counts[1] = 240 and sums[1] = 480").await, 1);
}

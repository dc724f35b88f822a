//! When bases of branches are made, and for how long they are kept.

use std::time::Duration;

use chrono::{Datelike as _, TimeDelta, Timelike as _, Utc};
use coppice_core::backup::{DrillReport, DrillResult};
use coppice_core::lsn::Lsn;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, VolumeId};
use coppice_store::{BaseRow, Room};
use serde_json::json;
use sqlx::{Executor as _, PgConnection};

use crate::postgres::Postgres;
use crate::with_rows;

const BASE: &str =
    "insert into bases (name, volume_id, branch_id, taken_at, seen_at, bytes, new_bytes, log_end)
    values ($1, 'v', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', now() - $2::interval, now() - $2::interval, 1, 1, '0/1')";

async fn base(sql: &mut PgConnection, name: &str, age: &str) {
    sqlx::query(BASE).bind(name).bind(age).execute(sql).await.unwrap();
}

/// Backs the branch up at the time that was so long ago; on every day, or on that
/// day of the week.
async fn back_up_at(sql: &mut PgConnection, ago: TimeDelta, is_weekly: bool) {
    let at = Utc::now() - ago;
    let day = is_weekly.then(|| at.weekday().num_days_from_sunday() as i16);
    sqlx::query("update branches set backup_day = $1, backup_minute = $2")
        .bind(day)
        .bind((at.hour() * 60 + at.minute()) as i16)
        .execute(sql)
        .await
        .unwrap();
}

/// Room for two, one of a holder, beside what is being made.
fn room(busy: &[&str]) -> Room {
    Room { count: 2, each: 1, busy: busy.iter().copied().map(Holder::from_trusted).collect() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_is_noted_once_however_often_it_is() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let (name, volume) = ("one".to_owned(), VolumeId::from_trusted("v"));
    let base = BaseRow { name, volume, taken_at: Utc::now(), bytes: 1, new_bytes: 1, log_end: None };
    for _ in 0..2 {
        store.base_insert(&BranchId::from_trusted("a".repeat(26)), &base, None).await.unwrap();
    }
    let noted: i64 = sqlx::query_scalar("select count(*) from bases").fetch_one(&mut sql).await.unwrap();
    assert_eq!(noted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_is_due_at_the_time_of_its_branch_and_after_a_day() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute("update volumes set state = 'admitted', stored_lsn = '0/1'").await.unwrap();
    let due = async || {
        let due = store.base_due(&HostId::from_trusted("h"), Duration::ZERO, &room(&[]), &[]).await.unwrap();
        due.into_iter().next().map(|due| due.newest.map(|(name, _)| name))
    };
    assert_eq!(due().await, Some(None), "there is none");
    base(&mut sql, "first", "4 hours").await;
    for is_weekly in [false, true] {
        back_up_at(&mut sql, TimeDelta::hours(3), is_weekly).await;
        assert_eq!(due().await, Some(Some("first".to_owned())), "its time was after that");
        back_up_at(&mut sql, TimeDelta::hours(5), is_weekly).await;
        assert_eq!(due().await, None, "it was made since");
        back_up_at(&mut sql, TimeDelta::hours(-1), is_weekly).await;
        assert_eq!(due().await, None, "its time comes");
    }
    sql.execute("update bases set seen_at = now() - interval '25 hours'").await.unwrap();
    assert_eq!(due().await, Some(Some("first".to_owned())), "the log behind it grows long");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_is_made_from_the_newest_base_that_was_complete_by_then() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let volume = VolumeId::from_trusted("v");
    assert_eq!(store.base_span(&volume).await.unwrap(), None);
    for days in [1, 3, 5] {
        base(&mut sql, &format!("{days}d"), &format!("{days} days")).await;
    }
    sql.execute("update bases set complete_at = taken_at + interval '1 hour' where name <> '1d'")
        .await
        .unwrap();
    let before = async |ago: TimeDelta| store.base_before(&volume, Utc::now() - ago).await.unwrap();
    assert_eq!(before(TimeDelta::hours(1)).await.as_deref(), Some("3d"), "of the newest it is not known");
    assert_eq!(before(TimeDelta::minutes(3 * 1440 - 59)).await.as_deref(), Some("5d"), "it was being made");
    assert_eq!(before(TimeDelta::days(5)).await, None);
    let (oldest, newest) = store.base_span(&volume).await.unwrap().unwrap();
    // Those that were made one after the other.
    assert!((newest - oldest - TimeDelta::days(2)).abs() < TimeDelta::minutes(1), "{oldest} {newest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_keeps_bases_for_as_long_as_it_says_and_one_from_before() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    for days in [1, 3, 5, 9] {
        base(&mut sql, &format!("{days}d"), &format!("{days} days")).await;
    }
    let surplus = async || {
        let mut names = store.base_surplus().await.unwrap();
        names.sort_unstable();
        names
    };
    assert_eq!(surplus().await, [""; 0], "what was only found in the store takes nobody's place");
    sql.execute("update bases set complete_at = taken_at").await.unwrap();
    assert_eq!(surplus().await, ["5d", "9d"], "of two days; what is older begins with the base before");
    sql.execute("update bases set damage = 'rot' where name = '3d'").await.unwrap();
    assert_eq!(surplus().await, ["9d"], "nor does what is damaged");
    sql.execute("update bases set damage = ''").await.unwrap();
    sql.execute("update branches set backup_retention_days = 4").await.unwrap();
    assert_eq!(surplus().await, ["9d"]);
    let planned = "insert into volumes (id, host_id, branch_id, state, base, account, image_major, image_minor)
        select 'made', host_id, branch_id, 'planned', '9d', account + 1, image_major, image_minor from volumes";
    sql.execute(planned).await.unwrap();
    assert_eq!(surplus().await, [""; 0], "a volume is still to be made from it");
    sql.execute("update volumes set state = 'present' where id = 'made'").await.unwrap();
    assert_eq!(surplus().await, ["9d"]);
    sql.execute("update branches set backup_retention_days = 35").await.unwrap();
    assert_eq!(surplus().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bases_of_what_a_branch_was_go_some_days_after_its_version() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute(
        "insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
         select 'former', host_id, branch_id, 'admitted', account + 1, image_major, image_minor from volumes where id = 'v'",
    )
    .await
    .unwrap();
    sql.execute(
        "insert into branch_versions
         select 'former', id, now() - interval '9 days', now(), 'reset', now() from branches",
    )
    .await
    .unwrap();
    base(&mut sql, "now", "9 days").await;
    base(&mut sql, "then", "9 days").await;
    base(&mut sql, "late", "1 day").await;
    sql.execute("update bases set volume_id = 'former' where name <> 'now'").await.unwrap();
    let surplus = async || store.base_surplus().await.unwrap();
    assert_eq!(surplus().await, [""; 0], "a version has what it had");
    sql.execute("delete from branch_versions").await.unwrap();
    assert_eq!(surplus().await, ["then"], "the newest of a branch stays, and what is young");
    sql.execute("update bases set seen_at = now() where name = 'then'").await.unwrap();
    assert_eq!(surplus().await, [""; 0], "it slept until then");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_is_due_of_the_branch_whose_last_one_is_longest_ago_and_of_one_that_is_waited_for() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute("update volumes set state = 'admitted'").await.unwrap();
    let branch = BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa");
    let (host, week) = (HostId::from_trusted("h"), Duration::from_secs(7 * 86_400));
    let due = async |every| {
        let due = store.drill_due(&host, every).await.unwrap();
        due.map(|due| (due.base, due.is_wanted))
    };
    let old = "update branches set created_at = now() - interval '25 hours'";
    sql.execute(old).await.unwrap();
    assert_eq!(due(Some(week)).await, None, "there is no base");
    assert_eq!(store.drill_want(&branch).await.unwrap(), None);
    base(&mut sql, "first", "2 hours").await;
    base(&mut sql, "second", "1 hour").await;
    assert_eq!(due(Some(week)).await, Some(("second".to_owned(), false)), "the newest one");
    assert_eq!(due(None).await, None, "none is held by itself");
    sql.execute("update branches set created_at = now()").await.unwrap();
    assert_eq!(due(Some(week)).await, None, "it may be gone soon");
    assert!(store.drill_want(&branch).await.unwrap().is_some());
    assert_eq!(due(None).await, Some(("second".to_owned(), true)));
    sql.execute(old).await.unwrap();
    for (result, again, message) in [
        (DrillResult::Passed, "7 days", "good"),
        (DrillResult::Failed, "1 day", "bad"),
        (DrillResult::Skipped, "1 day", "full"),
    ] {
        let report = DrillReport::new(result, message);
        store.drill_note(&branch, "second", Utc::now(), &report).await.unwrap();
        let known = store.drill_list(std::slice::from_ref(&branch)).await.unwrap().remove(0).1;
        assert_eq!(known.last.unwrap().1, report);
        assert!(known.verified_at.is_some(), "it once was");
        assert_eq!(store.drill_failure(&host).await.unwrap().is_some(), result == DrillResult::Failed);
        assert_eq!(due(Some(week)).await, None, "it was held just now");
        let earlier = format!("update drills set wanted_at = null, ended_at = now() - interval '{again}'");
        sql.execute(sqlx::AssertSqlSafe(earlier)).await.unwrap();
        assert!(due(Some(week)).await.is_some(), "{again}");
    }
}

/// What makes a branch beside the first one, with a base of its volume's name.
fn another(id: &BranchId, project: &str, volume: &str, account: u32) -> String {
    let branch = json!({ "id": id.as_str(), "project_id": project, "name": volume, "volume_id": volume });
    let row = json!({ "id": volume, "branch_id": id.as_str(), "account": account });
    format!(
        "insert into branches select r.* from branches b, json_populate_record(b, '{branch}') r
             where b.volume_id = 'v';
         insert into volumes select r.* from volumes v, json_populate_record(v, '{row}') r where v.id = 'v';
         insert into bases (name, volume_id, branch_id, taken_at, seen_at, bytes, new_bytes, log_end)
             values ('{volume}', '{volume}', '{id}', now(), now(), 1, 1, '0/1');"
    )
}

/// Three branches, the first and the last of one organization, the other of another one.
async fn three(sql: &mut PgConnection) -> [BranchId; 3] {
    let [a, b, c] = ["a", "b", "c"].map(|letter| BranchId::from_trusted(letter.repeat(26)));
    let rows = format!(
        "insert into organizations (id, name) values ('two', 'two');
         insert into projects select r.* from projects p,
             json_populate_record(p, '{{\"id\": \"p2\", \"organization_id\": \"two\"}}') r;
         begin; {} {} commit;
         update volumes set state = 'admitted';
         update branches set created_at = now() - case volume_id when 'v' then interval '4 days'
                                                                 when 'v3' then interval '3 days'
                                                                 else interval '2 days' end",
        another(&b, "p2", "v2", 2),
        another(&c, "p", "v3", 3)
    );
    sql.execute(sqlx::AssertSqlSafe(rows)).await.unwrap();
    base(sql, "first", "2 hours").await;
    [a, b, c]
}

#[tokio::test(flavor = "multi_thread")]
async fn drills_go_by_turns_of_holders() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let branches = three(&mut sql).await;
    let mut held = vec![];
    for _ in &branches {
        let week = Some(Duration::from_secs(7 * 86_400));
        let due = store.drill_due(&HostId::from_trusted("h"), week).await.unwrap().unwrap();
        let report = DrillReport::new(DrillResult::Passed, "good");
        store.drill_note(&due.branch.id, &due.base, Utc::now(), &report).await.unwrap();
        held.push(due.branch.id);
    }
    assert_eq!(held, branches, "whoever has two does not come twice before who has one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_can_not_be_read_keeps_no_other_one_from_being_verified() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let branches = three(&mut sql).await;
    let mut unread = vec![];
    for _ in &branches {
        unread.extend(store.base_to_verify(Duration::from_secs(60), &unread).await.unwrap());
    }
    unread.sort();
    assert_eq!(unread, ["first", "v2", "v3"]);
    assert_eq!(store.base_to_verify(Duration::from_secs(60), &unread).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_belongs_into_the_store_but_where_none_is_kept_and_no_base_can_be_made() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute("update volumes set state = 'admitted', stored_lsn = '0/7'").await.unwrap();
    let logs = async || {
        let logs = store.log_stored(&HostId::from_trusted("h")).await.unwrap();
        logs.into_iter().next().map(|log| log.stored.map(|lsn| lsn.0))
    };
    assert_eq!(logs().await, Some(Some(7)));
    sql.execute("update volumes set stored_lsn = null").await.unwrap();
    assert_eq!(logs().await, Some(None), "there will be a base");
    sql.execute("update branches set backup_failing = true").await.unwrap();
    assert_eq!(logs().await, None, "not of this one");
    sql.execute("update branches set backup_failing = false").await.unwrap();
    base(&mut sql, "first", "2 hours").await;
    assert_eq!(logs().await, Some(None), "its log had a gap");
    base(&mut sql, "second", "1 hour").await;
    sql.execute("update bases set log_end = null where name = 'second'").await.unwrap();
    assert_eq!(logs().await, None, "none is kept");
    let volumes = [VolumeId::from_trusted("v"), VolumeId::from_trusted("w")];
    assert_eq!(store.base_seen_at(&volumes).await.unwrap(), [], "it is not known what they have");
    sql.execute("update bases set complete_at = taken_at").await.unwrap();
    let seen = store.base_seen_at(&volumes).await.unwrap();
    let [(volume, at)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(volume, &volumes[0]);
    assert!((Utc::now() - *at - TimeDelta::hours(1)).abs() < TimeDelta::minutes(1), "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_whose_newest_base_is_not_in_the_store_gets_another_and_its_log_goes_on_behind_that() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute("update volumes set state = 'admitted', stored_lsn = '0/7'").await.unwrap();
    sql.execute("update branches set created_at = now() - interval '1 hour'").await.unwrap();
    back_up_at(&mut sql, TimeDelta::hours(3), false).await;
    base(&mut sql, "first", "2 hours").await;
    base(&mut sql, "second", "1 minute").await;
    let (host, age) = (HostId::from_trusted("h"), Duration::from_secs(60));
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let is_due = async || !store.base_due(&host, age, &room(&[]), &[]).await.unwrap().is_empty();
    let stored = async || store.log_stored(&host).await.unwrap().remove(0).stored.map(|lsn| lsn.0);
    assert_eq!(store.base_recorded_besides(&named(&["second", "third"])).await.unwrap(), ["first"]);
    store.base_forget(&named(&["first"])).await.unwrap();
    assert_eq!((is_due().await, stored().await), (false, Some(7)), "the newest one is there");
    store.base_forget(&named(&["second"])).await.unwrap();
    assert_eq!((is_due().await, stored().await), (true, None));

    let [known, unknown] = ["v", "nobody's"].map(VolumeId::from_trusted);
    let (names, volumes) = (named(&["third", "fourth"]), named(&["v", "nobody's"]));
    assert_eq!(store.base_unrecorded(&names, &volumes).await.unwrap(), ["third"]);
    let then = Utc::now() - TimeDelta::minutes(2);
    store.base_adopt("third", &known, then, then).await.unwrap();
    store.base_adopt("fourth", &unknown, then, then).await.unwrap();
    assert!(store.base_unrecorded(&names, &volumes).await.unwrap().is_empty());
    assert_eq!(store.base_before(&known, Utc::now()).await.unwrap().as_deref(), Some("third"));
    assert!(is_due().await, "how its log goes on is not known");
    let told = "select count(*) from events where type = 'backup.completed'";
    let told: i64 = sqlx::query_scalar(told).fetch_one(&mut sql).await.unwrap();
    assert_eq!(told, 0, "it was told of when it was made");
    assert_eq!(store.base_seen_at(&[known]).await.unwrap(), [], "nor how far it went");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_base_is_followed_within_an_hour_by_one_that_takes_nothing_over_from_it() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute("update volumes set state = 'admitted', stored_lsn = '0/1'").await.unwrap();
    sql.execute("update branches set created_at = now() - interval '1 day'").await.unwrap();
    back_up_at(&mut sql, TimeDelta::hours(5), false).await;
    base(&mut sql, "first", "2 hours").await;
    sql.execute("update bases set checkpoint = 'here'").await.unwrap();
    let due =
        async || store.base_due(&HostId::from_trusted("h"), Duration::ZERO, &room(&[]), &[]).await.unwrap();
    assert!(due().await.is_empty());
    store.base_verified("first", "rot").await.unwrap();
    let found = due().await.remove(0);
    assert_eq!(found.newest, Some(("first".to_owned(), None)), "also where nothing has changed since");
    assert!(found.lineage.is_empty());
    assert!(store.base_damage().await.unwrap().is_some());
    base(&mut sql, "second", "0 seconds").await;
    assert!(due().await.is_empty());
    assert!(store.base_damage().await.unwrap().is_none(), "the newest one is whole");
    let volume = VolumeId::from_trusted("v");
    let [one, two] = [Lsn(1), Lsn(2)];
    assert!(store.log_advance(&volume, one, two).await.unwrap());
    store.log_lose(&volume).await.unwrap();
    assert!(!store.log_advance(&volume, two, Lsn(3)).await.unwrap(), "what comes next is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_with_many_branches_keeps_no_other_from_their_first_base() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sql.execute(
        "insert into users (id, email, name) values ('many', 'many@example.com', ''), ('few', 'few@example.com', '');
         insert into organizations (id, name) values ('many', 'many'), ('few', 'few');
         insert into members (organization_id, user_id, role) values ('many', 'many', 'owner'), ('few', 'few', 'owner');
         delete from branches",
    )
    .await
    .unwrap();
    for (branch, organization) in [("m1", "many"), ("m2", "many"), ("m3", "many"), ("f1", "few")] {
        let id = format!("{branch:a<26}");
        let made = format!(
            "begin;
             insert into projects values ('p{branch}', '{organization}', '{branch}', true, 5, true, 5, false, '[]', now(), now(), null);
             insert into branches (id, project_id, name, description, region, image_major, image_minor,
                 instance_type, replicas, storage_gib, parameters, preload_libraries, scale_to_zero,
                 inactivity_minutes, goal, state, volume_id, password_sealed, managed_role_verifier)
             values ('{id}', 'p{branch}', '{branch}', '', 'local', 18, 0, 'micro', 0, 1, '{{}}', '{{}}', true, 5,
                 'running', 'ready', 'v{branch}', '', '');
             insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 select 'v{branch}', 'h', '{id}', 'admitted', 20 + count(*), 18, 0 from volumes;
             insert into instances (id, branch_id, ordinal, role, volume_id, host_id)
                 values ('{id}-1', '{id}', 1, 'primary', 'v{branch}', 'h');
             commit"
        );
        sql.execute(sqlx::AssertSqlSafe(made)).await.unwrap();
    }
    let due = async |busy: &[&str], besides: &[&str]| {
        let besides: Vec<_> = besides.iter().copied().map(VolumeId::from_trusted).collect();
        let host = HostId::from_trusted("h");
        let due = store.base_due(&host, Duration::ZERO, &room(busy), &besides).await.unwrap();
        assert!(due.iter().all(|due| due.storage_bytes == 1 << 30), "{due:?}");
        let mut holders: Vec<_> = due.iter().map(|due| due.holder.as_str().to_owned()).collect();
        holders.sort_unstable();
        holders
    };
    assert_eq!(due(&[], &[]).await, ["few", "many"], "one of each");
    assert_eq!(
        due(&["many"], &["vm1"]).await,
        ["few"],
        "while one of theirs is made, none but a neighbour's"
    );
    assert_eq!(due(&["few"], &["vf1"]).await, ["many"]);
    assert_eq!(due(&[], &["vm1", "vm2", "vm3", "vf1"]).await, [""; 0]);
    let logs = store.log_stored(&HostId::from_trusted("h")).await.unwrap();
    let of_few: Vec<_> = logs.iter().filter(|log| log.holder.as_str() == "few").collect();
    assert_eq!((logs.len(), of_few.len()), (4, 1));
}

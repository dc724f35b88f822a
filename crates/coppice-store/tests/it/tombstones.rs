//! Whatever a branch does not have any more is named by a tombstone, once.

use std::pin::Pin;
use std::time::Duration;

use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, InstanceId, ProjectId, VolumeId};
use coppice_store::{Doomed, NewReplica, Store};

use crate::organizations::wait_until_it_waits;
use crate::postgres::Postgres;
use crate::with_rows;

const LEASE: u32 = 60;
const TOKEN: ClaimToken = ClaimToken(1);

/// A branch with a replica, a former volume that is due, and one that is to take the place of its own.
const MANY_VOLUMES: &str = "
delete from tombstones;
delete from branch_versions;
delete from instances where role = 'replica';
update branches set goal = 'running', state = 'updating', deleted_at = null, purge_at = null, replacement_id = null;
delete from volumes where id <> 'v';
insert into volumes (id, host_id, branch_id, parent_volume_id, state, account, image_major, image_minor)
    values ('next', 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'v', 'planned', 10, 18, 0),
           ('replica', 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'v', 'present', 11, 18, 0),
           ('former', 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', null, 'admitted', 12, 18, 0);
insert into instances values
    ('aaaaaaaaaaaaaaaaaaaaaaaaaa-2', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 2, 'replica', 'replica', 'h');
insert into branch_versions values ('former', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', now(), now(), 'reset', now());
update volumes set state = 'admitted' where id = 'v';
update branches set replacement_id = 'next', replacement_reason = 'reset';
";

/// What was named before keeps its reason.
const NAME_ALL: &str = "insert into tombstones (volume_id, host_id, branch_id, reason)
    select id, host_id, branch_id, 'before' from volumes";

const ALL: &str = "former next replica v";

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

fn host() -> HostId {
    HostId::from_trusted("h")
}

fn replica() -> InstanceId {
    InstanceId::new(&branch(), 2)
}

async fn renew_replica(store: &Store) -> bool {
    let new = NewReplica {
        branch: &branch(),
        ordinal: 2,
        volume: &VolumeId::from_trusted("new"),
        source: &VolumeId::from_trusted("v"),
        host: &host(),
        version: PostgresVersion { major: 18, minor: 0 },
    };
    store.replica_renew(&new, TOKEN).await.unwrap()
}

async fn delete(store: &Store) -> bool {
    let mut tx = store.begin().await.unwrap();
    let project = ProjectId::from_trusted("p");
    let deleted = store.branch_delete_in_tx(&mut tx, &project, Doomed::Branch(&branch()), "a test").await;
    tx.commit().await.unwrap();
    deleted.unwrap() == [branch()]
}

async fn trash(store: &Store) -> bool {
    let mut tx = store.begin().await.unwrap();
    let project = ProjectId::from_trusted("p");
    let is_kept = store.branch_trash_in_tx(&mut tx, &project, &branch(), Duration::ZERO).await.unwrap();
    tx.commit().await.unwrap();
    is_kept
}

type Act = for<'a> fn(&'a Store) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// What is done, and the volumes that the branch does not have any more then.
const ACTS: [(&str, Act, &str); 7] = [
    (
        "a replica is given up",
        |store| Box::pin(async { store.replica_give_up(&branch(), &replica(), TOKEN).await.unwrap() }),
        "replica",
    ),
    ("a replica is made anew", |store| Box::pin(renew_replica(store)), "replica"),
    (
        "a replacement is given up",
        |store| Box::pin(async { store.branch_give_up_replacement(&branch(), TOKEN, "why").await.unwrap() }),
        "next",
    ),
    (
        "a version is due",
        |store| Box::pin(async { store.version_give_up(&host(), None).await.unwrap() == [branch()] }),
        "former",
    ),
    ("it is put into the trash", |store| Box::pin(trash(store)), "next"),
    (
        "its time in the trash is over",
        |store| Box::pin(async { trash(store).await && !store.trash_purge_due().await.unwrap().is_empty() }),
        ALL,
    ),
    ("it is deleted", |store| Box::pin(delete(store)), ALL),
];

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_wanted_until_their_branch_is_not() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    assert!(store.branch_claim(&branch(), &host(), TOKEN, LEASE).await.unwrap().is_some());
    sqlx::raw_sql(MANY_VOLUMES).execute(&mut sql).await.unwrap();
    let wanted = async || {
        let mut wanted = vec![];
        for id in ["v", "next", "former", "nobody's"] {
            if store.volume_is_wanted(&VolumeId::from_trusted(id)).await.unwrap() {
                wanted.push(id);
            }
        }
        wanted
    };
    assert_eq!(wanted().await, ["v", "next"]);
    assert!(store.branch_give_up_replacement(&branch(), TOKEN, "why").await.unwrap());
    assert_eq!(wanted().await, ["v"]);
    assert!(trash(&store).await);
    assert_eq!(wanted().await, [""; 0], "it waits in the trash");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_can_not_be_made_keeps_what_it_is_to_be_made_of_for_a_day() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    assert!(store.branch_claim(&branch(), &host(), TOKEN, LEASE).await.unwrap().is_some());
    let parent = "insert into volumes (id, host_id, state, account, image_major, image_minor)
                      values ('parent', 'h', 'admitted', 20, 18, 0);
                  update volumes set state = 'planned', parent_volume_id = 'parent' where id = 'v'";
    sqlx::raw_sql(parent).execute(&mut sql).await.unwrap();
    let is_kept = async || store.volume_has_promised_copies(&VolumeId::from_trusted("parent")).await.unwrap();
    assert!(is_kept().await);
    assert!(store.branch_report(&branch(), TOKEN, BranchState::Failed, "no room").await.unwrap());
    assert!(is_kept().await, "there may be room soon");
    let later = "update branches set failed_since = failed_since - interval '25 hours'";
    sqlx::raw_sql(later).execute(&mut sql).await.unwrap();
    assert!(!is_kept().await);
    assert!(store.branch_report(&branch(), TOKEN, BranchState::Failed, "still none").await.unwrap());
    assert!(!is_kept().await, "it is the same failure");
    assert!(store.branch_report(&branch(), TOKEN, BranchState::Creating, "").await.unwrap());
    assert!(store.branch_report(&branch(), TOKEN, BranchState::Failed, "again").await.unwrap());
    assert!(is_kept().await, "it went on meanwhile");
    sqlx::raw_sql("update volumes set base = 'b' where id = 'v'").execute(&mut sql).await.unwrap();
    assert!(!is_kept().await, "it is made from the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_branch_lets_go_of_is_named_once() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    assert!(store.branch_claim(&branch(), &host(), TOKEN, LEASE).await.unwrap().is_some());
    for (what, act, let_go_of) in ACTS {
        for is_named in [false, true] {
            sqlx::raw_sql(MANY_VOLUMES).execute(&mut sql).await.unwrap();
            if is_named {
                sqlx::raw_sql(NAME_ALL).execute(&mut sql).await.unwrap();
            }
            assert!(act(&store).await, "{what}");
            let query = "select coalesce(string_agg(volume_id, ' ' order by volume_id), '') from tombstones
                         where (reason = 'before') = $1";
            let named: String = sqlx::query_scalar(query).bind(is_named).fetch_one(&mut sql).await.unwrap();
            assert_eq!(named, if is_named { ALL } else { let_go_of }, "{what}, named before: {is_named}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_deleted_while_it_is_replaced_is_kept_as_it_is_then() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql(MANY_VOLUMES).execute(&mut sql).await.unwrap();
    sqlx::raw_sql("update volumes set state = 'admitted'").execute(&mut sql).await.unwrap();
    let mut replacing = store.begin().await.unwrap();
    let replace = "update branches set volume_id = 'next', replacement_id = null, replacement_reason = ''";
    sqlx::raw_sql(replace).execute(&mut *replacing).await.unwrap();
    let other = store.clone();
    let trashing = tokio::spawn(async move { trash(&other).await });
    wait_until_it_waits(&mut sql, &trashing).await;
    replacing.commit().await.unwrap();
    assert!(trashing.await.unwrap(), "its data is there");
    let named: i64 = sqlx::query_scalar("select count(*) from tombstones").fetch_one(&mut sql).await.unwrap();
    assert_eq!(named, 0, "it lets go of nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_named_although_it_is_there_is_not_named_any_more() {
    let server = Postgres::shared();
    let options = server.database();
    let (_, mut sql) = with_rows(&options).await;
    sqlx::raw_sql(MANY_VOLUMES).execute(&mut sql).await.unwrap();
    sqlx::raw_sql(NAME_ALL).execute(&mut sql).await.unwrap();
    let migration = include_str!("../../migrations/0700_tombstones_of_what_is_there.sql");
    sqlx::raw_sql(migration).execute(&mut sql).await.unwrap();
    let query = "select string_agg(volume_id, ' ' order by volume_id) from tombstones";
    let named: String = sqlx::query_scalar(query).fetch_one(&mut sql).await.unwrap();
    assert_eq!(named, "next replica");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_not_to_run_gets_no_volume_for_a_replica() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    assert!(store.branch_claim(&branch(), &host(), TOKEN, LEASE).await.unwrap().is_some());
    sqlx::raw_sql(MANY_VOLUMES).execute(&mut sql).await.unwrap();
    assert!(delete(&store).await);
    assert!(!renew_replica(&store).await);
}

/// So many versions as a branch may have, none of which is due.
const MANY_VERSIONS: &str = "
update branches set version_keep = interval '1 day';
delete from branch_versions;
insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
    select 'former' || n, 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'admitted', 100 + n, 18, 0 from generate_series(1, 20) n;
insert into branch_versions
    select 'former' || n, 'aaaaaaaaaaaaaaaaaaaaaaaaaa', now(), now() - make_interval(hours => n), 'reset',
        now() + interval '1 day' from generate_series(1, 20) n;
";

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_makes_room_is_named() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    assert!(store.branch_claim(&branch(), &host(), TOKEN, LEASE).await.unwrap().is_some());
    sqlx::raw_sql(MANY_VOLUMES).execute(&mut sql).await.unwrap();
    sqlx::raw_sql(MANY_VERSIONS).execute(&mut sql).await.unwrap();
    let named =
        "select string_agg(volume_id, ' ' order by volume_id) from tombstones where removed_at is null";

    // What it was makes one too many.
    let (old, new) = (VolumeId::from_trusted("v"), VolumeId::from_trusted("next"));
    assert!(store.branch_replace(&branch(), TOKEN, &old, &new).await.unwrap());
    let told: Option<String> = sqlx::query_scalar(named).fetch_one(&mut sql).await.unwrap();
    assert_eq!(told.as_deref(), Some("former20"));

    sqlx::raw_sql("update tombstones set removed_at = now()").execute(&mut sql).await.unwrap();
    let holder: String = sqlx::query_scalar("select holder_of('o')").fetch_one(&mut sql).await.unwrap();
    store.version_give_up(&host(), Some(&Holder::from_trusted(holder))).await.unwrap();
    let told: Option<String> = sqlx::query_scalar(named).fetch_one(&mut sql).await.unwrap();
    assert_eq!(told.as_deref(), Some("former19"));
}

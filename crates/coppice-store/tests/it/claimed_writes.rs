//! Whatever is written by right of a claim is not written by right of an older
//! one: each such function of the store, asked with both.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;

use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::{BranchId, HostId, InstanceId, VolumeId};
use coppice_store::{KeptPassword, NewReplica, Store};
use sqlx::PgConnection;

use crate::postgres::Postgres;
use crate::with_rows;

const LEASE: u32 = 60;

/// A branch on which every one of them has something to do.
const MANY_THINGS_TO_DO: &str = r#"
delete from instances where role = 'replica';
delete from tombstones;
delete from branch_versions;
delete from branch_verifiers;
insert into volumes (id, host_id, branch_id, parent_volume_id, state, account, image_major, image_minor)
    values ('w', 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'v', 'planned', 10, 18, 0),
           ('u', 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'v', 'present', 11, 18, 0) on conflict do nothing;
insert into instances values
    ('aaaaaaaaaaaaaaaaaaaaaaaaaa-2', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 2, 'replica', 'u', 'h');
update volumes set state = 'present', claim_token = 0 where id = 'v';
update instances set volume_id = 'v' where role = 'primary';
update branches set volume_id = 'v', replacement_id = 'w', replacement_reason = 'reset', generation = 1,
    claim_token = 0, claim_host = null, claim_expires = null, state = 'updating', message = '', taken_back = '',
    managed_role_verifier = 'SCRAM', role_pending = true, next_verifier = 'NEXT', next_password_sealed = '\x00',
    reconfigure = 'reload', verifiers_checkpoint = null, proven_spec =
        '{"version": {"major": 18, "minor": 0}, "instance_type": "s", "parameters": {}, "preload_libraries": []}';
delete from volumes where id = 'n';
"#;

/// All that they write to.
const TABLES: [&str; 6] =
    ["branches", "branch_verifiers", "branch_versions", "instances", "tombstones", "volumes"];

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

fn host() -> HostId {
    HostId::from_trusted("h")
}

fn volume(id: &str) -> VolumeId {
    VolumeId::from_trusted(id)
}

fn replica() -> InstanceId {
    InstanceId::new(&branch(), 2)
}

fn next() -> KeptPassword {
    KeptPassword { sealed: vec![0], verifier: "NEXT".to_owned() }
}

type Write = for<'a> fn(&'a Store, ClaimToken) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Rows of functions by name.
macro_rules! writes {
    ($($name:ident($store:ident, $token:ident) = $said:expr;)+) => {
        [$((stringify!($name), (|$store, $token| Box::pin(async move { _ = $said.await.unwrap(); })) as Write)),+]
    };
}

const WRITES: [(&str, Write); 17] = writes! {
    branch_configured(store, token) = store.branch_configured(&branch(), token, 1);
    branch_give_up_replacement(store, token) = store.branch_give_up_replacement(&branch(), token, "why");
    branch_keep_verifiers_in_tx(store, token) = keep_verifiers(store, token);
    branch_replace(store, token) = store.branch_replace(&branch(), token, &volume("v"), &volume("w"));
    branch_report(store, token) = store.branch_report(&branch(), token, BranchState::Failed, "why");
    branch_say(store, token) = store.branch_say(&branch(), token, "what");
    branch_spec_proven(store, token) = store.branch_spec_proven(&branch(), token, 1);
    branch_take_back(store, token) = store.branch_take_back(&branch(), token, "why");
    instance_report(store, token) = store.instance_report(&branch(), &replica(), token, true);
    managed_role_told(store, token) = store.managed_role_told(&branch(), token, "SCRAM");
    replica_add(store, token) = change_replica(store, token, 3);
    replica_give_up(store, token) = store.replica_give_up(&branch(), &replica(), token);
    replica_renew(store, token) = change_replica(store, token, 2);
    rotation_finish(store, token) = store.rotation_finish(&branch(), token, &next());
    rotation_store_in_tx(store, token) = store_rotation(store, token);
    volume_admitted(store, token) = store.volume_admitted(&volume("v"), token);
    volume_present(store, token) = store.volume_present(&volume("v"), token, "1", 1, "0/1");
};

/// Gives a claim.
const OTHERS: [&str; 1] = ["branch_claim"];

async fn keep_verifiers(store: &Store, token: ClaimToken) -> coppice_store::Result<bool> {
    let mut tx = store.begin().await?;
    let roles = [("somebody".to_owned(), vec![1])];
    let kept = store.branch_keep_verifiers_in_tx(&mut tx, &branch(), token, Some((&roles, "0/1"))).await?;
    tx.commit().await?;
    Ok(kept)
}

async fn store_rotation(store: &Store, token: ClaimToken) -> coppice_store::Result<bool> {
    let mut tx = store.begin().await?;
    let stored = store.rotation_store_in_tx(&mut tx, &branch(), Some(token), &next(), b"kept").await?;
    tx.commit().await?;
    Ok(stored)
}

/// Adds the replica with this number, or renews the one that has it.
async fn change_replica(store: &Store, token: ClaimToken, ordinal: u32) -> coppice_store::Result<bool> {
    let new = NewReplica {
        branch: &branch(),
        ordinal,
        volume: &volume("n"),
        source: &volume("v"),
        host: &host(),
        version: PostgresVersion { major: 18, minor: 0 },
    };
    if ordinal == 2 { store.replica_renew(&new, token).await } else { store.replica_add(&new, token).await }
}

async fn rows(sql: &mut PgConnection) -> Vec<String> {
    let mut rows = vec![];
    for table in TABLES {
        let query =
            format!("select coalesce(jsonb_agg(to_jsonb(r) order by r::text), '[]')::text from {table} r");
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query));
        rows.push(query.fetch_one(&mut *sql).await.unwrap());
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_claim_writes_nothing_that_the_newest_does() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    for (name, write) in WRITES {
        sqlx::raw_sql(MANY_THINGS_TO_DO).execute(&mut sql).await.unwrap();
        // The older one is of an earlier start, and is the later of its start.
        let (older, newest) = (ClaimToken::new(1, 9), ClaimToken::new(2, 1));
        for token in [older, newest] {
            assert!(store.branch_claim(&branch(), &host(), token, LEASE).await.unwrap().is_some());
        }
        if name == "volume_present" {
            // What is said of a volume counts as long as nobody newer has said something.
            sqlx::query("update volumes set claim_token = $1")
                .bind(newest.0)
                .execute(&mut sql)
                .await
                .unwrap();
        }
        let before = rows(&mut sql).await;
        write(&store, older).await;
        assert_eq!(rows(&mut sql).await, before, "{name} by an older claim");
        write(&store, newest).await;
        assert_ne!(rows(&mut sql).await, before, "{name} by the newest claim");
    }
}

/// Names of the functions of a file that are given a claim.
fn claimed_functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("pub async fn ").skip(1).filter_map(|function| {
        let (signature, _) = function.split_once('{')?;
        signature.contains("ClaimToken").then(|| signature.split(['(', '<']).next())?
    })
}

#[test]
fn every_write_by_right_of_a_claim_is_tried() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = std::fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<_> = files.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
    let written: BTreeSet<_> = texts.iter().flat_map(|text| claimed_functions(text)).collect();
    let tried: BTreeSet<_> = WRITES.iter().map(|(name, _)| *name).chain(OTHERS).collect();
    assert_eq!(tried, written);
}

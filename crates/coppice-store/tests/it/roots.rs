//! What a branch is a copy of.

use coppice_core::backup::BackupConfiguration;
use coppice_core::branch::BranchSpec;
use coppice_core::image::PostgresVersion;
use coppice_core::project::ScaleToZero;
use coppice_core::{BranchId, HostId, ProjectId, RegionId, VolumeId};
use coppice_store::{Doomed, NewBranch, Store};
use sqlx::{Connection as _, PgConnection};

use crate::migrations::migrate_before;
use crate::postgres::Postgres;
use crate::{ROWS, connect, with_rows};

const BASE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";

async fn root(store: &Store, branch: &str) -> String {
    let found = store.branch_find_for_connection(&BranchId::from_trusted(branch), "app").await;
    found.unwrap().expect("is there").root.to_string()
}

async fn copy(store: &Store, parent: &BranchId, name: &str) -> BranchId {
    let (id, volume) = (BranchId::generate(), VolumeId::generate(chrono::Utc::now()));
    let spec = BranchSpec {
        region: RegionId::from_trusted("local"),
        version: PostgresVersion { major: 18, minor: 0 },
        instance_type: "t".to_owned(),
        replicas: 0,
        storage_gib: 1,
        parameters: Default::default(),
        preload_libraries: vec![],
    };
    let mut tx = store.begin().await.unwrap();
    let new = NewBranch {
        id: &id,
        project: &ProjectId::from_trusted("p"),
        parent: Some(parent),
        source: None,
        moment: None,
        base: None,
        name,
        description: "",
        labels: &Default::default(),
        spec: &spec,
        scale_to_zero: ScaleToZero::default(),
        expires_at: None,
        backups: BackupConfiguration::of_new_branch(),
        made_with: None,
        volume: &volume,
        host: &HostId::from_trusted("h"),
        password_sealed: b"",
        managed_role_verifier: "",
    };
    store.branch_insert_in_tx(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_copy_has_the_root_of_both_also_when_those_are_deleted() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let base = BranchId::from_trusted(BASE);
    let child = copy(&store, &base, "child").await;
    let grandchild = copy(&store, &child, "grandchild").await;
    for branch in [&base, &child, &grandchild] {
        assert_eq!(root(&store, branch.as_str()).await, BASE);
    }
    for branch in [&child, &base] {
        let mut tx = store.begin().await.unwrap();
        let project = ProjectId::from_trusted("p");
        store.branch_delete_in_tx(&mut tx, &project, Doomed::Branch(branch), "a test").await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(root(&store, grandchild.as_str()).await, BASE);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_there_already_get_their_roots() {
    let server = Postgres::shared();
    let options = server.empty_database();
    let mut sql = PgConnection::connect_with(&options).await.unwrap();
    migrate_before(&mut sql, 190).await;
    sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();
    for (parent, id) in [('a', 'b'), ('b', 'c')] {
        let [parent, id] = [parent, id].map(|letter| letter.to_string().repeat(26));
        let copy = format!(
            "insert into branches select (jsonb_populate_record(b, jsonb_build_object(
                 'id', '{id}', 'name', '{id}', 'parent_id', '{parent}', 'volume_id', '{id}'))).*
                 from branches b where id = '{BASE}';
             insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 select '{id}', 'h', '{id}', 'present', max(account) + 1, 18, 0 from volumes"
        );
        let mut tx = sql.begin().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    let (store, _) = connect(&options).await;
    store.migrate().await.unwrap();
    for branch in ["a", "b", "c"] {
        assert_eq!(root(&store, &branch.repeat(26)).await, BASE);
    }
}

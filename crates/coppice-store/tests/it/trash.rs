//! Deleted branches, the way back and the end.

use std::time::Duration;

use coppice_core::branch::Goal;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, OrganizationId, ProjectId, VolumeId};
use coppice_store::{Doomed, Store};
use sqlx::PgConnection;

use crate::postgres::Postgres;
use crate::with_rows;

const DAY: Duration = Duration::from_secs(86_400);

fn place() -> (OrganizationId, ProjectId) {
    (OrganizationId::from_trusted("o"), ProjectId::from_trusted("p"))
}

fn id(letter: char) -> BranchId {
    BranchId::from_trusted(letter.to_string().repeat(26))
}

/// A metastore with the branches a, b and c, each a child of the one before.
async fn with_tree(server: &Postgres) -> (Store, PgConnection) {
    let (store, mut sql) = with_rows(&server.database()).await;
    for (parent, new) in [('a', 'b'), ('b', 'c')] {
        let [parent, new] = [parent, new].map(|letter| id(letter).to_string());
        let copy = format!(
            "begin; insert into branches select (jsonb_populate_record(b, jsonb_build_object(
                 'id', '{new}', 'name', '{new}', 'parent_id', '{parent}', 'volume_id', '{new}'))).*
                 from branches b where id = '{parent}';
             insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 select '{new}', 'h', '{new}', 'present', max(account) + 1, 18, 0 from volumes; commit"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&mut sql).await.unwrap();
    }
    sqlx::raw_sql("update volumes set state = 'admitted'").execute(&mut sql).await.unwrap();
    (store, sql)
}

async fn trash(store: &Store, letter: char, keep: Duration) -> bool {
    let mut tx = store.begin().await.unwrap();
    let is_kept = store.branch_trash_in_tx(&mut tx, &place().1, &id(letter), keep).await.unwrap();
    tx.commit().await.unwrap();
    is_kept
}

async fn undelete(store: &Store, letter: char, name: Option<&str>) -> coppice_store::Result<bool> {
    let mut tx = store.begin().await.unwrap();
    let done = store.branch_undelete_in_tx(&mut tx, &place().1, &id(letter), name, "a test").await?;
    tx.commit().await.unwrap();
    Ok(done)
}

/// Branches that are seen, each with its parent.
async fn seen(store: &Store) -> String {
    let (organization, project) = place();
    let first = |text: &str| text.chars().next().unwrap_or('-');
    let branches = store.branch_list(&organization, &project, None).await.unwrap();
    let shown = branches.iter().map(|branch| {
        let parent = branch.parent.as_ref().map_or('-', |parent| first(parent.as_str()));
        format!("{}<{parent}", first(branch.id.as_str()))
    });
    shown.collect::<Vec<_>>().join(" ")
}

async fn in_trash(store: &Store) -> Vec<BranchId> {
    let (organization, project) = place();
    let trash = store.trash_list(&organization, &project).await.unwrap();
    assert!(trash.iter().all(|one| one.branch.goal == Goal::Trashed && one.purge_at > one.deleted_at));
    trash.into_iter().map(|one| one.branch.id).collect()
}

async fn tombstones(sql: &mut PgConnection) -> String {
    let query = "select coalesce(string_agg(left(volume_id, 1), '' order by volume_id), '') from tombstones";
    sqlx::query_scalar(query).fetch_one(sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_has_its_parent_and_its_children_again() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    assert_eq!(seen(&store).await, "a<- b<a c<b");
    assert!(trash(&store, 'b', DAY).await);
    assert!(!trash(&store, 'b', DAY).await, "it is deleted once");
    assert_eq!((seen(&store).await.as_str(), in_trash(&store).await), ("a<- c<-", vec![id('b')]));
    // Its parent follows, and comes back after it.
    assert!(trash(&store, 'a', DAY).await);
    assert_eq!(in_trash(&store).await, [id('a'), id('b')], "the last one first");
    assert!(undelete(&store, 'b', None).await.unwrap());
    assert_eq!(seen(&store).await, "b<- c<b");
    assert!(undelete(&store, 'a', Some("another")).await.unwrap());
    assert_eq!(seen(&store).await, "a<- b<a c<b");
    assert!(!undelete(&store, 'a', None).await.unwrap(), "it is back already");
    assert_eq!(tombstones(&mut sql).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_to_what_is_in_the_trash() {
    let server = Postgres::shared();
    let (store, _) = with_tree(&server).await;
    let is_found = async || store.branch_find_for_connection(&id('b'), "app").await.unwrap().is_some();
    assert!(is_found().await);
    assert!(trash(&store, 'b', DAY).await);
    assert!(!is_found().await);
    assert!(undelete(&store, 'b', None).await.unwrap());
    assert!(is_found().await, "it is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_what_is_in_the_trash_is_free_and_may_be_taken_when_it_comes_back() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    assert!(trash(&store, 'b', DAY).await);
    let take = format!("update branches set name = '{}' where id = '{}'", id('b'), id('c'));
    sqlx::raw_sql(sqlx::AssertSqlSafe(take)).execute(&mut sql).await.unwrap();
    let refused = undelete(&store, 'b', None).await.expect_err("taken");
    assert!(refused.is_unique_violation("branches_name"), "{refused}");
    assert!(undelete(&store, 'b', Some("free")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_a_branch_whose_data_was_never_there() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    sqlx::raw_sql("update volumes set state = 'planned'").execute(&mut sql).await.unwrap();
    assert!(!trash(&store, 'c', DAY).await);
    assert_eq!(seen(&store).await, "a<- b<a c<b", "to be deleted for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_replaced_is_kept_though_the_first_start_of_what_replaced_it_is_not_done() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    let replaced = format!(
        "insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
             select 'former', host_id, branch_id, 'present', account + 10, 18, 0 from volumes where id = '{c}';
         insert into branch_versions values ('former', '{c}', now(), now(), 'reset', now() + interval '1 day');
         update volumes set state = 'present' where id = '{c}'",
        c = id('c')
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(replaced)).execute(&mut sql).await.unwrap();
    assert!(trash(&store, 'c', DAY).await);
    assert_eq!((in_trash(&store).await, tombstones(&mut sql).await.as_str()), (vec![id('c')], ""));
    let kept = store.kept_volumes(&HostId::from_trusted("h")).await.unwrap();
    let mut kept: Vec<_> = kept.iter().map(|(_, volume)| &volume.as_str()[..1]).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["c", "f"], "and makes room when there is none");
    assert!(undelete(&store, 'c', None).await.unwrap());
    assert_eq!(store.branch_versions(&id('c')).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_made_again_from_its_base_is_kept() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    let lost = format!(
        "insert into bases (name, volume_id, branch_id, taken_at, seen_at, bytes, new_bytes)
             values ('base', '{c}', '{c}', now(), now(), 0, 0);
         update volumes set state = 'planned', base = 'base'",
        c = id('c')
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(lost)).execute(&mut sql).await.unwrap();
    assert!(trash(&store, 'c', DAY).await && undelete(&store, 'c', None).await.unwrap());
    assert!(!trash(&store, 'b', DAY).await, "which is another's base");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_the_trash_has_a_tombstone_and_does_not_come_back() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    let (organization, project) = place();
    for (letter, keep) in [('c', DAY), ('b', Duration::ZERO), ('a', DAY)] {
        assert!(trash(&store, letter, keep).await || keep.is_zero());
        // Of the same moment nobody could say which was first.
        sqlx::raw_sql("select pg_sleep(0.001)").execute(&mut sql).await.unwrap();
    }
    assert_eq!(store.trash_purge_due().await.unwrap(), [id('b')], "the others have time left");
    let (host, holder) = (HostId::from_trusted("h"), store.organization_holder(&organization).await.unwrap());
    let kept = store.kept_volumes(&host).await.unwrap();
    let mut kept: Vec<_> = kept.iter().map(|(whose, volume)| (whose, &volume.as_str()[..1])).collect();
    kept.sort_unstable();
    assert_eq!(kept, [(&holder, "c"), (&holder, "v")], "b is doomed");
    assert_eq!(store.trash_purge_oldest(&host, &holder).await.unwrap(), None, "one after the other");
    sqlx::raw_sql(
        "update volumes set state = 'removed' where id like 'b%'; update tombstones set removed_at = now();
        update branches set state = 'deleted' where goal = 'deleted'",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    let neighbour = Holder::from_trusted("n");
    assert_eq!(store.trash_purge_oldest(&host, &neighbour).await.unwrap(), None, "it is not theirs");
    assert_eq!(store.trash_purge_oldest(&host, &holder).await.unwrap(), Some(id('c')));
    assert_eq!(tombstones(&mut sql).await, "bc");
    assert!(!undelete(&store, 'b', None).await.unwrap() && !undelete(&store, 'c', None).await.unwrap());
    let mut tx = store.begin().await.unwrap();
    assert!(store.trash_trim_in_tx(&mut tx, &organization, 1).await.unwrap().is_empty());
    assert_eq!(store.trash_trim_in_tx(&mut tx, &organization, 0).await.unwrap(), [id('a')]);
    tx.rollback().await.unwrap();
    // A project that goes takes its trash with it.
    let mut tx = store.begin().await.unwrap();
    let gone = store.branch_delete_in_tx(&mut tx, &project, Doomed::Everything, "a test").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((gone, tombstones(&mut sql).await.as_str()), (vec![id('a')], "bcv"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_most_in_the_trash_loses_first_when_it_is_full() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    // g, h and j were made with a key in another project, d, e and f by people.
    let (organization, project) = place();
    let add = |letter: char, project: &str, made_with: &str, age: u32| {
        let new = id(letter);
        format!(
            "insert into branches select (jsonb_populate_record(b, jsonb_build_object(
                 'id', '{new}', 'name', '{new}', 'parent_id', null, 'volume_id', '{new}', 'project_id', '{project}',
                 'made_with', {made_with}, 'goal', 'trashed', 'deleted_at', now() - interval '{age} minutes',
                 'purge_at', now() + interval '1 day'))).* from branches b where id = '{a}';
             insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 select '{new}', 'h', '{new}', 'admitted', max(account) + 1, 18, 0 from volumes;",
            a = id('a')
        )
    };
    let rows = [
        "begin; insert into projects select (jsonb_populate_record(p, jsonb_build_object(
             'id', 'other', 'name', 'other'))).* from projects p where id = 'p';"
            .to_owned(),
        add('d', "p", "null", 900),
        add('e', "p", "null", 800),
        add('f', "other", "null", 700),
        add('g', "other", "'key_1'", 300),
        add('h', "other", "'key_1'", 200),
        add('j', "other", "'key_1'", 100),
        "commit".to_owned(),
    ];
    sqlx::raw_sql(sqlx::AssertSqlSafe(rows.concat())).execute(&mut sql).await.unwrap();
    let mut gone = String::new();
    for keep in (0..6).rev() {
        let mut tx = store.begin().await.unwrap();
        let trimmed = store.trash_trim_in_tx(&mut tx, &organization, keep).await.unwrap();
        tx.commit().await.unwrap();
        gone.extend(trimmed.iter().map(|id| &id.as_str()[..1]));
    }
    assert_eq!(gone, "ghdfej", "the key's own first, and then what was deleted first of each project");
    assert!(store.trash_list(&organization, &project).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_known_by_its_tombstone_when_its_branch_is_forgotten() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    let (doomed, volume) = (id('c'), VolumeId::from_trusted(id('c').to_string()));
    let mut tx = store.begin().await.unwrap();
    store.branch_delete_in_tx(&mut tx, &place().1, Doomed::Branch(&doomed), "a test").await.unwrap();
    tx.commit().await.unwrap();
    let age = "update branches set deleted_at = now() - interval '2 hours' where goal = 'deleted'";
    sqlx::raw_sql(age).execute(&mut sql).await.unwrap();
    store.branch_purge().await.unwrap();
    let left = "select id from branches where goal = 'deleted'";
    let kept: Vec<String> = sqlx::query_scalar(left).fetch_all(&mut sql).await.unwrap();
    assert_eq!(kept, [doomed.to_string()], "its data is still there");
    store.volume_removed(&volume).await.unwrap();
    store.branch_purge().await.unwrap();
    let left: Vec<String> = sqlx::query_scalar(left).fetch_all(&mut sql).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    let asked = [volume.to_string(), "of nobody".to_owned()];
    assert_eq!(store.volume_known(&asked).await.unwrap(), asked[..1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_removed_keeps_no_room_from_being_made() {
    let server = Postgres::shared();
    let (store, mut sql) = with_tree(&server).await;
    let (host, holder) = (HostId::from_trusted("h"), store.organization_holder(&place().0).await.unwrap());
    for letter in ['a', 'b', 'c'] {
        assert!(trash(&store, letter, DAY).await);
        sqlx::raw_sql("select pg_sleep(0.001)").execute(&mut sql).await.unwrap();
    }
    let purge = async || store.trash_purge_oldest(&host, &holder).await.unwrap();
    assert_eq!((purge().await, purge().await), (Some(id('a')), None), "one after the other");
    let aged = "update tombstones set created_at = now() - interval '1 hour'";
    sqlx::raw_sql(aged).execute(&mut sql).await.unwrap();
    assert_eq!((purge().await, purge().await), (Some(id('b')), None), "it takes too long");
    // And it is a neighbour's.
    let neighbours = "update tombstones set branch_id = null";
    sqlx::raw_sql(neighbours).execute(&mut sql).await.unwrap();
    assert_eq!(purge().await, Some(id('c')));
}

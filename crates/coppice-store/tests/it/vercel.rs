//! What Vercel is told, and what it answers, while something else happens.

use coppice_core::organization::Role;
use coppice_core::vercel::VercelInstallation;
use coppice_core::{ProjectId, UserId, VercelInstallationId, VercelLoginId};
use coppice_store::{NewVercelLogin, Store, Tx, VercelNews, VercelPerson};
use sqlx::{Executor as _, PgConnection};

use crate::postgres::Postgres;
use crate::sign_ins::until_blocked;
use crate::with_rows;

/// Two installations; the first has a database with a login, and Vercel is to be told another one.
const INSTALLED: &str = "
insert into organizations (id, name) values ('o2', 'two');
insert into vercel_installations
    (id, account_id, organization_id, access_token_sealed, token_type, scopes, accepted_policies, account)
    values ('icfg_one', 'a', 'o', '', 'Bearer', '{}', '{}', '{}'),
           ('icfg_two', 'b', 'o2', '', 'Bearer', '{}', '{}', '{}');
insert into vercel_resources (project_id, branch_id, installation_id, product_id, plan_id, metadata, rotations_asked)
    values ('p', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'icfg_one', 'iap', 'standard', '{}', 1);
insert into vercel_logins (id, project_id, verifier) values ('first', 'p', 'SCRAM');";

async fn with_installations(server: &Postgres) -> (Store, PgConnection) {
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql(INSTALLED).execute(&mut sql).await.unwrap();
    (store, sql)
}

async fn installation(store: &Store, id: &str) -> VercelInstallation {
    store.vercel_installation(&VercelInstallationId::from_trusted(id)).await.unwrap().unwrap()
}

/// What whoever has the database is to be told of it.
async fn news(store: &Store) -> VercelNews {
    store.vercel_news(1).await.unwrap().remove(0)
}

async fn offer(store: &Store, news: &VercelNews, login: &str) -> bool {
    let login = VercelLoginId::from_trusted(login);
    store.vercel_login_offer(news, NewVercelLogin { id: &login, verifier: "SCRAM" }).await.unwrap()
}

async fn take(store: &Store, news: &VercelNews, login: &str) {
    let mut tx = store.begin().await.unwrap();
    let rotation = news.rotation.unwrap();
    store
        .vercel_login_taken_in_tx(&mut tx, news, &VercelLoginId::from_trusted(login), rotation)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Gives the database of the first installation to the second one.
async fn transfer_in_tx(store: &Store, tx: &mut Tx) {
    let (project, from) = (ProjectId::from_trusted("p"), VercelInstallationId::from_trusted("icfg_one"));
    let to = installation(store, "icfg_two").await;
    let moved = store.vercel_resource_move_in_tx(tx, &project, &from, &to).await.unwrap();
    assert_eq!(moved.unwrap().len(), 1);
}

/// How long each login is good.
async fn logins(sql: &mut PgConnection) -> String {
    let query = "select string_agg(id || case when ends_at is null then ' goes on'
                     when ends_at > now() + interval '1 hour' then ' goes on for a day' else ' ended' end,
                     ', ' order by created_at)
                 from vercel_logins";
    sqlx::query_scalar(query).fetch_one(sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_without_an_end_is_made_for_an_account_beside_a_transfer_from_it() {
    let server = Postgres::shared();
    let (store, mut sql) = with_installations(&server).await;
    let of_former = news(&store).await;
    assert!(offer(&store, &of_former, "before").await);
    let mut tx = store.begin().await.unwrap();
    transfer_in_tx(&store, &mut tx).await;
    let offering = tokio::spawn({
        let (store, news) = (store.clone(), of_former.clone());
        async move { offer(&store, &news, "meanwhile").await }
    });
    until_blocked(&mut sql, &mut tx).await;
    tx.commit().await.unwrap();
    assert!(!offering.await.unwrap());
    assert!(!offer(&store, &of_former, "afterwards").await);
    let expected = "first goes on for a day, before goes on for a day";
    assert_eq!(logins(&mut sql).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_account_takes_after_a_transfer_ends_no_login_and_what_the_next_one_takes_ends_all() {
    let server = Postgres::shared();
    let (store, mut sql) = with_installations(&server).await;
    let of_former = news(&store).await;
    assert!(offer(&store, &of_former, "late").await);
    let mut tx = store.begin().await.unwrap();
    transfer_in_tx(&store, &mut tx).await;
    tx.commit().await.unwrap();
    take(&store, &of_former, "late").await;
    // What is not known to be had for long goes when another one is offered.
    sql.execute("update vercel_logins set offered_at = offered_at - interval '2 hours'").await.unwrap();
    assert_eq!(logins(&mut sql).await, "first goes on for a day, late goes on for a day");
    let of_next = news(&store).await;
    assert_eq!(of_next.rotation, Some(2), "what the former one took is not what the next one has");
    assert!(offer(&store, &of_next, "next").await);
    take(&store, &of_next, "next").await;
    assert_eq!(logins(&mut sql).await, "first ended, late ended, next goes on");
}

fn ada() -> UserId {
    UserId::from_trusted("usr_ada")
}

/// Ada comes from Vercel by the first installation, and would be this user if she was none.
async fn arrives_as(store: &Store, new: &UserId, role: Role) {
    let by = installation(store, "icfg_one").await;
    let arrived = store.vercel_person_arrives(&by, ("ada", "Ada"), new, role).await.unwrap();
    assert_eq!(arrived, Some(ada()));
}

async fn arrives(store: &Store, role: Role) {
    arrives_as(store, &UserId::from_trusted("usr_new"), role).await;
}

/// Has Vercel be asked about Ada.
async fn taken(store: &Store, sql: &mut PgConnection) -> VercelPerson {
    sql.execute("update vercel_people set looked_at = now() - interval '2 hours'").await.unwrap();
    store.vercel_people_due(1).await.unwrap().remove(0)
}

async fn role(sql: &mut PgConnection) -> Option<String> {
    let query = "select max(role) from members where user_id = 'usr_ada'";
    sqlx::query_scalar(query).fetch_one(sql).await.unwrap()
}

async fn has_key(sql: &mut PgConnection) -> bool {
    let query = "select exists (select from api_keys where id = 'key_ada')";
    sqlx::query_scalar(query).fetch_one(sql).await.unwrap()
}

/// Ada has come as an admin, and has a key.
async fn with_ada(server: &Postgres) -> (Store, PgConnection) {
    let (store, mut sql) = with_installations(server).await;
    arrives_as(&store, &ada(), Role::Admin).await;
    sql.execute(
        "insert into api_keys (id, user_id, name, preview, hash, scopes, projects, branches)
         values ('key_ada', 'usr_ada', '', 'p', 'of ada', '{}', '{}', '{}')",
    )
    .await
    .unwrap();
    (store, sql)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vercel_answers_when_somebody_has_come_since_changes_nothing() {
    let server = Postgres::shared();
    let (store, mut sql) = with_ada(&server).await;
    let asked = taken(&store, &mut sql).await;
    arrives(&store, Role::Viewer).await;
    for late in [Some(Role::Admin), None] {
        assert!(!store.vercel_person_role(&asked, late).await.unwrap());
        assert_eq!(role(&mut sql).await.as_deref(), Some("viewer"), "{late:?}");
    }
    assert!(!store.vercel_person_forget(&asked).await.unwrap());
    assert!(has_key(&mut sql).await);

    // She comes while the answer is written down.
    let asked = taken(&store, &mut sql).await;
    let mut tx = store.begin().await.unwrap();
    sqlx::query("update vercel_people set looked_at = now()").execute(&mut *tx).await.unwrap();
    let answer = tokio::spawn({
        let store = store.clone();
        async move { store.vercel_person_role(&asked, Some(Role::Admin)).await.unwrap() }
    });
    until_blocked(&mut sql, &mut tx).await;
    tx.commit().await.unwrap();
    assert!(!answer.await.unwrap());
    assert_eq!(role(&mut sql).await.as_deref(), Some("viewer"));

    let asked = taken(&store, &mut sql).await;
    assert!(store.vercel_person_role(&asked, Some(Role::Admin)).await.unwrap());
    assert_eq!(role(&mut sql).await.as_deref(), Some("admin"));
    assert!(store.vercel_person_forget(&asked).await.unwrap());
    assert!(role(&mut sql).await.is_none() && !has_key(&mut sql).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_role_somebody_from_vercel_is_no_member_and_with_one_again_they_are_with_their_keys() {
    let server = Postgres::shared();
    let (store, mut sql) = with_ada(&server).await;
    for _ in 0..2 {
        let asked = taken(&store, &mut sql).await;
        assert!(store.vercel_person_role(&asked, None).await.unwrap());
        assert_eq!(role(&mut sql).await, None);
        assert!(has_key(&mut sql).await);
    }
    let asked = taken(&store, &mut sql).await;
    assert!(store.vercel_person_role(&asked, Some(Role::Viewer)).await.unwrap());
    assert_eq!(role(&mut sql).await.as_deref(), Some("viewer"));

    assert!(store.vercel_person_role(&asked, None).await.unwrap());
    arrives(&store, Role::Admin).await;
    assert_eq!(role(&mut sql).await.as_deref(), Some("admin"), "who comes has a role");
    // Whoever is removed here does not come back by what Vercel answers.
    sql.execute("delete from members where user_id = 'usr_ada'").await.unwrap();
    for answered in [Some(Role::Admin), None, Some(Role::Admin)] {
        let asked = taken(&store, &mut sql).await;
        assert!(store.vercel_person_role(&asked, answered).await.unwrap());
        assert_eq!(role(&mut sql).await, None, "{answered:?}");
    }
}

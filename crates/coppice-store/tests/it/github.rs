//! What GitHub says happened, and which pull requests are looked at for it.

use chrono::{TimeDelta, Utc};
use coppice_core::access::{Grant, Principal};
use coppice_core::github::{GithubRepository, Pull};
use coppice_core::organization::Holder;
use coppice_core::{ApiKeyId, BranchId, GithubInstallationId, GithubRepositoryId, OrganizationId, ProjectId};
use coppice_store::{AfterLook, ClaimedPull, GithubNews, MappingNote, NewApiKey, PullKey, Room, Store, Told};
use sqlx::PgConnection;

use crate::postgres::Postgres;
use crate::with_rows;

/// The number of the repository at GitHub.
const REPOSITORY: i64 = 5;
/// The branch that there is.
const BRANCH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A metastore with a project that is mapped.
async fn with_mapping(server: &Postgres) -> (Store, PgConnection, GithubRepository) {
    let (store, sql) = with_rows(&server.database()).await;
    let organization = OrganizationId::from_trusted("o");
    let link = GithubInstallationId::from_trusted("ghi_1");
    let mut tx = store.begin().await.unwrap();
    store.github_installation_insert_in_tx(&mut tx, &link, &organization, 7, &[REPOSITORY]).await.unwrap();
    let root = BranchId::from_trusted(BRANCH);
    let note = MappingNote {
        installation: &link,
        repository: REPOSITORY,
        root: &root,
        has_previews: None,
        takes_forks: None,
        has_job_keys: true,
    };
    let id = GithubRepositoryId::from_trusted("ghr_1");
    let project = ProjectId::from_trusted("p");
    let mapping = store.github_repository_insert_in_tx(&mut tx, &id, &project, &note).await.unwrap();
    tx.commit().await.unwrap();
    assert!(mapping.has_previews && !mapping.takes_forks);
    (store, sql, mapping)
}

fn about(number: i64) -> GithubNews {
    GithubNews { pull: Some((REPOSITORY, number)), ..GithubNews::default() }
}

fn room(count: u32, each: u32, busy: &[&str]) -> Room {
    Room { count, each, busy: busy.iter().map(|holder| Holder::from_trusted(*holder)).collect() }
}

async fn claim(store: &Store) -> Vec<ClaimedPull> {
    let claimed = store.github_pulls_claim(room(10_000, 10_000, &[]), 60).await.unwrap();
    let mut claimed: Vec<_> = claimed.into_iter().map(|(_, one)| one).collect();
    claimed.sort_by_key(|one| one.key.number);
    claimed
}

async fn end(store: &Store, claimed: &ClaimedPull, commit: &str) {
    let told = Told { commit: Some(commit.to_owned()), what: Some("ready".to_owned()), comment: Some(1) };
    store.github_pull_end(claimed, &told, AfterLook::Rest).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_counts_once_and_one_that_comes_during_a_look_has_another_follow() {
    let server = Postgres::shared();
    let (store, _sql, _) = with_mapping(&server).await;
    assert!(store.github_delivery("one", &about(1)).await.unwrap());
    assert!(!store.github_delivery("one", &about(2)).await.unwrap(), "the same delivery again");
    let claimed = claim(&store).await;
    assert_eq!(claimed.iter().map(|one| one.key.number).collect::<Vec<_>>(), [1]);
    assert!(claim(&store).await.is_empty(), "somebody looks at it");
    store.github_delivery("two", &about(1)).await.unwrap();
    store.github_pull_end(&claimed[0], &Told::default(), AfterLook::Forget).await.unwrap();
    let again = claim(&store).await;
    assert_eq!(again.len(), 1, "what was told during the look is not forgotten with it");
    store.github_pull_end(&again[0], &Told::default(), AfterLook::Forget).await.unwrap();
    assert!(claim(&store).await.is_empty());
    let elsewhere = GithubNews { pull: Some((REPOSITORY + 1, 1)), ..GithubNews::default() };
    assert!(store.github_delivery("three", &elsewhere).await.unwrap());
    assert!(claim(&store).await.is_empty(), "of a repository that nobody has mapped");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_pull_requests_those_are_looked_at_that_are_otherwise() {
    let server = Postgres::shared();
    let (store, mut sql, mapping) = with_mapping(&server).await;
    let pull =
        |number: i64, commit: &str| Pull { number, is_open: true, commit: commit.to_owned(), is_fork: false };
    let mut open: Vec<_> = (1..=1000).map(|number| pull(number, "c")).collect();
    store.github_pulls_compare(&mapping.id, &open, 60.0).await.unwrap();
    let claimed = claim(&store).await;
    assert_eq!(claimed.len(), 1000);
    for one in &claimed {
        end(&store, one, "c").await;
    }
    let all = format!("update github_pulls set branch_id = '{BRANCH}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(all)).execute(&mut sql).await.unwrap();
    store.github_pulls_compare(&mapping.id, &open, 60.0).await.unwrap();
    assert!(claim(&store).await.is_empty(), "all is as it was told");
    open[0].commit = "d".to_owned();
    open.retain(|one| one.number != 7);
    open.push(pull(1001, "c"));
    store.github_pulls_compare(&mapping.id, &open, 60.0).await.unwrap();
    let numbers: Vec<_> = claim(&store).await.iter().map(|one| one.key.number).collect();
    assert_eq!(numbers, [1, 7, 1001], "another commit, closed, opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_ends_with_its_root_and_links_with_their_organization() {
    let server = Postgres::shared();
    let (store, mut sql, mapping) = with_mapping(&server).await;
    let of = async |sql: &mut PgConnection| {
        let counts =
            "select (select count(*) from github_repositories), (select count(*) from github_installations)";
        sqlx::query_as::<_, (i64, i64)>(counts).fetch_one(sql).await.unwrap()
    };
    assert_eq!(of(&mut sql).await, (1, 1));
    let organization = OrganizationId::from_trusted("o");
    let found = store.github_repository_of(&organization, &mapping.project).await.unwrap();
    assert_eq!(found, Some(mapping));
    sqlx::raw_sql("update branches set deleted_at = now(), goal = 'deleted'")
        .execute(&mut sql)
        .await
        .unwrap();
    assert_eq!(of(&mut sql).await, (0, 1));
    sqlx::raw_sql("update organizations set deleted_at = now()").execute(&mut sql).await.unwrap();
    assert_eq!(of(&mut sql).await, (0, 0));
}

async fn key_count(sql: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select count(*) from api_keys where id like 'job-%'").fetch_one(sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_one_key_for_a_token_and_both_are_forgotten_when_they_have_ended() {
    let server = Postgres::shared();
    let (store, mut sql, _) = with_mapping(&server).await;
    let organization = OrganizationId::from_trusted("o");
    let principal = Principal::Organization(organization.clone());
    let mut tx = store.begin().await.unwrap();
    let own_keys = store.key_count_in_tx(&mut tx, &principal).await.unwrap();
    tx.rollback().await.unwrap();
    let in_an_hour = Utc::now() + TimeDelta::hours(1);
    for (id, expiry) in [("job-1", Some(in_an_hour)), ("job-2", Some(Utc::now() - TimeDelta::seconds(1)))] {
        let (id, grant) = (ApiKeyId::from_trusted(id), Grant::everything());
        let key = NewApiKey {
            id: &id,
            principal: &principal,
            name: "a job",
            preview: "",
            hash: id.as_str(),
            grant: &grant,
            expiry,
            created_by: None,
            made_with: None,
        };
        let mut tx = store.begin().await.unwrap();
        store.key_insert_in_tx(&mut tx, &key).await.unwrap();
        let token = (id.as_str(), Utc::now() - TimeDelta::hours(2));
        assert!(store.github_job_insert_in_tx(&mut tx, token, &id).await.unwrap());
        assert!(!store.github_job_insert_in_tx(&mut tx, token, &id).await.unwrap(), "the same token again");
        tx.commit().await.unwrap();
    }
    let mut tx = store.begin().await.unwrap();
    assert_eq!(
        store.key_count_in_tx(&mut tx, &principal).await.unwrap(),
        own_keys,
        "they take nobody's room"
    );
    let branch = BranchId::from_trusted(BRANCH);
    let held = store.github_job_keys_in_tx(&mut tx, &organization, &branch).await.unwrap();
    assert_eq!(held, (1, 0), "one has ended, and the other is for no branch alone");
    tx.rollback().await.unwrap();
    store.github_job_purge().await.unwrap();
    assert_eq!(key_count(&mut sql).await, 1);

    // Who takes a key away does not make its token good again.
    let mut tx = store.begin().await.unwrap();
    let taken = store.key_delete_in_tx(&mut tx, &principal, &["job-1".to_owned()], false).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(taken.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["a job"]);
    let tokens: Vec<String> =
        sqlx::query_scalar("select token from github_jobs").fetch_all(&mut sql).await.unwrap();
    assert_eq!(tokens, ["job-1"]);
    store.github_job_purge().await.unwrap();
    let left: i64 = sqlx::query_scalar("select count(*) from github_jobs").fetch_one(&mut sql).await.unwrap();
    assert_eq!(left, 0, "it ended long ago by itself");
}

/// Two people: one of them owns `o`, which has a mapping, and `o2` and `o3`, which have one each,
/// the other `n` with one. All four have twenty pull requests that are due, the other's last.
async fn with_holders(sql: &mut PgConnection) {
    sqlx::raw_sql(
        "insert into users (id, email, name) values ('many', 'many@example.com', ''), ('few', 'few@example.com', '');
         insert into organizations (id, name) values ('o2', 'o2'), ('o3', 'o3'), ('n', 'n');
         insert into members (organization_id, user_id, role)
             values ('o', 'many', 'owner'), ('o2', 'many', 'owner'), ('o3', 'many', 'owner'), ('n', 'few', 'owner');
         insert into github_installations (id, organization_id, installation_id)
             values ('ghi_2', 'o2', 8), ('ghi_3', 'o3', 9), ('ghi_n', 'n', 10);
         insert into projects select (jsonb_populate_record(c, jsonb_build_object('id', 'p' || o, 'organization_id', o))).*
             from projects c, unnest(array['o2', 'o3', 'n']) o;
         insert into github_repositories (id, installation_id, repository_id, project_id, root_branch_id, previews, forks, job_keys)
             select 'ghr_' || i.installation_id, i.id, i.installation_id, 'p' || i.organization_id, g.root_branch_id,
                    true, false, false
             from github_installations i, github_repositories g where i.id <> 'ghi_1' and g.id = 'ghr_1';
         insert into github_pulls (mapping_id, number, due_at)
             select r.id, n, now() - case when r.id = 'ghr_10' then interval '1 minute' else interval '1 hour' end
             from github_repositories r, generate_series(1, 20) n",
    )
    .execute(sql)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_are_taken_by_turns_of_holders_and_of_what_one_owns() {
    let server = Postgres::shared();
    let (store, mut sql, _) = with_mapping(&server).await;
    with_holders(&mut sql).await;
    let take = async |room: Room| {
        let claimed = store.github_pulls_claim(room, 60).await.unwrap();
        let mut whose: Vec<_> =
            claimed.iter().map(|(holder, one)| format!("{} {}", holder.as_str(), one.key.mapping)).collect();
        whose.sort();
        whose
    };
    let first = take(room(8, 4, &[])).await;
    let few = ["few ghr_10"; 4];
    assert_eq!(first[..4], few);
    let many: Vec<_> = first[4..].iter().map(String::as_str).collect();
    let of_each = ["many ghr_1", "many ghr_8", "many ghr_9"];
    assert!(many.len() == 4 && of_each.iter().all(|one| many.contains(one)), "{many:?}");
    // One place comes free: whoever has less is next, though the other's wait longer.
    assert_eq!(take(room(1, 4, &["many", "many", "many", "many", "few"])).await, few[..1]);
    assert_eq!(take(room(8, 4, &["few", "few", "few", "few"])).await.len(), 4, "no more of one than four");
    assert_eq!(take(room(1, 4, &[])).await.len(), 1);
    // Who had no turn for longest, where both have as much.
    sqlx::raw_sql("update holder_turns set had_at = now() - interval '1 minute' where holder = 'few'")
        .execute(&mut sql)
        .await
        .unwrap();
    assert_eq!(take(room(1, 4, &[])).await, few[..1]);
    assert!(take(room(1, 4, &[])).await[0].starts_with("many"), "the other had one just now");
    sqlx::raw_sql("update holder_turns set had_at = now() - interval '2 days' where holder = 'few'")
        .execute(&mut sql)
        .await
        .unwrap();
    store.holder_purge().await.unwrap();
    let kept: Vec<String> =
        sqlx::query_scalar("select holder from holder_turns").fetch_all(&mut sql).await.unwrap();
    assert_eq!(kept, ["many"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_are_taken_by_turns_of_holders_and_put_off_where_github_is_away() {
    let server = Postgres::shared();
    let (store, mut sql, mapping) = with_mapping(&server).await;
    with_holders(&mut sql).await;
    let take = async |room: Room| {
        let due = store.github_repositories_due(room).await.unwrap();
        let mut holders: Vec<_> = due.into_iter().map(|(holder, _)| holder.as_str().to_owned()).collect();
        holders.sort();
        holders
    };
    assert_eq!(take(room(4, 1, &[])).await, ["few", "many"]);
    assert_eq!(take(room(4, 1, &["many"])).await, [""; 0], "one has one, the other no more");
    assert_eq!(take(room(4, 10, &[])).await, ["many"; 2]);
    assert_eq!(take(room(4, 10, &[])).await, [""; 0], "not before an hour is over");
    store.github_look_again().await.unwrap();
    assert_eq!(take(room(10, 10, &[])).await.len(), 4, "a process has begun");
    store.github_repository_look_again(&mapping.id, 60).await.unwrap();
    assert_eq!(take(room(10, 10, &[])).await, [""; 0], "put off");
    store.github_repository_look_again(&mapping.id, 0).await.unwrap();
    assert_eq!(take(room(10, 10, &[])).await, ["many"]);
    let installations = store.github_installations_due(room(2, 1, &[])).await.unwrap();
    assert_eq!(installations.len(), 2);
    let of_few = (Holder::from_trusted("few"), (OrganizationId::from_trusted("n"), 10));
    assert!(installations.contains(&of_few), "{installations:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_given_no_branch_that_is_deleted() {
    let server = Postgres::shared();
    let (store, mut sql, mapping) = with_mapping(&server).await;
    let key = PullKey { mapping: mapping.id, number: 9 };
    let made = "insert into github_pulls (mapping_id, number, branch_id) values ('ghr_1', 9, $1)";
    sqlx::query(made).bind(BRANCH).execute(&mut sql).await.unwrap();
    assert_eq!(store.github_preview(&key).await.unwrap(), Some(BranchId::from_trusted(BRANCH)));
    let trashed = "update branches set goal = 'trashed', deleted_at = now(), purge_at = now()";
    sqlx::query(trashed).execute(&mut sql).await.unwrap();
    assert_eq!(store.github_preview(&key).await.unwrap(), None);
}

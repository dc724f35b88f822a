//! Wrong states that the schema itself makes impossible.

use crate::postgres::Postgres;
use crate::with_rows;

async fn assert_refused(statement: &'static str, constraint: &str) {
    let server = Postgres::shared();
    let (_, mut sql) = with_rows(&server.database()).await;
    let error = sqlx::raw_sql(statement).execute(&mut sql).await.unwrap_err();
    let found = error.as_database_error().and_then(|error| error.constraint());
    assert!(found.is_some_and(|found| found.starts_with(constraint)), "{error}");
}

const SECOND_BRANCH: &str = "insert into branches select (jsonb_populate_record(b, \
    '{\"id\": \"bbbbbbbbbbbbbbbbbbbbbbbbbb\"}')).* from branches b";

#[tokio::test(flavor = "multi_thread")]
async fn two_branches_of_one_project_have_different_names() {
    assert_refused(SECOND_BRANCH, "branches_name").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_branch_says_when() {
    assert_refused("update branches set goal = 'deleted'", "branches_deleted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_has_one_primary() {
    let second = "insert into instances select 'j', branch_id, 2, role, volume_id, host_id from instances";
    assert_refused(second, "instances_one_primary").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_volumes_do_not_share_an_account() {
    let second = "insert into volumes (id, host_id, state, account, image_major, image_minor) \
                  values ('w', 'h', 'planned', 1, 18, 0)";
    assert_refused(second, "volumes_account").await;
}

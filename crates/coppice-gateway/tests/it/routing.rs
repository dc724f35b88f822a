//! Which branch, role and database a client reaches.

use crate::gateway::{DOMAIN, NO_BRANCH, PASSWORD, TestGateway};

const WHERE: &str = "select current_user || ' ' || current_database()";

#[tokio::test]
async fn a_branch_is_found_by_server_name_option_or_suffix() {
    let gateway = TestGateway::start().await;
    let (role, branch) = (&gateway.role, &gateway.branch);
    let named_by_host = format!("host={branch}.{DOMAIN} hostaddr=127.0.0.1 sslmode=require");
    for connection in [
        format!("user={role}.{branch}"),
        format!("user={role}.{branch}-rw"),
        format!("user={role} options=endpoint={branch}"),
        format!("user={role} options=branch={branch}-r"),
        format!("{named_by_host} user={role}"),
        // All at once: the server name counts, the others are cut off.
        format!("{named_by_host} user={role}.{NO_BRANCH} options=endpoint={NO_BRANCH}"),
    ] {
        assert_eq!(gateway.query(&connection, WHERE).await, format!("{role} {role}"), "{connection}");
    }
}

#[tokio::test]
async fn other_startup_parameters_reach_the_server() {
    let gateway = TestGateway::start().await;
    let connection = format!(
        "user={} application_name=tested options='-c work_mem=1234kB endpoint={} -c geqo=off'",
        gateway.role, gateway.branch
    );
    let sql = "select concat_ws(' ', current_setting('application_name'), current_setting('work_mem'), \
               current_setting('geqo'))";
    assert_eq!(gateway.query(&connection, sql).await, "tested 1234kB off");
}

#[tokio::test]
async fn role_names_with_dots_stay_whole() {
    let gateway = TestGateway::start().await;
    let role = format!("first.last.{}", gateway.role);
    gateway
        .admin
        .batch_execute(&format!("create role \"{role}\" login password '{PASSWORD}'"))
        .await
        .unwrap();
    let connection = format!("user={role}.{} dbname={}", gateway.branch, gateway.role);
    assert_eq!(gateway.query(&connection, "select current_user").await, role);
    let connection = format!("user={role} dbname={} options=endpoint={}", gateway.role, gateway.branch);
    assert_eq!(gateway.query(&connection, "select current_user").await, role);
}

#[tokio::test]
async fn a_client_that_names_no_branch_is_told_how_to() {
    let gateway = TestGateway::start().await;
    let answer = gateway.refusal("user=app").await;
    assert!(answer.contains("does not say which branch"), "{answer}");
    assert!(answer.contains("HINT:"), "{answer}");
}

#[tokio::test]
async fn endpoints_that_do_not_exist_say_so() {
    let gateway = TestGateway::start().await;
    let replica = gateway.refusal(&format!("user={}-ro", gateway.user())).await;
    assert!(replica.contains("has no replica"), "{replica}");
}

#[tokio::test]
async fn physical_replication_is_refused() {
    let gateway = TestGateway::start().await;
    let answer = gateway.refusal("replication=true").await;
    assert!(answer.contains("physical replication is not available"), "{answer}");
}

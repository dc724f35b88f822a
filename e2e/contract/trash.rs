//! Deleted branches, the way back and the end.

use std::time::Duration;

use coppice_test_support::{psql, wait_for};
use serde_json::{Value, json};

use super::removal::traces;
use super::{custom, is_timestamp, shared};
use crate::http::{Http, fields, text_of};

const PATIENCE: Duration = Duration::from_secs(60);

fn listed(http: &Http, trash: &str) -> Vec<Value> {
    http.get(trash).expect(200)["branches"].as_array().expect("branches").clone()
}

#[test]
fn a_deleted_branch_is_gone_at_once_and_comes_back_as_it_was() {
    let http = shared();
    let project = http.new_project("trash");
    let (branches, trash) = (format!("{project}/branches"), format!("{project}/trash"));
    let id = text_of(&http.post(&branches, &custom("main", json!({}))).expect(201)["id"]);
    let path = format!("{branches}/{id}");
    http.wait_healthy(&path);
    let url = text_of(&http.get(&format!("{path}/credentials")).expect(200)["connectionString"]);
    assert!(psql(&url, "CREATE TABLE t AS SELECT 7 AS i").is_ok);
    http.delete(&format!("{path}?purge=perhaps")).expect_error(400, "invalid_query_parameter");
    assert_eq!(http.delete(&path).status, 204);

    for what in ["", "/credentials", "/postgres-config", "/activity"] {
        http.get(&format!("{path}{what}")).expect_error(404, "branch_not_found");
    }
    http.with("PATCH", &path, &json!({})).expect_error(404, "branch_not_found");
    http.delete(&path).expect_error(404, "branch_not_found");
    assert_eq!(http.get(&branches).expect(200)["branches"], json!([]));
    // To clients it is like any that never was.
    let said = psql(&url, "SELECT 1");
    assert!(!said.is_ok && said.err.contains("password authentication failed"), "{}", said.err);
    let kept = listed(&http, &trash);
    assert_eq!(fields(&kept[0]), ["createdAt", "deletedAt", "description", "id", "name", "purgeAt"]);
    is_timestamp(&kept[0]["purgeAt"]);
    assert_eq!((kept.len(), text_of(&kept[0]["id"])), (1, id.clone()));

    // Its name is free, and then it is not when it comes back.
    let other = http.post(&branches, &custom("main", json!({}))).expect(201);
    let undelete = format!("{trash}/{id}/undelete");
    let message = http.post(&undelete, &json!({})).expect_error(409, "branch_name_taken");
    assert!(message.contains("`name`"), "{message}");
    http.post(&undelete, &json!({ "name": "" })).expect_error(400, "invalid_field");
    let back = http.post(&undelete, &json!({ "name": "first" })).expect(200);
    assert_eq!((text_of(&back["name"]), text_of(&back["id"])), ("first".to_owned(), id.clone()));
    http.wait_healthy(&path);
    assert_eq!(psql(&url, "SELECT i FROM t").out, "7", "also its password is what it was");
    http.post(&undelete, &json!({})).expect_error(404, "branch_not_found");

    // What is purged is gone for good, from the trash or past it.
    assert_eq!(http.delete(&path).status, 204);
    let other = text_of(&other["id"]);
    assert_eq!(http.delete(&format!("{branches}/{other}?purge=true")).status, 204);
    assert_eq!(listed(&http, &trash).len(), 1);
    assert_eq!(http.delete(&format!("{trash}/{id}")).status, 204);
    http.delete(&format!("{trash}/{id}")).expect_error(404, "branch_not_found");
    http.post(&undelete, &json!({})).expect_error(404, "branch_not_found");
    let (data_dir, ids) = (http.platform.data_dir().to_owned(), [id, other]);
    wait_for("nothing is left", PATIENCE, || traces(&data_dir, &ids).is_empty().then_some(()));
    assert_eq!(http.delete(&trash).status, 204, "there is nothing to empty");
}

//! Deleted branches, the way back and the end.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use coppice_test_support::{psql, wait_for};
use serde_json::{Value, json};

use super::removal::traces;
use super::{custom, is_timestamp, shared};
use crate::http::{Http, fields, text_of};
use crate::people::in_metastore;

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

#[test]
fn a_protected_branch_stays_and_one_that_expires_goes_into_the_trash() {
    let http = shared();
    let project = http.new_project("kept");
    let (branches, trash) = (format!("{project}/branches"), format!("{project}/trash"));
    let main = text_of(&http.post(&branches, &custom("main", json!({}))).expect(201)["id"]);
    let path = format!("{branches}/{main}");
    http.wait_healthy(&path);
    let change = |body: Value| http.with("PATCH", &path, &body);
    change(json!({ "protected": true })).expect(200);
    assert_eq!(http.get(&path).expect(200)["protected"], true);
    for (what, deleted) in
        [(&path, "branch main"), (&format!("{path}?purge=true"), "branch main"), (&project, "main")]
    {
        let message = http.delete(what).expect_error(409, "branch_protected");
        assert!(message.contains(deleted) && message.contains("unprotect"), "{message}");
    }
    change(json!({ "expiresAt": "2099-01-01T00:00:00Z" })).expect_error(409, "branch_protected");
    // Whether something can be deleted is no pipeline's business.
    let key = http.new_token("/api-keys", json!({ "scopes": ["branch:write", "project:read"] }));
    let as_key = |body: Value| http.as_key(&key, "PATCH", &path, Some(&body));
    as_key(json!({ "protected": false })).expect_error(403, "insufficient_scope");
    let keeps = |days: u32| json!({ "backupConfiguration": { "retentionPeriod": days } });
    as_key(keeps(35)).expect(200);
    as_key(keeps(2)).expect_error(403, "insufficient_scope");
    as_key(json!({ "protected": true, "description": "same" })).expect(200);
    change(json!({ "protected": false, "expiresAt": "2099-01-01T00:00:00Z" })).expect(200);
    let listed = http.get(&branches).expect(200)["branches"][0].clone();
    assert_eq!((&listed["expiresAt"], &listed["protected"]), (&json!("2099-01-01T00:00:00Z"), &Value::Null));
    change(json!({ "expiresAt": "2020-01-01T00:00:00Z" })).expect_error(400, "expiry_in_past");
    change(json!({ "expiresAt": "soon" })).expect_error(400, "invalid_field");
    change(json!({ "expiresAt": null })).expect(200);
    assert_eq!(http.get(&path).expect(200).get("expiresAt"), None);

    let child =
        |expiry: String| json!({ "name": "pr-1", "mode": "inherit", "parentID": main, "expiresAt": expiry });
    http.post(&branches, &child("2020-01-01T00:00:00Z".to_owned())).expect_error(400, "expiry_in_past");
    let later = (Utc::now() + TimeDelta::hours(1)).to_rfc3339();
    let made = text_of(&http.post(&branches, &child(later)).expect(201)["id"]);
    http.wait_healthy(&format!("{branches}/{made}"));
    // Nobody waits for the end: the platform is told that it has come.
    let end = format!("update branches set expires_at = now() where id = '{made}'");
    in_metastore(&http, &end);
    wait_for("it has expired", PATIENCE, || {
        (http.get(&format!("{branches}/{made}")).status == 404).then_some(())
    });
    let back = listed_one(&http, &trash, &made);
    assert_eq!(back["name"], "pr-1");
    http.post(&format!("{trash}/{made}/undelete"), &json!({})).expect(200);
    assert_eq!(http.get(&format!("{branches}/{made}")).expect(200).get("expiresAt"), None, "it stays now");

    http.with("PATCH", &project, &json!({ "configuration": { "childExpiryHours": 24 } })).expect(200);
    assert_eq!(http.get(&path).expect(200).get("expiresAt"), None, "as before");
    let other = |name: &str| json!({ "name": name, "mode": "inherit", "parentID": main });
    let make = |body: &Value| {
        let made = text_of(&http.post(&branches, body).expect(201)["id"]);
        http.get(&format!("{branches}/{made}")).expect(200)
    };
    let made = make(&other("pr-2"));
    let left = text_of(&made["expiresAt"]).parse::<DateTime<Utc>>().expect("a time") - Utc::now();
    assert!(left <= TimeDelta::hours(24) && left > TimeDelta::hours(23), "{made}");
    let mut forever = other("pr-3");
    forever["expiresAt"] = Value::Null;
    assert_eq!(make(&forever).get("expiresAt"), None);
    assert_eq!(http.delete(&project).status, 204);
}

fn listed_one(http: &Http, trash: &str, id: &str) -> Value {
    listed(http, trash).into_iter().find(|one| one["id"] == id).expect("is in the trash")
}

//! What was done for a request whose process ended before it could answer is not done again.

use chrono::{SecondsFormat, TimeDelta};
use coppice_test_support::Answer;
use serde_json::{Value, json};

use crate::backups::Project;
use crate::engine::remembered_from;
use crate::{Http, shared};

/// Sends a request that may be repeated, of one who is shown no password: the branch here has none.
fn repeatable(http: &Http, token: &str, key: &str, path: &str, body: &Value) -> Answer {
    let path = path.replace("{org}", http.organization());
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("idempotency-key", key)];
    http.send_text("POST", &path, &headers, &body.to_string())
}

fn token(http: &Http) -> String {
    let scopes = json!({ "scopes": ["project:read", "branch:read", "branch:write"] });
    http.new_token("/organizations/{org}/api-keys", scopes)
}

/// As if the process had ended before it kept the answer, and a while ago.
fn forget_answer(http: &Http, key: &str) {
    http.metastore(&format!(
        "update idempotent_requests set status = null, answer_sealed = null,
             started_at = now() - interval '2 minutes' where key = '{key}'"
    ));
}

#[test]
fn what_was_done_to_a_branch_is_answered_and_not_done_again() {
    let http = shared();
    let (project, token) = (Project::make(&http), token(&http));
    let branch = project.of(&project.kept);
    let twice = |what: &str, path: &str, body: Value, status: u16| {
        let key = format!("{what} {}", project.kept);
        let first = repeatable(&http, &token, &key, path, &body).expect(status);
        forget_answer(&http, &key);
        let again = repeatable(&http, &token, &key, path, &body).expect(status);
        assert_eq!(again["id"], first["id"], "{what}");
    };
    let then = (remembered_from() + TimeDelta::seconds(60)).to_rfc3339_opts(SecondsFormat::Millis, true);
    twice("restored", &format!("{branch}/restore"), json!({ "name": "restored" }), 201);
    twice("reset", &format!("{branch}/reset"), json!({ "from": { "targetTime": then } }), 200);
    http.delete(&branch).expect(204);
    twice("undeleted", &format!("{}/undelete", branch.replace("/branches/", "/trash/")), json!({}), 200);
}

#[test]
fn an_upgrade_that_was_noted_is_not_begun_again() {
    let http = shared();
    let (project, token) = (Project::make(&http), token(&http));
    let (key, path) =
        (format!("upgraded {}", project.kept), format!("{}/upgrade", project.of(&project.kept)));
    let body = json!({ "image": "postgres:18" });
    // No release is installed here any more.
    repeatable(&http, &token, &key, &path, &body).expect_error(400, "invalid_image");
    http.metastore(&format!(
        "update idempotent_requests set effect = '{}' where key = '{key}'",
        project.kept
    ));
    forget_answer(&http, &key);
    assert_eq!(repeatable(&http, &token, &key, &path, &body).expect(200)["id"], project.kept);
}

//! What branches have logged, wherever the engine keeps it.

use coppice_test_support::fields;
use serde_json::json;

use crate::backups::Project;
use crate::engine::LOGGED_FROM;
use crate::shared;

#[test]
fn the_log_of_a_branch_is_read_a_page_at_a_time_newest_first() {
    let http = shared();
    let project = Project::make(&http);
    let path = format!("{}/logs", project.of(&project.kept));
    let mut body = json!({ "start": "2020-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z", "limit": 2 });
    let first = http.post(&path, &body).expect(200);
    assert_eq!(fields(&first["logs"][0]), ["instanceID", "level", "message", "process", "timestamp"]);
    assert_eq!(first["logs"][0]["instanceID"], format!("{}-1", project.kept));
    let mut messages: Vec<_> = first["logs"].as_array().expect("a list").clone();
    body["cursor"] = first["nextCursor"].clone();
    let last = http.post(&path, &body).expect(200);
    messages.extend(last["logs"].as_array().expect("a list").clone());
    let messages: Vec<_> = messages.iter().map(|entry| entry["message"].clone()).collect();
    assert_eq!(messages, [2, 1, 0].map(|later| format!("line {}", LOGGED_FROM + later)));
    assert!(last["nextCursor"].is_null(), "{last}");

    let error = http.post(&format!("{}/logs", project.of(&project.new)), &body).expect(400);
    assert_eq!(error["id"], "invalid_cursor", "it is of another branch");
    body = json!({ "start": "2020-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z",
        "filters": [{ "field": "level", "op": "in", "values": ["error"] }] });
    assert_eq!(http.post(&path, &body).expect(200)["logs"], json!([]));
}

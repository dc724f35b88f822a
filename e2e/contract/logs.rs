//! branchLogs: every bound and every error.

use serde_json::{Value, json};

use super::{custom, is_timestamp, shared};
use crate::http::{Http, fields, text_of};

/// A project with a branch, and the path of its logs.
fn branch_with_log(http: &Http, name: &str) -> String {
    let project = http.new_project(name);
    let made = http.post(&format!("{project}/branches"), &custom("a", json!({}))).expect(201);
    let branch = format!("{project}/branches/{}", text_of(&made["id"]));
    http.wait_healthy(&branch);
    format!("{branch}/logs")
}

fn question(more: Value) -> Value {
    let mut body = json!({ "start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z" });
    for (field, value) in more.as_object().expect("an object") {
        body[field] = value.clone();
    }
    body
}

#[test]
fn a_page_has_the_documented_fields() {
    let http = shared();
    let path = branch_with_log(&http, "log fields");
    let page = http.post(&path, &question(json!({ "limit": 2 }))).expect(200);
    assert_eq!(fields(&page), ["end", "logs", "nextCursor", "start"]);
    assert_eq!(
        (&page["start"], &page["end"]),
        (&json!("2020-01-01T00:00:00Z"), &json!("2100-01-01T00:00:00Z"))
    );
    let elsewhere = json!({ "start": "2020-01-01T02:00:00+02:00", "end": "2100-01-01T00:00:00.123456789Z" });
    let said = http.post(&path, &question(elsewhere)).expect(200);
    assert_eq!(
        (&said["start"], &said["end"]),
        (&json!("2020-01-01T00:00:00.000Z"), &json!("2100-01-01T00:00:00.123456789Z"))
    );
    let logs = page["logs"].as_array().expect("entries");
    assert_eq!(logs.len(), 2);
    for entry in logs {
        assert_eq!(fields(entry), ["instanceID", "level", "message", "process", "timestamp"]);
        is_timestamp(&entry["timestamp"]);
    }
    assert!(text_of(&logs[0]["timestamp"]) >= text_of(&logs[1]["timestamp"]), "newest first");
    assert!(page["nextCursor"].is_string());

    // Start is included, end is not.
    let at = text_of(&logs[0]["timestamp"]);
    let from = http.post(&path, &json!({ "start": at, "end": "2100-01-01T00:00:00Z" })).expect(200);
    assert!(from["logs"].as_array().expect("entries").contains(&logs[0]));
    let until = http.post(&path, &json!({ "start": "2020-01-01T00:00:00Z", "end": at })).expect(200);
    assert!(!until["logs"].as_array().expect("entries").contains(&logs[0]));
    let nothing = http.post(&path, &json!({ "start": at, "end": at })).expect(200);
    assert_eq!((&nothing["logs"], &nothing["nextCursor"]), (&json!([]), &Value::Null));
}

#[test]
fn bounds_of_a_question_are_the_documented_ones() {
    let http = shared();
    let path = branch_with_log(&http, "log bounds");
    let filters = |filters: Value| question(json!({ "filters": filters }));
    let many = |count: usize, value: Value| Value::Array(vec![value; count]);
    for fine in [
        json!({}),
        json!({ "filters": null, "limit": null, "cursor": null }),
        json!({ "filters": [], "limit": 1, "cursor": "" }),
        json!({ "filters": many(20, json!({})), "limit": 200 }),
        json!({ "filters": [{ "values": many(100, json!("x".repeat(256))) }] }),
        json!({ "filters": [{ "value": "é".repeat(1024) }] }),
        json!({ "filters": [{ "field": "level", "op": "in", "values": ["error"] }, { "field": "process", "value": "x" }] }),
        json!({ "filters": [{ "field": "body", "op": "iregex", "value": "^(a|b)+$", "values": ["c"] }] }),
    ] {
        http.post(&path, &question(fine)).expect(200);
    }
    for (body, id, message) in [
        (json!({ "end": "2100-01-01T00:00:00Z" }), "missing_field", "start is required"),
        (json!({ "start": "2100-01-01T00:00:00Z" }), "missing_field", "end is required"),
        (
            question(json!({ "start": "soon" })),
            "invalid_field",
            "invalid start: must be an RFC 3339 date-time, like 2027-01-01T00:00:00Z",
        ),
        (question(json!({ "start": 5 })), "invalid_field", "invalid start: must be a string"),
        (
            question(json!({ "end": "2019-12-31T23:59:59Z" })),
            "invalid_time_range",
            "invalid time range: end is before start",
        ),
        (
            question(json!({ "limit": 0 })),
            "invalid_field",
            "invalid limit: must be a whole number from 1 to 200",
        ),
        (
            question(json!({ "limit": 201 })),
            "invalid_field",
            "invalid limit: must be a whole number from 1 to 200",
        ),
        (question(json!({ "cursor": "x" })), "invalid_cursor", "invalid cursor"),
        (question(json!({ "cursor": 1 })), "invalid_field", "invalid cursor: must be a string"),
        (filters(json!({})), "invalid_field", "invalid filters: must be an array"),
        (filters(json!(["x"])), "invalid_field", "invalid filters[0]: must be an object"),
        (filters(many(21, json!({}))), "too_many_items", "filters accepts at most 20 items"),
        (
            filters(json!([{ "values": many(101, json!("x")) }])),
            "too_many_items",
            "filters[0].values accepts at most 100 items",
        ),
        (
            filters(json!([{ "values": [""] }])),
            "invalid_filter",
            "invalid filter: values must have 1 to 256 characters each",
        ),
        (
            filters(json!([{ "values": ["x".repeat(257)] }])),
            "invalid_filter",
            "invalid filter: values must have 1 to 256 characters each",
        ),
        (
            filters(json!([{ "value": "x".repeat(1025) }])),
            "invalid_filter",
            "invalid filter: value must have at most 1024 characters",
        ),
        (
            filters(json!([{ "field": "pid" }])),
            "invalid_filter",
            "invalid filter: field must be instance, level, process or body",
        ),
        (
            filters(json!([{ "op": "in", "value": "x" }])),
            "invalid_filter",
            "invalid filter: op of body must be icontains, contains, regex or iregex",
        ),
        (
            filters(json!([{ "field": "level", "op": "regex" }])),
            "invalid_filter",
            "invalid filter: op of level must be in",
        ),
        (
            filters(json!([{ "field": "level", "values": ["error", "fatal"] }])),
            "invalid_filter",
            "invalid filter: levels are debug, info, warning, error",
        ),
        (
            filters(json!([{ "op": "regex", "value": "(" }])),
            "invalid_filter",
            "invalid filter: regular expression: unclosed group",
        ),
        (
            filters(json!([{ "op": "regex", "values": ["fine", "(?<=x)y"] }])),
            "invalid_filter",
            "invalid filter: regular expression: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            filters(json!([{ "op": "iregex", "value": "\\w{900}{900}" }])),
            "invalid_filter",
            "invalid filter: regular expressions are too large",
        ),
    ] {
        assert_eq!(http.post(&path, &body).expect_error(400, id), message, "{body}");
    }
}

#[test]
fn a_cursor_belongs_to_its_question() {
    let http = shared();
    let path = branch_with_log(&http, "log cursors");
    let all = http.post(&path, &question(json!({ "limit": 200 }))).expect(200);
    let all = all["logs"].as_array().expect("entries").clone();
    let first = http.post(&path, &question(json!({ "limit": 1 }))).expect(200);
    let cursor = text_of(&first["nextCursor"]);
    let second = http.post(&path, &question(json!({ "limit": 2, "cursor": cursor }))).expect(200);
    assert_eq!(second["logs"].as_array().expect("entries").as_slice(), &all[1..3]);
    // Once more, it is the same page.
    let again = http.post(&path, &question(json!({ "limit": 2, "cursor": cursor }))).expect(200);
    assert_eq!(again, second);

    let elsewhere = branch_with_log(&http, "log cursors elsewhere");
    for (path, body) in [
        (&path, json!({ "cursor": cursor, "start": "2020-01-01T00:00:01Z" })),
        (&path, json!({ "cursor": cursor, "end": "2100-01-01T00:00:01Z" })),
        (&path, json!({ "cursor": cursor, "filters": [{ "field": "level", "values": ["info"] }] })),
        (&path, json!({ "cursor": format!("{cursor}A") })),
        (&elsewhere, json!({ "cursor": cursor })),
    ] {
        http.post(path, &question(body)).expect_error(400, "invalid_cursor");
    }
}

#[test]
fn what_is_not_there_has_no_log() {
    let http = shared();
    let project = http.new_project("log of nothing");
    let missing = http.post(&format!("{project}/branches/nowhere/logs"), &question(json!({})));
    assert_eq!(missing.expect_error(404, "branch_not_found"), "branch nowhere not found");
    let organization = http.organization();
    let unknown = format!("/organizations/{organization}/projects/prj_nowhere/branches/nowhere/logs");
    http.post(&unknown, &question(json!({}))).expect_error(404, "project_not_found");
    // The question is looked at first.
    http.post(&unknown, &json!({})).expect_error(400, "missing_field");
    let key = http.new_token("/api-keys", json!({ "scopes": ["branch:read"] }));
    let refused = http.as_key(&key, "POST", &unknown, Some(&question(json!({}))));
    assert_eq!(
        refused.expect_error(403, "insufficient_scope"),
        "access denied: this credential lacks the scope logs:read"
    );
}

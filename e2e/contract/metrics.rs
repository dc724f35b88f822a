//! branchMetrics, to the letter.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::shared;
use crate::http::{Http, fields, text_of};

fn with_branch(http: &Http, name: &str) -> (String, String) {
    let project = http.new_project(name);
    let body = super::custom("main", json!({}));
    let id = text_of(&http.post(&format!("{project}/branches"), &body).expect(201)["id"]);
    (format!("{project}/branches/{id}"), id)
}

/// A request that is complete, with more in it.
fn request(more: Value) -> Value {
    let mut body = json!({
        "start": "2026-01-02T03:00:00Z", "end": "2026-01-02T04:00:00Z", "metrics": ["cpu"],
    });
    for (field, value) in more.as_object().expect("an object") {
        body[field] = value.clone();
    }
    body
}

#[test]
fn metrics_are_answered_in_the_documented_form_and_order() {
    let http = shared();
    let (branch, id) = with_branch(&http, "metrics form");
    let path = format!("{branch}/metrics");
    let body = request(json!({
        "start": "2026-01-02T03:00:00.123456789Z",
        "end": "2026-01-02T06:00:00+02:00",
        "metrics": ["disk", "cpu", "disk", "replication_lag_time"],
        "aggregations": ["min", "avg", "min"],
        "unknown": { "field": 1 },
    }));
    let answer = http.post(&path, &body).expect(200);
    assert_eq!(fields(&answer), ["end", "results", "start"]);
    assert_eq!(answer["start"], "2026-01-02T03:00:00.123456789Z", "as it was sent");
    assert_eq!(answer["end"], "2026-01-02T04:00:00.000Z", "in UTC");
    let results = answer["results"].as_array().expect("results");
    let names: Vec<_> = results.iter().map(|result| (&result["metric"], &result["unit"])).collect();
    assert_eq!(
        names,
        [
            (&json!("disk"), &json!("bytes")),
            (&json!("cpu"), &json!("percentage")),
            (&json!("replication_lag_time"), &json!("s"))
        ]
    );
    for result in results {
        assert_eq!(fields(result), ["metric", "series", "unit"]);
        let empty = |aggregation| json!({ "instanceID": format!("{id}-1"), "aggregation": aggregation, "values": [] });
        assert_eq!(result["series"], json!([empty("min"), empty("avg")]));
    }
    // Absent, null and empty are the same.
    for more in [
        json!({}),
        json!({ "aggregations": [], "instances": [] }),
        json!({ "aggregations": null, "instances": null }),
        json!({ "instances": [format!("{id}-1"), format!("{id}-1")] }),
    ] {
        let answer = http.post(&path, &request(more)).expect(200);
        let series = answer["results"][0]["series"].as_array().expect("series");
        assert_eq!(series.len(), 1);
        assert_eq!(
            (&series[0]["aggregation"], &series[0]["instanceID"]),
            (&json!("avg"), &json!(format!("{id}-1")))
        );
    }
}

#[test]
fn a_request_for_metrics_that_can_not_work_is_refused() {
    let http = shared();
    let (branch, id) = with_branch(&http, "metrics refusals");
    let path = format!("{branch}/metrics");
    let refused = |more: Value, code: &str| {
        let message = http.post(&path, &request(more.clone())).expect_error(400, code);
        assert!(!message.is_empty(), "{more}");
        message
    };
    for field in ["start", "end", "metrics"] {
        assert_eq!(refused(json!({ field: null }), "missing_field"), format!("{field} is required"));
    }
    for time in ["yesterday", "2026-01-02", "2026-01-02 00:00:00Z", "2026-13-02T00:00:00Z", ""] {
        refused(json!({ "start": time }), "invalid_field");
        refused(json!({ "end": time }), "invalid_field");
    }
    refused(json!({ "start": 7 }), "invalid_field");
    for metrics in [json!([]), json!(["CPU"]), json!(["cpu", ""]), json!([7]), json!("cpu"), json!({})] {
        refused(json!({ "metrics": metrics }), "invalid_field");
    }
    assert_eq!(
        refused(json!({ "metrics": vec!["cpu"; 16] }), "too_many_items"),
        "metrics accepts at most 15 items"
    );
    http.post(&path, &request(json!({ "metrics": vec!["cpu"; 15] }))).expect(200);
    for aggregations in [json!(["sum"]), json!("avg"), json!([null])] {
        refused(json!({ "aggregations": aggregations }), "invalid_field");
    }
    refused(json!({ "instances": vec![format!("{id}-1"); 101] }), "too_many_items");
    http.post(&path, &request(json!({ "instances": vec![format!("{id}-1"); 100] }))).expect(200);
    refused(json!({ "instances": [""] }), "invalid_field");
    refused(json!({ "instances": ["x".repeat(257)] }), "invalid_field");
    let long = refused(json!({ "instances": ["x".repeat(256)] }), "invalid_instance");
    assert_eq!(long, format!("invalid instance {}…", "x".repeat(64)), "no more of it is said again");
    for instance in [id.clone(), format!("{id}-2")] {
        assert_eq!(
            refused(json!({ "instances": [format!("{id}-1"), instance] }), "invalid_instance"),
            format!("invalid instance {instance}")
        );
    }
    let message = refused(json!({ "end": "2026-01-02T02:59:59.999999999Z" }), "invalid_time_range");
    assert!(message.starts_with("invalid time range: "), "{message}");
    http.post(&path, &request(json!({ "end": "2026-01-02T03:00:00Z" }))).expect(200);
    // Far away is no error, and soon answered.
    http.post(&path, &request(json!({ "start": "0000-01-01T00:00:00Z", "end": "9999-12-31T23:59:59Z" })))
        .expect(200);

    let (project, _) = branch.rsplit_once('/').expect("a path");
    http.post(&format!("{project}/nowhere/metrics"), &request(json!({})))
        .expect_error(404, "branch_not_found");
    http.post(&format!("{project}/a.b/metrics"), &request(json!({})))
        .expect_error(400, "invalid_path_parameter");
    http.delete(&branch).expect(204);
    http.post(&path, &request(json!({}))).expect_error(404, "branch_not_found");
}

#[test]
fn points_stand_at_whole_steps_within_the_time_asked_for() {
    let http = shared();
    let (branch, id) = with_branch(&http, "metrics points");
    http.wait_healthy(&branch);
    let (path, begun) = (format!("{branch}/metrics"), Utc::now());
    let ask = |start: DateTime<Utc>, end: DateTime<Utc>| {
        let time = |time: DateTime<Utc>| time.to_rfc3339();
        let body = json!({ "start": time(start), "end": time(end), "metrics": ["memory"], "aggregations": ["max", "avg"] });
        http.post(&path, &body).expect(200)["results"][0]["series"].clone()
    };
    let points = |series: &Value| -> Vec<(DateTime<Utc>, f64)> {
        let values = series["values"].as_array().expect("values").iter();
        values
            .map(|value| {
                assert_eq!(fields(value), ["timestamp", "value"]);
                super::is_timestamp(&value["timestamp"]);
                (
                    text_of(&value["timestamp"]).parse().expect("a time"),
                    value["value"].as_f64().expect("a number"),
                )
            })
            .collect()
    };
    coppice_test_support::wait_for("a measurement", std::time::Duration::from_secs(120), || {
        (!points(&ask(begun, Utc::now())[0]).is_empty()).then_some(())
    });
    let now = Utc::now();
    for length in [
        TimeDelta::hours(1),
        TimeDelta::days(2),
        TimeDelta::days(5),
        TimeDelta::days(20),
        TimeDelta::days(300),
    ] {
        let series = ask(now - length, now);
        let found = points(&series[0]);
        assert!(!found.is_empty(), "{length}: the newest step answers before it is over");
        assert!(found.iter().all(|(at, _)| *at >= now - length && *at <= now), "{length}: {found:?}");
        let (avg, max) = (points(&series[1])[0].1, found[0].1);
        assert!(avg > 0.0 && avg <= max, "{avg} {max}");
    }
    // The step of a start between two minutes stands there.
    let start = begun + TimeDelta::milliseconds(1);
    let start = DateTime::from_timestamp_millis(start.timestamp_millis()).expect("a time");
    let first = points(&ask(start, Utc::now())[0])[0].0;
    assert!(first == start || first.timestamp() % 60 == 0, "{first} after {start}");
    assert_eq!(ask(now + TimeDelta::days(1), now + TimeDelta::days(2))[0]["values"], json!([]));
    assert_eq!(ask(now, now)[0]["instanceID"], json!(format!("{id}-1")));
}

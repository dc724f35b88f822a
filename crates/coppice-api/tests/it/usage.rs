//! What an organization used.

use std::sync::Arc;

use coppice_test_support::fields;
use serde_json::{Value, json};

use crate::http::Http;
use crate::shared;

/// Two branches of a project that is gone, in the first hours of February and in January.
pub(crate) const SEALED: &str = "
    insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
        values ('b1', 'main', 'prj_gone', '=cmd|\"x\", y', '{org}'), ('b2', 'dev', 'prj_gone', '=cmd|\"x\", y', '{org}')
        on conflict do nothing;
    insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason) values
        ('b1', '2026-02-01T00:00:00Z', 'awake', 'small', 0, 3600000000, ''),
        ('b1', '2026-02-01T01:00:00Z', 'awake', 'small', 0, 1800000000, ''),
        ('b1', '2026-02-01T01:00:00Z', 'awake', 'micro', 0, 1800000000, ''),
        ('b1', '2026-02-01T01:00:00Z', 'awake', 'micro', 1, -600000000, 'it stood still'),
        ('b2', '2026-02-01T01:00:00Z', 'asleep', '', 0, 3600000000, ''),
        ('b2', '2026-02-01T01:00:00Z', 'storage', '', 0, 38654705664000000000, ''),
        ('b2', '2026-02-01T01:00:00Z', 'egress', '', 0, 1, ''),
        ('b2', '2026-01-31T23:00:00Z', 'asleep', '', 0, 3600000000, '')
        on conflict do nothing;
    insert into usage_labels (branch_id, from_hour, labels) values
        ('b1', '2026-01-01T00:00:00Z', '{\"team\": \"=shop\", \"env\": \"prod\"}'),
        ('b2', '2026-02-01T01:00:00Z', '{\"env\": \"dev\"}')
        on conflict do nothing;
    update usage_meter set sealed_until = '2026-03-01T00:00:00Z';";

/// The first two hours of February.
const HOURS: &str = "from=2026-02-01T00:59:00Z&to=2026-02-01T01:00:01Z";

fn used() -> Arc<Http> {
    let http = shared();
    http.metastore(SEALED);
    http
}

fn rows(http: &Http, query: &str) -> Vec<Value> {
    let answer = http.get(&format!("/organizations/{{org}}/usage?{query}")).expect(200);
    answer["rows"].as_array().expect("rows").clone()
}

#[test]
fn usage_is_shown_by_whatever_is_asked_for_also_of_what_is_gone() {
    let http = used();
    let answer = http.get(&format!("/organizations/{{org}}/usage?{HOURS}")).expect(200);
    assert_eq!(fields(&answer), ["currency", "from", "groupBy", "rows", "sealedUntil", "to", "total"]);
    assert_eq!(answer["from"], "2026-02-01T00:00:00.000Z");
    assert_eq!(answer["to"], "2026-02-01T02:00:00.000Z", "the hour that holds it is part of it");
    let found = |rows: &[Value]| -> Vec<Value> {
        rows.iter().map(|row| json!([row["meter"], row["quantity"], row["unit"]])).collect()
    };
    let all = json!([
        ["asleep", "1.000000", "hours"],
        ["awake", "1.833333", "instance-hours"],
        ["egress", "0.000000", "GiB"],
        ["storage", "10.000000", "GiB-hours"]
    ]);
    assert_eq!(json!(found(&rows(&http, HOURS))), all, "sums are rounded, not what they are made of");

    assert_eq!(answer["currency"], "EUR");
    assert_eq!(answer["total"], "151.100000", "of both types, and storage");

    let by_type = rows(&http, &format!("{HOURS}&groupBy=type,branch"));
    let of: Vec<_> =
        by_type.iter().map(|row| json!([row["branchName"], row["instanceType"], row["quantity"]])).collect();
    assert_eq!(
        json!(of),
        json!([
            ["dev", null, "1.000000"],
            ["dev", null, "0.000000"],
            ["dev", null, "10.000000"],
            ["main", "micro", "0.333333"],
            ["main", "small", "1.500000"]
        ])
    );
    assert!(by_type.iter().all(|row| row["projectID"] == "prj_gone"));
    let by_month = rows(&http, "from=2026-01-01T00:00:00Z&to=2026-02-01T02:00:00Z&groupBy=month");
    assert_eq!(by_month[0]["beganAt"], "2026-01-01T00:00:00.000Z");
    assert_eq!(by_month.len(), 5);
    let nobody = http.new_organization("without usage");
    let none = http.get(&format!("/organizations/{nobody}/usage?{HOURS}")).expect(200);
    assert_eq!(none["rows"], json!([]), "of its own alone");
}

#[test]
fn usage_is_a_table_for_who_asks_for_one() {
    let http = used();
    let path = format!("/organizations/{{org}}/usage?{HOURS}&groupBy=project,hour");
    let table = http.get(&format!("{path}&format=csv"));
    assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
    let text = table.text();
    let lines: Vec<_> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("ChargePeriodStart,ChargePeriodEnd,"), "{text}");
    assert_eq!(
        lines[1],
        "2026-02-01T00:00:00Z,2026-02-01T01:00:00Z,Databases,PostgreSQL,Usage,Compute,prj_gone,\
         \"'=cmd|\"\"x\"\", y\",,,compute,1.000000,instance-hours,100.000000,100.000000,100.000000,100.000000,EUR,"
    );
    assert_eq!((lines.len(), lines[5 + 1]), (7, ""), "{text}");
    let path = path.replace("{org}", http.organization());
    let bearer = format!("Bearer {}", http.key());
    let liked =
        http.anonymous("GET", &path, &[("authorization", &bearer), ("accept", "text/csv, */*;q=0.1")]);
    assert_eq!(liked.text(), text);
    let chosen = [("authorization", bearer.as_str()), ("accept", "text/csv")];
    let chosen = http.anonymous("GET", &format!("{path}&format=json"), &chosen);
    assert_eq!(chosen.header("content-type"), "application/json");
}

#[test]
fn usage_is_told_apart_by_the_labels_that_branches_had() {
    let http = used();
    let of = |query: &str| -> Value {
        let rows = rows(&http, &format!("{HOURS}&{query}"));
        rows.iter().map(|row| json!([row["labels"], row["meter"], row["quantity"]])).collect()
    };
    assert_eq!(
        of("groupBy=label:team"),
        json!([
            [{}, "asleep", "1.000000"],
            [{}, "egress", "0.000000"],
            [{}, "storage", "10.000000"],
            [{ "team": "=shop" }, "awake", "1.833333"]
        ])
    );
    assert_eq!(
        of("groupBy=labels,hour")[0],
        json!([{ "env": "prod", "team": "=shop" }, "awake", "1.000000"])
    );
    assert_eq!(of("")[0][0], Value::Null);
    let answer = http.get("/organizations/{org}/usage?groupBy=label:team,month").expect(200);
    assert_eq!(answer["groupBy"], json!(["label:team", "month"]));
    let table = http.get(&format!("/organizations/{{org}}/usage?{HOURS}&groupBy=labels&format=csv")).text();
    assert!(table.starts_with("ChargePeriodStart,") && table.contains("BillingCurrency,Tags\r\n"), "{table}");
    assert!(table.contains(r#","{""env"":""dev""}""#), "{table}");
    assert!(table.contains(r#","{""env"":""prod"",""team"":""=shop""}""#), "{table}");
    for query in ["groupBy=label:", "groupBy=label:a b", "groupBy=labels,label:team"] {
        http.get(&format!("/organizations/{{org}}/usage?{}", query.replace(' ', "%20")))
            .expect_error(400, "invalid_query_parameter");
    }
}

#[test]
fn usage_that_makes_no_sense_is_refused() {
    let http = used();
    let ask = |query: &str| http.get(&format!("/organizations/{{org}}/usage?{query}"));
    for query in ["groupBy=tag", "groupBy=hour,day", "format=xml", "from=yesterday"] {
        ask(query).expect_error(400, "invalid_query_parameter");
    }
    for query in ["from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z", "from=2020-01-01T00:00:00Z"] {
        ask(query).expect_error(400, "invalid_time_range");
    }
    let limited = http.new_token("/api-keys", json!({ "scopes": ["org:read"], "projects": ["prj_x"] }));
    http.as_key(&limited, "GET", "/organizations/{org}/usage", None).expect_error(403, "restricted_key");
}

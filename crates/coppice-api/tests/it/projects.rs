//! Projects: fields, bounds and how changes merge.

use coppice_test_support::{Answer, fields, text_of};
use serde_json::{Value, json};

use crate::{Http, is_timestamp, shared};

const PROJECTS: &str = "/organizations/{org}/projects";

fn defaults() -> Value {
    json!({
        "scaleToZero": {
            "baseBranches": { "enabled": false, "inactivityPeriodMinutes": 30 },
            "childBranches": { "enabled": false, "inactivityPeriodMinutes": 30 },
        },
        "ipFiltering": { "enabled": false, "cidr": [] },
    })
}

fn configure(http: &Http, configuration: Value) -> Answer {
    http.post(PROJECTS, &json!({ "name": "bounds", "configuration": configuration }))
}

#[test]
fn a_project_has_exactly_the_documented_fields() {
    let http = shared();
    for body in [
        json!({ "name": " shop " }),
        json!({ "name": "shop", "configuration": null, "id": "prj_mine", "x": { "y": 1 } }),
        json!({ "name": "shop", "configuration": {} }),
        json!({ "name": "shop", "configuration": { "scaleToZero": {}, "ipFiltering": { "cidr": null, "x": 1 } } }),
    ] {
        let made = http.post(PROJECTS, &body).expect(201);
        assert_eq!(fields(&made), ["configuration", "createdAt", "id", "name", "updatedAt"]);
        assert_eq!((&made["name"], &made["configuration"]), (&json!("shop"), &defaults()), "{body}");
        let id = text_of(&made["id"]);
        assert!(id.starts_with("prj_") && id.len() == 30, "{id}");
        is_timestamp(&made["createdAt"]);
        assert_eq!(made["createdAt"], made["updatedAt"]);
        assert_eq!(http.get(&format!("{PROJECTS}/{id}")).expect(200), made);
        let list = http.get(PROJECTS).expect(200);
        assert_eq!(fields(&list), ["projects"]);
        assert!(list["projects"].as_array().expect("a list").contains(&made));
    }
}

#[test]
fn bounds_of_a_project_hold() {
    let http = shared();
    let name = |name: Value| http.post(PROJECTS, &json!({ "name": name }));
    http.post(PROJECTS, &json!({})).expect_error(400, "missing_field");
    name(json!("x")).expect(201);
    name(json!(format!(" {} ", "ü".repeat(128)))).expect(201);
    for wrong in [json!(""), json!("  "), json!("x".repeat(129)), json!("a\u{0}"), json!([]), json!(1)] {
        name(wrong).expect_error(400, "invalid_field");
    }
    let period = |minutes: Value| {
        configure(&http, json!({ "scaleToZero": { "baseBranches": { "inactivityPeriodMinutes": minutes } } }))
    };
    for allowed in [1, 10080] {
        let made = period(json!(allowed)).expect(201);
        let setting = &made["configuration"]["scaleToZero"]["baseBranches"];
        assert_eq!(*setting, json!({ "enabled": false, "inactivityPeriodMinutes": allowed }));
    }
    for wrong in [json!(0), json!(10081), json!(-1), json!(1.5), json!("30"), json!(true)] {
        period(wrong).expect_error(400, "invalid_field");
    }
    let expiry = |hours: Value| configure(&http, json!({ "childExpiryHours": hours }));
    for allowed in [1, 8760] {
        assert_eq!(expiry(json!(allowed)).expect(201)["configuration"]["childExpiryHours"], allowed);
    }
    assert_eq!(expiry(json!(0)).expect(201)["configuration"], defaults(), "0 is never");
    for wrong in [json!(8761), json!(-1), json!(1.5), json!("24")] {
        expiry(wrong).expect_error(400, "invalid_field");
    }
    let ranges = |ranges: Value| configure(&http, json!({ "ipFiltering": { "cidr": ranges } }));
    let many = |count: usize| json!(vec![json!({ "cidr": "10.0.0.0/8" }); count]);
    ranges(many(64)).expect(201);
    let message = ranges(many(65)).expect_error(400, "too_many_items");
    assert!(message.ends_with("accepts at most 64 items"), "{message}");
    let kept =
        ranges(json!([{ "cidr": "10.1.2.3/8", "description": "x".repeat(100) }, { "cidr": "2001:db8::1" }]));
    let kept = kept.expect(201)["configuration"]["ipFiltering"].clone();
    assert_eq!(kept["cidr"][0], json!({ "cidr": "10.1.2.3/8", "description": "x".repeat(100) }), "as sent");
    assert_eq!(kept["cidr"][1], json!({ "cidr": "2001:db8::1", "description": "" }));
    ranges(json!([{ "cidr": "::1", "description": "x".repeat(101) }])).expect_error(400, "invalid_field");
    ranges(json!([{ "cidr": "::1", "description": null }])).expect(201);
    ranges(json!([{}])).expect_error(400, "missing_field");
    ranges(json!(["10.0.0.0/8"])).expect_error(400, "invalid_field");
    let message = ranges(json!([{ "cidr": "10.0.0.0/33" }])).expect_error(400, "invalid_cidr");
    assert_eq!(message, "invalid address range 10.0.0.0/33");
    ranges(json!([{ "cidr": "1.2.3.4/08" }])).expect_error(400, "invalid_cidr");
    let long = ranges(json!([{ "cidr": "x".repeat(900_000) }])).expect_error(400, "invalid_cidr");
    assert!(long.len() < 300, "{} bytes are said again", long.len());
    for wrong in [json!(1), json!([]), json!("x")] {
        configure(&http, wrong.clone()).expect_error(400, "invalid_field");
        configure(&http, json!({ "ipFiltering": wrong })).expect_error(400, "invalid_field");
    }
}

#[test]
fn a_change_of_a_project_is_merged_member_by_member() {
    let http = shared();
    let path = http.new_project("merged");
    let change = |body: Value| http.with("PATCH", &path, &body).expect(200);
    let setting = |project: &Value, of: &str| project["configuration"]["scaleToZero"][of].clone();
    let first = change(json!({ "configuration": {
        "scaleToZero": { "baseBranches": { "enabled": true } },
        "ipFiltering": { "cidr": [{ "cidr": "10.0.0.0/8", "description": "a" }, { "cidr": "::1" }] },
    } }));
    assert_eq!(setting(&first, "baseBranches"), json!({ "enabled": true, "inactivityPeriodMinutes": 30 }));
    assert_eq!(setting(&first, "childBranches"), json!({ "enabled": false, "inactivityPeriodMinutes": 30 }));
    assert_eq!(first["configuration"]["ipFiltering"]["enabled"], false);
    let second = change(json!({ "configuration": {
        "scaleToZero": { "baseBranches": { "inactivityPeriodMinutes": 5 }, "childBranches": { "enabled": null } },
        "ipFiltering": { "enabled": true },
    } }));
    assert_eq!(setting(&second, "baseBranches"), json!({ "enabled": true, "inactivityPeriodMinutes": 5 }));
    assert_eq!(second["configuration"]["ipFiltering"]["enabled"], true);
    assert_eq!(
        second["configuration"]["ipFiltering"]["cidr"], first["configuration"]["ipFiltering"]["cidr"],
        "absent members stay"
    );
    let third = change(json!({ "configuration": { "ipFiltering": { "cidr": [{ "cidr": "::2" }] } } }));
    assert_eq!(
        third["configuration"]["ipFiltering"],
        json!({ "enabled": true, "cidr": [{ "cidr": "::2", "description": "" }] }),
        "the list is replaced as a whole"
    );
    let emptied = change(json!({ "configuration": { "ipFiltering": { "cidr": [] } } }));
    assert_eq!(emptied["configuration"]["ipFiltering"], json!({ "enabled": true, "cidr": [] }));
    let renamed = change(json!({ "name": " renamed " }));
    assert!(text_of(&renamed["updatedAt"]) > text_of(&renamed["createdAt"]));
    assert_eq!((&renamed["name"], &renamed["configuration"]), (&json!("renamed"), &emptied["configuration"]));
    for nothing in [
        json!({}),
        json!({ "name": null, "configuration": null }),
        json!({ "name": "renamed", "configuration": { "scaleToZero": { "baseBranches": {} }, "ipFiltering": {} } }),
        json!({ "configuration": { "ipFiltering": { "cidr": [] } }, "createdAt": "x" }),
    ] {
        assert_eq!(change(nothing.clone()), renamed, "{nothing} changes nothing");
    }
    let wrong =
        json!({ "name": "y", "configuration": { "scaleToZero": { "baseBranches": { "enabled": 1 } } } });
    http.with("PATCH", &path, &wrong).expect_error(400, "invalid_field");
    assert_eq!(http.get(&path).expect(200), renamed, "all or nothing");
}

#[test]
fn a_limited_key_lists_what_it_may_see() {
    let http = shared();
    let (mine, other) = (http.new_project("mine"), http.new_project("other"));
    let id = mine.rsplit('/').next().expect("an id");
    let key = http.new_token("/api-keys", json!({ "projects": [id, "prj_unknown"] }));
    let list = http.as_key(&key, "GET", PROJECTS, None).expect(200);
    assert_eq!(list["projects"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["projects"][0]["id"], json!(id));
    http.as_key(&key, "GET", &mine, None).expect(200);
    http.as_key(&key, "GET", &other, None).expect_error(403, "project_access_denied");
    let made = http.as_key(&key, "POST", PROJECTS, Some(&json!({ "name": "x" })));
    made.expect_error(403, "restricted_key");
    http.as_key(&key, "PATCH", &mine, Some(&json!({ "name": "still mine" }))).expect(200);
    // The key of a deleted project keeps its limit and reaches nothing.
    assert_eq!(http.as_key(&key, "DELETE", &mine, None).status, 204);
    http.as_key(&key, "GET", &mine, None).expect_error(404, "project_not_found");
    assert_eq!(http.as_key(&key, "GET", PROJECTS, None).expect(200), json!({ "projects": [] }));
}

#[test]
fn a_project_that_is_not_there_is_not_found() {
    let http = shared();
    let path = format!("{PROJECTS}/prj_unknown");
    for method in ["GET", "DELETE"] {
        let message = http.call(method, &path).expect_error(404, "project_not_found");
        assert_eq!(message, "project prj_unknown not found");
    }
    // The body is looked at before.
    http.with("PATCH", &path, &json!({ "name": 1 })).expect_error(400, "invalid_field");
    http.with("PATCH", &path, &json!({ "name": "x" })).expect_error(404, "project_not_found");
    let organization = http.new_organization("elsewhere");
    let project = http.new_project("of the first");
    let id = project.rsplit('/').next().expect("an id");
    let elsewhere = format!("/organizations/{organization}/projects/{id}");
    http.get(&elsewhere).expect_error(404, "project_not_found");
    for bad in ["a.b", "a%20b", "x%2Fy", &"x".repeat(65)] {
        let message = http.get(&format!("{PROJECTS}/{bad}")).expect_error(400, "invalid_path_parameter");
        assert_eq!(message, "invalid path parameter projectID");
    }
}

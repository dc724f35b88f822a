//! Branches: their views, bounds, parameters and changes.

use coppice_test_support::psql;
use serde_json::{Value, json};

use super::{custom, is_timestamp, shared};
use crate::http::{Answer, Http, fields, text_of};

const SHORT: [&str; 9] = [
    "connectionString",
    "createdAt",
    "description",
    "id",
    "name",
    "parentID",
    "publicAccess",
    "region",
    "updatedAt",
];

/// A project with branches.
struct Project<'a> {
    http: &'a Http,
    branches: String,
}

impl<'a> Project<'a> {
    fn new(http: &'a Http, name: &str) -> Self {
        Self { http, branches: format!("{}/branches", http.new_project(name)) }
    }

    fn make(&self, body: &Value) -> Answer {
        self.http.post(&self.branches, body)
    }

    fn path(&self, branch: &Value) -> String {
        format!("{}/{}", self.branches, text_of(&branch["id"]))
    }

    fn sql(&self, branch: &Value, sql: &str) -> String {
        let path = format!("{}/credentials", self.path(branch));
        let credentials = self.http.get(&path).expect(200);
        let said = psql(&text_of(&credentials["connectionString"]), sql);
        assert!(said.is_ok, "{sql}: {}", said.err);
        said.out
    }
}

#[test]
fn a_branch_has_exactly_the_documented_fields_in_each_view() {
    let http = shared();
    let project = Project::new(&http, "views");
    let mut body = custom(" main ", json!({ "unknown": 1, "replicas": null, "storage": null }));
    body["x"] = json!(1);
    body["description"] = json!(null);
    let short = project.make(&body).expect(201);
    assert_eq!(fields(&short), SHORT);
    assert_eq!((&short["name"], &short["description"]), (&json!("main"), &json!("")));
    assert_eq!((&short["parentID"], &short["publicAccess"]), (&json!(null), &json!(false)));
    let id = text_of(&short["id"]);
    assert!(id.len() == 26 && id.starts_with(|c: char| ('a'..='v').contains(&c)), "{id}");
    is_timestamp(&short["createdAt"]);
    is_timestamp(&short["updatedAt"]);

    let list = http.get(&project.branches).expect(200);
    assert_eq!(fields(&list), ["branches"]);
    let listed = &list["branches"][0];
    let mut names: Vec<_> = SHORT.iter().copied().filter(|name| *name != "connectionString").collect();
    names.push("backupsEnabled");
    names.sort_unstable();
    assert_eq!(fields(listed), names);

    http.wait_healthy(&project.path(&short));
    let full = http.get(&project.path(&short)).expect(200);
    let mut names = SHORT.to_vec();
    names.extend(["backupsEnabled", "configuration", "scaleToZero", "status"]);
    names.extend((full["backupsEnabled"] == true).then_some("backupConfiguration"));
    names.sort_unstable();
    assert_eq!(fields(&full), names);
    assert_eq!(full["scaleToZero"], json!({ "enabled": false, "inactivityPeriodMinutes": 30 }));
    let status = &full["status"];
    let instance =
        json!({ "id": format!("{id}-1"), "status": "healthy", "primary": true, "targetPrimary": true });
    assert_eq!(
        *status,
        json!({
            "status": "Healthy", "statusType": "STATUS_TYPE_HEALTHY", "message": "Healthy",
            "lifecycle": { "state": "ready", "phase": "Healthy" },
            "instanceCount": 1, "instanceReadyCount": 1, "instances": [instance],
        })
    );
    assert_eq!(
        full["configuration"],
        json!({
            "region": "local", "instanceType": "micro", "image": "postgres:17.10", "replicas": 0, "storage": 10,
            "postgresConfigurationParameters": {}, "preloadLibraries": ["pg_stat_statements", "auto_explain"],
        })
    );

    let credentials = http.get(&format!("{}/credentials", project.path(&short))).expect(200);
    let names = ["connectionString", "dbname", "hostname", "password", "port", "username"];
    assert_eq!(fields(&credentials), names);
    assert_eq!(credentials["connectionString"], short["connectionString"]);
    assert_eq!(
        (&credentials["username"], &credentials["dbname"]),
        (&json!(format!("app.{id}")), &json!("app"))
    );
    for form in ["", "app", &format!("app.{id}")] {
        let path = format!("{}/credentials?username={form}", project.path(&short));
        assert_eq!(http.get(&path).expect(200), credentials, "{form}");
    }
    let wrong = http.get(&format!("{}/credentials?username=root", project.path(&short)));
    assert_eq!(wrong.expect_error(400, "invalid_username"), "only the user app is managed");

    let without = http.new_token("/api-keys", json!({ "scopes": ["branch:read"] }));
    let seen = http.as_key(&without, "GET", &project.path(&short), None).expect(200);
    assert_eq!(seen["connectionString"], json!(null), "only with the scope credentials:read");
}

#[test]
fn bounds_of_a_branch_hold() {
    let http = shared();
    let project = Project::new(&http, "bounds of branches");
    let with = |field: &str, value: Value| {
        let mut body = custom("bounds", json!({}));
        body[field] = value;
        // Never made: its image does not exist. Fields are looked at before.
        body["configuration"]["image"] = json!("postgres:1");
        project.make(&body).refusal().1
    };
    for name in ["x", "feature/a.b", &format!(" {} ", "ä".repeat(255))] {
        assert_eq!(with("name", json!(name)), "invalid_image");
    }
    for name in [json!(""), json!(" "), json!("x".repeat(256)), json!("a\u{1b}b"), json!(1)] {
        assert_eq!(with("name", name), "invalid_field");
    }
    for fine in [json!(""), json!("PR 12 - fix"), json!("x".repeat(50)), json!(null)] {
        assert_eq!(with("description", fine.clone()), "invalid_image", "{fine}");
    }
    for wrong in
        [json!("x".repeat(51)), json!("-x"), json!(" x"), json!("é"), json!("a.b"), json!("a\n"), json!(1)]
    {
        assert_eq!(with("description", wrong.clone()), "invalid_field", "{wrong}");
    }
    for wrong in [0, 10081] {
        assert_eq!(with("scaleToZero", json!({ "inactivityPeriodMinutes": wrong })), "invalid_field");
    }
    assert_eq!(with("scaleToZero", json!({ "inactivityPeriodMinutes": 10080 })), "invalid_image");
    assert_eq!(with("mode", json!("other")), "invalid_field");
    assert_eq!(with("mode", json!(null)), "missing_field");
    assert_eq!(with("mode", json!("inherit")), "missing_field");
    assert_eq!(with("backupConfiguration", json!({ "retentionPeriod": 1 })), "invalid_backup_configuration");
    project.make(&json!({ "name": "x", "mode": "custom" })).expect_error(400, "missing_field");
    for required in ["region", "instanceType", "image"] {
        let message =
            project.make(&custom("x", json!({ required: null }))).expect_error(400, "missing_field");
        assert_eq!(message, format!("configuration.{required} is required"));
    }
    let long = "x".repeat(900_000);
    for field in ["region", "instanceType", "image"] {
        let message = project.make(&custom("x", json!({ field: long }))).json()["message"].to_string();
        assert!(message.len() < 200, "{field}: {} bytes are said again", message.len());
    }
    for (more, id) in [
        (json!({ "region": "" }), "invalid_region"),
        (json!({ "image": "postgres:017" }), "invalid_image"),
        (json!({ "replicas": 0.0 }), "invalid_field"),
        (json!({ "region": "mars" }), "invalid_region"),
        (json!({ "instanceType": "giant" }), "invalid_instance_type"),
        (json!({ "replicas": 5 }), "invalid_field"),
        (json!({ "replicas": -1 }), "invalid_field"),
        (json!({ "storage": 0 }), "invalid_field"),
        (json!({ "storage": 251 }), "invalid_field"),
        (json!({ "preloadLibraries": ["nonsense"] }), "invalid_preload_library"),
    ] {
        project.make(&custom("x", more.clone())).expect_error(400, id);
    }
    let inherit = |parent: &str| project.make(&json!({ "name": "x", "mode": "inherit", "parentID": parent }));
    assert_eq!(inherit("unknown").expect_error(404, "branch_not_found"), "branch unknown not found");
    for wrong in ["", "a b", "a\u{0}", &"x".repeat(65)] {
        inherit(wrong).expect_error(400, "invalid_field");
    }
    assert_eq!(http.get(&project.branches).expect(200), json!({ "branches": [] }), "nothing was made");
}

#[test]
fn parameters_of_a_new_branch_are_in_force() {
    let http = shared();
    let project = Project::new(&http, "parameters");
    let parameters = json!({ "work_mem": "7MB", "statement_timeout": "90s", "random_page_cost": "1.5" });
    let more = json!({
        "postgresConfigurationParameters": parameters, "preloadLibraries": ["pg_stat_statements"], "storage": 3,
    });
    let branch = project.make(&custom("tuned", more)).expect(201);
    let shown = project.sql(&branch, "SELECT current_setting('work_mem') || ' ' || current_setting('statement_timeout') || ' ' || current_setting('random_page_cost')");
    assert_eq!(shown, "7MB 90s 1.5");
    let libraries = project.sql(&branch, "SHOW shared_preload_libraries");
    assert!(libraries.contains("pg_stat_statements") && !libraries.contains("auto_explain"), "{libraries}");
    let full = http.get(&project.path(&branch)).expect(200);
    assert_eq!(full["configuration"]["postgresConfigurationParameters"], parameters);
    assert_eq!(full["configuration"]["preloadLibraries"], json!(["pg_stat_statements"]));
    assert_eq!(full["configuration"]["storage"], 3);

    http.wait_healthy(&project.path(&branch));
    let child = json!({ "name": "child", "mode": "inherit", "parentID": branch["id"] });
    let child = project.make(&child).expect(201);
    assert_eq!(child["parentID"], branch["id"]);
    assert_eq!(project.sql(&child, "SHOW work_mem"), "7MB", "a child has its parent's");
    assert_ne!(child["connectionString"], branch["connectionString"]);

    let wrong = json!({ "zzz": "1", "work_mem": "1kB", "fsync": "off", "max_connections": "many" });
    let refused = project.make(&custom("x", json!({ "postgresConfigurationParameters": wrong })));
    let message = refused.expect_error(400, "invalid_postgres_parameter");
    let names: Vec<_> = message.split("; ").map(|one| one.split(':').next().unwrap_or_default()).collect();
    assert_eq!(names, ["fsync", "max_connections", "work_mem", "zzz"], "{message}");
    let not_text = json!({ "postgresConfigurationParameters": { "work_mem": 7 } });
    project.make(&custom("x", not_text)).expect_error(400, "invalid_field");
}

#[test]
fn a_branch_is_renamed_described_and_told_when_to_sleep() {
    let http = shared();
    let project = Project::new(&http, "changes");
    let branch = project.make(&custom("a", json!({}))).expect(201);
    let path = project.path(&branch);
    let change = |body: Value| http.with("PATCH", &path, &body);
    let changed = change(json!({ "name": " b ", "description": "was a" })).expect(200);
    assert_eq!(fields(&changed), SHORT);
    assert_eq!((&changed["name"], &changed["description"]), (&json!("b"), &json!("was a")));
    assert!(text_of(&changed["updatedAt"]) > text_of(&branch["updatedAt"]));
    assert_eq!(changed["createdAt"], branch["createdAt"]);
    for nothing in
        [json!({}), json!({ "name": "b", "description": null }), json!({ "scaleToZero": {}, "x": 1 })]
    {
        assert_eq!(change(nothing.clone()).expect(200), changed, "{nothing} changes nothing");
    }
    change(json!({ "scaleToZero": { "enabled": true } })).expect(200);
    change(json!({ "scaleToZero": { "inactivityPeriodMinutes": 10080 } })).expect(200);
    let full = http.get(&path).expect(200);
    assert_eq!(full["scaleToZero"], json!({ "enabled": true, "inactivityPeriodMinutes": 10080 }));
    assert_eq!(change(json!({ "description": "" })).expect(200)["description"], "");

    project.make(&custom("taken", json!({}))).expect(201);
    let message = change(json!({ "name": "taken" })).expect_error(409, "branch_name_taken");
    assert_eq!(message, "a branch named taken already exists");
    for wrong in [
        json!({ "name": "" }),
        json!({ "name": "x".repeat(256) }),
        json!({ "description": "é" }),
        json!({ "scaleToZero": { "inactivityPeriodMinutes": 0 } }),
        json!({ "scaleToZero": true }),
    ] {
        change(wrong).expect_error(400, "invalid_field");
    }
    // What is no value is refused rather than ignored.
    for field in ["instanceType", "image", "preloadLibraries", "backupConfiguration"] {
        let body = json!({ "name": "not me", field: 1 });
        let message = change(body).expect_error(400, "invalid_field");
        assert!(message.starts_with(&format!("invalid {field}: ")), "{message}");
        change(json!({ field: null })).expect(200);
    }
    // To name what it is changes nothing.
    let is = http.get(&path).expect(200)["configuration"].clone();
    for same in [
        json!({ "replicas": 0 }),
        json!({ "replicas": null }),
        json!({ "instanceType": is["instanceType"] }),
        json!({ "instanceType": "custom" }),
        json!({ "image": is["image"] }),
        json!({ "preloadLibraries": is["preloadLibraries"] }),
        json!({ "storage": is["storage"] }),
        json!({ "backupConfiguration": {} }),
        is.clone(),
    ] {
        change(same).expect(200);
    }
    for (other, id) in [
        (json!({ "replicas": 5 }), "invalid_field"),
        (json!({ "instanceType": "giant" }), "invalid_instance_type"),
        (json!({ "image": "mysql:8" }), "invalid_image"),
        (json!({ "image": "postgres:15" }), "invalid_image"),
        (json!({ "preloadLibraries": ["nonsense"] }), "invalid_preload_library"),
        (json!({ "backupConfiguration": { "retentionPeriod": 36 } }), "invalid_backup_configuration"),
    ] {
        change(other).expect_error(400, id);
    }
    let less = change(json!({ "name": "not me", "storage": 9 })).expect_error(400, "storage_shrink");
    assert_eq!(less, "storage cannot be reduced from 10 to 9 GiB");
    change(json!({ "name": "not me", "storage": 251 })).expect_error(400, "invalid_field");
    assert_eq!(http.get(&path).expect(200)["name"], "b", "all or nothing");
    http.with("PATCH", &format!("{}/unknown", project.branches), &json!({}))
        .expect_error(404, "branch_not_found");
    let renamed = project.make(&custom("a", json!({}))).expect(201);
    assert_eq!(renamed["name"], "a", "its old name is free");
}

#[test]
fn defaults_of_the_project_hold_for_branches_made_later() {
    let http = shared();
    let project = Project::new(&http, "sleep");
    let sleepy = |minutes: u32| json!({ "enabled": true, "inactivityPeriodMinutes": minutes });
    let before = project.make(&custom("before", json!({}))).expect(201);
    let path = project.branches.trim_end_matches("/branches");
    let defaults = json!({ "baseBranches": sleepy(60), "childBranches": sleepy(61) });
    http.with("PATCH", path, &json!({ "configuration": { "scaleToZero": defaults } })).expect(200);
    let setting = |branch: &Value| http.get(&project.path(branch)).expect(200)["scaleToZero"].clone();
    assert_eq!(setting(&before), json!({ "enabled": false, "inactivityPeriodMinutes": 30 }));
    let base = project.make(&custom("base", json!({}))).expect(201);
    assert_eq!(setting(&base), sleepy(60));
    let mut own = json!({ "name": "child", "mode": "inherit", "parentID": before["id"] });
    own["scaleToZero"] = json!({ "inactivityPeriodMinutes": 7 });
    http.wait_healthy(&project.path(&before));
    let child = project.make(&own).expect(201);
    assert_eq!(setting(&child), sleepy(7), "over the project's default, member by member");
}

#[test]
fn a_key_limited_to_a_branch_reaches_that_one() {
    let http = shared();
    let project = Project::new(&http, "limited");
    let mine = project.make(&custom("mine", json!({}))).expect(201);
    let other = project.make(&custom("other", json!({}))).expect(201);
    let key = http.new_token("/api-keys", json!({ "branches": [mine["id"]] }));
    let call = |method: &str, path: &str, body: Option<&Value>| http.as_key(&key, method, path, body);
    let list = call("GET", &project.branches, None).expect(200);
    assert_eq!(list["branches"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["branches"][0]["id"], mine["id"]);
    let projects = call("GET", "/organizations/{org}/projects", None).expect(200);
    assert_eq!(projects["projects"].as_array().map(Vec::len), Some(1));
    call("GET", &project.path(&other), None).expect_error(403, "branch_access_denied");
    call("GET", &format!("{}/unknown", project.branches), None).expect_error(403, "branch_access_denied");
    let child = json!({ "name": "x", "mode": "inherit", "parentID": mine["id"] });
    call("POST", &project.branches, Some(&child)).expect_error(403, "restricted_key");
    let path = project.branches.trim_end_matches("/branches");
    call("PATCH", path, Some(&json!({}))).expect_error(403, "restricted_key");
    call("DELETE", path, None).expect_error(403, "restricted_key");
    call("GET", &format!("{}/credentials", project.path(&mine)), None).expect(200);
    call("PATCH", &project.path(&mine), Some(&json!({ "description": "mine" }))).expect(200);
    assert_eq!(call("DELETE", &project.path(&mine), None).status, 204);
    call("GET", path, None).expect_error(403, "project_access_denied");
}

#[test]
fn a_key_for_what_it_makes_copies_any_branch_and_touches_only_its_own() {
    let http = shared();
    let project = Project::new(&http, "own");
    let main = project.make(&custom("main", json!({}))).expect(201);
    http.wait_healthy(&project.path(&main));
    let made = http.new_key("/api-keys", json!({ "own_branches": true }));
    assert_eq!(made["own_branches"], true);
    let key = text_of(&made["token"]);
    let call = |method: &str, path: &str, body: Option<&Value>| http.as_key(&key, method, path, body);
    let child = json!({ "name": "pr-1", "mode": "inherit", "parentID": main["id"] });
    let own = project.path(&call("POST", &project.branches, Some(&child)).expect(201));
    let other = project.path(&main);
    assert!(call("GET", &own, None).expect(200)["connectionString"].is_string(), "it made that");
    let seen = call("GET", &other, None).expect(200);
    assert_eq!(seen["connectionString"], Value::Null, "and may not connect to this");
    assert_eq!(
        call("GET", &project.branches, None).expect(200)["branches"].as_array().map(Vec::len),
        Some(2)
    );
    let credentials = |path: &str| format!("{path}/credentials");
    call("GET", &credentials(&own), None).expect(200);
    call("GET", &credentials(&other), None).expect_error(403, "branch_access_denied");
    call("PATCH", &other, Some(&json!({ "name": "mine" }))).expect_error(403, "branch_access_denied");
    call("DELETE", &other, None).expect_error(403, "branch_access_denied");
    let path = project.branches.trim_end_matches("/branches");
    call("DELETE", path, None).expect_error(403, "restricted_key");
    call("DELETE", &format!("{path}/trash"), None).expect_error(403, "restricted_key");
    // What it makes has the same limit, and another maker.
    let next = call("POST", "/api-keys", Some(&json!({ "name": "next" }))).expect(201)["key"].clone();
    assert_eq!(next["own_branches"], true);
    http.as_key(&text_of(&next["token"]), "DELETE", &own, None).expect_error(403, "branch_access_denied");
    assert_eq!(call("DELETE", &own, None).status, 204);
    let back = own.replace("/branches/", "/trash/");
    call("POST", &format!("{back}/undelete"), Some(&json!({}))).expect(200);
    assert_eq!(call("DELETE", &format!("{own}?purge=true"), None).status, 204);
}

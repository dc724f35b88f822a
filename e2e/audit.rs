//! Who changed what: every write leaves a line, whatever becomes of it.

mod interruptions;
mod readers;

use std::time::Duration;

use coppice_test_support::{Options, Platform, wait_for};
use serde_json::{Value, json};

use crate::access::OF_OTHERS;
use crate::http::{Answer, Http, Shared, fields, text_of};
use crate::people::{Person, in_metastore};
use crate::setup::{PROGRAM, options, platform};

const FIELDS: [&str; 18] = [
    "action",
    "actor",
    "began_at",
    "branch_id",
    "client_address",
    "created_id",
    "credential_id",
    "ended_at",
    "error_id",
    "id",
    "names",
    "organization_id",
    "project_id",
    "request_id",
    "result",
    "status",
    "target_ids",
    "user_agent",
];

static SHARED: Shared = Shared::new();

fn shared() -> std::sync::Arc<Http> {
    SHARED.get(platform)
}

/// Lines of an organization, the newest first.
fn lines(http: &Http, organization: &str, query: &str) -> Vec<Value> {
    let answer = http.get(&format!("/organizations/{organization}/audit-log{query}")).expect(200);
    answer["entries"].as_array().expect("a list").clone()
}

/// The line of an answer, as the metastore has it.
fn line_of(http: &Http, answer: &Answer) -> String {
    let request = answer.header("x-request-id");
    let columns =
        "action, coalesce(status::text, 'unknown'), coalesce(error_id, '-'), coalesce(organization_id, '-')";
    let select = format!("select concat_ws(' ', {columns}) from audit_log where request_id = '{request}'");
    in_metastore(http, &select)
}

#[test]
fn every_operation_that_changes_something_leaves_a_line_and_no_other_does() {
    let http = Http::new(platform());
    // Full of what keeps it from being deleted.
    let organization = http.organization().to_owned();
    let document = http.send(http.anonymous("GET", "/openapi.json")).expect(200);
    let mut writes = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item") {
            if OF_OTHERS.iter().any(|tag| operation["tags"] == json!([tag])) {
                continue;
            }
            let id = text_of(&operation["operationId"]);
            let scope = operation["security"][0]["bearer"][0].as_str();
            let is_write = match scope {
                Some(scope) => scope.ends_with(":write"),
                None => method != "get",
            };
            // What somebody read of the data of others is told as well.
            let is_recorded = is_write || ["queryBranch", "diffBranches"].contains(&id.as_str());
            let path = path.replace("{organizationID}", &organization);
            let path = path.split('/').map(|part| if part.starts_with('{') { "nowhere" } else { part });
            let path = path.collect::<Vec<_>>().join("/");
            let method = method.to_uppercase();
            let request = |request: reqwest::RequestBuilder| match operation.get("requestBody") {
                Some(_) => http.send(request.json(&json!([]))),
                None => http.send(request),
            };
            let answer = request(http.request(&method, &path));
            let line = line_of(&http, &answer);
            if !is_recorded {
                assert_eq!(line, "", "{id} changes nothing");
                continue;
            }
            writes += 1;
            let error = answer.refusal().1;
            let error = if error.is_empty() { "-" } else { &error };
            let place = if path.contains(&organization) { organization.as_str() } else { "-" };
            assert_eq!(line, format!("{id} {} {error} {place}", answer.status), "{id}");
            let stranger = wait_for("an answer", Duration::from_secs(60), || {
                Some(request(http.anonymous(&method, &path))).filter(|answer| answer.status != 429)
            });
            assert_eq!((stranger.status, line_of(&http, &stranger)), (401, String::new()), "{id}");
        }
    }
    assert!(writes > 20, "{writes}");
    http.get("/organizations/{org}").expect(200);
}

#[test]
fn a_line_has_exactly_the_documented_fields() {
    let http = shared();
    let organization = http.new_organization("fields");
    let projects = format!("/organizations/{organization}/projects");
    let request = http.request("POST", &projects).json(&json!({ "name": "p" }));
    let request = request.header("user-agent", "story/1.0").header("x-request-id", "my own id");
    let made = http.send(request).expect(201);
    let found = lines(&http, &organization, "");
    let actions: Vec<_> = found.iter().map(|line| text_of(&line["action"])).collect();
    assert_eq!(actions, ["createProject", "createOrganization"], "the newest first, and from the beginning");
    for line in &found {
        assert_eq!(fields(line), FIELDS);
        assert_eq!(fields(&line["actor"]), ["email", "id", "kind"]);
    }
    let user = http.get("/user").expect(200);
    let expected = json!({
        "action": "createProject",
        "actor": { "kind": "user", "id": user["id"], "email": user["email"] },
        "organization_id": organization, "project_id": null, "branch_id": null, "target_ids": [],
        "created_id": made["id"], "client_address": "127.0.0.1", "user_agent": "story/1.0",
        "request_id": "my own id", "result": "succeeded", "status": 201, "error_id": null,
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[0][field], value, "{field}");
    }
    assert!(text_of(&found[0]["credential_id"]).starts_with("key_"));
    assert!(text_of(&found[0]["id"]) > text_of(&found[1]["id"]), "later lines have greater ids");
    assert!(text_of(&found[0]["ended_at"]) >= text_of(&found[0]["began_at"]));
    assert_eq!(found[1]["created_id"], json!(organization));
}

#[test]
fn ids_in_the_path_and_of_deleted_keys_are_told() {
    let http = shared();
    let organization = http.new_organization("targets");
    let path = format!("/organizations/{organization}");
    let other = http.new_organization("elsewhere");
    let elsewhere =
        http.post(&format!("/organizations/{other}/projects"), &json!({ "name": "secret" })).expect(201);
    http.delete(&format!("{path}/projects/{}", text_of(&elsewhere["id"])))
        .expect_error(404, "project_not_found");
    assert_eq!(lines(&http, &organization, "")[0]["names"], json!([]), "names of others are not told");
    let ada = Person::in_organization(&http, &organization, "ada", "viewer");
    assert_eq!(http.delete(&format!("{path}/members/{}", ada.id)).status, 204);
    let key = http.new_key(&format!("{path}/api-keys"), json!({}));
    assert_eq!(http.with("DELETE", &format!("{path}/api-keys"), &json!({ "ids": [key["id"]] })).status, 204);
    let project = http.post(&format!("{path}/projects"), &json!({ "name": "p" })).expect(201);
    let project = text_of(&project["id"]);
    http.delete(&format!("{path}/projects/{project}/branches/nowhere")).expect_error(404, "branch_not_found");

    let told: Vec<_> = lines(&http, &organization, "?limit=6")
        .iter()
        .map(|line| {
            json!([
                line["action"],
                line["project_id"],
                line["branch_id"],
                line["target_ids"],
                line["error_id"],
                line["names"]
            ])
        })
        .collect();
    let expected = [
        json!(["deleteBranch", project, "nowhere", [], "branch_not_found", ["p"]]),
        json!(["createProject", null, null, [], null, []]),
        json!(["deleteOrganizationAPIKeys", null, null, [key["id"]], null, [key["name"]]]),
        json!(["createOrganizationAPIKey", null, null, [], null, []]),
        json!(["removeOrganizationMember", null, null, [ada.id], null, [ada.email]]),
        json!(["acceptInvitation", null, null, [], null, []]),
    ];
    assert_eq!(told, expected);
    let accepted = &lines(&http, &organization, "?action=acceptInvitation")[0];
    assert_eq!(accepted["actor"]["email"], ada.email, "who it was is told after they have left");
}

#[test]
fn refusals_are_told_and_strangers_do_not_write_into_the_log() {
    let http = shared();
    let organization = http.new_organization("refusals");
    let path = format!("/organizations/{organization}");
    let (ada, eve) =
        (Person::in_organization(&http, &organization, "ada", "viewer"), Person::new(&http, "eve"));
    let make =
        |key: &str| http.as_key(key, "POST", &format!("{path}/projects"), Some(&json!({ "name": "p" })));
    make(&ada.key).expect_error(403, "role_not_allowed");
    let by_eve = make(&eve.key);
    by_eve.expect_error(403, "organization_access_denied");
    make("pku_nonsense").expect_error(401, "invalid_token");
    http.post(&format!("{path}/projects"), &json!({})).expect_error(400, "missing_field");
    let refused = lines(&http, &organization, "?action=createProject");
    let told: Vec<_> =
        refused.iter().map(|line| json!([line["result"], line["status"], line["error_id"]])).collect();
    assert_eq!(told, [json!(["refused", 400, "missing_field"]), json!(["refused", 403, "role_not_allowed"])]);
    assert_eq!(refused[1]["actor"]["id"], ada.id);
    // The operator sees it.
    assert_eq!(line_of(&http, &by_eve), "createProject 403 organization_access_denied -");
    let shown = http.platform.run(&["admin", "audit", "--actor", &eve.email, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("one line of JSON");
    assert_eq!((&shown["target_ids"], &shown["result"]), (&json!([organization]), &json!("refused")));
}

#[test]
fn a_repeated_request_leaves_one_line() {
    let http = shared();
    let organization = http.new_organization("repeated");
    let request = || {
        let body = json!({ "name": "p" });
        let path = format!("/organizations/{organization}/projects");
        http.request("POST", &path).header("idempotency-key", "once").json(&body)
    };
    let first = http.send(request()).expect(201);
    assert_eq!(http.send(request()).expect(201), first);
    assert_eq!(lines(&http, &organization, "?action=createProject").len(), 1);
}

#[test]
fn no_secret_is_in_the_log() {
    let http = shared();
    let organization = http.new_organization("secrets");
    let path = format!("/organizations/{organization}");
    let key = http.new_token(&format!("{path}/api-keys"), json!({}));
    let own = http.new_token("/api-keys", json!({}));
    let ada = Person::new(&http, "ada");
    let body = json!({ "email": ada.email });
    let invitation = http.post(&format!("{path}/invitations"), &body).expect(201);
    let token = crate::people::token_of(&text_of(&invitation["invite_link"]));
    let request = http.anonymous("POST", "/invitations/accept").bearer_auth(&ada.key);
    assert_eq!(http.send(request.json(&json!({ "token": token }))).status, 200);
    let log = in_metastore(&http, "select a from audit_log a");
    assert!(log.contains(&organization));
    for secret in [http.admin(), &key, &own, &ada.key, &token] {
        // Neither whole nor by its end, which previews show.
        assert!(!log.contains(&secret[secret.len() - 8..]), "{log}");
    }
}

#[test]
fn old_lines_are_forgotten() {
    let flags = ["--audit-days", "30"].map(str::to_owned).to_vec();
    let mut http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let organization = http.new_organization("old");
    http.new_key(&format!("/organizations/{organization}/api-keys"), json!({}));
    in_metastore(
        &http,
        "update audit_log set id = 'aud_05' || substr(id, 7), began_at = '2020-01-01' where action = 'createOrganization'",
    );
    let told =
        || lines(&http, &organization, "").iter().map(|line| text_of(&line["action"])).collect::<Vec<_>>();
    assert_eq!(told(), ["createOrganizationAPIKey", "createOrganization"]);
    http.platform.restart();
    let only_new = || (lines(&http, &organization, "").len() == 1).then_some(());
    wait_for("the old one is forgotten", Duration::from_secs(60), only_new);
}

#[test]
fn what_the_operator_does_stands_in_the_log_of_the_organization() {
    let http = shared();
    let organization = http.new_organization("operated");
    let run = |arguments: &[&str]| {
        let output = http.platform.run(&[&["admin"], arguments].concat());
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert!(run(&["org", "disable", &organization, "--reason", "not paid"]).0);
    assert!(run(&["org", "enable", &organization]).0);
    assert!(!run(&["org", "cancel-deletion", &organization]).0, "nobody asked for it");
    assert!(run(&["org", "list"]).0);
    let told: Vec<_> = lines(&http, &organization, "?actor=operator")
        .iter()
        .map(|line| json!([line["action"], line["result"], line["actor"], line["client_address"]]))
        .collect();
    let operator = json!({ "kind": "operator", "id": null, "email": null });
    let expected = [
        json!(["admin.org.cancelDeletion", "failed", operator, null]),
        json!(["admin.org.enable", "succeeded", operator, null]),
        json!(["admin.org.disable", "succeeded", operator, null]),
    ];
    assert_eq!(told, expected);
    let (is_ok, shown) = run(&["audit", "--about", &organization]);
    assert!(is_ok && shown.contains("admin.org.disable  succeeded  operator"), "{shown}");
}

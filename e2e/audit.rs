//! Who changed what: every write leaves a line, whatever becomes of it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Options, Platform, wait_for};
use serde_json::{Value, json};

use crate::access::OF_OTHERS;
use crate::http::{Answer, Http, Shared, fields, text_of};
use crate::people::{Person, in_metastore};
use crate::setup::{PROGRAM, arm, options, platform};

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
fn the_log_is_read_in_pages_and_filtered() {
    let http = shared();
    let organization = http.new_organization("pages");
    let path = format!("/organizations/{organization}");
    let key = http.new_key(&format!("{path}/api-keys"), json!({}));
    let token = text_of(&key["token"]);
    for name in ["a", "b", "c"] {
        http.as_key(&token, "PUT", &path, Some(&json!({ "name": name }))).expect(200);
    }
    let all = lines(&http, &organization, "");
    assert_eq!(all.len(), 5);
    let log = |query: &str| http.get(&format!("{path}/audit-log?{query}"));
    let mut pages = vec![];
    let mut cursor = String::new();
    loop {
        let page = log(&format!("limit=2&cursor={cursor}")).expect(200);
        assert_eq!(fields(&page), ["entries", "next_cursor"]);
        pages.extend(page["entries"].as_array().expect("a list").clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(pages, all);
    assert_eq!(log("limit=5").expect(200)["next_cursor"], Value::Null, "nothing is left");
    // Another length may go on with it, another question may not.
    log(&format!("cursor={cursor}")).expect(200);
    for query in
        [format!("action=x&cursor={cursor}"), format!("cursor={cursor}x"), "cursor=aud_1.0".to_owned()]
    {
        assert_eq!(log(&query).expect_error(400, "invalid_cursor"), "invalid cursor");
    }
    let user = text_of(&http.get("/user").expect(200)["id"]);
    let email = http.platform.setting("COPPICE_EMAIL").to_owned();
    let middle = text_of(&all[2]["began_at"]);
    for (query, count) in [
        (format!("actor={organization}"), 3),
        (format!("actor={}", text_of(&key["id"])), 3),
        (format!("actor={user}"), 2),
        (format!("actor={}", email.to_uppercase()), 2),
        ("actor=operator".to_owned(), 0),
        ("actor=usr_nobody".to_owned(), 0),
        ("action=updateOrganization".to_owned(), 3),
        (format!("action=updateOrganization&actor={user}"), 0),
        ("start=2001-01-01T00:00:00Z&end=2002-01-01T00:00:00Z".to_owned(), 0),
    ] {
        assert_eq!(lines(&http, &organization, &format!("?{query}")).len(), count, "{query}");
    }
    let (from, before) = (format!("?start={middle}"), format!("?end={middle}"));
    let (later, earlier) = (lines(&http, &organization, &from), lines(&http, &organization, &before));
    assert_eq!([later, earlier].concat(), all, "the start is in, the end is not");
    for query in ["limit=0", "limit=201", "limit=x", "start=yesterday", "end=1", "actor=%00"] {
        log(query).expect_error(400, "invalid_query_parameter");
    }
    log("start=2002-01-01T00:00:00Z&end=2001-01-01T00:00:00Z").expect_error(400, "invalid_time_range");
}

#[test]
fn only_those_who_run_the_organization_read_its_log() {
    let http = shared();
    let organization = http.new_organization("readers");
    let path = format!("/organizations/{organization}/audit-log");
    let read = |key: &str| http.as_key(key, "GET", &path, None);
    for (role, status) in [("admin", 200), ("editor", 403), ("viewer", 403)] {
        let person = Person::in_organization(&http, &organization, role, role);
        let answer = read(&person.key);
        assert_eq!(answer.status, status, "{role}: {}", answer.text());
        if status == 403 {
            answer.expect_error(403, "role_not_allowed");
        }
    }
    let key = |limits: Value| http.new_token(&format!("/organizations/{organization}/api-keys"), limits);
    read(&key(json!({}))).expect(200);
    read(&key(json!({ "scopes": ["audit:read"] }))).expect(200);
    for other in ["org:read", "org:write"] {
        read(&key(json!({ "scopes": [other] }))).expect_error(403, "insufficient_scope");
    }
    read(&key(json!({ "projects": ["prj_1"] }))).expect_error(403, "restricted_key");
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
fn a_crash_leaves_a_line_whose_result_nobody_knows() {
    let mut http = Http::new(platform());
    for (step, is_made) in [("audit.begun", false), ("audit.ending", true)] {
        let organization = http.new_organization(step);
        http.platform.kill();
        arm(&mut http.platform, step);
        http.platform.spawn();
        http.platform.wait_ready();
        let projects = format!("/organizations/{organization}/projects");
        let cut = http.platform.client().call("POST", &projects, Some(&json!({ "name": "p" })));
        assert!(cut.is_err(), "{step}: the process died: {cut:?}");
        http.platform.wait_end();
        arm(&mut http.platform, "");
        http.platform.spawn();
        http.platform.wait_ready();
        let made = http.get(&projects).expect(200)["projects"].as_array().map(Vec::len);
        assert_eq!(made, Some(usize::from(is_made)), "{step}");
        let line = &lines(&http, &organization, "?action=createProject")[0];
        let told = json!([line["result"], line["status"], line["ended_at"], line["created_id"]]);
        assert_eq!(told, json!(["unknown", null, null, null]), "{step}");
    }
}

#[test]
fn a_client_that_goes_away_does_not_leave_its_change_half_told() {
    use std::io::Write;
    const CHANGES: usize = 5;
    let http = shared();
    let organization = http.new_organization("gone");
    let projects =
        || http.get(&format!("/organizations/{organization}/projects")).expect(200)["projects"].take();
    let count = || projects().as_array().expect("a list").len();
    // A client may be gone before its request is looked at, and then nothing is begun.
    for round in (0..200).take_while(|_| count() < CHANGES) {
        let body = json!({ "name": format!("p{round}") }).to_string();
        let host = http.platform.api().trim_start_matches("http://").to_owned();
        let mut stream = std::net::TcpStream::connect(&host).expect("connects");
        let request = format!(
            "POST /organizations/{organization}/projects HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
             content-length: {}\r\n\r\n{body}",
            http.admin(),
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(round % 5));
        drop(stream);
    }
    let values = |list: &Value, field: &str| -> BTreeSet<String> {
        list.as_array().expect("a list").iter().map(|item| item[field].to_string()).collect()
    };
    wait_for("every project has a line with its end", Duration::from_secs(60), || {
        let made = projects();
        let told = json!(lines(&http, &organization, "?action=createProject"));
        let is_done = values(&told, "result") == BTreeSet::from([json!("succeeded").to_string()]);
        let created = values(&told, "created_id");
        (is_done && created.len() >= CHANGES && created == values(&made, "id")).then_some(())
    });
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
fn the_log_is_read_and_followed_on_the_command_line() {
    let http = Http::new(platform());
    let email = http.platform.setting("COPPICE_EMAIL").to_owned();
    http.new_project("first");
    let printed = http.platform.run(&["audit", "--action", "createProject", "--since", "1h"]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let line = printed.lines().last().expect("a line");
    assert!(
        line.contains("createProject  succeeded") && line.contains(&email) && line.contains("prj_"),
        "{line}"
    );
    let list = http.platform.cli(&["audit", "--actor", &email, "--limit", "1"]);
    assert_eq!(list["entries"].as_array().map(Vec::len), Some(1));

    let mut following = Command::new(PROGRAM)
        .args(["audit", "--follow", "--json", "--limit", "0", "--data-dir"])
        .arg(http.platform.data_dir())
        .env("COPPICE_URL", http.platform.api())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut output = BufReader::new(following.stdout.take().expect("its output")).lines();
    let mut next =
        || -> Value { serde_json::from_str(&output.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(next()["action"], "createProject", "what was just before is shown too");
    http.new_project("second");
    let second = next();
    assert_eq!((&second["action"], &second["result"]), (&json!("createProject"), &json!("succeeded")));
    following.kill().expect("it ends");
    following.wait().expect("it ends");
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

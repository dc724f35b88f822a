//! Keys with a login, and what they may do through the API and on the command line.

use std::process::Command;

use serde_json::{Value, json};

use super::{does, key, url};
use crate::branches::path;
use crate::credentials::is_refused;
use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, platform};

#[test]
fn whoever_has_a_login_is_shown_no_other_password_and_makes_nobody_who_is() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    let main = path(coppice, "main");
    let app = coppice.connection_string("main");
    let secret = app.split([':', '@']).nth(2).unwrap_or_default();
    let one = key(&http, "writer", &json!({}));
    let as_key = |method: &str, path: &str, body: Option<&Value>| http.as_key(&one.token, method, path, body);
    let before = url(&http, &one, &main);
    assert_eq!(as_key("GET", &main, None).expect(200)["connectionString"], before.as_str());
    for place in [main.clone(), format!("{main}/credentials")] {
        assert!(!as_key("GET", &place, None).text().contains(secret));
    }
    as_key("GET", &format!("{main}/credentials?username=app"), None).expect_error(400, "invalid_username");
    as_key("GET", &format!("{main}/credentials?username={}", one.id), None).expect(200);

    // Rotated is its own.
    let rotation = format!("{main}/credentials/rotate");
    as_key("POST", &rotation, Some(&json!({ "username": "app" }))).expect_error(400, "invalid_username");
    let rotated = as_key("POST", &rotation, Some(&json!({ "username": one.id })));
    assert_eq!(rotated.status, 204, "{}", rotated.text());
    let after = url(&http, &one, &main);
    assert_eq!(does(&after, "SELECT 1"), "1");
    assert!(is_refused(&before) && does(&app, "SELECT 1") == "1");

    // What it runs through the API is its own, too.
    coppice.sql("main", "CREATE TABLE t (i int)");
    let run = |query: &str| as_key("POST", &format!("{main}/execute"), Some(&json!({ "query": query })));
    let ran = run("INSERT INTO t SELECT 1 RETURNING session_user").expect(200);
    assert_eq!(ran["rows"][0][0], one.id.as_str());
    assert_ne!(run("DROP TABLE t").status, 200);

    let made = as_key("POST", "/api-keys", Some(&json!({ "name": "next" }))).expect(201);
    assert_eq!(made["key"]["database_role"], "writer");
    let beyond = json!({ "name": "next", "database_role": "owner" });
    as_key("POST", "/api-keys", Some(&beyond)).expect_error(403, "scope_not_grantable");
    let invitation = json!({ "email": "ada@example.com", "role": "editor" });
    as_key("POST", "/organizations/{org}/invitations", Some(&invitation)).expect_error(403, "restricted_key");
    let wrong = json!({ "name": "next", "database_role": "superuser" });
    assert_eq!(http.post("/api-keys", &wrong).status, 400);
}

#[test]
fn an_agent_is_handed_a_database_by_one_command_and_connects_by_one() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    let made = coppice.cli(&[
        "key",
        "create",
        "agent",
        "--user",
        "--branch",
        "main",
        "--database-role",
        "reader",
        "--expires",
        "1d",
        "--scope",
        "org:read,project:read,branch:read,credentials:read,credentials:write",
    ]);
    let token = text_of(&made["key"]["token"]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("COPPICE_API_KEY", &token).env("COPPICE_URL", coppice.api());
        let said = command.env("COPPICE_ORGANIZATION", http.organization()).output().expect("it runs");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    let string = run(&["connection-string", "main"]);
    assert!(string.contains("://key_"), "{string}");
    assert_eq!(does(&string, "SELECT i FROM t"), "7");
    assert_eq!(run(&["psql", "main", "--", "-XAtc", "SELECT i FROM t"]), "7");
    let rotated = run(&["credentials", "rotate", "main", "--yes"]);
    assert!(rotated.contains("key_"), "{rotated}");
    assert!(is_refused(&string));
    let listed = coppice.run(&["key", "list", "--user"]).stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert!(listed.contains("as a reader"), "{listed}");
}

//! Readers of the log: who may be one, and what they see.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{lines, shared};
use crate::http::{Http, fields, text_of};
use crate::people::Person;
use crate::setup::{PROGRAM, platform};

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

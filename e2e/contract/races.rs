//! Calls that meet each other.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::json;

use super::removal::traces;
use super::{custom, shared};
use crate::branches::{change, path, status};
use crate::http::{Answer, Http, text_of};
use crate::setup::{PROGRAM, options, platform};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn of_branches_with_one_name_made_at_once_one_is_made() {
    let http = shared();
    let branches = format!("{}/branches", http.new_project("one name"));
    let requests = (0..6).map(|_| http.request("POST", &branches).json(&custom("same", json!({}))));
    let answers = http.send_together(requests.collect());
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        let message = answer.expect_error(409, "branch_name_taken");
        assert_eq!(message, "a branch named same already exists");
    }
    assert_eq!(http.get(&branches).expect(200)["branches"].as_array().map(Vec::len), Some(1));
}

#[test]
fn renames_that_meet_leave_one_branch_with_the_name() {
    let http = shared();
    let branches = format!("{}/branches", http.new_project("renames"));
    let make = |name: &str| text_of(&http.post(&branches, &custom(name, json!({}))).expect(201)["id"]);
    let ids = [make("a"), make("b")];
    let requests =
        ids.iter().map(|id| http.request("PATCH", &format!("{branches}/{id}")).json(&json!({ "name": "c" })));
    let mut statuses: Vec<_> =
        http.send_together(requests.collect()).iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

#[test]
fn quotas_hold_when_calls_come_together() {
    let flags = ["--api-keys-max", "6", "--projects-per-organization", "4"].map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let together = |path: &str, expected: usize, limit: &str| {
        let requests =
            (0..12).map(|index| http.request("POST", path).json(&json!({ "name": index.to_string() })));
        let answers = http.send_together(requests.collect());
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(made, expected, "{path}: {answers:?}");
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            answer.expect_error(400, limit);
        }
    };
    // The first user has one key and one project from the start.
    together("/api-keys", 5, "api_key_limit_reached");
    together("/organizations/{org}/api-keys", 6, "api_key_limit_reached");
    together("/organizations/{org}/projects", 3, "project_limit_reached");
    let message = http.post("/api-keys", &json!({ "name": "x" })).expect_error(400, "api_key_limit_reached");
    assert_eq!(message, "no more than 6 API keys are allowed");
    let keys = http.get("/api-keys").expect(200)["keys"].clone();
    let created: Vec<_> =
        keys.as_array().expect("keys").iter().map(|key| text_of(&key["created_at"])).collect();
    assert!(created.len() == 6 && created.is_sorted(), "the oldest first: {created:?}");
}

/// Whether an answer says to come again when the oldest of what was just made
/// does not count any more.
fn is_about_an_hour(refused: &Answer) {
    let seconds: u32 = refused.header("retry-after").parse().expect("whole seconds");
    assert!((3300..=3600).contains(&seconds), "{seconds}");
}

#[test]
fn a_quota_of_an_hour_counts_what_was_deleted_too() {
    let flags = ["--projects-per-hour", "3", "--branches-per-hour", "3", "--branches-per-project", "2"];
    let flags = flags.map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    // The first start made a project with a branch.
    let (first, second) = (http.new_project("first"), http.new_project("second"));
    let refused = http.post("/organizations/{org}/projects", &json!({ "name": "third" }));
    let message = refused.expect_error(429, "project_rate_exceeded");
    assert_eq!(message, "too many projects created in one hour");
    is_about_an_hour(&refused);

    let make =
        |project: &str, name: &str| http.post(&format!("{project}/branches"), &custom(name, json!({})));
    make(&first, "a").expect(201);
    make(&first, "b").expect(201);
    let message = make(&first, "c").expect_error(400, "branch_limit_reached");
    assert_eq!(message, "branch limit of 2 reached");
    let refused = make(&second, "a");
    assert_eq!(refused.expect_error(429, "branch_rate_exceeded"), "too many branches created in one hour");
    is_about_an_hour(&refused);
    assert_eq!(http.delete(&first).status, 204);
    make(&second, "a").expect_error(429, "branch_rate_exceeded");
    http.post("/organizations/{org}/projects", &json!({ "name": "x" }))
        .expect_error(429, "project_rate_exceeded");
}

#[test]
fn a_branch_made_while_its_project_goes_is_gone_or_was_never_made() {
    let http = shared();
    let mut ids = Vec::new();
    for round in 0..3 {
        let project = http.new_project(&format!("going {round}"));
        let branches = format!("{project}/branches");
        let requests = (0..4)
            .map(|index| http.request("POST", &branches).json(&custom(&index.to_string(), json!({}))))
            .chain([http.request("DELETE", &project)]);
        let answers = http.send_together(requests.collect());
        let (deleted, made) = answers.split_last().expect("answers");
        assert_eq!(deleted.status, 204, "{}", deleted.text());
        for answer in made {
            assert!([201, 404].contains(&answer.status), "{} {}", answer.status, answer.text());
            ids.extend(answer.json()["id"].as_str().filter(|_| answer.status == 201).map(str::to_owned));
        }
        http.get(&branches).expect_error(404, "project_not_found");
        http.delete(&project).expect_error(404, "project_not_found");
    }
    let gone = || traces(http.platform.data_dir(), &ids).is_empty().then_some(());
    wait_for("nothing is left", Duration::from_secs(60), gone);
}

#[test]
fn who_made_a_branch_that_another_deleted_is_told_so() {
    let http = shared();
    let branches = format!("{}/branches", http.new_project("made and deleted"));
    let make = |name: &str| http.send(http.request("POST", &branches).json(&custom(name, json!({}))));
    let told = (0..20).find_map(|round| {
        let name = format!("b{round}");
        let answer = std::thread::scope(|scope| {
            let made = scope.spawn(|| make(&name));
            let id = wait_for("it is listed", PATIENCE, || {
                let listed = http.get(&branches).expect(200)["branches"].clone();
                let found = listed.as_array()?.iter().find(|branch| branch["name"] == name.as_str())?;
                Some(text_of(&found["id"]))
            });
            assert_eq!(http.delete(&format!("{branches}/{id}")).status, 204);
            made.join().expect("an answer")
        });
        (answer.status != 201).then_some(answer)
    });
    let message = told.expect("one was deleted before it was ready").expect_error(404, "branch_not_found");
    assert!(message.ends_with("was deleted by another one before it was ready"), "{message}");
}

#[test]
fn an_organization_goes_without_projects_or_stays() {
    let http = shared();
    for _ in 0..5 {
        let path = format!("/organizations/{}", http.new_organization("racing"));
        let project = http.request("POST", &format!("{path}/projects")).json(&json!({ "name": "late" }));
        let answers = http.send_together(vec![project, http.request("DELETE", &path)]);
        let (made, deleted) = (&answers[0], &answers[1]);
        if deleted.status == 204 {
            made.expect_error(403, "organization_access_denied");
            http.get(&path).expect_error(403, "organization_access_denied");
        } else {
            deleted.expect_error(409, "org_has_projects");
            made.expect(201);
            http.get(&path).expect(200);
        }
    }
}

#[test]
fn a_call_that_an_organization_is_disabled_under_finds_it_disabled() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    let main = path(coppice, "main");
    let (branches, _) = main.rsplit_once('/').expect("a path");
    let gone = text_of(&http.post(branches, &custom("gone", json!({}))).expect(201)["id"]);
    change(coppice, &main, &json!({ "hibernate": true }));
    let is_asleep = || (status(coppice, &main) == "STATUS_TYPE_HIBERNATED").then_some(());
    wait_for("it sleeps", PATIENCE, is_asleep);

    // An operator whose transaction has not come to its end.
    let metastore = coppice.metastore_url();
    let mut operator = Command::new("psql")
        .args([&metastore, "-XAtq"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql runs");
    let mut sql = operator.stdin.take().expect("a pipe");
    writeln!(sql, "BEGIN; UPDATE organizations SET disabled_by_admin = true; SELECT 'done';")
        .expect("it listens");
    let mut said = String::new();
    BufReader::new(operator.stdout.take().expect("a pipe")).read_line(&mut said).expect("an answer");
    assert_eq!(said, "done\n");

    let refused = [
        http.request("PATCH", &main).json(&json!({ "hibernate": false })),
        http.request("POST", branches).json(&custom("late", json!({}))),
        http.request("POST", "/organizations/{org}/projects").json(&json!({ "name": "late" })),
    ];
    let requests: Vec<_> =
        refused.into_iter().chain([http.request("DELETE", &format!("{branches}/{gone}"))]).collect();
    let count = requests.len().to_string();
    let answers = std::thread::scope(|scope| {
        let sent = scope.spawn(|| http.send_together(requests));
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        wait_for("all of them wait", PATIENCE, || {
            (sent.is_finished() || psql(&metastore, waiting).out == count).then_some(())
        });
        writeln!(sql, "COMMIT;").expect("it listens");
        sent.join().expect("answers")
    });
    drop(sql);
    operator.wait().expect("psql ends");
    let (deleted, refused) = answers.split_last().expect("answers");
    for answer in refused {
        answer.expect_error(403, "organization_disabled");
    }
    assert_eq!(deleted.status, 204, "what is there may go: {}", deleted.text());
    assert_eq!(status(coppice, &main), "STATUS_TYPE_HIBERNATED");
}

#[test]
fn a_thing_is_deleted_once() {
    let http = shared();
    let project = http.new_project("once");
    let requests = (0..5).map(|_| http.request("DELETE", &project));
    let mut statuses: Vec<_> =
        http.send_together(requests.collect()).iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404, 404, 404]);
}

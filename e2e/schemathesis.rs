//! Requests made up from the served OpenAPI document, good and bad: no fault of
//! the server, and no answer that the document does not describe.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coppice_test_support::{Options, Platform};
use serde_json::{Value, json};

use crate::access::OF_OTHERS;
use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, options};

/// Deletes the key it is called with, once it has learnt its id from another
/// operation. So it has a run of its own.
const ENDS_THE_RUN: &str = "deleteUserAPIKeys";

/// Few ways that are drawn by lot lead to where these are accepted, or none.
const NEED_MORE_THAN_CHANCE: [&str; 23] = [
    // Another member, or the link that another person was sent.
    "DELETE /organizations/{organizationID}/members/{userID}",
    "PUT /organizations/{organizationID}/members/{userID}/role",
    "POST /invitations/accept",
    // Somebody who charges.
    "GET /organizations/{organizationID}/billing/invoices/upcoming",
    "POST /organizations/{organizationID}/billing/checkout-session",
    "POST /organizations/{organizationID}/billing/payment-method-session",
    // The id of something that a budget can be of.
    "PUT /organizations/{organizationID}/budgets/{subjectID}",
    "DELETE /organizations/{organizationID}/budgets/{subjectID}",
    // A branch that was deleted before, that has a parent, or a statement that is one.
    "DELETE /organizations/{organizationID}/projects/{projectID}/trash/{branchID}",
    "POST /organizations/{organizationID}/projects/{projectID}/trash/{branchID}/undelete",
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/promote",
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/reset",
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/upgrade",
    // One that was up for a second.
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/restore",
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/execute",
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/query",
    "GET /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/diff",
    // Something that happened after a webhook was made.
    "POST /organizations/{organizationID}/webhooks/{webhookID}/deliveries/{deliveryID}/resend",
    // A GitHub App.
    "POST /organizations/{organizationID}/githubapp/installations",
    "PUT /organizations/{organizationID}/githubapp/installations/{githubInstallationID}",
    "POST /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/githubapp/repository",
    "PUT /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/githubapp/repository",
    "DELETE /organizations/{organizationID}/projects/{projectID}/branches/{branchID}/githubapp/repository",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs it with `arguments` and returns its report.
fn run(http: &Http, arguments: &[&str]) -> Value {
    let python = repository().join("target/python/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    // It leaves files where it runs.
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("report.json");
    let output = Command::new(python)
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(repository().join("e2e/schemathesis/schemathesis.toml"))
        .args(["run", &format!("{}/openapi.json", http.platform.api()), "--no-color", "--report", "json"])
        .arg("--report-json-path")
        .arg(&report)
        .args(arguments)
        .env("COPPICE_API_KEY", http.admin())
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value =
        std::fs::read(report).map(|text| serde_json::from_slice(&text).expect("JSON")).expect(&said);
    assert_eq!((&report["complete"], &report["errors"]), (&true.into(), &Value::Array(vec![])), "{said}");
    report
}

/// Operations that accepted something in some phase.
fn accepting(report: &Value) -> BTreeSet<String> {
    let rates = report["valid_rates"].as_object().expect("rates");
    let accepted = |phases: &Value| {
        let phases = phases.as_object().expect("phases");
        phases.values().any(|phase| phase["accepted"].as_u64() > Some(0))
    };
    rates.iter().filter(|(_, phases)| accepted(phases)).map(|(name, _)| name.clone()).collect()
}

#[test]
fn made_up_requests_get_documented_answers() {
    // Branches are servers, so there may only be a few of them.
    let flags = ["--branches-per-project", "3"].map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let document = http.send(http.anonymous("GET", "/openapi.json")).expect(200);
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("an item").iter();
        // Who has no password of a branch gets no further than to be asked for one.
        let methods =
            methods.filter(|(_, operation)| OF_OTHERS.iter().all(|tag| operation["tags"] != json!([tag])));
        methods.map(move |(method, operation)| {
            (format!("{} {path}", method.to_uppercase()), text_of(&operation["operationId"]))
        })
    });
    let expected: BTreeSet<_> =
        operations.filter(|(_, id)| id != ENDS_THE_RUN).map(|(name, _)| name).collect();

    let others = OF_OTHERS.iter().flat_map(|tag| ["--exclude-tag", tag]);
    let everything = run(&http, &others.chain(["--exclude-operation-id", ENDS_THE_RUN]).collect::<Vec<_>>());
    assert_eq!(everything["operations"]["tested"], expected.len());
    let accepting = accepting(&everything);
    let is_likely = |name: &&String| !NEED_MORE_THAN_CHANCE.contains(&name.as_str());
    let missing: Vec<_> = expected.difference(&accepting).filter(is_likely).collect();
    // The ways through the API are drawn by lot, and some operations are on few of them.
    assert!(missing.len() * 5 < expected.len(), "nothing was accepted of {missing:?}");
    http.get("/organizations").expect(200);
    let alone = run(&http, &["--include-operation-id", ENDS_THE_RUN]);
    assert_eq!(alone["operations"]["tested"], 1);
    http.get("/organizations").expect(200);
}

//! `coppice doctor` beside a platform that runs, and one that does not.

use coppice_test_support::Platform;
use serde_json::Value;

use super::page::Stopped;
use crate::setup::platform;

/// What was seen under a name, and whether there is advice that has to be followed.
fn finding(coppice: &Platform, name: &str) -> Option<(String, bool)> {
    let output = coppice.run(&["doctor", "--json"]);
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let is_problem = |finding: &Value| finding["level"] == "problem";
    let has_problems = findings.as_array().expect("a list").iter().any(is_problem);
    assert_eq!(output.status.code(), Some(i32::from(has_problems)), "{findings}");
    let found = findings.as_array().expect("a list").iter().find(|finding| finding["name"] == name)?.clone();
    assert_eq!(found["level"] == "ok", found["advice"] == Value::Null);
    Some((found["seen"].as_str().expect("a text").to_owned(), is_problem(&found)))
}

#[test]
fn the_doctor_says_how_the_platform_is() {
    let mut coppice = platform();
    let (seen, is_advised) = finding(&coppice, "platform").expect("a finding");
    assert!(seen.starts_with(&format!("runs (pid {}, API on 127.0.0.1:", coppice.pid())), "{seen}");
    assert!(!is_advised);
    assert_eq!(finding(&coppice, "branches"), Some(("1 healthy".to_owned(), false)));
    assert_eq!(finding(&coppice, "work"), Some(("every branch is what it should be".to_owned(), false)));
    let (seen, is_advised) = finding(&coppice, "clients").expect("a finding");
    assert!(seen.starts_with("0 sessions; 0 of ") && seen.ends_with(" connections"), "{seen}");
    assert!(!is_advised);
    assert!(finding(&coppice, "room for volumes").is_some_and(|(seen, _)| seen.contains("GiB free of")));
    assert!(
        finding(&coppice, "certificate")
            .is_some_and(|(seen, is_advised)| seen == "does not end in our time" && !is_advised)
    );

    let stopped = Stopped::with_children(coppice.metastore_postmaster());
    let (seen, is_advised) = finding(&coppice, "platform").expect("a finding");
    assert!(seen.contains("but its metastore does not answer") && is_advised, "{seen}");
    drop(stopped);

    coppice.kill();
    let (seen, is_advised) = finding(&coppice, "platform").expect("a finding");
    assert!(seen.contains("should run, but does not answer") && is_advised, "{seen}");
    coppice.restart();
    assert_eq!(coppice.terminate(), Some(0));
    let (seen, is_advised) = finding(&coppice, "platform").expect("a finding");
    assert!(seen.starts_with("does not run") && is_advised, "{seen}");
}

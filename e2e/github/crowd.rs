//! Very many pull requests that nobody told of. The project has room for few branches, so nearly all of them are
//! refused one: what counts is that each is looked at once, at a pace that GitHub allows.

use std::time::{Duration, Instant};

use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::{Value, json};

use super::{Github, flags, restart};
use crate::setup::{PROGRAM, options};

/// As many as fit into a test; `make soak` takes a thousand.
const PULLS: usize = 60;
/// Branches of the project: its root, and those of so many pull requests less one.
const ROOM: usize = 4;
/// As many are looked at at the same time.
const AT_ONCE: u64 = 8;
/// Those that stay open.
const OPEN: usize = 10;

struct Crowd {
    github: Github,
    platform: Platform,
    count: usize,
}

impl Crowd {
    fn metastore(&self, sql: &str) -> usize {
        let said = psql(&self.platform.metastore_url(), sql);
        said.out.parse().unwrap_or_else(|_| panic!("{sql}: {} {}", said.out, said.err))
    }

    /// How many pull requests GitHub was told something of, `what` among it.
    fn told(&self, what: &str) -> usize {
        self.metastore(&format!(
            "select count(*) from github_pulls where comment_id is not null and told like '{what}%'"
        ))
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let patience = Duration::from_secs(90) + Duration::from_millis(500) * self.count as u32;
        wait_for(what, patience, || is_so(self).then_some(()));
    }

    fn requests(&mut self, which: &str) -> u64 {
        self.github.program.command(&json!({ "command": "counts" }))[which].as_u64().expect("a number")
    }

    fn restart(&mut self) {
        restart(&mut self.platform, &mut self.github);
    }
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_crowd_of_pull_requests_is_caught_up_with_after_a_silence_at_the_pace_that_github_allows() {
    let count = std::env::var("COPPICE_SOAK_PULLS").ok().and_then(|text| text.parse().ok());
    let mut github = Github::start();
    let directory = tempfile::tempdir().expect("a directory");
    let mut flags = flags(&github, directory.path());
    flags.extend(["--branches-per-project".to_owned(), ROOM.to_string()]);
    let platform = Platform::start(PROGRAM, Options { flags, ..options() });
    let shop = github.ask("GET", "/repos/octocat/shop", Value::Null)["id"].to_string();
    platform.cli(&["github", "link", "100", "--code", &github.code("octocat")]);
    platform.cli(&["github", "map", &shop, "--root", "main"]);
    github.mode("lose");
    let mut crowd = Crowd { github, platform, count: count.unwrap_or(PULLS) };
    crowd.platform.kill();
    let pulls: Vec<_> =
        (0..crowd.count).map(|number| crowd.github.open(&format!("of-a-crowd-{number}"))).collect();
    crowd.are_all_told_once(&pulls);
    crowd.are_forgotten_when_they_are_closed(&pulls);
}

impl Crowd {
    fn are_all_told_once(&mut self, pulls: &[i64]) {
        let (began, asked) = (Instant::now(), self.requests("asked"));
        self.restart();
        let third = self.count / 3;
        self.wait_until("a third of them is told", |crowd| crowd.told("") >= third);
        // It wants to be left alone, and is, but for those that were being asked for.
        self.github.program.command(&json!({ "command": "limit", "seconds": 4 }));
        self.wait_until("two thirds of them are told", |crowd| crowd.told("") >= 2 * third);
        let refused = self.requests("refused");
        assert!((1..=AT_ONCE).contains(&refused), "asked {refused} times in spite of the limit");
        self.restart();
        let count = self.count;
        self.wait_until("all of them are told", |crowd| crowd.told("") == count);
        let asked = self.requests("asked") - asked;
        eprintln!("{count} pull requests are told within {:?}, by {asked} requests", began.elapsed());
        assert_eq!(self.told("ready"), ROOM - 1);
        for pull in pulls {
            assert_eq!(self.github.comments(*pull).len(), 1, "{pull}");
        }
    }

    fn are_forgotten_when_they_are_closed(&mut self, pulls: &[i64]) {
        self.platform.kill();
        for pull in &pulls[OPEN..] {
            self.github.set_state(*pull, "closed");
        }
        let asked = self.requests("asked");
        let began = Instant::now();
        self.restart();
        self.wait_until("those that are closed are forgotten", |crowd| {
            crowd.metastore("select count(*) from github_pulls") == OPEN
        });
        let asked = self.requests("asked") - asked;
        eprintln!(
            "{} closed ones are forgotten within {:?}, by {asked} requests",
            self.count - OPEN,
            began.elapsed()
        );
        // One for each, and few beside them: what was told is not told again.
        let beside = (2 * self.count / 10 + 40) as u64;
        assert!(asked <= self.count as u64 + beside, "{asked} requests");
    }
}

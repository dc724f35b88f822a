//! What is asked at a terminal.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, text_of, wait_for};
use serde_json::json;
use tempfile::TempDir;

use crate::setup::{PROGRAM, platform};

const PATIENCE: Duration = Duration::from_secs(60);

/// A command at a terminal, with somebody who takes their time; ends with the test.
pub(crate) struct Terminal {
    child: Child,
    directory: TempDir,
}

impl Terminal {
    /// Runs the executable there; the arguments need no quotes.
    pub(crate) fn open(platform: &Platform, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let data_dir = platform.data_dir().display();
        let command = format!("'{PROGRAM}' {} --data-dir '{data_dir}'", arguments.join(" "));
        let child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(File::create(directory.path().join("shown")).expect("a file"))
            .spawn();
        Self { child: child.expect("script runs"), directory }
    }

    /// Waits until it shows this, and returns all that it shows.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        wait_for(&format!("{text:?} at the terminal"), PATIENCE, || {
            let shown = fs::read_to_string(self.directory.path().join("shown")).unwrap_or_default();
            shown.contains(text).then_some(shown)
        })
    }

    /// Types a line.
    pub(crate) fn type_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("standard input");
        writeln!(input, "{line}").expect("it is read");
    }

    /// Waits until the command has ended, and tells whether it did well.
    pub(crate) fn wait_end(&mut self) -> bool {
        let ended = || self.child.try_wait().expect("a child");
        wait_for("the command ends", PATIENCE, ended).success()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_branch_that_is_no_copy_is_deleted_by_whoever_types_its_name() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let names = || {
        let listed = coppice.cli(&["branch", "list"]);
        let listed = listed["branches"].as_array().expect("a list").iter();
        let mut names: Vec<_> =
            listed.map(|branch| branch["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    };
    for answer in ["y", "kid", "Main", ""] {
        let mut terminal = Terminal::open(&coppice, &["branch", "delete", "main"]);
        let asked = terminal.wait_for("Type main to go on:");
        assert!(asked.contains("Its copy kid stays"), "{asked}");
        terminal.type_line(answer);
        terminal.wait_for("nothing was done");
        assert!(!terminal.wait_end(), "{answer:?}");
    }
    assert_eq!(names(), ["kid", "main"]);

    // A copy is made again as easily as it is deleted.
    let mut terminal = Terminal::open(&coppice, &["branch", "delete", "kid"]);
    terminal.wait_for("Delete branch kid? [y/N]");
    terminal.type_line("y");
    assert!(terminal.wait_end());
    assert_eq!(names(), ["main"]);
    let mut terminal = Terminal::open(&coppice, &["branch", "delete", "main"]);
    terminal.wait_for("Type main to go on:");
    terminal.type_line("main");
    terminal.wait_for("deleted branch main");
    assert!(terminal.wait_end());
    assert_eq!(names(), [""; 0]);
    what_a_key_makes_while_somebody_is_asked_goes_with_it(&coppice);
}

/// Also in an organization that was not there before.
fn what_a_key_makes_while_somebody_is_asked_goes_with_it(coppice: &Platform) {
    let (status, stolen) = coppice.call("POST", "/api-keys", Some(&json!({ "name": "stolen" })));
    assert_eq!(status, 201, "{stolen}");
    let (id, token) = (text_of(&stolen["key"]["id"]), text_of(&stolen["key"]["token"]));
    let mut terminal = Terminal::open(coppice, &["key", "delete", "--user", "--with-made", &id]);
    terminal.wait_for("Delete stolen?");
    let make = |path: &str| {
        let (status, made) =
            coppice.call_as(Some(&token), "POST", path, Some(&json!({ "name": "meanwhile" })));
        assert_eq!(status, 201, "{made}");
        made
    };
    let organization = text_of(&make("/organizations")["id"]);
    let made = make(&format!("/organizations/{organization}/api-keys"));
    let works = || coppice.call_as(Some(&text_of(&made["key"]["token"])), "GET", "/organizations", None).0;
    assert_eq!(works(), 200);
    terminal.type_line("y");
    terminal.wait_for("deleted stolen");
    assert!(terminal.wait_end());
    assert_eq!(works(), 401);
}

//! The tour of README.md, and what it promises.

use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, wait_for};

use crate::setup::{PROGRAM, options, platform};

#[test]
fn the_tour_works_as_written() {
    let mut coppice = Platform::start(PROGRAM, Options { begins_with_nothing: true, ..options() });
    let admin = coppice.data_dir().join("admin.env");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&admin).expect("admin.env").permissions());
    assert_eq!(mode & 0o777, 0o600);

    coppice.sql("main", "CREATE TABLE people (name text); INSERT INTO people VALUES ('ada')");
    let created = coppice.cli(&["branch", "create", "preview", "--parent", "main"]);
    assert_eq!(created["status"]["statusType"], "STATUS_TYPE_HEALTHY");
    assert_eq!(coppice.sql("preview", "SELECT name FROM people"), "ada");
    coppice.sql("preview", "DROP TABLE people");
    assert_eq!(coppice.sql("main", "SELECT count(*) FROM people"), "1");

    // `coppice psql` passes its arguments on.
    let output = Command::new(PROGRAM)
        .args(["psql", "main", "--data-dir"])
        .arg(coppice.data_dir())
        .args(["--", "-XAtc", "SELECT 1 + 1"])
        .stdin(Stdio::null())
        .output()
        .expect("the executable runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2");

    coppice.cli(&["branch", "delete", "preview", "--yes"]);
    let gone = coppice.run(&["branch", "show", "preview"]);
    assert_eq!(gone.status.code(), Some(4));

    assert_eq!(coppice.terminate(), Some(0));
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

/// The commands of the README's tour, one a line.
fn readme_tour() -> Vec<String> {
    let readme = include_str!("../README.md");
    let (_, tour) = readme.split_once("## A five-minute tour").expect("a tour");
    let (tour, _) = tour.split_once("\n## ").expect("an end of the tour");
    let blocks = tour.split("```sh\n").skip(1).filter_map(|block| block.split_once("```"));
    blocks.flat_map(|(block, _)| block.lines().map(str::to_owned)).collect()
}

#[test]
fn every_command_of_the_readmes_tour_works() {
    let mut coppice = platform();
    let data_dir = coppice.data_dir().display().to_string();
    let here =
        |line: &str| line.replace("target/release/coppice", PROGRAM).replace("/var/lib/coppice", &data_dir);
    let commands: Vec<_> = readme_tour().iter().map(|line| here(line)).collect();
    assert!(commands.len() > 10, "{commands:?}");
    // One shell for all of them, as a reader has. A command that never ends would hold up every other story.
    let script = format!("set -ex\n{}\n", commands.join("\n"));
    let output = Command::new("timeout")
        .args(["--kill-after=10", "600", "bash", "-c", &script])
        .env("COPPICE_DATA_DIR", &data_dir)
        .env("PAGER", "cat")
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["ada", "preview", "\"projects\":", "everything is stopped"] {
        assert!(said.contains(expected), "{expected} in {said}");
    }
    coppice.wait_end();
    assert_eq!(Leftovers::of(coppice.data_dir()), Leftovers::default());
}

#[test]
fn a_second_start_finds_everything() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE kept (i int); INSERT INTO kept SELECT generate_series(1, 100)");
    let key = coppice.setting("COPPICE_API_KEY").to_owned();
    assert_eq!(coppice.stop_all(), Leftovers::default());

    coppice.spawn();
    coppice.wait_ready();
    assert_eq!(coppice.setting("COPPICE_API_KEY"), key);
    let main = || coppice.psql("main", "SELECT sum(i) FROM kept");
    let sum = wait_for("main is back", Duration::from_secs(60), || Some(main()).filter(|said| said.is_ok));
    assert_eq!(sum.out, "5050");
}

#[test]
fn a_child_shares_nothing_with_its_busy_parent() {
    let coppice = platform();
    let url = coppice.connection_string("main");
    let bench = |arguments: &[&str]| {
        let mut command = Command::new("pgbench");
        command.args(arguments).arg(&url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(bench(&["-i", "-q"]).status().expect("pgbench runs").success());
    let mut load = bench(&["-c", "2", "-T", "600"]).spawn().expect("pgbench runs");
    let balanced =
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
        AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)";
    wait_for("the load is under way", Duration::from_secs(60), || {
        (coppice.sql("main", "SELECT count(*) > 50 FROM pgbench_history") == "t").then_some(())
    });
    let fingerprint = "SELECT md5(string_agg(h::text, ',' ORDER BY h::text)) FROM pgbench_history h";
    for name in ["one", "two"] {
        coppice.cli(&["branch", "create", name, "--parent", "main"]);
        assert!(load.try_wait().expect("a child").is_none(), "the load is still on");
        assert_eq!(coppice.sql(name, &format!("SELECT coalesce(({balanced}), true)")), "t");
    }
    let before = coppice.sql("one", fingerprint);
    assert_ne!(before, coppice.sql("main", fingerprint), "the parent has moved on");
    assert_eq!(before, coppice.sql("one", fingerprint), "the child has not");
    coppice.sql("two", "TRUNCATE pgbench_history");
    let _ = load.kill();
    let _ = load.wait();
    assert_ne!(coppice.sql("main", "SELECT count(*) FROM pgbench_history"), "0");
}

#[test]
fn an_extension_of_the_list_can_be_created_by_the_owner() {
    let coppice = platform();
    let sql = "CREATE EXTENSION pg_trgm; SELECT similarity('coppice', 'coppices') > 0.5";
    assert!(coppice.sql("main", sql).ends_with('t'));
    let refused = coppice.psql("main", "CREATE EXTENSION file_fdw");
    assert!(!refused.is_ok && refused.err.contains("permission denied"), "{}", refused.err);
}

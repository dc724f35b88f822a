//! What a branch is made of is changed in place, with its data, its clients and
//! its password.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use coppice_test_support::{Options, Platform, Signal, signal, wait_for};
use serde_json::json;

use crate::branches::{change, describe, path, status};
use crate::configuration::{chosen, set, show};
use crate::http::text_of;
use crate::setup::{PROGRAM, platform, postgres_dir};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the server of a branch may take of the machine's memory; none where that is not limited.
fn memory_max(coppice: &Platform, branch: &str) -> Option<u64> {
    let groups =
        std::fs::read_to_string(format!("/proc/{}/cgroup", coppice.postmaster(&coppice.branch_id(branch))));
    let groups = groups.ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limited = Path::new(group.trim_start_matches('/')).parent()?;
    let limit = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(limited).join("memory.max"));
    limit.ok()?.trim().parse().ok()
}

/// Does something while a server can't be stopped.
fn while_it_hangs(coppice: &Platform, branch: &str, run: impl FnOnce()) {
    let pid = coppice.postmaster(&coppice.branch_id(branch));
    signal(pid, Signal::STOP).expect("a signal");
    run();
    signal(pid, Signal::CONT).expect("a signal");
}

fn wait_healthy(coppice: &Platform, branch_path: &str) {
    wait_for("it is up", PATIENCE, || (status(coppice, branch_path) == "STATUS_TYPE_HEALTHY").then_some(()));
}

#[test]
fn settings_that_keep_the_server_from_starting_are_taken_back() {
    let coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    assert_eq!(set(&coppice, &main, json!({ "work_mem": "9MB" })).0, 200);
    // There are none on this machine, or not that many.
    let hopeless = json!({ "huge_pages": "on", "shared_buffers": "512MB" });
    assert_eq!(set(&coppice, &main, hopeless).0, 200);
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7", "a client waits until it is up");
    wait_healthy(&coppice, &main);
    let message = text_of(&describe(&coppice, &main)["status"]["message"]);
    assert!(message.contains("settings of before"), "{message}");
    assert!(message.contains("huge") || message.contains("shared memory"), "{message}");
    let seen = ["huge_pages", "shared_buffers", "work_mem"].map(|name| show(&coppice, name));
    assert_eq!(seen, ["off", "256MB", "9MB"]);
    assert_eq!(chosen(&coppice, &main), json!({ "work_mem": "9MB" }));

    // The command line fails then; a change that goes well is the end of it.
    let said =
        coppice.run(&["branch", "set", "main", "--param", "huge_pages=on", "--size", "small", "--yes"]);
    assert!(!said.status.success());
    let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(complaint.contains("main was not changed") && complaint.contains("memory"), "{complaint}");
    assert_eq!(describe(&coppice, &main)["configuration"]["instanceType"], "micro");
    assert_eq!(set(&coppice, &main, json!({ "work_mem": "8MB" })).0, 200);
    wait_for("nothing is said of it any more", PATIENCE, || {
        (!text_of(&describe(&coppice, &main)["status"]["message"]).contains("before")).then_some(())
    });

    // It is found out also when it wakes.
    coppice.cli(&["branch", "hibernate", "main", "--yes"]);
    assert_eq!(set(&coppice, &main, json!({ "huge_pages": "on", "work_mem": "7MB" })).0, 200);
    coppice.cli(&["branch", "wake", "main"]);
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
    assert_eq!(chosen(&coppice, &main), json!({ "work_mem": "8MB" }), "all or nothing");
}

#[test]
fn a_branch_gets_another_size_other_libraries_and_more_storage_under_its_clients() {
    let coppice = platform();
    let main = path(&coppice, "main");
    assert_eq!(
        set(&coppice, &main, json!({ "work_mem": "9MB", "auto_explain.log_min_duration": "1s" })).0,
        200
    );
    let before = memory_max(&coppice, "main");
    let all = json!({
        "instanceType": "small", "preloadLibraries": ["pg_stat_statements", "pg_prewarm"], "storage": 11,
        "postgresConfigurationParameters": { "seq_page_cost": "2" },
    });
    let nothing = json!({ "storage": 10, "postgresConfigurationParameters": { "auto_explain.log_analyze": "on" },
                          "preloadLibraries": ["pg_prewarm"] });
    let (code, answer) = coppice.call("PATCH", &main, Some(&nothing));
    assert_eq!(
        (code, &answer["id"]),
        (400, &json!("invalid_postgres_parameter")),
        "of a library that it would not have"
    );
    while_it_hangs(&coppice, "main", || {
        change(&coppice, &main, &all);
        assert_eq!(describe(&coppice, &main)["status"]["status"], "Updating");
        let (code, answer) = coppice.call("PATCH", &main, Some(&json!({ "storage": 12 })));
        assert_eq!((code, &answer["id"]), (409, &json!("branch_busy")));
        change(&coppice, &main, &json!({ "description": "in any state" }));
    });
    // Whoever comes meanwhile waits.
    let names = "SELECT string_agg(current_setting(name), ' ' ORDER BY position) FROM unnest(array['shared_buffers',
                 'max_connections', 'work_mem', 'seq_page_cost', 'shared_preload_libraries']) WITH ORDINALITY u (name, position)";
    assert_eq!(coppice.sql("main", names), "512MB 200 9MB 2 $libdir/pg_stat_statements,$libdir/pg_prewarm");
    if let Some(before) = before {
        wait_for("it may take more", PATIENCE, || (memory_max(&coppice, "main")? > before).then_some(()));
    }
    wait_healthy(&coppice, &main);
    let is = describe(&coppice, &main)["configuration"].clone();
    assert_eq!((&is["instanceType"], &is["storage"]), (&json!("small"), &json!(11)));
    assert_eq!(chosen(&coppice, &main), json!({ "work_mem": "9MB", "seq_page_cost": "2" }));
    let first = coppice.postmaster(&coppice.branch_id("main"));
    change(&coppice, &main, &is);
    assert_eq!(describe(&coppice, &main)["status"]["status"], "Healthy", "it is all that already");

    // A copy may have another size from the beginning.
    coppice.cli(&[
        "branch",
        "create",
        "kid",
        "--parent",
        "main",
        "--size",
        "micro",
        "--param",
        "work_mem=7MB",
    ]);
    assert_eq!(
        coppice.sql("kid", "SELECT current_setting('shared_buffers') || current_setting('work_mem')"),
        "256MB7MB"
    );
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    let set = coppice.cli(&["branch", "set", "kid", "--size", "small", "--no-preload", "--storage", "12"]);
    assert_eq!(
        (&set["configuration"]["instanceType"], &set["status"]["statusType"]),
        (&json!("small"), &json!("STATUS_TYPE_HIBERNATED"))
    );
    coppice.cli(&["branch", "wake", "kid"]);
    assert_eq!(
        coppice.sql(
            "kid",
            "SELECT current_setting('shared_buffers') || current_setting('shared_preload_libraries')"
        ),
        "512MB"
    );
    coppice.cli(&["branch", "set", "kid", "--preload", "pg_stat_statements", "--yes"]);
    coppice.sql("kid", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    assert_eq!(coppice.sql("kid", "SELECT count(*) > 0 FROM pg_stat_statements"), "t");
    let asked = coppice.run(&["branch", "set", "kid", "--size", "micro"]);
    let asked = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(asked.contains("the instance type restarts kid") && asked.contains("--yes"), "{asked}");
    assert_eq!(coppice.postmaster(&coppice.branch_id("main")), first, "nothing was restarted for nothing");
}

/// A copy of PostgreSQL 17.10 that calls itself 17.11 wherever its programs say what they are.
fn later_release(directory: &Path) -> PathBuf {
    let home = directory.join("17.11");
    let copied = Command::new("cp").arg("-a").arg(postgres_dir().join("17.10")).arg(&home).status();
    assert!(copied.expect("cp runs").success());
    for name in ["postgres", "initdb"] {
        let program = home.join("bin").join(name);
        let mut bytes = fs::read(&program).expect("a program");
        let text = b"17.10";
        let places: Vec<_> =
            (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
        for at in places {
            bytes[at..at + text.len()].copy_from_slice(b"17.11");
        }
        fs::write(&program, bytes).expect("a program");
    }
    home
}

#[test]
fn a_branch_gets_a_later_release_and_never_an_earlier_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let later = later_release(directory.path());
    let directories = format!("{}:{}", postgres_dir().join("17.10").display(), later.display());
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), directories)];
    let coppice = Platform::start(PROGRAM, Options { environment, ..Options::default() });
    coppice.cli(&["branch", "create", "b", "--image", "postgres:17.10"]);
    let b = path(&coppice, "b");
    coppice.sql("b", "CREATE TABLE t AS SELECT 7 AS i");
    let password = coppice.connection_string("b");
    for (other, why) in [
        (json!({ "image": "postgres:17.9" }), "not offered"),
        (json!({ "image": "postgres:15" }), "PostgreSQL 17"),
        (json!({ "image": "postgres:17.11", "instanceType": "small" }), "two requests"),
        (
            json!({ "image": "postgres:17", "postgresConfigurationParameters": { "work_mem": "9MB" } }),
            "two requests",
        ),
        (json!({ "image": "postgres:17", "preloadLibraries": [] }), "two requests"),
    ] {
        let (code, answer) = coppice.call("PATCH", &b, Some(&other));
        assert_eq!((code, &answer["id"]), (400, &json!("invalid_image")), "{other}");
        assert!(text_of(&answer["message"]).contains(why), "{answer}");
    }
    let mut all = describe(&coppice, &b)["configuration"].clone();
    all["image"] = json!("postgres:17");
    while_it_hangs(&coppice, "b", || {
        change(&coppice, &b, &all);
        assert_eq!(describe(&coppice, &b)["status"]["status"], "Upgrading");
    });
    assert_eq!(
        coppice.sql("b", "SELECT i || split_part(current_setting('server_version'), ' ', 1) FROM t"),
        "717.11"
    );
    wait_healthy(&coppice, &b);
    assert_eq!(describe(&coppice, &b)["configuration"]["image"], "postgres:17.11");
    assert_eq!(coppice.connection_string("b"), password);
    let back = coppice.run(&["branch", "set", "b", "--image", "postgres:17.10", "--yes"]);
    let said = String::from_utf8_lossy(&back.stderr).into_owned();
    assert!(!back.status.success() && said.contains("no way back"), "{said}");
    // A copy has what its parent has, and can be made later than that.
    coppice.cli(&["branch", "create", "kid", "--parent", "b"]);
    assert!(coppice.sql("kid", "SHOW server_version").starts_with("17.11"));
}

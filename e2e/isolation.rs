//! Branches that try to reach each other, and a copy that would take its
//! parent's place.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, wait_for};

use crate::servers::OwnServer;
use crate::setup::{every_release, platform};

const PATIENCE: Duration = Duration::from_secs(60);

fn status_of(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim().to_owned()
}

#[test]
fn each_server_is_shut_in() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let [one, two] = ["main", "kid"].map(|name| coppice.postmaster(&coppice.branch_id(name)));
    let uid = |pid| status_of(pid, "Uid:");
    assert_ne!(uid(one), uid(two), "an account each");
    assert!(!uid(one).starts_with("0\t"));
    assert_eq!(status_of(one, "CapEff:"), "0000000000000000");
    assert_eq!(status_of(one, "NoNewPrivs:"), "1");
    for namespace in ["net", "mnt", "ipc", "pid", "cgroup"] {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}")).expect("a namespace");
        assert_ne!(of(&one.to_string()), of("self"), "{namespace}");
        assert_ne!(of(&one.to_string()), of(&two.to_string()), "{namespace}");
    }
    let interfaces = std::fs::read_to_string(format!("/proc/{one}/net/dev")).expect("interfaces");
    assert_eq!(interfaces.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")).count(), 0);
}

#[test]
fn an_account_reaches_no_other_branch() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let [one, two] = ["main", "kid"].map(|name| coppice.postmaster(&coppice.branch_id(name)));
    let account = status_of(one, "Uid:").split_whitespace().next().expect("a uid").to_owned();
    // What a program could do that runs under the account of `main`.
    let as_main = |program: &str, arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid", &account, "--regid", &account, "--clear-groups", program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("setpriv runs")
            .status
            .success()
    };
    assert!(as_main("true", &[]));
    assert!(!as_main("kill", &["-TERM", &two.to_string()]), "signals");
    let record = find(Path::new("/run/coppice"), &format!("{}-1", coppice.branch_id("kid")));
    let socket = record.join("socket/.s.PGSQL.5432");
    assert!(socket.exists());
    assert!(!as_main("test", &["-w", &socket.display().to_string()]), "sockets");
    assert!(!as_main("ls", &[&coppice.data_dir().display().to_string()]), "files");
    assert!(!as_main("ls", &[&format!("/proc/{two}/cwd/")]), "files by way of a process");
}

fn find(parent: &Path, name: &str) -> std::path::PathBuf {
    let engines = std::fs::read_dir(parent).expect("a runtime directory");
    let mut found =
        engines.filter_map(Result::ok).map(|engine| engine.path().join(name)).filter(|dir| dir.exists());
    found.next().expect("the instance's runtime directory")
}

#[test]
fn a_database_owners_settings_do_not_reach_the_platform() {
    let coppice = platform();
    coppice.sql(
        "main",
        "CREATE SCHEMA trap;
         CREATE FUNCTION trap.quote_literal(text) RETURNS text LANGUAGE sql AS $$ SELECT 'trapped' $$;
         ALTER DATABASE app SET search_path = trap, public;
         ALTER DATABASE app SET default_transaction_read_only = on;
         ALTER DATABASE app SET statement_timeout = 1;
         ALTER ROLE app SET statement_timeout = 1",
    );
    let created = coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    assert_eq!(created["status"]["statusType"], "STATUS_TYPE_HEALTHY", "{}", coppice.log());
    assert!(!coppice.log().contains("WARN"), "{}", coppice.log());
    let trapped = coppice.psql("kid", "SELECT pg_sleep(1)");
    assert!(trapped.err.contains("statement timeout"), "the trap is set: {}", trapped.err);
}

/// Puts the door of a server of the host where branches of a major version can
/// see it, which is in their image; returns its directory as they see it.
fn show_to_branches(coppice: &Platform, major: &str, server: &OwnServer) -> &'static str {
    let images = std::fs::read_dir(coppice.data_dir().join("images")).expect("images").flatten();
    let prefix = format!("{major}.");
    let mut images = images
        .map(|image| image.path())
        .filter(|image| name_of(image).is_some_and(|n| n.starts_with(&prefix)));
    let image = images.next().expect("an image");
    std::fs::hard_link(server.socket(), image.join(".s.PGSQL.5432")).expect("a second door");
    "/image"
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

#[test]
fn a_child_does_not_take_its_parents_subscription() {
    let coppice = every_release();
    for major in ["15", "16", "17", "18"] {
        // A door can be linked on one file system only.
        let publisher = OwnServer::start_beside(coppice.data_dir().parent().expect("its place"));
        let socket = show_to_branches(&coppice, major, &publisher);
        publisher.sql("CREATE TABLE events (i int PRIMARY KEY)");
        publisher.sql("CREATE PUBLICATION all_events FOR TABLE events");
        let parent = format!("v{major}");
        coppice.cli(&["branch", "create", &parent, "--image", &format!("postgres:{major}")]);
        coppice.sql(&parent, "CREATE TABLE events (i int PRIMARY KEY)");
        // Only a superuser may subscribe without a password.
        let subscribe = format!(
            "CREATE SUBSCRIPTION follower CONNECTION 'host={socket} user=postgres dbname=postgres' \
             PUBLICATION all_events"
        );
        let said = coppice_test_support::psql(&coppice.superuser_url(&parent), &subscribe);
        assert!(said.is_ok, "{}", said.err);
        publisher.sql("INSERT INTO events SELECT generate_series(1, 100)");
        let has = |count: &str| (coppice.sql(&parent, "SELECT count(*) FROM events") == count).then_some(());
        wait_for("the parent follows", PATIENCE, || has("100"));

        for round in 1..=2 {
            let kid = format!("{parent}-kid-{round}");
            coppice.cli(&["branch", "create", &kid, "--parent", &parent]);
            publisher.sql(&format!("INSERT INTO events SELECT generate_series({round}000, {round}099)"));
            let expected = (100 + 100 * round).to_string();
            wait_for("the parent misses nothing", PATIENCE, || has(&expected));
            let attached = "SELECT count(*) FROM pg_subscription WHERE subenabled OR subslotname IS NOT NULL";
            assert_eq!(coppice.sql(&kid, attached), "0", "{major}");
            let rows = coppice.sql(&kid, "SELECT count(*) FROM events").parse::<u32>().expect("a count");
            assert!(rows < 100 + 100 * round, "{major}: the child follows nobody");
        }
        assert_eq!(publisher.sql("SELECT count(*) FROM pg_stat_replication"), "1", "{major}");
    }
}

#[test]
fn a_child_does_not_hold_its_parents_prepared_transactions() {
    let coppice = every_release();
    for major in ["15", "18"] {
        let parent = format!("prepared{major}");
        coppice.cli(&["branch", "create", &parent, "--image", &format!("postgres:{major}")]);
        coppice.sql(&parent, "CREATE TABLE stock (i int); INSERT INTO stock VALUES (1)");
        let prepare = "BEGIN; UPDATE stock SET i = 2; PREPARE TRANSACTION 'sale'";
        let said = coppice_test_support::psql(&coppice.superuser_url(&parent), prepare);
        assert!(said.is_ok, "{}", said.err);

        let kid = format!("{parent}-kid");
        coppice.cli(&["branch", "create", &kid, "--parent", &parent]);
        assert_eq!(coppice.sql(&kid, "SELECT count(*) FROM pg_prepared_xacts"), "0", "{major}");
        // Its row is not locked, and what was only prepared did not happen.
        assert_eq!(coppice.sql(&kid, "UPDATE stock SET i = i + 10 RETURNING i"), "11\nUPDATE 1", "{major}");
        assert_eq!(coppice.sql(&parent, "SELECT gid FROM pg_prepared_xacts"), "sale", "{major}");
    }
}

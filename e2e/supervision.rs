//! The platform as a service: its units, what it tells its manager, and the
//! rights it is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, Signal, psql, signal, wait_for};

use crate::setup::{PROGRAM, options};

const UNITS: [&str; 2] = ["coppice.service", "coppice-branches.service"];
/// Where the units expect the executable.
const INSTALLED: &str = "/usr/local/bin/coppice";
const PATIENCE: Duration = Duration::from_secs(120);

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    fs::read_to_string(path).expect("a unit")
}

/// What systemd has to say about the units, with some text in them replaced.
fn complaints(from: &str, to: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = UNITS.map(|name| directory.path().join(name));
    for (name, path) in UNITS.iter().zip(&paths) {
        fs::write(path, unit(name).replace(INSTALLED, PROGRAM).replace(from, to)).expect("a unit");
    }
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output();
    let said = String::from_utf8(output.expect("systemd-analyze runs").stderr).expect("text");
    // Units of the machine itself are none of ours.
    said.lines().filter(|line| line.contains("coppice")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn systemd_understands_the_units() {
    assert_eq!(complaints("", ""), "");
    for (from, to) in [
        ("RestartSec=", "RestartSecs="),
        ("@swap", "@swamp"),
        ("Type=oneshot", "Type=simple"),
        (PROGRAM, "/nonexistent/coppice"),
    ] {
        assert_ne!(complaints(from, to), "", "{from} is looked at");
    }
}

/// Both units have to speak of the same data.
#[test]
fn the_units_agree() {
    let settings = |name: &str| -> Vec<String> {
        let text = unit(name);
        let is_shared = |line: &&str| line.starts_with("Environment") && !line.contains("COPPICE_DRAIN");
        text.lines().filter(is_shared).map(str::to_owned).collect()
    };
    assert_eq!(settings(UNITS[0]), settings(UNITS[1]));
    assert!(!settings(UNITS[0]).is_empty());
}

/// A service manager's end of the notification socket.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket, path, _directory: directory }
    }

    /// Everything up to the message with this line.
    fn hear(&self, line: &str) -> Vec<String> {
        let mut heard: Vec<String> = vec![];
        while !heard.iter().any(|message| message.lines().any(|said| said == line)) {
            let mut bytes = [0; 1000];
            let length = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{heard:?}: {error}"));
            heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        heard
    }
}

#[test]
fn the_manager_is_told_when_the_platform_serves_and_when_it_ends() {
    let manager = Manager::new();
    let mut options = options();
    options.environment.push(("NOTIFY_SOCKET".to_owned(), manager.path.display().to_string()));
    let mut coppice = Platform::prepare(PROGRAM, options);
    coppice.spawn();
    let heard = manager.hear("READY=1");
    assert!(heard.len() > 1, "what is being done is said before: {heard:?}");
    assert!(heard[..heard.len() - 1].iter().all(|message| message.starts_with("STATUS=")), "{heard:?}");
    assert!(coppice.data_dir().join("serve.json").exists(), "{heard:?}");
    coppice.wait_ready();
    assert!(heard.concat().contains(coppice.api().trim_start_matches("http://")), "{heard:?}");
    assert_eq!(coppice.call_as(None, "GET", "/readyz", None).0, 200);
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");

    assert_eq!(coppice.terminate(), Some(0));
    let heard = manager.hear("STOPPING=1");
    assert_eq!(heard.len(), 1, "nothing was said in between: {heard:?}");

    // A manager that does not listen any more is no reason not to start.
    drop(manager);
    coppice.restart();
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
    let log = coppice.log();
    assert!(log.contains("telling the service manager"), "{log}");
    assert!(!log.contains('\x1b'), "a log that is no terminal has no colors: {log:?}");
}

#[test]
fn a_successor_is_the_main_process_and_a_child_of_nobody_who_goes() {
    let manager = Manager::new();
    let mut options = options();
    options.environment.push(("NOTIFY_SOCKET".to_owned(), manager.path.display().to_string()));
    let coppice = Platform::start(PROGRAM, options);
    manager.hear("READY=1");
    let first = pid_of(&coppice).expect("a pid");
    signal(first, Signal::HUP).expect("a signal");
    let heard = manager.hear("READY=1");
    let second = pid_of(&coppice).expect("a pid");
    assert_ne!(second, first);
    assert!(heard.last().is_some_and(|last| last.contains(&format!("MAINPID={second}\n"))), "{heard:?}");
    assert!(!heard.concat().contains("STOPPING"), "the service goes on: {heard:?}");
    let stat = fs::read_to_string(format!("/proc/{second}/stat")).expect("a process");
    let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
    assert_ne!(parent, Some(first.to_string().as_str()));
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}

#[test]
fn sessions_may_go_on_for_as_long_as_the_drain_says() {
    let flags = ["--drain", "1"].map(str::to_owned).to_vec();
    let mut coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    let url = coppice.connection_string("main");
    let client = std::thread::spawn(move || psql(&url, "SELECT pg_sleep(600)"));
    wait_for("it sleeps", PATIENCE, || {
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        (coppice.sql("main", asleep) == "1").then_some(())
    });
    assert_eq!(coppice.terminate(), Some(0));
    assert!(!client.join().expect("a client").is_ok);
    assert!(
        coppice.log().contains("cutting the sessions that are still open after 1 s"),
        "{}",
        coppice.log()
    );
}

/// The process that serves, as it wrote it down.
fn pid_of(coppice: &Platform) -> Option<u32> {
    let record = fs::read(coppice.data_dir().join("serve.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&record).ok()?;
    record["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// The capabilities that the unit leaves to the service, as setpriv names them.
fn capabilities() -> Vec<String> {
    let text = unit(UNITS[0]);
    let sets = text.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    sets.flat_map(str::split_whitespace).map(|name| name.trim_start_matches("CAP_").to_lowercase()).collect()
}

#[test]
fn the_rights_that_the_unit_leaves_are_enough() {
    let capabilities = capabilities();
    assert!(capabilities.contains(&"sys_admin".to_owned()), "{capabilities:?}");
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("coppice");
    let bounds = format!("-all,+{}", capabilities.join(",+"));
    let script = format!("#!/bin/sh\nexec setpriv --no-new-privs --bounding-set={bounds} {PROGRAM} \"$@\"\n");
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");

    let mut coppice = Platform::start(&program.display().to_string(), Options { ..options() });
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    assert_eq!(coppice.sql("kid", "SELECT i FROM t"), "7");
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    coppice.cli(&["branch", "wake", "kid"]);
    assert_eq!(coppice.sql("kid", "SELECT i FROM t"), "7");

    let main = coppice.branch_id("main");
    let pid = coppice.postmaster(&main);
    signal(pid, Signal::KILL).expect("a signal");
    wait_for("another server", PATIENCE, || coppice.psql("main", "SELECT 1").is_ok.then_some(()));
    coppice.restart();
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
    coppice.cli(&["branch", "delete", "kid", "--yes"]);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

//! The units in the hands of a real systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use coppice_test_support::{Leftovers, wait_for};

use crate::setup::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(120);

/// A machine whose first process is systemd; gone with the value.
struct Machine {
    directory: tempfile::TempDir,
    container: Child,
}

impl Machine {
    fn boot() -> Self {
        let directory = tempfile::Builder::new().prefix("coppice-machine-").tempdir().expect("a directory");
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["bin", "units", "data", "log", "machine"] {
            fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        for unit in ["coppice.service", "coppice-branches.service"] {
            let to = directory.path().join("units").join(unit);
            fs::copy(repository.join("deploy").join(unit), to).expect("a unit");
        }
        let settings = "COPPICE_POOL_SIZE_GIB=1\nCOPPICE_HOST_RESERVE_GIB=1\n";
        fs::write(directory.path().join("settings"), settings).expect("settings");
        let said = fs::File::create(directory.path().join("log/boot")).expect("a file");
        let mut command = Command::new("bash");
        command.arg(repository.join("e2e/systemd/machine.sh")).arg(directory.path());
        command.stdin(Stdio::null()).stdout(said.try_clone().expect("a descriptor")).stderr(said);
        install(&directory.path().join("bin/coppice"));
        Self { container: command.spawn().expect("bash runs"), directory }
    }

    /// The first process of the container, as it is seen from outside.
    fn first(&self) -> Option<String> {
        let pid = self.container.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    fn try_run(&self, command: &[&str]) -> Option<Output> {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.first()?, "--all", "--"]).args(command);
        enter.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).output().ok()
    }

    /// What a command on the machine prints; panics when it fails.
    #[track_caller]
    fn run(&self, command: &[&str]) -> String {
        let output = self.try_run(command).expect("the machine runs");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {err}\n{}", self.logs());
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }

    fn property(&self, name: &str) -> String {
        self.run(&["systemctl", "show", "--value", "--property", name, "coppice"])
    }

    #[track_caller]
    fn sql(&self, sql: &str) -> String {
        self.run(&["coppice", "psql", "main", "--data-dir", "/var/lib/coppice", "--", "-XAtc", sql])
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join("log").join(name)).unwrap_or_default()
    }

    fn logs(&self) -> String {
        ["boot", "console", "coppice.log", "coppice-branches.log"].map(|name| self.log(name)).join("---\n")
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

/// As an upgrade does: running processes keep the file they were started from.
fn install(to: &Path) {
    let new = to.with_extension("new");
    fs::copy(PROGRAM, &new).expect("the executable is copied");
    fs::rename(new, to).expect("the executable is put in place");
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its first process dies with it, and with that everything.
        let _ = self.container.kill();
        let _ = self.container.wait();
        let name = self.directory.path().file_name().expect("a name");
        let cgroup = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|parent| Path::new(parent).join(name));
        for cgroup in cgroup.iter().filter(|cgroup| cgroup.exists()) {
            let remove = ["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"];
            let removed =
                || Command::new("find").arg(cgroup).args(remove).output().is_ok() && !cgroup.exists();
            wait_for("the container's cgroup is empty", PATIENCE, || removed().then_some(()));
        }
    }
}

#[test]
fn systemd_starts_replaces_and_stops_the_platform() {
    let mut machine = Machine::boot();
    let is_active = || machine.try_run(&["systemctl", "is-active", "coppice"]).map(|it| it.status.success());
    let deadline = std::time::Instant::now() + PATIENCE;
    while is_active() != Some(true) {
        assert!(std::time::Instant::now() < deadline, "{}", machine.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Active means ready: nobody waits here.
    assert_eq!(machine.sql("CREATE TABLE t AS SELECT 7 AS i; SELECT i FROM t"), "SELECT 1\n7");
    assert!(machine.property("StatusText").starts_with("API on "), "{}", machine.property("StatusText"));
    let server = machine.sql("SELECT pg_postmaster_start_time()");

    // An upgrade: a session goes on, and the new process is the one that counts.
    let first = machine.property("MainPID");
    install(&machine.directory.path().join("bin/coppice"));
    let asked = std::thread::scope(|scope| {
        let session = scope.spawn(|| machine.sql("SELECT 'went on' FROM pg_sleep(8)"));
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        wait_for("a session", PATIENCE, || (machine.sql(asleep) == "1").then_some(()));
        machine.run(&["systemctl", "reload", "coppice"]);
        wait_for("a successor", PATIENCE, || (machine.property("MainPID") != first).then_some(()));
        assert_eq!(machine.sql("SELECT i FROM t"), "7");
        session.join().expect("a session")
    });
    assert_eq!(asked, "went on");

    // Its end does not go unnoticed, although systemd has not started it.
    let second = machine.property("MainPID");
    machine.run(&["kill", "-KILL", &second]);
    wait_for("a restart", PATIENCE, || (machine.property("NRestarts") == "1").then_some(()));
    wait_for("it is active", PATIENCE, || (machine.property("ActiveState") == "active").then_some(()));
    assert_eq!(machine.sql("SELECT i FROM t"), "7");

    machine.run(&["systemctl", "stop", "coppice"]);
    assert_eq!(
        (machine.property("Result").as_str(), machine.property("SubState").as_str()),
        ("success", "dead")
    );
    machine.run(&["systemctl", "start", "coppice"]);
    assert_eq!(machine.sql("SELECT pg_postmaster_start_time()"), server, "the server outlived all that");

    // There is no login manager to be told before; systemd itself takes it.
    let _ = machine.try_run(&["systemctl", "poweroff"]);
    wait_for("the machine is off", PATIENCE, || machine.container.try_wait().expect("a child").map(|_| ()));
    let log = machine.log("coppice-branches.log");
    assert!(log.contains("everything is stopped"), "{}", machine.logs());
    assert_eq!(Leftovers::of(&machine.data_dir()), Leftovers::default());
}

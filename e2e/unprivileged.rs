//! The platform without root: one account, full copies or clones, the rest alike.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::wait_for;
use tempfile::TempDir;

use crate::setup::{PROGRAM, postgres_dir};

/// What everybody may run, wherever the build is: a copy of the executable and of a PostgreSQL.
struct Programs {
    directory: TempDir,
}

impl Programs {
    fn copy() -> Self {
        let directory = coppice_test_support::directory("coppice-files-");
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("a mode");
        std::fs::copy(PROGRAM, directory.path().join("coppice")).expect("a copy");
        let copied =
            Command::new("cp").arg("-a").arg(postgres_dir().join("17.10")).arg(directory.path()).status();
        assert!(copied.expect("cp runs").success());
        Self { directory }
    }

    /// The executable, run by an ordinary account.
    fn as_nobody(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
        command.args(["env", "-u", "XDG_RUNTIME_DIR"]);
        command.arg(self.directory.path().join("coppice")).args(arguments).stdin(Stdio::null());
        command.env("COPPICE_POSTGRES_DIRS", self.directory.path().join("17.10"));
        command
    }
}

/// Ends a platform that runs as somebody else.
struct Stopper<'a> {
    programs: &'a Programs,
    data_dir: String,
}

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        let _ = self.programs.as_nobody(&["stop", "--all", "--data-dir", &self.data_dir]).status();
    }
}

#[test]
fn an_ordinary_account_gets_a_platform_too() {
    let programs = Programs::copy();
    let directory = coppice_test_support::directory("coppice-files-");
    let account = nix::unistd::User::from_name("nobody").expect("accounts").expect("the account nobody");
    std::os::unix::fs::chown(directory.path(), Some(account.uid.as_raw()), None).expect("a new owner");
    let data_dir = directory.path().join("data").display().to_string();
    let log = std::fs::File::create(directory.path().join("log")).expect("a log");
    let stopper = Stopper { programs: &programs, data_dir: data_dir.clone() };
    let mut child = programs
        .as_nobody(&["serve", "--data-dir", &data_dir, "--listen", "127.0.0.1:0"])
        .args(["--gateway-listen", "127.0.0.1:0", "--metrics-interval", "1"])
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("it starts");
    let said = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let is_ready = wait_for("it is ready", Duration::from_secs(120), || {
        if said().contains("coppice is ready") {
            return Some(true);
        }
        child.try_wait().expect("a child").is_some().then_some(false)
    });
    assert!(is_ready, "{}", said());

    let api = |arguments: &[&str]| {
        let output = programs.as_nobody(arguments).args(["--data-dir", &data_dir]).output().expect("it runs");
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            said()
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let main = api(&["connection-string", "main"]);
    assert!(coppice_test_support::psql(&main, "CREATE TABLE t (i int); INSERT INTO t VALUES (7)").is_ok);
    api(&["branch", "create", "kid", "--parent", "main"]);
    let kid = api(&["connection-string", "kid"]);
    assert_eq!(coppice_test_support::psql(&kid, "SELECT i FROM t").out, "7");
    // There is no cgroup to count in.
    for metric in ["cpu", "memory", "disk"] {
        let burn = "DO $$ BEGIN FOR i IN 1..3000000 LOOP END LOOP; END $$";
        let largest = wait_for(metric, Duration::from_secs(120), || {
            assert!(coppice_test_support::psql(&kid, burn).is_ok);
            let told = api(&["metrics", "kid", "--metric", metric, "--json"]);
            let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
            let values = told["results"][0]["series"][1]["values"].as_array().expect("values");
            let values = values.iter().filter_map(|value| value["value"].as_f64());
            values.reduce(f64::max).filter(|value| *value > 0.0)
        });
        assert!(metric == "cpu" || largest > 4e6, "{metric}: {largest}");
    }
    let attack = coppice_test_support::psql(&kid, "COPY (SELECT 1) TO PROGRAM 'id'");
    assert!(!attack.is_ok);

    drop(stopper);
    let _ = child.wait();
}

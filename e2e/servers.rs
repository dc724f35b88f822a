//! Ordinary PostgreSQL servers that stories need besides the platform's.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{psql, wait_for};

/// A PostgreSQL 15 of the test's own, reached by a Unix socket, where everybody
/// on this machine is its superuser. Gone when dropped.
pub(crate) struct OwnServer {
    directory: tempfile::TempDir,
    child: Child,
}

impl OwnServer {
    pub(crate) fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("own-").tempdir().expect("a directory");
        let account =
            nix::unistd::User::from_name("postgres").expect("accounts").expect("the account postgres");
        std::os::unix::fs::chown(directory.path(), Some(account.uid.as_raw()), None).expect("a new owner");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("a mode");
        let data = directory.path().join("data").display().to_string();
        let as_postgres = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
            command.arg(format!("/usr/lib/postgresql/15/bin/{program}"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let made = as_postgres("initdb").args(["-D", &data, "-A", "trust"]).status().expect("initdb runs");
        assert!(made.success());
        let child = as_postgres("postgres")
            .args(["-D", &data, "-c", "wal_level=logical", "-c", "listen_addresses=", "-k"])
            .arg(directory.path())
            .spawn()
            .expect("postgres runs");
        let server = Self { directory, child };
        wait_for("the server is up", Duration::from_secs(30), || {
            psql(&server.conninfo(), "SELECT 1").is_ok.then_some(())
        });
        server
    }

    /// For libpq.
    pub(crate) fn conninfo(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.directory.path().display())
    }

    /// As a URL.
    pub(crate) fn url(&self) -> String {
        format!("postgresql://postgres@localhost/postgres?host={}", self.directory.path().display())
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        let said = psql(&self.conninfo(), sql);
        assert!(said.is_ok, "{sql}: {}", said.err);
        said.out
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT);
        let _ = self.child.wait();
    }
}

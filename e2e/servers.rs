//! Ordinary PostgreSQL servers that stories need besides the platform's.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Signal, psql, signal, wait_for};

/// A PostgreSQL 15 of the test's own, reached by a Unix socket, where everybody
/// on this machine is its superuser. Gone when dropped.
pub(crate) struct OwnServer {
    directory: tempfile::TempDir,
    child: Child,
}

impl OwnServer {
    pub(crate) fn start() -> Self {
        Self::start_in(coppice_test_support::directory("coppice-own-"))
    }

    /// One whose files are on the file system of `place`.
    pub(crate) fn start_beside(place: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("coppice-own-").tempdir_in(place);
        Self::start_in(directory.expect("a directory"))
    }

    fn start_in(directory: tempfile::TempDir) -> Self {
        let account =
            nix::unistd::User::from_name("postgres").expect("accounts").expect("the account postgres");
        std::os::unix::fs::chown(directory.path(), Some(account.uid.as_raw()), None).expect("a new owner");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("a mode");
        let data = directory.path().join("data").display().to_string();
        let made = as_postgres("initdb").args(["-D", &data, "-A", "trust"]).status().expect("initdb runs");
        assert!(made.success());
        let child = spawn(directory.path());
        let server = Self { directory, child };
        server.wait_ready();
        server
    }

    /// Ends it as a crash of the machine would.
    pub(crate) fn stop(&mut self) {
        // Its pid may be another process's by now.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let pid = self.child.id();
        let _ = signal(pid, Signal::QUIT);
        let _ = self.child.wait();
    }

    /// Starts it after [`OwnServer::stop`]; it may not be ready yet.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(self.directory.path());
    }

    fn wait_ready(&self) {
        let is_ready = || psql(&self.conninfo(), "SELECT 1").is_ok.then_some(());
        wait_for("the server is up", Duration::from_secs(60), is_ready);
    }

    /// For libpq.
    pub(crate) fn conninfo(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.directory.path().display())
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join(".s.PGSQL.5432")
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
        self.stop();
    }
}

fn as_postgres(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    command.arg(format!("/usr/lib/postgresql/15/bin/{program}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn spawn(directory: &Path) -> Child {
    as_postgres("postgres")
        .arg("-D")
        .arg(directory.join("data"))
        .args(["-c", "wal_level=logical", "-c", "listen_addresses=", "-k"])
        .arg(directory)
        .spawn()
        .expect("postgres runs")
}

//! A PostgreSQL server of the tests' own, shared by those that run at the same
//! time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use coppice_store::ConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

const BIN: &str = "/usr/lib/postgresql/15/bin";
/// Only the owner of the directory reaches the socket.
const HBA: &str = "local all all trust\n";

/// Ends the server when the last test lets go of it.
pub(crate) struct Postgres {
    server: Child,
    dir: TempDir,
}

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// PostgreSQL refuses to run as root.
fn as_postgres(program: PathBuf) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
    command
}

impl Postgres {
    /// The server that other tests use at this moment, or a new one.
    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// A server that the caller may stop.
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("coppice-store-").tempdir().unwrap();
        let data = dir.path().join("data");
        if rustix::process::geteuid().is_root() {
            assert!(Command::new("chown").arg("postgres:").arg(dir.path()).status().unwrap().success());
        }
        let output = as_postgres(Path::new(BIN).join("initdb"))
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--pgdata"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(data.join("pg_hba.conf"), HBA).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let server = as_postgres(Path::new(BIN).join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "max_connections=60", "-c"])
            .arg(format!("unix_socket_directories={}", dir.path().display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let server = Self { server, dir };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = Command::new(Path::new(BIN).join("pg_isready"))
                .arg("--quiet")
                .arg("--host")
                .arg(self.dir.path())
                .status()
                .unwrap();
            if status.success() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}",
                fs::read_to_string(self.dir.path().join("log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How to reach a database of this server.
    pub(crate) fn options(&self, database: &str) -> ConnectOptions {
        ConnectOptions::new_without_pgpass().socket(self.dir.path()).username("postgres").database(database)
    }

    /// A new, empty database.
    pub(crate) async fn database(&self) -> ConnectOptions {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("store_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect_with(&self.options("postgres")).await.unwrap();
        let create = format!("create database {name}");
        sqlx::query(AssertSqlSafe(create)).execute(&mut admin).await.unwrap();
        self.options(&name)
    }

    /// Ends all sessions at once and removes everything.
    pub(crate) fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.server.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

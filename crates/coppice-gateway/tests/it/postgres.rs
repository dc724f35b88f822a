//! A PostgreSQL server of the tests' own, shared by those that run at the same
//! time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const BIN: &str = "/usr/lib/postgresql/15/bin";
/// Clients sign in by SCRAM as in production; the tests' own session is let in.
const HBA: &str = "local all postgres trust\nlocal all all scram-sha-256\n";

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
        let dir = tempfile::Builder::new().prefix("coppice-gateway-").tempdir().unwrap();
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

    pub(crate) fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// A session as the superuser, past the gateway.
    pub(crate) async fn admin(&self) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.socket_dir()).user("postgres").dbname("postgres");
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
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

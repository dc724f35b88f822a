//! A bare PostgreSQL server of the tests' own, shared by those that run at the
//! same time.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use crate::kept::Kept;
use crate::wait_for;

const BIN: &str = "/usr/lib/postgresql/15/bin";
const READY_PATIENCE: Duration = Duration::from_secs(60);

/// Ends the server when the last test lets go of it. Its superuser is
/// `postgres`, and it listens on a socket only.
#[derive(Debug)]
pub struct Postgres {
    _server: Kept,
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
    /// The server that other tests of this program use at this moment, or a new
    /// one, with this `pg_hba.conf`.
    pub fn shared(hba: &str) -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start(hba));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// A server of the caller alone.
    pub fn start(hba: &str) -> Self {
        Self::of_release(Path::new(BIN), hba)
    }

    /// A server of the caller alone, of the release whose programs are in `bin`.
    pub fn of_release(bin: &Path, hba: &str) -> Self {
        let dir = crate::directory("coppice-postgres-");
        let data = dir.path().join("data");
        if rustix::process::geteuid().is_root() {
            let given = Command::new("chown").arg("postgres:").arg(dir.path()).status();
            assert!(given.expect("chown runs").success());
        }
        let output = as_postgres(bin.join("initdb"))
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--pgdata"])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(data.join("pg_hba.conf"), hba).expect("a writable file");
        let log = fs::File::create(dir.path().join("log")).expect("a log");
        let mut shell = as_postgres("sh".into());
        shell.stderr(log);
        let sockets = format!("unix_socket_directories={}", dir.path().display());
        let settings = ["listen_addresses=", "max_connections=200", "fsync=off", &sockets];
        let data = [OsStr::new("-D"), data.as_os_str()];
        let arguments = data
            .into_iter()
            .chain(settings.into_iter().flat_map(|setting| ["-c".as_ref(), setting.as_ref()]));
        let ended = ("QUIT", dir.path());
        let server = Self { _server: Kept::start(shell, ended, &bin.join("postgres"), arguments), dir };
        wait_for("PostgreSQL is ready", READY_PATIENCE, || server.is_ready().then_some(()));
        server
    }

    fn is_ready(&self) -> bool {
        let asked = Command::new(Path::new(BIN).join("pg_isready"))
            .arg("--quiet")
            .arg("--host")
            .arg(self.dir.path())
            .status();
        asked.expect("pg_isready runs").success()
    }

    /// Where its socket is.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
        }
    }
}

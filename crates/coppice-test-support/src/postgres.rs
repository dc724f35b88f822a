//! A bare PostgreSQL server of the tests' own, which they share.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tempfile::TempDir;

use crate::kept::Kept;
use crate::{psql, wait_for};

const BIN: &str = "/usr/lib/postgresql/15/bin";
const READY_PATIENCE: Duration = Duration::from_secs(60);

/// Ends the server when it is dropped, or with the program. Its superuser is
/// `postgres`, and it listens on a socket only.
#[derive(Debug)]
pub struct Postgres {
    _server: Kept,
    dir: TempDir,
    /// Databases that others are copies of.
    templates: Mutex<HashSet<String>>,
}

static SHARED: OnceLock<Arc<Postgres>> = OnceLock::new();

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
    /// The server that other tests of this program use, too; the first caller chooses its `pg_hba.conf`.
    pub fn shared(hba: &str) -> Arc<Self> {
        SHARED.get_or_init(|| Arc::new(Self::start(hba))).clone()
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
        let settings = ["listen_addresses=", "max_connections=500", "fsync=off", &sockets];
        let data = [OsStr::new("-D"), data.as_os_str()];
        let arguments = data
            .into_iter()
            .chain(settings.into_iter().flat_map(|setting| ["-c".as_ref(), setting.as_ref()]));
        let ended = ("QUIT", dir.path());
        let server = Kept::start(shell, ended, &bin.join("postgres"), arguments);
        let server = Self { _server: server, dir, templates: Mutex::default() };
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

    /// The name of a new database. It is as `fill` makes an empty one, which happens once for all databases of
    /// the same template.
    pub fn database_from(&self, template: &str, fill: impl AsyncFnOnce(&str) + Send) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut templates = self.templates.lock().expect("a template that could be made");
        if templates.insert(template.to_owned()) {
            self.create_database(template, "template0");
            // The caller may be within a runtime of its own.
            std::thread::scope(|scope| scope.spawn(|| runtime().block_on(fill(template))).join())
                .expect("a filled database");
        }
        drop(templates);
        let name = format!("{template}_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.create_database(&name, template);
        name
    }

    fn create_database(&self, name: &str, template: &str) {
        let server = format!("host={} user=postgres dbname=postgres", self.dir.path().display());
        let created = psql(&server, &format!("create database {name} template {template}"));
        assert!(created.is_ok, "{}", created.err);
    }

    /// Where its socket is.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
        }
    }
}

//! A server without a branch, where the engine expects the one of an instance.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use coppice_engine::local::process::identity::ProcessIdentity;
use coppice_engine::local::{HostEngine, LocalEngine};

use crate::storage::{Storage, run};

const BIN: &str = "/usr/lib/postgresql/15/bin";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The server, and an engine.
pub(crate) struct Running {
    pub(crate) engine: LocalEngine,
    host: Arc<HostEngine>,
    pub(crate) instance: InstanceId,
    socket: PathBuf,
    pub(crate) server: Child,
    pub(crate) storage: Storage,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: &str) -> Command {
    let program = Path::new(BIN).join(program);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
    command
}

fn give_to_postgres(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    if is_root() {
        run(Command::new("chown").arg("postgres:").arg(directory));
    }
}

impl Running {
    pub(crate) fn start() -> Self {
        let storage = Storage::copy();
        let host = HostEngine::open(&storage.data_dir, "/nonexistent/launcher".into(), &[]).unwrap();
        let host = Arc::new(host);
        let engine = LocalEngine::new(host.clone(), storage.open());
        let instance = InstanceId::from_trusted("slots-1");
        let socket = host.layout().instance_runtime(&instance).join("socket");
        give_to_postgres(&socket);
        let home = storage.beside("server");
        give_to_postgres(&home);
        let data = home.join("data");
        let mut initdb = as_postgres("initdb");
        run(initdb.args(["--username=platform", "--auth=trust", "--no-sync", "--pgdata"]).arg(&data));
        let server = as_postgres("postgres")
            .arg("-D")
            .arg(&data)
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "wal_level=logical",
                "-c",
                "max_prepared_transactions=5",
                "-c",
            ])
            .arg(format!("unix_socket_directories={}", socket.display()))
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.join("log")).unwrap())
            .spawn()
            .unwrap();
        let record = serde_json::to_vec(&ProcessIdentity::of(server.id())).unwrap();
        fs::write(host.layout().instance_runtime(&instance).join("server.json"), record).unwrap();
        let running = Self { engine, host, instance, socket, server, storage };
        let is_ready = || running.program("pg_isready").arg("--quiet").status().unwrap().success();
        let deadline = Instant::now() + PATIENCE;
        while !is_ready() {
            let log = fs::read_to_string(home.join("log")).unwrap();
            assert!(Instant::now() < deadline, "{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    /// A client program that connects as the platform.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(Path::new(BIN).join(program));
        command.arg("--host").arg(&self.socket).args(["--username=platform"]).env_remove("PGPORT");
        command
    }

    pub(crate) fn sql(&self, sql: &str) {
        run(self.program("psql").args(["-X", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", sql]));
    }

    /// The one value that a statement answers.
    pub(crate) fn value(&self, sql: &str) -> String {
        let mut psql = self.program("psql");
        let output = psql.args(["-X", "-A", "-t", "-d", "postgres", "-c", sql]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Stops the server at once, but so that it takes its shared memory along.
    pub(crate) fn stop(&mut self) {
        if self.server.try_wait().unwrap().is_none() {
            let server = rustix::process::Pid::from_child(&self.server);
            let _ = rustix::process::kill_process(server, rustix::process::Signal::QUIT);
            let _ = self.server.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        self.host.forget_runtime();
    }
}

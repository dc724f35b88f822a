//! What the engine sees of a running server's replication slots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use coppice_engine::local::process::identity::ProcessIdentity;
use coppice_engine::local::{HostEngine, LocalEngine};
use coppice_engine::{Engine, EngineError};

use crate::storage::{Storage, run};

const BIN: &str = "/usr/lib/postgresql/15/bin";
const PATIENCE: Duration = Duration::from_secs(60);

/// A server where the engine expects the one of an instance, and an engine.
struct Running {
    engine: LocalEngine,
    host: Arc<HostEngine>,
    instance: InstanceId,
    socket: PathBuf,
    server: Child,
    storage: Storage,
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
    fn start() -> Self {
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
            .args(["-c", "listen_addresses=", "-c", "wal_level=logical", "-c"])
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
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(Path::new(BIN).join(program));
        command.arg("--host").arg(&self.socket).args(["--username=platform"]).env_remove("PGPORT");
        command
    }

    fn sql(&self, sql: &str) {
        run(self.program("psql").args(["-X", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", sql]));
    }

    /// Polls until the engine says so.
    async fn wait_until(&self, is_active: bool) {
        let deadline = Instant::now() + PATIENCE;
        while self.engine.has_active_slot(&self.instance).await.unwrap() != is_active {
            assert!(Instant::now() < deadline, "active: {is_active}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.server),
            rustix::process::Signal::QUIT,
        );
        let _ = self.server.wait();
        self.host.forget_runtime();
    }
}

/// A reader of a slot; it goes when it is dropped.
struct Reader(Child);

impl Reader {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_slot_counts_while_somebody_reads_from_it() {
    let running = Running::start();
    running.wait_until(false).await;
    running.sql("SELECT pg_create_physical_replication_slot('archive', true)");
    running.sql("SELECT pg_create_logical_replication_slot('changes', 'test_decoding')");
    assert!(!running.engine.has_active_slot(&running.instance).await.unwrap(), "nobody reads");

    let archive = running.storage.beside("archive");
    let mut receive = running.program("pg_receivewal");
    let reader = Reader::start(receive.args(["--slot=archive", "--no-loop", "-D"]).arg(&archive));
    running.wait_until(true).await;
    drop(reader);
    running.wait_until(false).await;

    let mut receive = running.program("pg_recvlogical");
    let reader =
        Reader::start(receive.args(["--slot=changes", "--start", "-d", "postgres", "-f", "-", "--no-loop"]));
    running.wait_until(true).await;
    drop(reader);
    running.wait_until(false).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_and_not_a_no() {
    let mut running = Running::start();
    let _ = running.server.kill();
    let _ = running.server.wait();
    let asked = running.engine.has_active_slot(&running.instance).await;
    assert!(matches!(asked, Err(EngineError::NotRunning(_))), "{asked:?}");
}

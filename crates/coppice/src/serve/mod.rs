//! `coppice serve`: the boot order, the loops, the end.
//!
//! Boot: lock, images, metastore, migrations, pool, adopt, reconcile, listen.
//! Each part needs the ones before it, and only those.

mod boot;
mod certificate;
mod descriptors;
mod drain;
mod first_start;
mod gateway;
mod handover;
mod init;
mod log_retention;
mod metrics;
mod notify;
mod process;
mod running;
mod stop;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use coppice_engine::EngineError;
use coppice_engine::local::installation::{ControlLock, write_durably};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Config, ServeArgs};
use crate::traces::Traces;
use boot::boot;
use descriptors::Doors;
use handover::{Door, Knock, Listeners, Predecessor};
use running::Running;

pub(crate) use boot::metastore_options;
pub(crate) use init::{is_inside, run_as_init, unblock_signals};
pub(crate) use stop::{StopArgs, stop};

/// This program as it runs, also when its file was replaced meanwhile: what
/// launches servers has to understand this process's descriptions.
pub(crate) const LAUNCHER: &str = "/proc/self/exe";
/// How long a starting metastore may take to accept a connection.
pub(crate) const METASTORE_PATIENCE: Duration = Duration::from_secs(30);

/// How long the last of a process that was killed may hold its lock.
const DYING_PATIENCE: Duration = Duration::from_secs(2);
/// How often the lock is asked for meanwhile.
const DYING_POLL: Duration = Duration::from_millis(10);

/// Where a running `serve` is, for commands on the same machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServeRecord {
    /// Its pid.
    pub(crate) pid: u32,
    /// Address of the API.
    pub(crate) api: SocketAddr,
    /// Address of the gateway.
    pub(crate) gateway: SocketAddr,
    /// Where a successor knocks.
    door: PathBuf,
}

impl ServeRecord {
    /// Where the record of a data directory is.
    pub(crate) fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("serve.json")
    }
}

/// The whole chain of an engine error as one line.
pub(crate) fn chain(error: &EngineError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.chain())
}

/// Runs the platform until SIGTERM or SIGINT, or until a successor takes over.
pub(crate) async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    // An upgrade replaces the file; its name stays.
    let program = std::env::current_exe().context("finding this program")?;
    let takes_over = args.take_over;
    let mut signals = Signals::new()?;
    let config = args.config()?;
    let traces = Traces::start(config.otlp_endpoint.as_deref())?;
    crate::logging::start(&config.log, traces.as_ref())?;
    let counted = metrics::start()?;
    let doors = Doors::open(config.strangers.api_connections)?;
    prepare_data_dir(&config.data_dir)?;
    let (lock, listeners, predecessor) = match takes_over {
        true => take_over(&config.data_dir).await?,
        false => {
            let lock = take_lock(&config.data_dir).await?;
            (lock, listen(&config)?, None)
        }
    };
    let (api, gateway_address) = (listeners.api.local_addr()?, listeners.gateway.local_addr()?);

    let platform = boot(&config, api, gateway_address, lock).await?;
    let running =
        Running::start(&config, &platform, listeners.try_clone()?, doors, counted, traces.is_some())?;
    let door = Door::open(platform.host.layout().runtime_dir())?;
    let record =
        ServeRecord { pid: std::process::id(), api, gateway: gateway_address, door: door.path().to_owned() };
    let record = serde_json::to_vec_pretty(&record)?;
    write_durably(&ServeRecord::path(&config.data_dir), &record, 0o600).map_err(|error| chain(&error))?;
    first_start::ensure(&platform.app, &config, api, gateway_address).await?;
    platform.app.note_set_up();
    println!("coppice is ready");
    notify::ready(&format!("API on {api}, gateway on {gateway_address}"));
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready();
    }

    let successor = wait_for_end(&mut signals, &door, &listeners, &program).await;
    match &successor {
        Some(_) => println!("another process takes over; this one goes on until its sessions have ended"),
        None => {
            println!("stopping; branches keep running (`coppice stop --all` stops them too)");
            notify::stopping("letting requests and sessions end");
        }
    }
    let _ = std::fs::remove_file(ServeRecord::path(&config.data_dir));
    // With a successor the sockets stay open until it is ready.
    let listeners = successor.is_some().then_some(listeners);
    let drained = running.drain(platform, &config, successor.zip(listeners)).await;
    if let Some(traces) = traces {
        traces.finish().await;
    }
    drained
}

/// What ends a platform, or asks it to hand over.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let [terminate, interrupt, hang_up] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt?, hang_up: hang_up? })
    }
}

/// Waits for a signal to end, or for a successor that was given the sockets.
async fn wait_for_end(
    signals: &mut Signals,
    door: &Door,
    listeners: &Listeners,
    program: &Path,
) -> Option<Knock> {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return None,
            _ = signals.interrupt.recv() => return None,
            _ = signals.hang_up.recv() => {
                let started = if is_inside() {
                    Err(anyhow::anyhow!("a container's first process can't hand over: start a new container"))
                } else {
                    handover::start_successor(program)
                };
                if let Err(error) = started {
                    tracing::error!("handing over: {error:#}");
                }
            }
            knock = door.knock() => match knock.and_then(|knock| knock.give(listeners).map(|()| knock)) {
                Ok(knock) => return Some(knock),
                Err(error) => tracing::error!("handing over: {error}"),
            }
        }
    }
}

async fn take_lock(data_dir: &Path) -> anyhow::Result<ControlLock> {
    let asked = Instant::now();
    loop {
        if let Some(lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? {
            return Ok(lock);
        }
        // What a process was about to start when it was killed shares its lock
        // until it is another program.
        anyhow::ensure!(
            asked.elapsed() < DYING_PATIENCE,
            "another coppice works on {}: stop it first, choose another --data-dir, \
             or put this one in its place with --take-over",
            data_dir.display()
        );
        tokio::time::sleep(DYING_POLL).await;
    }
}

async fn take_over(data_dir: &Path) -> anyhow::Result<(ControlLock, Listeners, Option<Predecessor>)> {
    let record = std::fs::read(ServeRecord::path(data_dir))
        .with_context(|| format!("no coppice runs on {}: start without --take-over", data_dir.display()))?;
    let record: ServeRecord = serde_json::from_slice(&record).context("reading its record")?;
    println!("taking over from process {}", record.pid);
    let (predecessor, listeners) =
        tokio::task::spawn_blocking(move || Predecessor::ask(&record.door)).await??;
    let lock = predecessor.wait_for_lock(data_dir).await?;
    Ok((lock, listeners, Some(predecessor)))
}

fn listen(config: &Config) -> anyhow::Result<Listeners> {
    let bind =
        |address: SocketAddr| TcpListener::bind(address).with_context(|| format!("listening on {address}"));
    Ok(Listeners { api: bind(config.listen)?, gateway: bind(config.gateway_listen)? })
}

fn prepare_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(data_dir).with_context(|| format!("making {}", data_dir.display()))?;
    // Secrets in it have modes of their own; this keeps others from looking around.
    std::fs::set_permissions(data_dir, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("protecting {}", data_dir.display()))
}

//! `coppice serve`: the boot order, the loops, the end.
//!
//! Boot: lock, images, metastore, migrations, pool, adopt, reconcile, listen.
//! Each part needs the ones before it, and only those.

mod boot;
mod certificate;
mod descriptors;
mod drain;
mod exposition;
mod first_project;
mod gateway;
mod handover;
mod init;
mod metrics;
mod notify;
mod process;
mod running;
mod stop;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use coppice_engine::local::durable::write_durably;
use coppice_engine::local::installation::ControlLock;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::chain::chain;
use crate::config::{Config, ServeArgs};
use crate::traces::Traces;
use boot::boot;
use descriptors::Doors;
use handover::{Door, Listeners, Predecessor, Successor};
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServeRecord {
    /// Its pid.
    pub(crate) pid: u32,
    /// Address of the API.
    pub(crate) api: SocketAddr,
    /// Address of the gateway.
    pub(crate) gateway: SocketAddr,
    /// Where a successor connects.
    door: PathBuf,
    /// What the process answers at `/.well-known/coppice`. Empty where an older one wrote this.
    #[serde(default)]
    pub(crate) process: String,
    /// The data directory it works on: a copy of one has its files, and another place.
    #[serde(default)]
    place: String,
}

/// What a directory keeps when it is renamed, and its copy does not have.
fn place(data_dir: &Path) -> anyhow::Result<String> {
    let found = std::fs::metadata(data_dir).with_context(|| format!("looking at {}", data_dir.display()))?;
    Ok(format!("{}:{}", found.dev(), found.ino()))
}

impl ServeRecord {
    fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("serve.json")
    }

    /// The record of whoever works on this directory; none when nobody does
    /// who wrote one, or when it came here with a copy of another directory.
    pub(crate) fn of(data_dir: &Path) -> Option<Self> {
        let bytes = std::fs::read(Self::path(data_dir)).ok()?;
        let record: Self = serde_json::from_slice(&bytes).ok()?;
        let is_own = record.place.is_empty() || place(data_dir).is_ok_and(|place| place == record.place);
        is_own.then_some(record)
    }

    fn write(&self, data_dir: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        write_durably(&Self::path(data_dir), &text, 0o600).map_err(|error| chain(&error))
    }

    /// Where this machine reaches the API: a listener for every address is at none of them.
    pub(crate) fn reachable_api(&self) -> SocketAddr {
        reachable(self.api)
    }
}

fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
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
    descriptors::widen_tables();
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
    let record = ServeRecord {
        pid: std::process::id(),
        api,
        gateway: gateway_address,
        door: door.path().to_owned(),
        process: platform.app.config().server.process.clone(),
        place: place(&config.data_dir)?,
    };
    record.write(&config.data_dir)?;
    first_project::ensure(&platform.app, &config, api, gateway_address).await?;
    platform.app.note_set_up();
    say!("coppice is ready");
    notify::ready(&format!("API on {api}, gateway on {gateway_address}"));
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready();
    }

    let successor = wait_for_end(&mut signals, &door, &listeners, &program).await;
    match &successor {
        Some(_) => say!("another process takes over; this one goes on until its sessions have ended"),
        None => {
            let all = crate::suggest::command("coppice stop --all");
            say!("stopping; branches keep running (`{all}` stops them too)");
            notify::stopping("letting requests and sessions end");
        }
    }
    if successor.is_none() {
        // A successor writes its own over it.
        let _ = std::fs::remove_file(ServeRecord::path(&config.data_dir));
    }
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
) -> Option<Successor> {
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
            successor = door.successor() => match successor.and_then(|successor| successor.give(listeners).map(|()| successor)) {
                Ok(successor) => return Some(successor),
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
    let record = ServeRecord::of(data_dir)
        .with_context(|| format!("no coppice runs on {}: start without --take-over", data_dir.display()))?;
    say!("taking over from process {}", record.pid);
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

pub(crate) fn prepare_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(data_dir).with_context(|| format!("making {}", data_dir.display()))?;
    // Secrets in it have modes of their own; this keeps others from looking around.
    std::fs::set_permissions(data_dir, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("protecting {}", data_dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_for_every_address_is_reached_on_loopback() {
        let address = |text: &str| reachable(text.parse().expect("an address")).to_string();
        assert_eq!(address("0.0.0.0:7070"), "127.0.0.1:7070");
        assert_eq!(address("[::]:7070"), "[::1]:7070");
        assert_eq!(address("192.0.2.1:7070"), "192.0.2.1:7070");
    }

    #[test]
    fn a_record_that_came_with_a_copy_of_a_directory_is_none() {
        let [original, copy] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let address = "127.0.0.1:7070".parse().expect("an address");
        let record = ServeRecord {
            pid: 1,
            api: address,
            gateway: address,
            door: PathBuf::new(),
            process: "p".to_owned(),
            place: place(original.path()).expect("a place"),
        };
        record.write(original.path()).expect("a record");
        std::fs::copy(ServeRecord::path(original.path()), ServeRecord::path(copy.path())).expect("a copy");
        assert_eq!(ServeRecord::of(original.path()), Some(record));
        assert_eq!(ServeRecord::of(copy.path()), None);
    }
}

//! `coppice serve`: the boot order, the loops, the end.
//!
//! Boot: lock, images, metastore, migrations, pool, adopt, reconcile, listen.
//! Each part needs the ones before it, and only those.

mod drain;
mod first_start;
mod gateway;
mod handover;
mod init;
mod notify;
mod stop;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use coppice_app::reconciler::Identity;
use coppice_app::{App, AppConfig, MasterKey, Reconciler};
use coppice_core::RegionId;
use coppice_engine::EngineError;
use coppice_engine::local::installation::{ControlLock, write_durably};
use coppice_engine::local::process::identity::boot_id;
use coppice_engine::local::volumes::Volumes;
use coppice_engine::local::{HostEngine, LocalEngine, MetastoreAddress};
use coppice_gateway::{Certificate, Gateway, GatewayConfig, Plaintext, Sessions};
use coppice_store::{ConnectOptions, Store};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, DRAIN_MAX, ServeArgs};
use drain::{Predecessors, Teller};
use handover::{Door, Knock, Listeners, Predecessor};

pub(crate) use init::{is_inside, run_as_init, unblock_signals};
pub(crate) use stop::{StopArgs, stop};

/// The region of a default install.
const REGION: &str = "local";
/// This program as it runs, also when its file was replaced meanwhile: what
/// launches servers has to understand this process's descriptions.
pub(crate) const LAUNCHER: &str = "/proc/self/exe";
/// How long a starting metastore may take to accept a connection.
pub(crate) const METASTORE_PATIENCE: Duration = Duration::from_secs(30);
/// How often a process that only serves its last sessions writes down their use.
const NOTE: Duration = Duration::from_secs(30);
/// How often storage and sessions are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

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

/// Everything a running platform consists of.
struct Platform {
    app: App,
    host: Arc<HostEngine>,
    engine: Arc<LocalEngine>,
    reconciler: Reconciler,
    sessions: Arc<Sessions>,
    predecessors: Arc<Predecessors>,
    /// Released when the process ends, whatever ends it, or when a drain begins.
    lock: ControlLock,
}

/// Runs the platform until SIGTERM or SIGINT, or until a successor takes over.
pub(crate) async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    // An upgrade replaces the file; its name stays.
    let program = std::env::current_exe().context("finding this program")?;
    let takes_over = args.take_over;
    let mut signals = Signals::new()?;
    let config = args.config()?;
    prepare_data_dir(&config.data_dir)?;
    let (lock, listeners, predecessor) = match takes_over {
        true => take_over(&config.data_dir).await?,
        false => {
            let lock = take_lock(&config.data_dir)?;
            (lock, listen(&config)?, None)
        }
    };
    let (api, gateway_address) = (listeners.api.local_addr()?, listeners.gateway.local_addr()?);

    let platform = boot(&config, gateway_address, lock).await?;
    let running = Running::start(&config, &platform, listeners.try_clone()?)?;
    let door = Door::open(platform.host.layout().runtime_dir())?;
    let record =
        ServeRecord { pid: std::process::id(), api, gateway: gateway_address, door: door.path().to_owned() };
    let record = serde_json::to_vec_pretty(&record)?;
    write_durably(&ServeRecord::path(&config.data_dir), &record, 0o600).map_err(|error| chain(&error))?;
    first_start::ensure(&platform.app, &config, api, gateway_address).await?;
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
    running.drain(platform, &config, successor.zip(listeners)).await
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

fn take_lock(data_dir: &Path) -> anyhow::Result<ControlLock> {
    let lock = ControlLock::try_take(data_dir).map_err(|error| chain(&error))?;
    lock.with_context(|| {
        format!(
            "another coppice works on {}: stop it first, choose another --data-dir, \
             or put this one in its place with --take-over",
            data_dir.display()
        )
    })
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

/// The tasks of a running platform.
struct Running {
    stop: CancellationToken,
    gateway: Arc<Gateway>,
    gateway_task: JoinHandle<()>,
    api_task: JoinHandle<()>,
    looping: JoinHandle<()>,
    /// Ended without ceremony.
    watches: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(config: &Config, platform: &Platform, listeners: Listeners) -> anyhow::Result<Self> {
        let to_tokio = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        let (api, gateway_listener) = (to_tokio(listeners.api)?, to_tokio(listeners.gateway)?);
        let (app, stop) = (platform.app.clone(), CancellationToken::new());
        let predecessors = platform.predecessors.clone();
        let gateway = gateway::start(config, app.clone(), platform.sessions.clone(), predecessors.clone())?;
        let looping = tokio::spawn({
            let reconciler = platform.reconciler.clone();
            async move { reconciler.run().await }
        });
        let gateway_task = tokio::spawn(gateway.clone().serve(gateway_listener, stop.clone()));
        let router = coppice_api::router(app.clone(), config.api.clone());
        let api_task = tokio::spawn(coppice_api::serve(api, router, stop.clone().cancelled_owned()));
        let watches = vec![
            tokio::spawn({
                let app = app.clone();
                async move { app.watch_idle().await }
            }),
            tokio::spawn(async move { predecessors.watch().await }),
            tokio::spawn({
                let (host, is_embedded) = (platform.host.clone(), config.metastore_url.is_none());
                async move {
                    if is_embedded {
                        host.keep_metastore().await;
                    }
                }
            }),
            tokio::spawn(housekeeping(app, platform.host.clone(), platform.engine.clone())),
        ];
        Ok(Self { stop, gateway, gateway_task, api_task, looping, watches })
    }

    /// Lets requests end, gives the control lock back, and serves what sessions
    /// there are until they end.
    async fn drain(
        self,
        platform: Platform,
        config: &Config,
        successor: Option<(Knock, Listeners)>,
    ) -> anyhow::Result<()> {
        // Whoever hands over keeps its sessions as long as it may.
        let patience = if successor.is_some() { DRAIN_MAX } else { config.drain };
        let last = Instant::now() + patience;
        self.watches.iter().for_each(JoinHandle::abort);
        self.stop.cancel();
        platform.reconciler.stop().await;
        let _ = tokio::join!(self.api_task, self.looping);
        let app = platform.app.clone();
        app.note_uses().await;
        if let Err(error) = app.write_key_uses().await {
            tracing::warn!("noting when keys were used: {error}");
        }
        if is_inside() {
            drop(platform);
            return stop::stop_everything(&config.data_dir).await;
        }
        // Before the lock is given back: whoever gets it must find the sessions.
        let _teller = Teller::start(platform.host.layout().runtime_dir(), self.gateway.clone())?;
        drop(platform.lock);
        if let Some((knock, listeners)) = successor {
            let ready = knock.ready().await;
            drop(listeners);
            // Whoever supervises this process starts it again.
            ready.context("handing over; start coppice again")?;
        }
        let mut gateway_task = self.gateway_task;
        while timeout_at(last.min(Instant::now() + NOTE), &mut gateway_task).await.is_err() {
            app.note_uses().await;
            if Instant::now() >= last {
                tracing::warn!("cutting the sessions that are still open after {} s", patience.as_secs());
                break;
            }
        }
        app.note_uses().await;
        Ok(())
    }
}

fn prepare_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(data_dir).with_context(|| format!("making {}", data_dir.display()))?;
    // Secrets in it have modes of their own; this keeps others from looking around.
    std::fs::set_permissions(data_dir, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("protecting {}", data_dir.display()))
}

async fn boot(config: &Config, gateway_address: SocketAddr, lock: ControlLock) -> anyhow::Result<Platform> {
    let data_dir = config.data_dir.clone();
    let host = open_host(config).await?;
    let key = Arc::new(master_key(&data_dir)?);
    let store = connect_metastore(config, &host).await?;

    println!("preparing storage");
    notify::status("preparing storage");
    let (layout, installation) = (host.layout().clone(), host.installation().clone());
    let storage = config.storage.clone();
    let volumes =
        tokio::task::spawn_blocking(move || Volumes::open(&layout, &installation, &storage)).await?;
    let volumes = volumes.map_err(|error| chain(&error))?;
    println!("volumes: {} ({})", volumes.driver(), volumes.driver_reason());
    let engine = Arc::new(LocalEngine::new(host.clone(), volumes));

    let identity = host.installation().clone();
    let region = RegionId::from_trusted(REGION);
    let epoch = store.host_start(&identity.host, &region, "local", &boot_id()).await?;
    let identity = Identity { installation: identity.installation, host: identity.host, epoch };
    let reconciler = Reconciler::new(store.clone(), engine.clone(), key.clone(), identity.clone());
    let app_config = AppConfig {
        region,
        host: identity.host,
        gateway_address,
        gateway_domain: config.gateway_domain.clone(),
        create_wait: config.create_wait,
        limits: config.limits,
    };
    let sessions = Arc::<Sessions>::default();
    let predecessors = Predecessors::new(host.layout().runtime_dir());
    let clients = gateway::GatewayClients { sessions: sessions.clone(), predecessors: predecessors.clone() };
    let clients = Arc::new(clients);
    let app = App::new(store, engine.clone(), reconciler.clone(), key, clients, app_config);
    reconciler.adopt().await?;
    Ok(Platform { app, host, engine, reconciler, sessions, predecessors, lock })
}

/// Opens the machine's engine; copies new PostgreSQL installations.
async fn open_host(config: &Config) -> anyhow::Result<Arc<HostEngine>> {
    println!("looking for PostgreSQL");
    notify::status("looking for PostgreSQL");
    let (data_dir, postgres_dirs) = (config.data_dir.clone(), config.postgres_dirs.clone());
    let opened =
        tokio::task::spawn_blocking(move || HostEngine::open(&data_dir, LAUNCHER.into(), &postgres_dirs))
            .await?;
    let host = opened.map_err(|error| chain(&error))?;
    let versions: Vec<_> = host.installed_images().iter().map(|image| image.version.to_string()).collect();
    println!("PostgreSQL: {}", versions.join(", "));
    Ok(Arc::new(host))
}

/// How to connect to the embedded metastore.
pub(crate) fn metastore_options(address: &MetastoreAddress) -> ConnectOptions {
    let options = ConnectOptions::new_without_pgpass()
        .socket(&address.socket_directory)
        .username(&address.user)
        .database(&address.database);
    match &address.password {
        Some(password) => options.password(password),
        None => options,
    }
}

/// Connects to the metastore, embedded or not, and makes sure that it is the
/// one this data directory belongs to.
async fn connect_metastore(config: &Config, host: &HostEngine) -> anyhow::Result<Store> {
    let options = match &config.metastore_url {
        Some(url) => url.parse::<ConnectOptions>().context("understanding the metastore's URL")?,
        None => {
            println!("starting the metastore");
            notify::status("starting the metastore");
            let address = host.start_metastore().await.map_err(|error| chain(&error))?;
            metastore_options(&address)
        }
    };
    let store = Store::connect(options, METASTORE_PATIENCE).await.context("connecting to the metastore")?;
    let exports = crate::admin::exports(host.layout().data_dir());
    if let Some(path) = store.migrate_after_export(&exports).await? {
        println!("the metastore as it was before its migration: {}", path.display());
    }
    // Written once this data directory has a metastore; from then on an empty
    // one is a lost one.
    let bound = host.layout().data_dir().join("metastore.bound");
    let own = &host.installation().installation;
    let found = store.installation_ensure(own, !bound.exists()).await?;
    match found {
        Some(found) if found == *own => {}
        Some(found) => bail!(
            "the metastore belongs to installation {found}, this data directory to {own}: \
             start with the metastore that belongs to it (nothing was changed)"
        ),
        None => bail!(
            "the metastore is empty, but {} has data of installation {own}: restore the metastore \
             (nothing was changed)",
            config.data_dir.display()
        ),
    }
    write_durably(&bound, own.as_str().as_bytes(), 0o600).map_err(|error| chain(&error))?;
    Ok(store)
}

fn master_key(data_dir: &Path) -> anyhow::Result<MasterKey> {
    let path = data_dir.join("secret.key");
    if !path.exists() {
        write_durably(&path, MasterKey::generate().as_slice(), 0o600).map_err(|error| chain(&error))?;
    }
    let bytes =
        zeroize::Zeroizing::new(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    let bytes: &[u8; MasterKey::LENGTH] =
        bytes.as_slice().try_into().with_context(|| format!("{} is damaged", path.display()))?;
    Ok(MasterKey::new(bytes))
}

/// Templates, then what has to be done now and then.
async fn housekeeping(app: App, host: Arc<HostEngine>, engine: Arc<LocalEngine>) {
    let storage = engine.storage().clone();
    let emptied = tokio::task::spawn_blocking(move || storage.empty_trash()).await;
    if let Ok(Err(error)) = emptied {
        tracing::warn!("emptying the trash: {}", error.chain());
    }
    engine.prepare_templates().await;
    let mut timer = tokio::time::interval(HOUSEKEEPING);
    loop {
        timer.tick().await;
        engine.close_idle_sessions();
        host.tend_ballast();
        if let Err(error) = app.write_key_uses().await {
            tracing::warn!("noting when keys were used: {error}");
        }
        let (storage, host) = (engine.storage().clone(), host.clone());
        let maintain = move || {
            host.limit_processes();
            storage.maintain()
        };
        let maintained = tokio::task::spawn_blocking(maintain).await;
        if let Ok(Err(error)) = maintained {
            tracing::warn!("looking after storage: {}", error.chain());
        }
    }
}

//! One run of a control plane: the whole of the app in a runtime of its own,
//! which ends at whatever await it is when it is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coppice_app::reconciler::ControlPlane;
use coppice_app::tasks::Tasks;
use coppice_app::{App, AppConfig, Clients, GatewayPlace, IdentityConfig, MasterKey, Reconciler, Server};
use coppice_core::awake::{ClientSession, NewUse};
use coppice_core::limits::OrganizationLimits;
use coppice_core::sign_up::SignUp;
use coppice_core::statistics::ClientTraffic;
use coppice_core::{BranchId, HostId, InstallationId, RegionId, Result};
use coppice_engine::SharedEngine;
use coppice_oauth::issuer::Issuers;
use coppice_oauth::signing::SigningAlgorithm;
use coppice_store::{ConnectOptions, Store};
use tokio::runtime::{Builder, Runtime};

use crate::engine::SimulatedEngine;
use crate::world::{ProcessId, World};

/// Where every branch is made.
pub(crate) const REGION: &str = "simulated";
const URL: &str = "http://localhost:7070";
/// How long what was given up may go on when a process hands over; nothing does.
const STOP_PATIENCE: Duration = Duration::from_secs(40);
/// How long a connection to the metastore is waited for.
const METASTORE_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked for branches that nobody uses, and into the trash.
const LOOK: Duration = Duration::from_secs(5);
/// For how long deleted branches can be brought back.
const TRASH_KEEP: Duration = Duration::from_secs(120);
/// A runtime is at rest when it has nothing to do so many times in a row: what
/// it hears of its sockets takes one time to notice and one to do.
const RESTS: u32 = 4;

/// The host of a machine.
pub(crate) fn host(machine: usize) -> HostId {
    HostId::from_trusted(format!("hst_{machine}"))
}

/// See the module.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) machine: usize,
    runtime: Option<Runtime>,
    app: Arc<OnceLock<(App, Reconciler)>>,
    has_failed: Arc<OnceLock<String>>,
    /// Whether it stands still, as one that is stopped or starved does.
    pub(crate) is_paused: bool,
    /// Set when its loop has ended for another process.
    handing_over: Option<Arc<OnceLock<()>>>,
}

impl Process {
    /// Begins to boot.
    pub(crate) fn start(world: &World, id: ProcessId, machine: usize, options: ConnectOptions) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // What is ready to run is run to its end before the runtime rests.
            .event_interval(u32::MAX)
            .build()
            .expect("a runtime");
        let app = Arc::new(OnceLock::new());
        let has_failed = Arc::new(OnceLock::new());
        let (booted, failed, world) = (app.clone(), has_failed.clone(), world.clone());
        runtime.spawn(async move {
            match boot(&world, id, machine, options).await {
                Ok((app, reconciler)) => {
                    let (mut tasks, looping) = (Tasks::default(), reconciler.clone());
                    tasks.every(
                        "idle_watch",
                        LOOK,
                        &app,
                        |app| async move { app.sleep.look_for_idle().await },
                    );
                    tasks.every("trash_watch", LOOK, &app, |app| async move {
                        app.branches.look_at_trash().await
                    });
                    let _ = booted.set((app, reconciler));
                    looping.run().await;
                }
                Err(error) => {
                    let _ = failed.set(error.for_log());
                }
            }
        });
        Self { id, machine, runtime: Some(runtime), app, has_failed, is_paused: false, handing_over: None }
    }

    /// Its use cases, once it has booted.
    pub(crate) fn app(&self) -> Option<&App> {
        self.app.get().map(|(app, _)| app)
    }

    /// Why it could not boot.
    pub(crate) fn has_failed(&self) -> Option<&str> {
        self.has_failed.get().map(String::as_str)
    }

    /// Begins something in it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(work);
    }

    /// Ends its loop, as a process does that hands over.
    pub(crate) fn hand_over(&mut self) {
        let Some((_, reconciler)) = self.app.get() else { return };
        let (reconciler, done) = (reconciler.clone(), Arc::<OnceLock<()>>::default());
        self.handing_over = Some(done.clone());
        self.spawn(async move {
            // One that goes on keeps its lock.
            if reconciler.stop(STOP_PATIENCE).await {
                let _ = done.set(());
            }
        });
    }

    /// Whether it begins nothing new.
    pub(crate) fn is_leaving(&self) -> bool {
        self.handing_over.is_some()
    }

    /// Whether another process may do its work.
    pub(crate) fn has_handed_over(&self) -> bool {
        self.handing_over.as_ref().is_some_and(|done| done.get().is_some())
    }

    /// Lets it run as far as it gets.
    pub(crate) fn run(&self) {
        if self.is_paused {
            return;
        }
        self.runtime().block_on(async {
            for _ in 0..RESTS {
                tokio::task::yield_now().await;
            }
        });
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it lives until it is dropped")
    }
}

impl Drop for Process {
    /// Nothing in it gets further than it is.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn boot(
    world: &World,
    process: ProcessId,
    machine: usize,
    options: ConnectOptions,
) -> Result<(App, Reconciler)> {
    let store = Store::connect(options, METASTORE_PATIENCE).await?;
    let (host, region) = (host(machine), RegionId::from_trusted(REGION));
    let installation = InstallationId::from_trusted("ins_simulated");
    store.installation_ensure(&installation, true).await?;
    let epoch = store.host_start(&host, &region, "local", "boot").await?;
    world.lock().epochs.insert(process, (machine, epoch));
    let engine: SharedEngine = Arc::new(SimulatedEngine::new(world.clone(), machine, process));
    let key = Arc::new(MasterKey::new(&[7; MasterKey::LENGTH]));
    let control_plane = ControlPlane { installation: installation.clone(), host: host.clone(), epoch };
    let reconciler = Reconciler::new(store.clone(), engine.clone(), key.clone(), control_plane);
    let clients = Arc::new(SimulatedClients(world.clone()));
    let config = config(installation, process, host, region);
    let app = App::new(store, engine, reconciler.clone(), key, clients, config);
    app.credentials.spread_kept().await?;
    reconciler.adopt().await?;
    Ok((app, reconciler))
}

fn config(installation: InstallationId, process: ProcessId, host: HostId, region: RegionId) -> AppConfig {
    AppConfig {
        server: Server { installation, process: process.0.to_string() },
        region,
        host,
        public_url: URL.to_owned(),
        gateway: GatewayPlace { host: "localhost".to_owned(), port: 5432 },
        gateway_domain: None,
        create_wait: Duration::from_secs(5),
        user_aliases: vec![],
        sign_up: SignUp::Off,
        outside: None,
        has_passwords: true,
        limits: OrganizationLimits::default(),
        identity: IdentityConfig {
            issuers: Issuers::new(URL, &[]).expect("a URL without realms"),
            clients: vec![],
            dynamic_clients: false,
            own_redirect_uris: vec![],
            algorithm: SigningAlgorithm::EdDsa,
            signing_key_days: 30,
        },
        trash_keep: TRASH_KEEP,
        audit_days: 30,
        mailer: None,
        webhook_reach: Default::default(),
        metrics_interval: Duration::from_secs(15),
        archive: None,
        store_interval: Duration::from_secs(10),
        drill_every: None,
        prices: None,
        github: None,
        vercel: None,
        stripe: None,
        orb: None,
        marketplace: None,
    }
}

/// What the gateway knows of its clients.
struct SimulatedClients(World);

/// Lets new clients of a branch in when it is dropped.
struct Hold {
    world: World,
    branch: BranchId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.world.lock().held.remove(&self.branch);
    }
}

#[async_trait]
impl Clients for SimulatedClients {
    async fn sessions(&self, _: &BranchId) -> Vec<ClientSession> {
        vec![]
    }

    fn last_left(&self, _: &BranchId) -> Option<Instant> {
        None
    }

    async fn hold(&self, branch: &BranchId) -> Option<Box<dyn Send + Sync>> {
        let mut state = self.0.lock();
        if state.sessions.iter().any(|(of, _)| of == branch) || !state.held.insert(branch.clone()) {
            return None;
        }
        Some(Box::new(Hold { world: self.0.clone(), branch: branch.clone() }))
    }

    fn take_uses(&self) -> Vec<NewUse> {
        vec![]
    }

    fn traffic(&self, _: &BranchId) -> ClientTraffic {
        ClientTraffic::default()
    }

    fn sent(&self) -> BTreeMap<BranchId, u64> {
        BTreeMap::new()
    }
}

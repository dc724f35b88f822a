//! The gateway's view of the platform, and the idle watch's view of the
//! gateway.

use std::collections::BTreeMap;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_trait::async_trait;
use coppice_app::{App, Clients, Connectable};
use coppice_core::awake::{ClientSession, NewUse};
use coppice_core::statistics::ClientTraffic;
use coppice_core::{BranchId, InstanceId, Result};
use coppice_engine::{BoxedServerStream, RoleVerifier};
use coppice_gateway::{
    ActingAs, Branches, CancelKey, Certificate, ClientInfo, ConnectionLimits, Gateway, GatewayConfig,
    Plaintext, Route, Sessions,
};
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::descriptors::Doors;
use super::drain::{Predecessors, client_session};
use crate::config::{Config, DRAIN_MAX};

const STARTUP_TIMEOUT: Duration = Duration::from_secs(15);
const WAKE_TIMEOUT: Duration = Duration::from_secs(50);
/// A client that waits for a session waits at least as long as a branch may take to wake.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
/// Short beside the minutes after which a branch sleeps.
const POOLED_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the gateway's threads ask is answered by those of the program, so that
/// no session waits while another one's branch is looked up.
struct PlatformBranches {
    app: App,
    predecessors: Arc<Predecessors>,
    runtime: Handle,
}

impl PlatformBranches {
    async fn answer<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let task = AbortOnDropHandle::new(self.runtime.spawn(work.in_current_span()));
        match task.await.map_err(JoinError::try_into_panic) {
            Ok(answer) => answer,
            Err(Ok(panic)) => resume_unwind(panic),
            // The program ends, and this client with it.
            Err(Err(_)) => pending().await,
        }
    }
}

fn route(found: Connectable) -> Route {
    Route {
        instance: InstanceId::primary(&found.branch.id),
        replicas: found.replicas,
        replicas_wanted: found.branch.spec.replicas,
        root: found.root,
        state: found.branch.state,
        message: found.branch.message,
        holder: found.holder,
        ip_filtering: found.ip_filtering,
        used_up: found.used_up,
        kept: found.kept,
    }
}

#[async_trait]
impl Branches for PlatformBranches {
    async fn find(&self, branch: &BranchId, role: &str) -> Result<Option<Route>> {
        let (app, branch, role) = (self.app.clone(), branch.clone(), role.to_owned());
        let found = self.answer(async move { app.connections.find(&branch, &role).await }).await?;
        Ok(found.map(route))
    }

    async fn verifier(&self, found: &Route, role: &str) -> Result<Option<RoleVerifier>> {
        let (app, instance, role) = (self.app.clone(), found.instance.clone(), role.to_owned());
        self.answer(async move { app.connections.role_verifier(&instance, &role).await }).await
    }

    async fn ask_nobody(&self) {
        let app = self.app.clone();
        self.answer(async move { app.connections.ask_nobody().await }).await;
    }

    async fn prepare(&self, branch: &BranchId, role: &str) -> Result<Option<ActingAs>> {
        let (app, branch, role) = (self.app.clone(), branch.clone(), role.to_owned());
        let acting = self.answer(async move { app.connections.prepare_role(&branch, &role).await }).await?;
        Ok(acting.map(|acting| ActingAs { role: acting.role.to_owned(), password: acting.password }))
    }

    async fn over(&self, of: &[(BranchId, String)]) -> Result<Vec<(BranchId, String)>> {
        let (app, of) = (self.app.clone(), of.to_vec());
        self.answer(async move { app.logins.over(&of).await }).await
    }

    async fn open(&self, found: &Route) -> Result<BoxedServerStream> {
        self.app.connections.open_server(&found.instance).await
    }

    async fn wake(&self, branch: &BranchId, client: &ClientInfo) -> Result<bool> {
        let ClientInfo { role, application, address } = client;
        let by = match application.as_str() {
            "" => format!("a connection of {role} from {address}"),
            name => format!("a connection of {role} from {address} ({name})"),
        };
        let (app, branch) = (self.app.clone(), branch.clone());
        self.answer(async move { app.sleep.wake_for_client(&branch, &by).await }).await
    }

    async fn cancel_elsewhere(&self, key: &CancelKey) -> bool {
        let (predecessors, key) = (self.predecessors.clone(), key.clone());
        self.answer(async move { predecessors.cancel(&key).await }).await
    }

    async fn wait_settled(&self, branch: &BranchId, role: &str, patience: Duration) -> Result<Option<Route>> {
        let (app, branch, role) = (self.app.clone(), branch.clone(), role.to_owned());
        let waiting = async move { app.connections.wait_until_settled(&branch, &role, patience).await };
        Ok(self.answer(waiting).await?.map(route))
    }
}

/// Clients of this process and of those before it.
pub(super) struct GatewayClients {
    pub(super) sessions: Arc<Sessions>,
    pub(super) predecessors: Arc<Predecessors>,
}

#[async_trait]
impl Clients for GatewayClients {
    async fn sessions(&self, branch: &BranchId) -> Vec<ClientSession> {
        let earlier = self.predecessors.sessions(branch).await.unwrap_or_else(|error| {
            tracing::warn!("asking the process before this one for its sessions: {error:#}");
            vec![]
        });
        let own = self.sessions.list(branch).into_iter().map(client_session);
        earlier.into_iter().chain(own).collect()
    }

    fn last_left(&self, branch: &BranchId) -> Option<Instant> {
        self.sessions.last_left(branch).max(self.predecessors.last_seen(branch))
    }

    async fn hold(&self, branch: &BranchId) -> Option<Box<dyn Send + Sync>> {
        let hold = self.sessions.hold(branch)?;
        match self.predecessors.have_left(branch).await {
            Ok(true) => Some(Box::new(hold)),
            Ok(false) => None,
            Err(error) => {
                tracing::warn!("asking the process before this one for its sessions: {error:#}");
                None
            }
        }
    }

    fn take_uses(&self) -> Vec<NewUse> {
        self.sessions.take_uses()
    }

    fn traffic(&self, branch: &BranchId) -> ClientTraffic {
        let (own, earlier) = (self.sessions.traffic_of(branch), self.predecessors.traffic(branch));
        ClientTraffic {
            from_clients: own.from_clients + earlier.from_clients,
            to_clients: own.to_clients + earlier.to_clients,
        }
    }

    fn sent(&self) -> BTreeMap<BranchId, u64> {
        self.sessions.traffic().into_iter().map(|(branch, traffic)| (branch, traffic.to_clients)).collect()
    }
}

/// Of those who come by HTTP, so that they leave as many connections to the API as they have.
fn visitors(of_gateway: ConnectionLimits, doors: Doors) -> ConnectionLimits {
    let total = doors.api.div_ceil(2);
    ConnectionLimits {
        total,
        per_address: of_gateway.per_address.min(total),
        starting: total,
        starting_per_address: of_gateway.starting_per_address,
    }
}

/// Makes the gateway.
pub(super) fn start(
    config: &Config,
    certificate: Certificate,
    app: App,
    sessions: Arc<Sessions>,
    predecessors: Arc<Predecessors>,
    doors: Doors,
) -> anyhow::Result<Arc<Gateway>> {
    let limits = config.client_limits.connections(doors.gateway)?;
    let gateway_config = GatewayConfig {
        domain: config.gateway_domain.clone(),
        plaintext: Plaintext::Loopback,
        trusted_proxies: config.trusted_proxies.clone(),
        startup_timeout: STARTUP_TIMEOUT,
        wake_timeout: WAKE_TIMEOUT,
        queue_timeout: QUEUE_TIMEOUT,
        pooled_idle_timeout: POOLED_IDLE_TIMEOUT,
        limits,
        visitors: visitors(limits, doors),
        failures_per_minute: config.client_limits.failures_per_minute,
        drain_timeout: DRAIN_MAX,
        fake_salt_secret: app.fake_salt_secret(),
    };
    let platform = Arc::new(PlatformBranches { app, predecessors, runtime: Handle::current() });
    let gateway = Gateway::new(gateway_config, certificate, platform, sessions);
    Ok(Arc::new(gateway.context("starting the gateway's threads")?))
}

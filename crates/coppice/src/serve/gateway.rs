//! The gateway's view of the platform, and the idle watch's view of the
//! gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coppice_app::{App, Clients, Connectable};
use coppice_core::awake::{ClientSession, NewUse};
use coppice_core::statistics::ClientTraffic;
use coppice_core::{BranchId, InstanceId, Result};
use coppice_engine::{BoxedServerStream, RoleVerifier};
use coppice_gateway::{
    ActingAs, Branches, CancelKey, Certificate, ClientInfo, Gateway, GatewayConfig, Plaintext, Route,
    Sessions,
};

use super::drain::{Predecessors, client_session};
use crate::config::{Config, DRAIN_MAX};

const STARTUP_TIMEOUT: Duration = Duration::from_secs(15);
const WAKE_TIMEOUT: Duration = Duration::from_secs(50);
/// Whoever waits for a session while the branch is woken waits no shorter than for that.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
/// Short beside the minutes after which a branch sleeps.
const POOLED_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

struct Platform {
    app: App,
    predecessors: Arc<Predecessors>,
}

fn route(found: Connectable) -> Route {
    Route {
        instance: InstanceId::primary(&found.branch.id),
        replicas: found.replicas,
        replicas_wanted: found.branch.spec.replicas,
        root: found.root,
        state: found.branch.state,
        message: found.branch.message,
        ip_filtering: found.ip_filtering,
        used_up: found.used_up,
        kept: found.kept,
    }
}

#[async_trait]
impl Branches for Platform {
    async fn find(&self, branch: &BranchId, role: &str) -> Result<Option<Route>> {
        Ok(self.app.find_for_connection(branch, role).await?.map(route))
    }

    async fn verifier(&self, found: &Route, role: &str) -> Result<Option<RoleVerifier>> {
        self.app.role_verifier(&found.instance, role).await
    }

    async fn ask_nobody(&self) {
        self.app.ask_nobody().await;
    }

    async fn prepare(&self, branch: &BranchId, role: &str) -> Result<Option<ActingAs>> {
        let acting = self.app.prepare_role(branch, role).await?;
        Ok(acting.map(|acting| ActingAs { role: acting.role.to_owned(), password: acting.password }))
    }

    async fn over(&self, of: &[(BranchId, String)]) -> Result<Vec<(BranchId, String)>> {
        self.app.logins_over(of).await
    }

    async fn open(&self, found: &Route) -> Result<BoxedServerStream> {
        self.app.open_server(&found.instance).await
    }

    async fn wake(&self, branch: &BranchId, client: &ClientInfo) -> Result<bool> {
        let ClientInfo { role, application, address } = client;
        let by = match application.as_str() {
            "" => format!("a connection of {role} from {address}"),
            name => format!("a connection of {role} from {address} ({name})"),
        };
        self.app.wake_for_client(branch, &by).await
    }

    async fn cancel_elsewhere(&self, key: &CancelKey) -> bool {
        self.predecessors.cancel(key).await
    }

    async fn wait_settled(&self, branch: &BranchId, role: &str, patience: Duration) -> Result<Option<Route>> {
        Ok(self.app.wait_until_settled(branch, role, patience).await?.map(route))
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

/// Makes the gateway.
pub(super) fn start(
    config: &Config,
    certificate: Certificate,
    app: App,
    sessions: Arc<Sessions>,
    predecessors: Arc<Predecessors>,
    connections_possible: usize,
) -> anyhow::Result<Arc<Gateway>> {
    let gateway_config = GatewayConfig {
        domain: config.gateway_domain.clone(),
        plaintext: Plaintext::Loopback,
        trusted_proxies: config.trusted_proxies.clone(),
        startup_timeout: STARTUP_TIMEOUT,
        wake_timeout: WAKE_TIMEOUT,
        queue_timeout: QUEUE_TIMEOUT,
        pooled_idle_timeout: POOLED_IDLE_TIMEOUT,
        limits: config.client_limits.connections(connections_possible)?,
        failures_per_minute: config.client_limits.failures_per_minute,
        drain_timeout: DRAIN_MAX,
        fake_salt_secret: app.fake_salt_secret(),
    };
    let platform = Arc::new(Platform { app, predecessors });
    Ok(Arc::new(Gateway::new(gateway_config, certificate, platform, sessions)))
}

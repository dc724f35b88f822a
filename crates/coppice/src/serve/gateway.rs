//! The gateway's view of the platform, and the idle watch's view of the
//! gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use coppice_app::{App, Clients, Connectable};
use coppice_core::{BranchId, InstanceId, Result};
use coppice_engine::{BoxedServerStream, RoleVerifier};
use coppice_gateway::{Branches, Route, WakingClient};

use super::{Certificate, Config, DRAIN, Gateway, GatewayConfig, Plaintext};

const CONNECTIONS_MAX: usize = 10_000;
const STARTUP_TIMEOUT: Duration = Duration::from_secs(15);
const WAKE_TIMEOUT: Duration = Duration::from_secs(50);

struct Platform(App);

fn route(found: Connectable) -> Route {
    Route {
        instance: InstanceId::new(&found.branch.id, 1),
        state: found.branch.state,
        message: found.branch.message,
        ip_filtering: found.ip_filtering,
        sleeping_roles: found.sleeping_roles.map(|roles| roles.verifiers),
    }
}

#[async_trait]
impl Branches for Platform {
    async fn find(&self, branch: &BranchId) -> Result<Option<Route>> {
        Ok(self.0.find_for_connection(branch).await?.map(route))
    }

    async fn verifier(&self, found: &Route, role: &str) -> Result<Option<RoleVerifier>> {
        self.0.role_verifier(&found.instance, role).await
    }

    async fn open(&self, found: &Route) -> Result<BoxedServerStream> {
        self.0.open_server(&found.instance).await
    }

    async fn wake(&self, branch: &BranchId, client: &WakingClient) -> Result<bool> {
        let WakingClient { role, application, address } = client;
        let by = match application.as_str() {
            "" => format!("a connection of {role} from {address}"),
            name => format!("a connection of {role} from {address} ({name})"),
        };
        self.0.wake_for_client(branch, &by).await
    }

    async fn wait_settled(&self, branch: &BranchId, patience: Duration) -> Result<Option<Route>> {
        Ok(self.0.wait_until_settled(branch, patience).await?.map(route))
    }
}

/// Clients as the gateway knows them.
pub(super) struct GatewayClients(pub(super) Arc<Gateway>);

impl Clients for GatewayClients {
    fn idle_since(&self, branch: &BranchId) -> Option<Option<DateTime<Utc>>> {
        let is_idle = self.0.open_sessions(branch) == 0;
        is_idle.then(|| self.0.last_left(branch).map(DateTime::<Utc>::from))
    }

    fn hold(&self, branch: &BranchId) -> Option<Box<dyn Send>> {
        Some(Box::new(self.0.hold(branch)?))
    }
}

/// Makes the gateway; its certificate is made at the first start.
pub(super) fn start(config: &Config, app: &App) -> anyhow::Result<Arc<Gateway>> {
    let directory = config.data_dir.join("tls");
    std::fs::create_dir_all(&directory).context("making the directory of the certificate")?;
    let certificate = Certificate::ensure(&directory).context("preparing the certificate")?;
    let gateway_config = GatewayConfig {
        certificate,
        domain: config.gateway_domain.clone(),
        plaintext: Plaintext::Loopback,
        startup_timeout: STARTUP_TIMEOUT,
        wake_timeout: WAKE_TIMEOUT,
        connections_max: CONNECTIONS_MAX,
        drain_timeout: DRAIN,
        fake_salt_secret: app.fake_salt_secret(),
    };
    Ok(Arc::new(Gateway::new(gateway_config, Arc::new(Platform(app.clone())))))
}

//! The accept loop.

use std::sync::Arc;

use coppice_core::BranchId;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Branches, GatewayConfig};

/// Takes clients in and connects them to the servers of their branches.
pub struct Gateway {
    config: GatewayConfig,
    branches: Arc<dyn Branches>,
}

impl Gateway {
    /// A gateway to these branches.
    pub fn new(config: GatewayConfig, branches: Arc<dyn Branches>) -> Self {
        Self { config, branches }
    }

    /// Number of sessions that are open to a branch.
    pub fn open_sessions(&self, branch: &BranchId) -> usize {
        let _ = branch;
        0
    }

    /// Serves clients until `stop`, then returns as soon as all sessions have
    /// ended, cutting those that outlast the drain timeout.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let _ = (&self.config, &self.branches, listener);
        stop.cancelled().await;
    }
}

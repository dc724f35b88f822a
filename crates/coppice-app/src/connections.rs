//! What the gateway asks about branches and their servers.

use std::time::Duration;

use coppice_core::branch::{Branch, BranchState};
use coppice_core::{BranchId, Error, InstanceId, Result};
use coppice_engine::{BoxedServerStream, RoleVerifier};

use crate::App;

impl App {
    /// A branch that is not deleted.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn find_for_connection(&self, id: &BranchId) -> Result<Option<Branch>> {
        Ok(self.store.branch_find(id).await?)
    }

    /// Waits until a branch is ready, or can't become so within `patience`,
    /// and returns it as it is then.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn wait_until_ready(&self, id: &BranchId, patience: Duration) -> Result<Option<Branch>> {
        let changed = self.reconciler.watch(id);
        let branch = self.find_for_connection(id).await?;
        if branch.as_ref().is_none_or(|branch| branch.state == BranchState::Ready) {
            return Ok(branch);
        }
        self.reconciler.nudge(id.clone());
        let _ = tokio::time::timeout(patience, changed).await;
        self.find_for_connection(id).await
    }

    /// What a role needs to prove, read from the running server.
    ///
    /// # Errors
    /// `unavailable` when the server does not answer.
    pub async fn role_verifier(&self, instance: &InstanceId, role: &str) -> Result<Option<RoleVerifier>> {
        self.engine.verifier(instance, role).await.map_err(|error| Error::unavailable(error.chain()))
    }

    /// Opens a connection to a running server.
    ///
    /// # Errors
    /// `unavailable` when the server does not answer.
    pub async fn open_server(&self, instance: &InstanceId) -> Result<BoxedServerStream> {
        self.engine.open(instance).await.map_err(|error| Error::unavailable(error.chain()))
    }
}

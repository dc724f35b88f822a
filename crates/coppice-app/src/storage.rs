//! Watches that branches stay within their storage.
//!
//! What counts is what their files say, blocks shared with others included, of
//! whatever may have a server that writes: also of replicas, and while a branch is
//! being made something else. A branch that comes near its limit is measured more often than the sampler
//! does: what it can write between two looks is what it can exceed it by.

use std::collections::HashMap;

use coppice_core::storage::Fullness;
use coppice_core::{HostId, Result, VolumeId};
use coppice_engine::SharedEngine;
use coppice_store::{MeasuredInstance, Store};
use coppice_turns::Behalf;
use tokio::task::JoinSet;

use crate::reconciler::Reconciler;

/// What a branch may write while nobody looks, between two of the sampler's
/// looks; one that has less room than that is near its limit.
const NEAR_BYTES: u64 = 3 << 30;

/// Looks how full branches are.
#[derive(Clone)]
pub(crate) struct StorageWatch {
    store: Store,
    engine: SharedEngine,
    reconciler: Reconciler,
    /// Whose branches.
    host: HostId,
}

impl StorageWatch {
    pub(crate) fn new(store: Store, engine: SharedEngine, reconciler: Reconciler, host: HostId) -> Self {
        Self { store, engine, reconciler, host }
    }

    /// Measures branches near their storage's limit.
    pub(crate) async fn look(&self) -> Result<()> {
        let instances = self.store.storage_instances(&self.host).await?;
        let primaries = instances.iter().filter(|one| one.id.is_primary());
        let volumes: HashMap<_, _> = primaries.map(|one| (one.branch.clone(), one.volume.clone())).collect();
        let mut looks = JoinSet::new();
        for instance in instances.into_iter().filter(|one| self.is_due(one)) {
            let (watch, primary) = (self.clone(), volumes.get(&instance.branch).cloned());
            looks.spawn(async move {
                match instance.id.is_primary() {
                    true => watch.look_at(&instance).await,
                    false => watch.look_at_replica(&instance, primary.as_ref()).await,
                }
            });
        }
        while looks.join_next().await.is_some() {}
        Ok(())
    }

    /// Whether a branch is to be measured here; the sampler measures the others.
    fn is_due(&self, instance: &MeasuredInstance) -> bool {
        let (limit, before) = (limit_of(instance), instance.fullness);
        let is_due =
            |bytes: u64| bytes.saturating_add(NEAR_BYTES) > limit || before.after(bytes, limit) != before;
        self.engine.known_disk_bytes(&instance.volume).is_none_or(is_due)
    }

    async fn bytes(&self, instance: &MeasuredInstance) -> Option<u64> {
        let measuring = self.engine.disk_bytes(&instance.id, &instance.volume);
        Behalf::new(instance.holder.as_str()).within(measuring).await
    }

    async fn look_at(&self, instance: &MeasuredInstance) {
        let limit = limit_of(instance);
        let Some(bytes) = self.bytes(instance).await else { return };
        let (branch, before) = (&instance.branch, instance.fullness);
        let now = before.after(bytes, limit);
        if now == Fullness::Shut && now == before {
            // Sessions that began before the server was told to let nobody in.
            let _ = self.engine.end_sessions(&instance.id, false).await;
        }
        if now == before {
            return;
        }
        match self.store.branch_note_fullness(branch, now).await {
            Ok(_) if now > before => {
                tracing::warn!(%branch, bytes, limit, "branch {branch}: {}", now.message());
            }
            Ok(_) => tracing::info!(%branch, bytes, limit, "branch {branch} has more room again"),
            Err(error) => return tracing::warn!(%branch, "noting the fullness of branch {branch}: {error}"),
        }
        self.reconciler.nudge(branch.clone());
    }

    /// A replica has what its primary has, and beside it what its sessions sort or keep,
    /// and the log that it has received and not read yet. Nothing but this bounds those.
    async fn look_at_replica(&self, replica: &MeasuredInstance, primary: Option<&VolumeId>) {
        let (id, branch) = (&replica.id, &replica.branch);
        let Some(bytes) = self.bytes(replica).await else { return };
        let of_primary = primary.and_then(|volume| self.engine.known_disk_bytes(volume));
        let limit = limit_of(replica).max(of_primary.unwrap_or_default());
        let is_too_large = Fullness::Fine.after(bytes, limit) == Fullness::Shut;
        if !self.reconciler.note_size_of_replica(id, is_too_large) {
            return;
        }
        tracing::warn!(%branch, bytes, limit, "{id} takes far more than its branch may: its sessions are ended");
        let _ = self.engine.end_sessions(id, false).await;
        self.reconciler.nudge(branch.clone());
    }
}

fn limit_of(instance: &MeasuredInstance) -> u64 {
    u64::from(instance.storage_gib) << 30
}

//! What branches can be taken back to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::history::History;
use coppice_core::target::InBranch;
use coppice_core::{HostId, InstanceId, Result, VolumeId};
use coppice_engine::SharedEngine;
use coppice_store::Store;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::Access;
use crate::rows::find_branch;

/// Looks at a time.
const LOOKS_MAX: usize = 8;

/// What the keeper of history remembers from turn to turn.
#[derive(Debug)]
pub(crate) struct Keeper {
    looks: Semaphore,
    /// Instances at which somebody looks.
    busy: Mutex<HashSet<InstanceId>>,
    /// Those of which the last look failed.
    failing: Mutex<HashSet<InstanceId>>,
}

impl Default for Keeper {
    fn default() -> Self {
        Self { looks: Semaphore::new(LOOKS_MAX), busy: Mutex::default(), failing: Mutex::default() }
    }
}

/// What branches can be taken back to.
#[derive(Clone)]
pub struct Histories {
    store: Store,
    engine: SharedEngine,
    /// Whose branches' history is kept.
    host: HostId,
}

impl Histories {
    pub(crate) fn new(store: Store, engine: SharedEngine, host: HostId) -> Self {
        Self { store, engine, host }
    }

    /// Looks at the log of every running instance of this host. A look that takes
    /// long delays no other, and is not joined by a second one.
    pub(crate) async fn keep(&self, keeper: &Arc<Keeper>) -> Result<()> {
        for instance in self.store.metric_instances(&self.host).await? {
            // A replica's history is its primary's.
            if !instance.id.is_primary() || !keeper.busy.lock().insert(instance.id.clone()) {
                continue;
            }
            let (engine, keeper) = (self.engine.clone(), keeper.clone());
            tokio::spawn(async move {
                let place = keeper.looks.acquire().await;
                let began = Instant::now();
                let keep = Duration::from_secs(u64::from(instance.retention_days) * 24 * 3600);
                let kept = engine.keep_history(&instance.id, &instance.volume, keep).await;
                drop(place);
                match kept {
                    Ok(()) => drop(keeper.failing.lock().remove(&instance.id)),
                    // Said once, not each second.
                    Err(error) if keeper.failing.lock().insert(instance.id.clone()) => {
                        let branch = &instance.branch;
                        tracing::warn!(%branch, "the history of branch {branch} is not kept: {}", error.chain());
                    }
                    Err(_) => {}
                }
                // How long a look takes is up to the server, too.
                tokio::time::sleep(began.elapsed()).await;
                keeper.busy.lock().remove(&instance.id);
            });
        }
        Ok(())
    }

    /// What a branch can be taken back to; empty where nothing is kept.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn of_branch(&self, access: &Access<InBranch>) -> Result<History> {
        let branch = find_branch(&self.store, access).await?;
        self.of_volume(&branch.volume).await
    }

    pub(crate) async fn of_volume(&self, volume: &VolumeId) -> Result<History> {
        Ok(self.engine.history(volume).await?.unwrap_or_default())
    }
}

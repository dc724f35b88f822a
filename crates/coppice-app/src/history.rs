//! What branches can be taken back to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::history::{Gap, History, Window};
use coppice_core::organization::Holder;
use coppice_core::target::InBranch;
use coppice_core::{Error, HostId, InstanceId, OrganizationId, Result, VolumeId};
use coppice_engine::SharedEngine;
use coppice_store::Store;
use coppice_turns::{Behalf, Busy, Turns};
use parking_lot::Mutex;

use crate::Access;
use crate::rows::find_branch;

/// Looks at a time.
const LOOKS_MAX: usize = 8;
/// Of them, those at branches of organizations of one holder.
const LOOKS_OF_HOLDER_MAX: usize = 4;
/// Readings at a time, for whoever asks.
const READINGS_MAX: usize = 4;
/// Of them, those of organizations of one holder.
const READINGS_OF_HOLDER_MAX: usize = 2;

/// What the keeper of history remembers from turn to turn.
#[derive(Debug)]
pub(crate) struct Keeper {
    looks: Turns<Holder>,
    /// Instances at which somebody looks.
    busy: Busy<InstanceId>,
    /// Those of which the last look failed.
    failing: Mutex<HashSet<InstanceId>>,
}

impl Default for Keeper {
    fn default() -> Self {
        let looks = Turns::new(LOOKS_MAX, LOOKS_OF_HOLDER_MAX);
        Self { looks, busy: Busy::default(), failing: Mutex::default() }
    }
}

/// Readings of what was, of which each takes a thread, and may take much memory: a month has
/// millions of marks. Those of one volume wait for each other before they wait together with
/// others.
pub(crate) struct Readings {
    volumes: Turns<VolumeId>,
    all: Turns<Holder>,
}

impl Default for Readings {
    fn default() -> Self {
        Self { volumes: Turns::of_each(1), all: Turns::new(READINGS_MAX, READINGS_OF_HOLDER_MAX) }
    }
}

impl Readings {
    /// Reads in its turn. It has it to its end, also when nobody waits for that any more.
    pub(crate) async fn read<T: Send + 'static, E: Into<Error> + Send + 'static>(
        &self,
        holder: &Holder,
        volume: &VolumeId,
        reading: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T> {
        let turns = (self.volumes.take(volume).await, self.all.take(holder).await);
        let reading = tokio::spawn(async move {
            let _turns = turns;
            reading.await
        });
        reading.await.map_err(Error::internal)?.map_err(E::into)
    }
}

/// What branches can be taken back to.
#[derive(Clone)]
pub struct Histories {
    store: Store,
    engine: SharedEngine,
    /// Whose branches' history is kept.
    host: HostId,
    readings: Arc<Readings>,
}

impl Histories {
    pub(crate) fn new(store: Store, engine: SharedEngine, host: HostId) -> Self {
        Self { store, engine, host, readings: Arc::default() }
    }

    /// Looks at the log of every running instance of this host. A look that takes
    /// long delays no other, and is not joined by a second one.
    pub(crate) async fn keep(&self, keeper: &Arc<Keeper>) -> Result<()> {
        for instance in self.store.metric_instances(&self.host).await? {
            // A replica's history is its primary's.
            if !instance.id.is_primary() {
                continue;
            }
            let Some(work) = keeper.busy.begin(&instance.id) else { continue };
            let (engine, keeper) = (self.engine.clone(), keeper.clone());
            tokio::spawn(async move {
                let turn = keeper.looks.take(&instance.holder).await;
                let began = Instant::now();
                let keep = Duration::from_secs(u64::from(instance.retention_days) * 24 * 3600);
                let keeping = engine.keep_history(&instance.id, &instance.volume, keep);
                let kept = Behalf::new(instance.holder.as_str()).within(keeping).await;
                drop(turn);
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
                drop(work);
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
        self.of_volume(&branch.organization, &branch.volume).await
    }

    /// The same of a volume of one of an organization's branches.
    pub(crate) async fn of_volume(&self, of: &OrganizationId, volume: &VolumeId) -> Result<History> {
        let (engine, read) = (self.engine.clone(), volume.clone());
        let holder = self.store.organization_holder(of).await?;
        let found = self.readings.read(&holder, volume, async move { engine.history(&read).await }).await?;
        Ok(found.unwrap_or_default())
    }

    /// The moments from and to which there is a past of a volume, and the gaps between.
    pub(crate) async fn window_of(
        &self,
        of: &OrganizationId,
        volume: &VolumeId,
    ) -> Result<Option<(Window, Vec<Gap>)>> {
        let (engine, read) = (self.engine.clone(), volume.clone());
        let holder = self.store.organization_holder(of).await?;
        self.readings.read(&holder, volume, async move { engine.history_window(&read).await }).await
    }
}

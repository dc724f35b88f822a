//! Making the bases that are due, by turns of whose branches they are of.

use std::time::{Duration, Instant};

use coppice_archive::Connection;
use coppice_core::organization::Holder;
use coppice_core::{Result, VolumeId};
use coppice_engine::{BasePlan, EngineError};
use coppice_failpoint::failpoint;
use coppice_store::{BaseRow, DueBase, Room};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::uses::InUse;
use super::{Backups, failed};
use crate::metrics;

/// Bases that are made at a time, …
const BASES_AT_ONCE: u32 = 2;
/// … and of one holder: that of somebody else, however small, waits for no other of theirs.
const BASES_OF_HOLDER: u32 = 1;
/// A branch that can't be backed up is tried again after this time.
const REST: Duration = Duration::from_secs(600);

/// Bases that are being made. They go on while a turn of [`Backups::make_bases`] looks after them.
#[derive(Default)]
pub(crate) struct Making(tokio::sync::Mutex<FuturesUnordered<BoxFuture<'static, Result<()>>>>);

impl Backups {
    /// Makes the bases that are due, until none is or the time for a turn is over.
    pub(crate) async fn make_bases(&self, making: &Making) -> Result<()> {
        let Some(store) = &self.archive else { return Ok(()) };
        let (mut making, end) = (making.0.lock().await, Instant::now() + self.interval);
        self.compare_once(store).await?;
        let (mut begun, mut problem) = (vec![], Ok(()));
        loop {
            if problem.is_ok() {
                problem = self.begin_bases(store, &mut begun, &mut making).await;
            }
            if making.is_empty() {
                return problem;
            }
            match tokio::time::timeout_at(end.into(), making.next()).await {
                Ok(made) => problem = problem.and(made.unwrap_or(Ok(()))),
                // The next turn begins at once.
                Err(_) => return problem,
            }
        }
    }

    async fn compare_once(&self, store: &Connection) -> Result<()> {
        let compare = async || -> Result<()> {
            let _alone = self.upkeep.bases.lock().await;
            let archive = store.archive().await.map_err(failed)?;
            self.compare_bases(&archive).await.map(drop)
        };
        self.upkeep.compared.get_or_try_init(compare).await.map(drop)
    }

    /// Begins as many as there is room for, each once in a turn.
    async fn begin_bases(
        &self,
        store: &Connection,
        begun: &mut Vec<VolumeId>,
        making: &mut FuturesUnordered<BoxFuture<'static, Result<()>>>,
    ) -> Result<()> {
        let (busy, mut besides): (Vec<_>, Vec<_>) = self.upkeep.uses.made().into_iter().unzip();
        let count = BASES_AT_ONCE.saturating_sub(busy.len() as u32);
        if count == 0 {
            return Ok(());
        }
        let now = Instant::now();
        let resting = self.upkeep.resting.lock().clone();
        besides.extend(resting.into_iter().filter(|(_, until)| *until > now).map(|(volume, _)| volume));
        besides.extend(begun.iter().cloned());
        let room = Room { count, each: BASES_OF_HOLDER, busy };
        let due = self.store.base_due(&self.host, self.interval, &room, &besides).await?;
        if due.is_empty() {
            return Ok(());
        }
        // One that does not answer is no fault of any branch's.
        if begun.is_empty() {
            store.archive().await.map_err(failed)?.check_owner().await.map_err(failed)?;
        }
        for due in due {
            // What it need not write again is in bases of those that it is a copy of.
            let needs = [due.volume.clone()].into_iter().chain(due.lineage.iter().cloned()).collect();
            let in_use = self.begin_use(Some(due.holder.clone()), needs).await;
            begun.push(due.volume.clone());
            let backups = self.clone();
            making.push(Box::pin(async move {
                let _in_use = in_use;
                backups.try_base(&due).await
            }));
        }
        Ok(())
    }

    /// Has bases of these volumes stay as they are, from when nothing is being removed.
    pub(super) async fn begin_use(&self, maker: Option<Holder>, volumes: Vec<VolumeId>) -> InUse {
        let _alone = self.upkeep.bases.lock().await;
        self.upkeep.uses.begin(maker, volumes)
    }

    async fn try_base(&self, due: &DueBase) -> Result<()> {
        let began = Instant::now();
        let made = self.make_base(due).await;
        self.store.base_failing(&due.branch, made.is_err()).await?;
        if let Err(error) = made {
            // Whoever owns a branch can keep it from being backed up, and no other.
            let branch = &due.branch;
            tracing::warn!(%branch, "branch {branch} can't be backed up: {}", error.chain());
            metrics::base_failed();
            self.upkeep.resting.lock().insert(due.volume.clone(), began + REST);
        } else {
            self.upkeep.resting.lock().remove(&due.volume);
        }
        Ok(())
    }

    async fn make_base(&self, due: &DueBase) -> Result<(), EngineError> {
        let noting = |error: coppice_store::StoreError| EngineError::Other(error.to_string());
        let rests_at = self.engine.clean_checkpoint(&due.volume).await?;
        if let Some((name, Some(checkpoint))) = &due.newest
            && rests_at.as_ref() == Some(checkpoint)
        {
            return self.store.base_seen(name).await.map_err(noting);
        }
        let plan = BasePlan {
            volume: due.volume.clone(),
            source_instance: Some(due.instance.clone()),
            lineage: due.lineage.clone(),
            storage_bytes: due.storage_bytes,
        };
        let written = self.engine.back_up(&plan).await?;
        failpoint!("base.written");
        metrics::base_made(&written);
        let row = BaseRow {
            name: written.base.to_string(),
            volume: due.volume.clone(),
            taken_at: written.base.taken_at(),
            bytes: written.bytes,
            new_bytes: written.new_bytes,
            log_end: written.log_end,
        };
        self.store.base_insert(&due.branch, &row, rests_at.as_deref()).await.map_err(noting)
    }
}

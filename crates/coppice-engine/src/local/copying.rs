//! Copying a volume whose server may be running.

use coppice_core::lsn::Lsn;
use coppice_core::plan::InstanceSeen;
use coppice_core::{InstanceId, VolumeId};
use tokio::runtime::Handle;

use super::blocking::blocking;
use super::connecting::Address;
use super::session::{Patience, Session, column};
use super::untrusted::UntrustedPath;
use super::volumes::{LiveSource, SourceState};
use super::{LocalEngine, slots};
use crate::{EngineError, Result, VolumePlan};

/// More WAL than this since the source's last checkpoint makes a copy slow to
/// recover, so a checkpoint comes first.
const CHECKPOINT_ABOVE_BYTES: i64 = 16 << 20;

impl LocalEngine {
    /// One checkpoint when much WAL would have to be replayed.
    async fn checkpoint_if_needed(&self, source: &InstanceId) -> Result<()> {
        let session = self.address(source).open(Patience::CHECKPOINT).await?;
        let query = "SELECT (pg_current_wal_insert_lsn() - redo_lsn)::bigint FROM pg_control_checkpoint()";
        let row = session.query_one("looking at the source's WAL", query, &[]).await?;
        if column::<i64>(&row, 0)? > CHECKPOINT_ABOVE_BYTES {
            session.execute("checkpointing the source", "CHECKPOINT").await?;
        }
        Ok(())
    }

    pub(super) async fn create_from_moment(
        &self,
        plan: &VolumePlan,
        source: &VolumeId,
        lsn: Lsn,
    ) -> Result<()> {
        let (volumes, label, source) = (self.volumes.clone(), plan.label.clone(), source.clone());
        blocking(move || volumes.copy_back(&source, &label, lsn)).await
    }

    pub(super) async fn create_from_volume(&self, plan: &VolumePlan, source: &VolumeId) -> Result<()> {
        let (volumes, label, id) = (self.volumes.clone(), plan.label.clone(), source.clone());
        self.with_source(plan.source_instance.as_ref(), source, move |state| volumes.copy(&id, &label, state))
            .await
    }

    /// Reads a copy of a volume, whose server may be started and stopped meanwhile.
    pub(super) async fn with_frozen<T: Send + 'static>(
        &self,
        instance: Option<&InstanceId>,
        volume: &VolumeId,
        read: impl FnOnce(&UntrustedPath, Option<Lsn>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (volumes, id) = (self.volumes.clone(), volume.clone());
        let end = self.with_source(instance, volume, move |state| volumes.freeze(&id, state)).await?;
        let (volumes, id) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.read_frozen(&id, |data| read(data, end))).await
    }

    /// Does something, on a thread that may block, with a volume whose server may be
    /// running.
    pub(super) async fn with_source<T: Send + 'static>(
        &self,
        instance: Option<&InstanceId>,
        source: &VolumeId,
        work: impl FnOnce(SourceState<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // A start of the source waits until a copy without its server is made.
        let guard = self.lock_volume(source).await;
        let data = self.volumes.data_dir(source);
        let seen = match instance {
            Some(instance) => self.host.servers.observe(instance, &data).await,
            None => InstanceSeen::Stopped,
        };
        let is_atomic = self.volumes.is_snapshot_atomic(source);
        if seen == InstanceSeen::Broken && !is_atomic {
            return Err(EngineError::SourceUnsettled(source.clone()));
        }
        let running = instance.filter(|_| seen == InstanceSeen::Running);
        if running.is_some() {
            drop(guard);
        }
        if let Some(instance) = running.filter(|_| is_atomic)
            && let Err(error) = self.checkpoint_if_needed(instance).await
        {
            // The copy replays more; a source that is stuck does not hold it up.
            tracing::warn!(%instance, "instance {instance} is copied without a checkpoint: {}", error.chain());
        }
        let runtime = Handle::current();
        let address = running.map(|instance| self.address(instance));
        blocking(move || match address {
            None => work(SourceState::Stopped),
            Some(address) => {
                let mut live = RunningSource { address, runtime, session: None };
                work(SourceState::Live(&mut live))
            }
        })
        .await
    }
}

/// A running server that is copied file by file.
struct RunningSource {
    address: Address,
    runtime: Handle,
    /// The backup lasts as long as this session.
    session: Option<Session>,
}

impl LiveSource for RunningSource {
    fn backup_start(&mut self) -> Result<()> {
        let session = self.runtime.block_on(self.address.open(Patience::BACKUP))?;
        self.runtime.block_on(slots::make_for_copy(&session))?;
        let start = "SELECT pg_backup_start('coppice', true)";
        self.runtime.block_on(session.execute("starting a backup of the source", start))?;
        self.session = Some(session);
        Ok(())
    }

    fn backup_stop(&mut self) -> Result<String> {
        let session =
            self.session.as_ref().ok_or_else(|| EngineError::Other("no backup was started".to_owned()))?;
        let query = "SELECT labelfile FROM pg_backup_stop(false)";
        let row = self.runtime.block_on(session.query_one("ending a backup of the source", query, &[]))?;
        column(&row, 0)
    }
}

//! Copying a volume whose server may be running.

use std::sync::Arc;
use std::time::Duration;

use coppice_core::plan::InstanceSeen;
use coppice_core::{InstanceId, VolumeId};
use tokio::runtime::Handle;
use tokio_postgres::Client;

use super::blocking::blocking;
use super::engine::no_answer;
use super::volumes::{LiveSource, SourceState};
use super::{HostEngine, LocalEngine};
use crate::{EngineError, Result, VolumePlan};

/// More WAL than this since the source's last checkpoint makes a copy slow to
/// recover, so a checkpoint comes first.
const CHECKPOINT_ABOVE_BYTES: i64 = 16 << 20;
/// A source that is stuck must not hold up the work on its copies.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

impl LocalEngine {
    /// One shared checkpoint when much WAL would have to be replayed.
    async fn checkpoint_if_needed(&self, source: &InstanceId) -> Result<()> {
        let action = || EngineError::sql("looking at the source's WAL");
        let session = self.session(source).await?;
        let looking = session.query_one(
            "SELECT (pg_current_wal_insert_lsn() - redo_lsn)::bigint FROM pg_control_checkpoint()",
            &[],
        );
        let row = tokio::time::timeout(LOOK_PATIENCE, looking).await;
        let row = row.map_err(|_| no_answer())?.map_err(action())?;
        if row.get::<_, i64>(0) > CHECKPOINT_ABOVE_BYTES {
            session
                .batch_execute("CHECKPOINT")
                .await
                .map_err(EngineError::sql("checkpointing the source"))?;
        }
        Ok(())
    }

    pub(super) async fn copy_volume(&self, plan: &VolumePlan, source: &VolumeId) -> Result<()> {
        // A start of the source waits until a copy without its server is made.
        let guard = self.lock_volume(source).await;
        let data = self.volumes.data_dir(source);
        let seen = match &plan.source_instance {
            Some(instance) => self.host.servers.observe(instance, &data).await,
            None => InstanceSeen::Stopped,
        };
        let is_atomic = self.volumes.is_snapshot_atomic(source);
        if seen == InstanceSeen::Broken && !is_atomic {
            return Err(EngineError::SourceUnsettled(source.clone()));
        }
        let running = plan.source_instance.clone().filter(|_| seen == InstanceSeen::Running);
        if running.is_some() {
            drop(guard);
        }
        if let Some(instance) = running.as_ref().filter(|_| is_atomic) {
            self.checkpoint_if_needed(instance).await?;
        }
        let (host, volumes, runtime) = (self.host.clone(), self.volumes.clone(), Handle::current());
        let (source, label) = (source.clone(), plan.label.clone());
        blocking(move || match running {
            None => volumes.copy(&source, &label, SourceState::Stopped),
            Some(instance) => {
                let mut live = RunningSource { host, runtime, instance, session: None };
                volumes.copy(&source, &label, SourceState::Live(&mut live))
            }
        })
        .await
    }
}

/// A running server that is copied file by file.
struct RunningSource {
    host: Arc<HostEngine>,
    runtime: Handle,
    instance: InstanceId,
    /// The backup lasts as long as this session.
    session: Option<Client>,
}

impl LiveSource for RunningSource {
    fn backup_start(&mut self) -> Result<()> {
        let action = || EngineError::sql("starting a backup of the source");
        let client = self.runtime.block_on(self.host.platform_session(&self.instance, "postgres"))?;
        let statements = "SELECT pg_create_physical_replication_slot('coppice_copy_' || pg_backend_pid(), true, true); \
             SELECT pg_backup_start('coppice', true)";
        self.runtime.block_on(client.batch_execute(statements)).map_err(action())?;
        self.session = Some(client);
        Ok(())
    }

    fn backup_stop(&mut self) -> Result<String> {
        let action = || EngineError::sql("ending a backup of the source");
        let client =
            self.session.as_ref().ok_or_else(|| EngineError::Other("no backup was started".to_owned()))?;
        let stop = client.query_one("SELECT labelfile FROM pg_backup_stop(false)", &[]);
        let row = self.runtime.block_on(stop).map_err(action())?;
        Ok(row.get(0))
    }
}

//! Putting a server to sleep.

use std::time::Duration;

use coppice_core::plan::InstanceSeen;
use coppice_core::{InstanceId, VolumeId};
use coppice_failpoint::failpoint;

use super::blocking::blocking;
use super::{LocalEngine, control_file, sleep};
use crate::{Engine, EngineError, Result, SleepingRoles, StopMode};

/// A server that has not told within this time who its roles are goes to sleep
/// without that.
const SLEEP_PATIENCE: Duration = Duration::from_secs(20);

impl LocalEngine {
    /// [`Engine::sleep`]
    pub(super) async fn put_to_sleep(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
    ) -> Result<Option<(SleepingRoles, String)>> {
        self.close_sessions(instance);
        let data = self.volumes.data_dir(volume);
        let is_running = self.host.servers.observe(instance, &data).await == InstanceSeen::Running;
        let read = if is_running {
            let address = self.address(instance);
            let reading = sleep::read_roles(&address);
            match tokio::time::timeout(SLEEP_PATIENCE, reading)
                .await
                .unwrap_or_else(|_| Err(EngineError::no_answer()))
            {
                Ok(read) => Some(read),
                Err(error) => {
                    tracing::warn!(%instance, "instance {instance} goes to sleep unasked: {}", error.chain());
                    None
                }
            }
        } else {
            None
        };
        failpoint!("engine.roles_read");
        self.stop(instance, Some(volume), StopMode::Fast).await?;
        let checkpoint = blocking(move || control_file::clean_checkpoint(&data)).await?;
        Ok(read.filter(|(_, place)| checkpoint.as_ref() == Some(place)))
    }
}

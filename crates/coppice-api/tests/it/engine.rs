//! A machine on which no PostgreSQL is installed: no branch can be made, so
//! nothing is ever asked of a server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use coppice_core::backup::{DrillReport, DrillResult};
use coppice_core::claim::ClaimToken;
use coppice_core::history::{Gap, History, Mark, Window};
use coppice_core::image::PostgresVersion;
use coppice_core::login::Login;
use coppice_core::lsn::Lsn;
use coppice_core::parameter::Observed;
use coppice_core::plan::InstanceSeen;
use coppice_core::statistics::InstanceStatistics;
use coppice_core::storage::{ChangedBytes, VolumeBytes};
use coppice_core::volume::VolumeLabel;
use coppice_core::{ApiKeyId, InstanceId, VolumeId};
use coppice_engine::{
    Answer, BasePlan, BoxedServerStream, Capacity, DrillPlan, Engine, EngineError, FirstStart, Image,
    ImageContents, InstanceSpec, LogFile, LogFiles, ReadAt, ReplicaSlot, Result, RoleVerifier, SleepingRoles,
    StopMode, UpgradePlan, Upgraded, VolumeFacts, VolumePlan, Written,
};

/// Begins ids of volumes of which something is kept.
pub(crate) const REMEMBERED: &str = "vol_remembered_";

/// Begins ids of branches whose servers never answer who ends the login of a key,
pub(crate) const HOLDING: &str = "holding";
/// and of those on which it ends.
pub(crate) const OBLIGING: &str = "obliging";

/// From when on.
pub(crate) fn remembered_from() -> DateTime<Utc> {
    DateTime::from_timestamp_millis(REMEMBERED_FROM_MS).expect("a time")
}

const REMEMBERED_FROM_MS: i64 = 1_790_000_000_000;

fn remembered(volume: &VolumeId) -> Option<History> {
    let at = |seconds: i64, is_first: bool| {
        let at_ms = REMEMBERED_FROM_MS + seconds * 1000;
        Mark { at_ms, since_ms: at_ms, lsn: Lsn(1 << 24 | seconds.unsigned_abs()), is_first }
    };
    let marks = vec![at(0, true), at(60, false)];
    let seen_ms = REMEMBERED_FROM_MS + 90_000;
    volume.as_str().starts_with(REMEMBERED).then(|| History { marks, seen_ms, ..History::default() })
}

/// When every instance has logged a line, in seconds since the Unix epoch, and one second later the next.
pub(crate) const LOGGED_FROM: i64 = 1_790_000_000;

/// Files of one line each, which are kept nowhere: by when they were begun.
struct Logged(i64);

impl LogFiles for Logged {
    fn list(&self) -> std::io::Result<Vec<i64>> {
        Ok((self.0..self.0 + 3).collect())
    }

    fn open(&self, began: i64) -> std::io::Result<Option<LogFile>> {
        let time = DateTime::from_timestamp(began, 0).expect("a time").format("%Y-%m-%d %H:%M:%S%.3f UTC");
        let line = format!(
            r#"{{"timestamp":"{time}","pid":1,"error_severity":"LOG","message":"line {began}","backend_type":"checkpointer","query_id":0}}"#
        ) + "\n";
        let length = line.len() as u64;
        Ok(Some(LogFile { content: Box::new(Content(line)), length, modified_ms: began * 1000 }))
    }
}

struct Content(String);

impl ReadAt for Content {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let rest = self.0.as_bytes().get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

pub(crate) struct NoPostgres;

fn is_not_running<T>(instance: &InstanceId) -> Result<T> {
    Err(EngineError::NotRunning(instance.clone()))
}

#[async_trait]
impl Engine for NoPostgres {
    async fn images(&self) -> Result<Vec<Image>> {
        Ok(vec![])
    }

    async fn image_contents(&self, version: PostgresVersion) -> Result<Arc<ImageContents>> {
        Err(EngineError::NoImage(version))
    }

    async fn capacity(&self) -> Result<Capacity> {
        Ok(Capacity { cpus: 1, memory_bytes: 1 << 30 })
    }

    async fn create_volume(&self, plan: &VolumePlan) -> Result<VolumeFacts> {
        Err(EngineError::NoVolume(plan.label.volume.clone()))
    }

    async fn upgrade(&self, plan: &UpgradePlan) -> Result<Upgraded> {
        Err(EngineError::NoImage(plan.label.version))
    }

    async fn end_upgrade(&self, _: &UpgradePlan) -> Result<()> {
        Ok(())
    }

    async fn remove_volume(&self, _: &VolumeId) -> Result<()> {
        Ok(())
    }

    async fn observe(&self, _: &InstanceId, volume: &VolumeId) -> Result<InstanceSeen> {
        Err(EngineError::NoVolume(volume.clone()))
    }

    async fn start(&self, spec: &InstanceSpec) -> Result<()> {
        Err(EngineError::NoImage(spec.version))
    }

    async fn configure(&self, spec: &InstanceSpec) -> Result<()> {
        is_not_running(&spec.instance)
    }

    async fn first_start(&self, plan: &FirstStart) -> Result<()> {
        is_not_running(&plan.spec.instance)
    }

    async fn keep_for_replica(&self, primary: &InstanceId, _: &InstanceId) -> Result<()> {
        is_not_running(primary)
    }

    async fn forget_replica(&self, primary: &InstanceId, _: &InstanceId) -> Result<()> {
        is_not_running(primary)
    }

    async fn replica_slots(&self, primary: &InstanceId) -> Result<Vec<ReplicaSlot>> {
        is_not_running(primary)
    }

    async fn stop(&self, _: &InstanceId, _: Option<&VolumeId>, _: StopMode) -> Result<()> {
        Ok(())
    }

    async fn sleep(&self, _: &InstanceId, _: &VolumeId) -> Result<Option<(SleepingRoles, String)>> {
        Ok(None)
    }

    async fn clean_checkpoint(&self, _: &VolumeId) -> Result<Option<String>> {
        Ok(None)
    }

    fn has_answered(&self, _: &InstanceId) -> bool {
        false
    }

    async fn ask_whether_it_answers(&self, _: &InstanceId) -> Answer {
        Answer::Refuses("nothing runs".to_owned())
    }

    async fn wait_exit(&self, _: &InstanceId) {}

    async fn remove_instance(&self, _: &InstanceId) -> Result<()> {
        Ok(())
    }

    async fn open(&self, instance: &InstanceId) -> Result<BoxedServerStream> {
        is_not_running(instance)
    }

    async fn verifier(&self, instance: &InstanceId, _: &str) -> Result<Option<RoleVerifier>> {
        is_not_running(instance)
    }

    async fn managed_verifier(&self, instance: &InstanceId) -> Result<Option<String>> {
        is_not_running(instance)
    }

    async fn set_managed_verifier(&self, instance: &InstanceId, _: &str) -> Result<()> {
        is_not_running(instance)
    }

    async fn ensure_reader(&self, instance: &InstanceId, _: &str) -> Result<()> {
        is_not_running(instance)
    }

    async fn ensure_login(&self, instance: &InstanceId, _: &Login) -> Result<()> {
        is_not_running(instance)
    }

    async fn end_login(&self, instance: &InstanceId, _: &ApiKeyId) -> Result<()> {
        match instance.as_str() {
            id if id.starts_with(HOLDING) => std::future::pending().await,
            id if id.starts_with(OBLIGING) => Ok(()),
            _ => is_not_running(instance),
        }
    }

    async fn close_system_views(&self, instance: &InstanceId, _: &VolumeId) -> Result<()> {
        is_not_running(instance)
    }

    async fn lock_out(&self, instance: &InstanceId) -> Result<()> {
        is_not_running(instance)
    }

    async fn end_session(&self, instance: &InstanceId, _: &str, _: u32) -> Result<()> {
        is_not_running(instance)
    }

    async fn end_holders(&self, instance: &InstanceId, _: &VolumeId, _: &[u32]) -> Result<()> {
        is_not_running(instance)
    }

    async fn fence(&self, volume: &VolumeId, _: ClaimToken) -> Result<()> {
        Err(EngineError::NoVolume(volume.clone()))
    }

    async fn statistics(&self, instance: &InstanceId, _: PostgresVersion) -> Result<Observed> {
        is_not_running(instance)
    }

    async fn has_active_slot(&self, instance: &InstanceId) -> Result<bool> {
        is_not_running(instance)
    }

    fn logs(&self, _: &InstanceId) -> Result<Box<dyn LogFiles>> {
        Ok(Box::new(Logged(LOGGED_FROM)))
    }

    async fn measure(&self, _: &InstanceId, _: &VolumeId) -> InstanceStatistics {
        InstanceStatistics::default()
    }

    fn known_disk_bytes(&self, _: &VolumeId) -> Option<u64> {
        None
    }

    async fn disk_bytes(&self, _: &InstanceId, _: &VolumeId) -> Option<u64> {
        None
    }

    async fn measure_volumes(&self) -> Result<()> {
        Ok(())
    }

    fn known_volume_bytes(&self, _: &VolumeId) -> Option<VolumeBytes> {
        None
    }

    async fn changed_bytes(&self, _: &VolumeId, _: &VolumeId, _: u32) -> Result<ChangedBytes> {
        Ok(ChangedBytes::Unknown("nothing is kept here"))
    }

    fn keeps_history(&self) -> bool {
        true
    }

    async fn keep_history(&self, instance: &InstanceId, _: &VolumeId, _: Duration) -> Result<()> {
        is_not_running(instance)
    }

    async fn history(&self, volume: &VolumeId) -> Result<Option<History>> {
        Ok(remembered(volume))
    }

    async fn history_window(&self, volume: &VolumeId) -> Result<Option<(Window, Vec<Gap>)>> {
        Ok(remembered(volume).and_then(|history| history.window().map(|window| (window, history.gaps()))))
    }

    async fn back_up(&self, plan: &BasePlan) -> Result<Written> {
        Err(EngineError::NoVolume(plan.volume.clone()))
    }

    async fn drill(&self, _: &DrillPlan) -> DrillReport {
        DrillReport::new(DrillResult::Skipped, "there is no store")
    }

    async fn log_from(&self, _: &VolumeId, _: Lsn) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn end_sessions(&self, instance: &InstanceId, _: bool) -> Result<()> {
        is_not_running(instance)
    }

    async fn is_short_of_room(&self) -> Result<bool> {
        Ok(false)
    }

    async fn volumes(&self) -> Result<Vec<VolumeLabel>> {
        Ok(vec![])
    }

    async fn quarantine(&self, volume: &VolumeId) -> Result<()> {
        Err(EngineError::NoVolume(volume.clone()))
    }

    async fn running_instances(&self) -> Result<Vec<InstanceId>> {
        Ok(vec![])
    }
}

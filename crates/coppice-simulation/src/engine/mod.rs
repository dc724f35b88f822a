//! An engine without servers: it does what its steps are documented to do, on
//! a simulated disk, and can be interrupted wherever the real one can.

mod machine;
mod replicas;
mod servers;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coppice_core::backup::{DrillReport, DrillResult};
use coppice_core::claim::ClaimToken;
use coppice_core::history::{Gap, History, Window};
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
    ImageContents, InstanceSpec, LogFiles, ReplicaSlot, Result, RoleVerifier, SleepingRoles, StopMode,
    UpgradePlan, Upgraded, VolumeFacts, VolumePlan, Written,
};
use machine::check_claim;
use tokio::sync::OwnedMutexGuard;

use crate::world::{Data, Health, ProcessId, World};

/// The release that can be run.
pub(crate) const VERSION: PostgresVersion = PostgresVersion { major: 18, minor: 0 };
/// A question that is not answered takes so long.
const NO_ANSWER: Duration = Duration::from_secs(10);

type Locks = std::sync::Mutex<BTreeMap<VolumeId, Arc<tokio::sync::Mutex<()>>>>;

/// What one process does to one machine.
#[derive(Debug)]
pub(crate) struct SimulatedEngine {
    world: World,
    machine: usize,
    process: ProcessId,
    /// Steps of one process on one volume wait for each other.
    locks: Locks,
}

impl SimulatedEngine {
    pub(crate) fn new(world: World, machine: usize, process: ProcessId) -> Self {
        Self { world, machine, process, locks: Locks::default() }
    }

    /// Goes on when the history lets it.
    async fn point(&self, what: impl Into<String>) -> Result<()> {
        self.point_after(what, Duration::ZERO).await
    }

    async fn point_after(&self, what: impl Into<String>, at_least: Duration) -> Result<()> {
        let what = what.into();
        let opened = self.world.lock().wait(self.process, what.clone(), at_least);
        match opened.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(EngineError::Other(format!("{what}: simulated failure"))),
            Err(_) => std::future::pending().await,
        }
    }

    async fn lock_volume(&self, volume: &VolumeId) -> OwnedMutexGuard<()> {
        let mutex = {
            let mut locks = self.locks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            locks.entry(volume.clone()).or_default().clone()
        };
        mutex.lock_owned().await
    }

    /// Asks a server something; one that hangs costs the time that it may take.
    async fn ask<T>(
        &self,
        what: &str,
        instance: &InstanceId,
        asked: impl FnOnce(&mut Data) -> T,
    ) -> Result<T> {
        self.point(format!("{what} {instance}")).await?;
        let health = {
            let mut state = self.world.lock();
            let now = state.now;
            let serving = state.serving(self.machine, instance);
            serving.filter(|(server, _)| server.ready_at <= now).map(|(server, _)| server.health)
        };
        match health {
            None => return Err(EngineError::NotRunning(instance.clone())),
            Some(Health::Well) => {}
            Some(Health::Refuses(_)) => {
                return Err(EngineError::Other("the server lets nobody in".to_owned()));
            }
            Some(Health::Hangs) => {
                self.point_after(format!("{what} {instance}, in vain"), NO_ANSWER).await?;
                return Err(EngineError::NoAnswer(what.to_owned()));
            }
        }
        let mut state = self.world.lock();
        match state.serving(self.machine, instance) {
            Some((_, data)) => Ok(asked(data)),
            None => Err(EngineError::NotRunning(instance.clone())),
        }
    }

    /// Something on the server may be in the way.
    fn is_held(&self, instance: &InstanceId) -> Result<()> {
        let mut state = self.world.lock();
        let chance = state.faults.failing_servers;
        match state.dice.happens(chance) {
            true => Err(EngineError::Held { instance: instance.clone(), transactions: vec![] }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Engine for SimulatedEngine {
    async fn images(&self) -> Result<Vec<Image>> {
        Ok(vec![Image { version: VERSION }])
    }

    async fn image_contents(&self, _: PostgresVersion) -> Result<Arc<ImageContents>> {
        let parameters = ["work_mem", "max_connections"].into_iter().map(str::to_owned).collect();
        Ok(Arc::new(ImageContents { extensions: vec![], libraries: BTreeSet::new(), parameters }))
    }

    async fn capacity(&self) -> Result<Capacity> {
        Ok(Capacity { cpus: 4, memory_bytes: 16 << 30 })
    }

    async fn create_volume(&self, plan: &VolumePlan) -> Result<VolumeFacts> {
        self.make_volume(plan).await
    }

    async fn upgrade(&self, plan: &UpgradePlan) -> Result<Upgraded> {
        // One release is all that is installed here.
        Err(EngineError::NoImage(plan.label.version))
    }

    async fn end_upgrade(&self, _: &UpgradePlan) -> Result<()> {
        Ok(())
    }

    async fn remove_volume(&self, volume: &VolumeId) -> Result<()> {
        self.clear_volume(volume).await
    }

    async fn observe(&self, instance: &InstanceId, _: &VolumeId) -> Result<InstanceSeen> {
        self.point(format!("looking at {instance}")).await?;
        let state = self.world.lock();
        let server = state.machines[self.machine].servers.get(instance);
        Ok(match server {
            None => InstanceSeen::Stopped,
            Some(server) if server.ready_at <= state.now => InstanceSeen::Running,
            Some(_) => InstanceSeen::Broken,
        })
    }

    async fn start(&self, spec: &InstanceSpec) -> Result<()> {
        self.start_server(spec).await
    }

    async fn configure(&self, spec: &InstanceSpec) -> Result<()> {
        check_claim(&mut self.world.lock(), self.machine, &spec.volume, spec.claim)?;
        self.ask("configuring", &spec.instance, |_| ()).await?;
        let mut state = self.world.lock();
        if let Some(server) = state.machines[self.machine].servers.get_mut(&spec.instance) {
            server.settings = spec.settings.iter().cloned().collect();
        }
        Ok(())
    }

    async fn first_start(&self, plan: &FirstStart) -> Result<()> {
        self.end_first_start(plan).await
    }

    async fn keep_for_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        self.keep_log(primary, replica).await
    }

    async fn forget_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        self.drop_slot(primary, replica).await
    }

    async fn replica_slots(&self, primary: &InstanceId) -> Result<Vec<ReplicaSlot>> {
        self.slots_of_replicas(primary).await
    }

    async fn stop(&self, instance: &InstanceId, _: Option<&VolumeId>, mode: StopMode) -> Result<()> {
        self.stop_server(instance, mode).await
    }

    async fn sleep(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
    ) -> Result<Option<(SleepingRoles, String)>> {
        self.put_to_sleep(instance, volume).await
    }

    async fn clean_checkpoint(&self, volume: &VolumeId) -> Result<Option<String>> {
        self.point(format!("looking for the checkpoint of {volume}")).await?;
        let state = self.world.lock();
        let machine = &state.machines[self.machine];
        let found = machine.volumes.get(volume).ok_or_else(|| EngineError::NoVolume(volume.clone()))?;
        let is_used = machine.servers.values().any(|server| server.volume == *volume);
        Ok((found.data.is_clean && !is_used).then(|| found.data.wal.to_string()))
    }

    fn has_answered(&self, instance: &InstanceId) -> bool {
        let state = self.world.lock();
        let server = state.machines[self.machine].servers.get(instance);
        server.is_some_and(|server| server.ready_at <= state.now && server.health == Health::Well)
    }

    async fn ask_whether_it_answers(&self, instance: &InstanceId) -> Answer {
        match self.ask("asking", instance, |_| ()).await {
            Ok(()) => Answer::Answers,
            Err(EngineError::NoAnswer(_)) => Answer::Hangs,
            Err(error) => Answer::Refuses(error.chain()),
        }
    }

    async fn wait_exit(&self, instance: &InstanceId) {
        let life = {
            let state = self.world.lock();
            state.machines[self.machine].servers.get(instance).map(|server| server.life.subscribe())
        };
        if let Some(mut life) = life {
            // Nothing is ever sent: it ends when the server does.
            let _ = life.changed().await;
        }
    }

    async fn remove_instance(&self, instance: &InstanceId) -> Result<()> {
        self.point(format!("removing {instance}")).await?;
        let mut state = self.world.lock();
        let machine = &mut state.machines[self.machine];
        machine.instance_files.remove(instance);
        if machine.servers.contains_key(instance) {
            state.violation(format!("the files of {instance} are removed under its server"));
        }
        Ok(())
    }

    async fn open(&self, instance: &InstanceId) -> Result<BoxedServerStream> {
        self.ask("opening", instance, |_| ()).await?;
        let mut state = self.world.lock();
        let Some((server, data)) = state.serving(self.machine, instance) else {
            return Err(EngineError::NotRunning(instance.clone()));
        };
        data.had_clients = true;
        let is_replica = server.follows.is_some();
        if !is_replica && data.first_start.as_ref() != Some(&server.volume) {
            state.violation(format!("a client is let into {instance} before its first start"));
        }
        Ok(Box::new(tokio::io::empty()))
    }

    async fn verifier(&self, instance: &InstanceId, _: &str) -> Result<Option<RoleVerifier>> {
        let found = self.ask("reading a role of", instance, |data| data.verifier.clone()).await?;
        Ok(Some(RoleVerifier::Scram(found)))
    }

    async fn managed_verifier(&self, instance: &InstanceId) -> Result<Option<String>> {
        self.ask("reading the managed role of", instance, |data| Some(data.verifier.clone())).await
    }

    async fn set_managed_verifier(&self, instance: &InstanceId, verifier: &str) -> Result<()> {
        self.is_held(instance)?;
        let verifier = verifier.to_owned();
        self.ask("giving another password to", instance, |data| {
            data.verifier = verifier;
            data.wal += 1;
        })
        .await?;
        self.point(format!("hearing that {instance} has its password")).await
    }

    async fn ensure_reader(&self, instance: &InstanceId, _: &str) -> Result<()> {
        self.ask("making the reader of", instance, |data| data.wal += 1).await
    }

    async fn ensure_login(&self, instance: &InstanceId, _: &Login) -> Result<()> {
        self.ask("making the login of a key of", instance, |data| data.wal += 1).await
    }

    async fn end_login(&self, instance: &InstanceId, _: &ApiKeyId) -> Result<()> {
        self.ask("ending the login of a key of", instance, |data| data.wal += 1).await
    }

    async fn close_system_views(&self, instance: &InstanceId, _: &VolumeId) -> Result<()> {
        self.ask("closing the system views of", instance, |_| ()).await
    }

    async fn lock_out(&self, instance: &InstanceId) -> Result<()> {
        self.ask("taking passwords from the roles of", instance, |data| data.wal += 1).await
    }

    async fn end_session(&self, instance: &InstanceId, _: &str, _: u32) -> Result<()> {
        self.ask("ending a session of", instance, |_| ()).await
    }

    async fn end_holders(&self, instance: &InstanceId, volume: &VolumeId, _: &[u32]) -> Result<()> {
        self.stop(instance, Some(volume), StopMode::Immediate).await
    }

    async fn fence(&self, volume: &VolumeId, claim: ClaimToken) -> Result<()> {
        self.point(format!("keeping older claims from {volume}")).await?;
        check_claim(&mut self.world.lock(), self.machine, volume, claim)
    }

    async fn statistics(&self, instance: &InstanceId, _: PostgresVersion) -> Result<Observed> {
        self.ask("asking for the statistics of", instance, |_| Observed::default()).await
    }

    async fn has_active_slot(&self, instance: &InstanceId) -> Result<bool> {
        self.ask("looking at the slots of", instance, |_| false).await
    }

    fn logs(&self, instance: &InstanceId) -> Result<Box<dyn LogFiles>> {
        Err(EngineError::Other(format!("{instance} logs nothing")))
    }

    async fn measure(&self, _: &InstanceId, _: &VolumeId) -> InstanceStatistics {
        InstanceStatistics::default()
    }

    fn known_disk_bytes(&self, _: &VolumeId) -> Option<u64> {
        Some(0)
    }

    async fn disk_bytes(&self, _: &InstanceId, _: &VolumeId) -> Option<u64> {
        Some(0)
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
        false
    }

    async fn keep_history(&self, _: &InstanceId, _: &VolumeId, _: Duration) -> Result<()> {
        Ok(())
    }

    async fn history(&self, _: &VolumeId) -> Result<Option<History>> {
        Ok(None)
    }

    async fn history_window(&self, _: &VolumeId) -> Result<Option<(Window, Vec<Gap>)>> {
        Ok(None)
    }

    async fn back_up(&self, _: &BasePlan) -> Result<Written> {
        Err(EngineError::Other("no store is simulated".to_owned()))
    }

    async fn drill(&self, _: &DrillPlan) -> DrillReport {
        DrillReport::new(DrillResult::Skipped, "there is no store")
    }

    async fn log_from(&self, _: &VolumeId, _: Lsn) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn end_sessions(&self, _: &InstanceId, _: bool) -> Result<()> {
        Ok(())
    }

    async fn is_short_of_room(&self) -> Result<bool> {
        let mut state = self.world.lock();
        let chance = state.faults.failing_steps;
        Ok(state.dice.happens(chance))
    }

    async fn volumes(&self) -> Result<Vec<VolumeLabel>> {
        self.point("listing volumes").await?;
        let state = self.world.lock();
        Ok(state.machines[self.machine].volumes.values().map(|volume| volume.label.clone()).collect())
    }

    async fn quarantine(&self, volume: &VolumeId) -> Result<()> {
        self.point(format!("setting {volume} aside")).await?;
        let mut state = self.world.lock();
        state.machines[self.machine].volumes.remove(volume);
        state.violation(format!("volume {volume} is set aside, and no row was ever lost"));
        Ok(())
    }

    async fn running_instances(&self) -> Result<Vec<InstanceId>> {
        self.point("listing servers").await?;
        Ok(self.world.lock().machines[self.machine].servers.keys().cloned().collect())
    }
}

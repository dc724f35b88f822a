//! Starting and stopping servers, step by step.

use std::collections::BTreeMap;
use std::time::Duration;

use coppice_core::branch::MANAGED_ROLE;
use coppice_core::{InstanceId, VolumeId};
use coppice_engine::{Engine, EngineError, FirstStart, InstanceSpec, Result, SleepingRoles, StopMode};

use super::SimulatedEngine;
use super::machine::check_claim;
use crate::world::Health;

/// A server that hangs is killed after this time.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

impl SimulatedEngine {
    /// [`coppice_engine::Engine::start`]
    pub(super) async fn start_server(&self, spec: &InstanceSpec) -> Result<()> {
        let instance = &spec.instance;
        self.point(format!("starting {instance}")).await?;
        let _guard = self.lock_volume(&spec.volume).await;
        let starts_in = {
            let mut state = self.world.lock();
            check_claim(&mut state, self.machine, &spec.volume, spec.claim)?;
            let now = state.now;
            let running = state.machines[self.machine].servers.get(instance);
            if running.is_some_and(|server| server.ready_at <= now) {
                return Ok(());
            }
            if let Some(primary) = &spec.follows
                && state.serving(self.machine, primary).is_none_or(|(server, _)| server.ready_at > now)
            {
                return Err(EngineError::NotRunning(primary.clone()));
            }
            state.end_server(self.machine, instance, false);
            let starts_in = Duration::from_millis(state.dice.between(20, 3_000));
            self.spawn(&mut state, spec, starts_in);
            starts_in
        };
        self.point_after(format!("waiting for {instance}"), starts_in).await?;
        let mut state = self.world.lock();
        let chance = state.faults.failing_servers;
        if state.dice.happens(chance) {
            state.end_server(self.machine, instance, false);
        }
        match state.machines[self.machine].servers.contains_key(instance) {
            true => Ok(()),
            false => {
                Err(EngineError::StartFailed { instance: instance.clone(), reason: "simulated".to_owned() })
            }
        }
    }

    /// [`coppice_engine::Engine::first_start`]
    pub(super) async fn end_first_start(&self, plan: &FirstStart) -> Result<()> {
        let instance = &plan.spec.instance;
        self.ask("detaching", instance, |_| ()).await?;
        self.is_held(instance)?;
        let (verifier, volume) = (plan.managed_role_verifier.clone(), plan.spec.volume.clone());
        let had_clients = self
            .ask("giving its password to", instance, |data| {
                data.verifier = verifier;
                data.wal += 1;
                data.had_clients
            })
            .await?;
        if had_clients {
            self.world.lock().violation(format!("{instance} had clients before its first start"));
        }
        self.ask("marking the first start of", instance, |data| data.first_start = Some(volume)).await?;
        self.point(format!("ending the first start of {instance}")).await
    }

    /// [`coppice_engine::Engine::stop`]
    pub(super) async fn stop_server(&self, instance: &InstanceId, mode: StopMode) -> Result<()> {
        self.point(format!("stopping {instance}")).await?;
        let hangs = {
            let state = self.world.lock();
            let server = state.machines[self.machine].servers.get(instance);
            server.is_some_and(|server| server.health == Health::Hangs)
        };
        if hangs && mode == StopMode::Fast {
            self.point_after(format!("waiting for the end of {instance}"), STOP_PATIENCE).await?;
        }
        self.world.lock().end_server(self.machine, instance, mode == StopMode::Fast);
        self.point(format!("proving that {instance} has ended")).await
    }

    /// [`coppice_engine::Engine::sleep`]
    pub(super) async fn put_to_sleep(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
    ) -> Result<Option<(SleepingRoles, String)>> {
        let read =
            self.ask("reading the roles of", instance, |data| (data.verifier.clone(), data.wal)).await.ok();
        self.stop_server(instance, StopMode::Fast).await?;
        let checkpoint = self.clean_checkpoint(volume).await?;
        let kept = read.map(|(verifier, wal)| {
            let verifiers = BTreeMap::from([(MANAGED_ROLE.to_owned(), verifier)]);
            (SleepingRoles { verifiers }, wal.to_string())
        });
        Ok(kept.filter(|(_, wal)| checkpoint.as_ref() == Some(wal)))
    }
}

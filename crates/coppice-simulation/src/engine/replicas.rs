//! What a primary keeps for its replicas.

use coppice_core::InstanceId;
use coppice_engine::{ReplicaSlot, Result, SlotState};

use super::SimulatedEngine;

impl SimulatedEngine {
    /// [`coppice_engine::Engine::keep_for_replica`]
    pub(super) async fn keep_log(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        let name = replica.clone();
        self.ask("keeping the log for a replica of", primary, |data| {
            data.slots.insert(name, false);
        })
        .await
    }

    /// [`coppice_engine::Engine::forget_replica`]
    pub(super) async fn drop_slot(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        self.ask("forgetting a replica of", primary, |data| data.slots.remove(replica)).await?;
        let mut state = self.world.lock();
        if state.machines[self.machine].servers.contains_key(replica) {
            state.violation(format!("{replica} is forgotten under its server"));
        }
        Ok(())
    }

    /// [`coppice_engine::Engine::replica_slots`]
    pub(super) async fn slots_of_replicas(&self, primary: &InstanceId) -> Result<Vec<ReplicaSlot>> {
        let overrun = {
            let mut state = self.world.lock();
            let chance = state.faults.failing_servers;
            state.dice.happens(chance)
        };
        let slots = self.ask("looking at the slots of replicas of", primary, |data| {
            data.slots.values_mut().take(1).for_each(|is_lost| *is_lost |= overrun);
            data.slots.clone()
        });
        let slots = slots.await?;
        let state = self.world.lock();
        let servers = &state.machines[self.machine].servers;
        let slots = slots.into_iter().map(|(replica, is_lost)| ReplicaSlot {
            ordinal: replica.ordinal().unwrap_or_default(),
            state: match (is_lost, servers.contains_key(&replica)) {
                (true, _) => SlotState::Lost,
                (false, true) => SlotState::Active,
                (false, false) => SlotState::Idle,
            },
        });
        Ok(slots.collect())
    }
}

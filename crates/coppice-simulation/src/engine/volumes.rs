//! Making and removing volumes, step by step.

use coppice_core::VolumeId;
use coppice_engine::{EngineError, Result, VolumeFacts, VolumePlan};

use super::SimulatedEngine;
use super::machine::{check_claim, facts};
use crate::world::Volume;

impl SimulatedEngine {
    /// [`coppice_engine::Engine::create_volume`]
    pub(super) async fn make_volume(&self, plan: &VolumePlan) -> Result<VolumeFacts> {
        let volume = &plan.label.volume;
        self.point(format!("making {volume}")).await?;
        let _guard = self.lock_volume(volume).await;
        {
            let mut state = self.world.lock();
            if state.machines[self.machine].volumes.contains_key(volume) {
                check_claim(&mut state, self.machine, volume, plan.label.claim)?;
                return Ok(facts(&state.machines[self.machine].volumes[volume].data));
            }
            state.machines[self.machine].staging.insert(volume.clone(), plan.label.clone());
        }
        self.point(format!("copying into {volume}")).await?;
        let data = self.copy(&self.world.lock(), plan)?;
        self.point(format!("moving {volume} into place")).await?;
        {
            let mut state = self.world.lock();
            let machine = &mut state.machines[self.machine];
            if machine.volumes.contains_key(volume) {
                check_claim(&mut state, self.machine, volume, plan.label.claim)?;
            } else {
                // Whoever began anew meanwhile has cleared it away.
                let staged = machine.staging.get(volume).is_some_and(|label| *label == plan.label);
                if !staged {
                    return Err(EngineError::Other(format!("{volume} is being made by somebody else")));
                }
                machine.staging.remove(volume);
                let label = plan.label.clone();
                machine.volumes.insert(volume.clone(), Volume { label, data: data.clone() });
                state.note(format!("volume {volume} is complete"));
            }
        }
        self.point(format!("reading what {volume} is")).await?;
        Ok(facts(&data))
    }

    /// [`coppice_engine::Engine::remove_volume`]
    pub(super) async fn clear_volume(&self, volume: &VolumeId) -> Result<()> {
        self.point(format!("removing {volume}")).await?;
        let _guard = self.lock_volume(volume).await;
        {
            let mut state = self.world.lock();
            let machine = &mut state.machines[self.machine];
            machine.staging.remove(volume);
            let is_used = machine.servers.values().any(|server| server.volume == *volume);
            let was_there = machine.volumes.remove(volume).is_some();
            if is_used {
                state.violation(format!("volume {volume} is removed under its server"));
            }
            if was_there {
                state.removed.push(volume.clone());
                state.note(format!("volume {volume} is gone"));
            }
        }
        self.point(format!("emptying the trash of {volume}")).await
    }
}

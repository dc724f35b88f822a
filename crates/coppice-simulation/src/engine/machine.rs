//! What steps do to volumes and servers, each at once.

use std::collections::BTreeMap;
use std::time::Duration;

use coppice_core::VolumeId;
use coppice_core::claim::ClaimToken;
use coppice_core::volume::VolumeSource;
use coppice_engine::{EngineError, InstanceSpec, Result, VolumeFacts, VolumePlan};
use tokio::sync::watch;

use super::SimulatedEngine;
use crate::world::{Data, Health, Server, State};

impl SimulatedEngine {
    /// The data of a new volume.
    pub(super) fn copy(&self, state: &State, plan: &VolumePlan) -> Result<Data> {
        let machine = &state.machines[self.machine];
        let VolumeSource::Volume(source) = &plan.source else {
            return Ok(Data { verifier: "template".to_owned(), ..Data::default() });
        };
        let starting = plan.source_instance.as_ref().and_then(|instance| machine.servers.get(instance));
        if starting.is_some_and(|server| server.ready_at > state.now) {
            return Err(EngineError::SourceUnsettled(source.clone()));
        }
        let volume = machine.volumes.get(source).ok_or_else(|| EngineError::NoVolume(source.clone()))?;
        Ok(Data { had_clients: false, is_clean: false, slots: BTreeMap::new(), ..volume.data.clone() })
    }

    /// Begins a server, which is ready after a while.
    pub(super) fn spawn(&self, state: &mut State, spec: &InstanceSpec, starts_in: Duration) {
        let machine = &mut state.machines[self.machine];
        let is_followed =
            machine.servers.values().any(|server| server.follows.as_ref() == Some(&spec.instance));
        let is_used = machine.servers.values().any(|server| server.volume == spec.volume);
        let server = Server {
            volume: spec.volume.clone(),
            follows: spec.follows.clone(),
            ready_at: state.now + starts_in,
            health: Health::Well,
            settings: spec.settings.iter().cloned().collect(),
            life: watch::channel(()).0,
        };
        machine.servers.insert(spec.instance.clone(), server);
        machine.instance_files.insert(spec.instance.clone());
        if let Some(volume) = machine.volumes.get_mut(&spec.volume) {
            volume.data.is_clean = false;
        }
        state.note(format!("a server of {} is spawned", spec.instance));
        if is_followed {
            state.violation(format!("a server of {} is spawned under its replicas", spec.instance));
        }
        if is_used {
            state.violation(format!("two servers on volume {}", spec.volume));
        }
    }
}

/// Refuses an older claim than the newest that acted on a volume.
pub(super) fn check_claim(
    state: &mut State,
    machine: usize,
    volume: &VolumeId,
    claim: ClaimToken,
) -> Result<()> {
    let is_full = state.is_full;
    let found = state.machines[machine].volumes.get_mut(volume);
    let label = &mut found.ok_or_else(|| EngineError::NoVolume(volume.clone()))?.label;
    if label.claim > claim {
        return Err(EngineError::Fenced(volume.clone()));
    }
    if is_full {
        return Err(EngineError::NoSpace(format!("writing the label of {volume}")));
    }
    label.claim = claim;
    Ok(())
}

pub(super) fn facts(data: &Data) -> VolumeFacts {
    VolumeFacts { system_identifier: "1".to_owned(), timeline: 1, fork_lsn: format!("0/{:X}", data.wal) }
}

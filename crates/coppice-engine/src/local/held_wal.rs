//! Keeping the write-ahead log of running servers.
//!
//! A server removes its log as it likes. A replication slot has it wait for us,
//! also while no `coppice` runs; how much it may hold back is bounded in the
//! server's configuration. Whoever owns a database may be able to drop the slot,
//! and loses history with it, nothing else.

use std::time::Duration;

use coppice_core::lsn::Lsn;
use coppice_core::{InstanceId, VolumeId};
use coppice_turns::Behalf;
use tokio_postgres::types::Type;

use super::blocking::blocking;
use super::session::{Parameter, Session, column};
use super::{LocalEngine, control_file, slots};
use crate::{Engine, EngineError, InstanceSpec, Result, StopMode};

/// What a server was last told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The process that was told.
    pid: u32,
    /// From where on the server keeps its log for us; none when it does not.
    from: Option<Lsn>,
}

impl LocalEngine {
    /// Looks at the log of a volume; what is older than `keep` goes.
    pub(super) async fn look(&self, volume: &VolumeId, keep: Option<Duration>) -> Result<Option<Lsn>> {
        let (volumes, volume) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.look(&volume, keep)).await
    }

    /// Looks at the log of a volume whose server was stopped, or is about to be
    /// started. Keeps nobody from doing so.
    pub(super) async fn look_between(&self, volume: &VolumeId) {
        if let Err(error) = self.look(volume, None).await {
            tracing::warn!(%volume, "the history of volume {volume} is behind: {}", error.chain());
        }
    }

    /// [`Engine::keep_history`]
    pub(super) async fn keep_wal(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
        keep: Duration,
    ) -> Result<()> {
        if !self.volumes.stores_history() {
            return Ok(());
        }
        if let Some(behalf) = Behalf::current() {
            self.volumes.note_holder(volume, behalf.name());
        }
        let from = self.look(volume, Some(keep)).await?;
        let Some(server) = self.host.servers.living(instance) else { return Ok(()) };
        if from.is_none() && self.volumes.has_room_for_history() {
            // Somebody else is at it.
            return Ok(());
        }
        let now = Held { pid: server.pid, from };
        if self.held.lock().get(instance) == Some(&now) {
            return Ok(());
        }
        self.ask(instance, async |session| match from {
            Some(from) => hold(&session, from).await,
            None => release(&session).await,
        })
        .await?;
        let mut held = self.held.lock();
        if held.insert(instance.clone(), now).is_none() {
            held.retain(|instance, _| self.host.servers.living(instance).is_some());
        }
        Ok(())
    }

    /// Stops a server that was to be taken to a moment and is not there: its
    /// recovery ended early.
    pub(super) async fn check_moment(&self, spec: &InstanceSpec) -> Result<()> {
        let Some(moment) = self.volumes.moment(&spec.volume) else { return Ok(()) };
        let data = self.volumes.data_dir(&spec.volume);
        let reached = blocking(move || control_file::checkpoint(&data)).await?.at;
        if reached >= moment {
            return Ok(());
        }
        self.stop(&spec.instance, Some(&spec.volume), StopMode::Immediate).await?;
        Err(EngineError::Other(format!(
            "recovery ended at {reached}, before {moment}: the moment is not reached"
        )))
    }
}

/// Has a server keep its log from a place on.
async fn hold(session: &Session, from: Lsn) -> Result<()> {
    let action = "keeping the write-ahead log";
    let place = from.to_string();
    let both: [Parameter<'_>; 2] = [(&slots::WAL, Type::NAME), (&place, Type::TEXT)];
    let found = "SELECT wal_status IS DISTINCT FROM 'lost' AND slot_type = 'physical', restart_lsn < $2::text::pg_lsn \
                 FROM pg_replication_slots WHERE slot_name = $1";
    let found = session.query_opt(action, found, &both).await?;
    let is_usable = found.as_ref().map_or(Ok(false), |row| column(row, 0))?;
    let is_behind: Option<bool> = found.as_ref().map_or(Ok(None), |row| column(row, 1))?;
    if found.is_some() && !is_usable {
        release(session).await?;
    }
    if !is_usable {
        slots::make(session, slots::WAL).await?;
    } else if is_behind != Some(false) {
        let advance = "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)";
        session.query(action, advance, &both).await?;
    }
    Ok(())
}

/// Has a server keep nothing for us.
async fn release(session: &Session) -> Result<()> {
    slots::drop_named(session, slots::WAL).await
}

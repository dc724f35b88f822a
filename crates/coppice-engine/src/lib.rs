//! Makes branches real in a region.
//!
//! **Owns** the [`Engine`] trait and `local/`: volumes on copy-on-write
//! storage, PostgreSQL images and templates, server processes and their
//! confinement.
//! **Must not know** HTTP or the metastore: whatever it needs to know about a
//! branch is in the arguments of a call.
//! **Start reading** at [`Engine`], then `local/mod.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coppice_core::backup::DrillReport;
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
use tokio::io::{AsyncRead, AsyncWrite};

mod drill;
mod errand;
mod error;
pub mod local;
mod plans;
mod roles;

pub use coppice_archive::Written;
pub use coppice_telemetry::logs::{LogFile, LogFiles, ReadAt};
pub use drill::DrillPlan;
pub use errand::{Errand, on_errand};
pub use error::{EngineError, Result};
pub use plans::{
    BasePlan, FirstStart, InstanceSpec, ReplicaSlot, SlotState, StopMode, UpgradePlan, Upgraded, VolumeFacts,
    VolumePlan,
};
pub use roles::{KeptRole, ROLE_LENGTH_MAX, RoleVerifier, SleepingRoles, VERIFIER_LENGTH_MAX};

/// A byte stream to a PostgreSQL server, before its startup packet.
pub trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ServerStream for T {}

/// A [`ServerStream`] of unknown kind.
pub type BoxedServerStream = Box<dyn ServerStream>;

/// A PostgreSQL release that can be run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The release.
    pub version: PostgresVersion,
}

/// An extension as its control file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionFile {
    /// Its name.
    pub name: String,
    /// The version that is installed by default.
    pub version: String,
    /// What it does.
    pub comment: String,
    /// Whether the owner of a database may create it.
    pub is_trusted: bool,
}

/// What an image brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageContents {
    /// By name.
    pub extensions: Vec<ExtensionFile>,
    /// Names of loadable libraries.
    pub libraries: BTreeSet<String>,
    /// Names of the parameters its server has without any library.
    pub parameters: BTreeSet<String>,
}

/// The size of the machine behind the engine.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// How a server that runs meets a platform session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It answers. Also when its clients have taken every connection: it said so.
    Answers,
    /// It lets nobody in, and says why; or there is nobody at its door.
    Refuses(String),
    /// A transaction keeps others from what belongs to PostgreSQL itself, maybe from beginning
    /// a session, and ends only with the server.
    IsHeld,
    /// It says nothing, and its processes work.
    IsBusy,
    /// It says nothing, and its processes do nothing.
    Hangs,
}

/// How long logs are kept.
#[derive(Clone, Debug)]
pub struct LogRetention {
    /// Files that were last written longer ago are removed.
    pub age: Duration,
    /// Most bytes of one instance; the oldest go first.
    pub bytes_max: u64,
    /// Where the file system that they are on has less room than this, in bytes, instances have fewer: those that
    /// have most lose first.
    pub free_min: u64,
}

/// What makes branches real.
///
/// Every call may be repeated: it looks at what is there and does only what
/// is missing. A call that is cancelled or interrupted by a crash is finished,
/// or cleaned away, by repeating it.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// PostgreSQL releases that can be run, newest last.
    async fn images(&self) -> Result<Vec<Image>>;

    /// What an image brings.
    async fn image_contents(&self, version: PostgresVersion) -> Result<Arc<ImageContents>>;

    /// The size of the machine.
    async fn capacity(&self) -> Result<Capacity>;

    /// Makes a volume and returns when it is complete and durable.
    async fn create_volume(&self, plan: &VolumePlan) -> Result<VolumeFacts>;

    /// Makes a volume of another major version with what is in another one: databases,
    /// roles, owners, privileges and settings. Takes as long as a dump and a restore;
    /// what a server writes to the source meanwhile is not in it.
    ///
    /// [`EngineError::NotUpgradable`] says what stands in the way, for the owner.
    async fn upgrade(&self, plan: &UpgradePlan) -> Result<Upgraded>;

    /// Ends and removes what an upgrade that was abandoned left, but for a volume that
    /// it has made.
    async fn end_upgrade(&self, plan: &UpgradePlan) -> Result<()>;

    /// Removes the data of a volume. The caller holds a tombstone for it.
    /// A volume that is not there is fine; one that carries another
    /// installation's label is an error.
    async fn remove_volume(&self, volume: &VolumeId) -> Result<()>;

    /// Looks at an instance without changing anything.
    async fn observe(&self, instance: &InstanceId, volume: &VolumeId) -> Result<InstanceSeen>;

    /// Starts an instance and returns when it accepts platform sessions.
    /// Whatever is left of an earlier run is killed and proven gone first. A
    /// running one is left alone.
    async fn start(&self, spec: &InstanceSpec) -> Result<()>;

    /// Gives a running instance its settings anew; those that need a restart
    /// wait for one.
    async fn configure(&self, spec: &InstanceSpec) -> Result<()>;

    /// Makes a started copy safe to use: no subscription, replication slot,
    /// prepared transaction or statistic of its source remains, and the
    /// managed role has its own password. After [`EngineError::Held`] it needs
    /// [`Engine::end_holders`] and another start.
    async fn first_start(&self, plan: &FirstStart) -> Result<()>;

    /// Has a running primary keep its log for a replica from now on, if it does
    /// not. To be called before the replica's volume is made.
    async fn keep_for_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()>;

    /// Has a running primary forget a replica, whose server is stopped.
    async fn forget_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()>;

    /// What a running primary keeps for its replicas. Answers within seconds.
    async fn replica_slots(&self, primary: &InstanceId) -> Result<Vec<ReplicaSlot>>;

    /// Stops an instance and proves that nothing of it runs. An instance that
    /// no row knows has no known volume; what was recorded of it is stopped.
    async fn stop(&self, instance: &InstanceId, volume: Option<&VolumeId>, mode: StopMode) -> Result<()>;

    /// Stops an instance cleanly after its clients were cut, and returns what
    /// authenticates clients while it sleeps, with the checkpoint
    /// ([`Engine::clean_checkpoint`]) that this is true for. None when that is
    /// not certain: the server was not running, or changed something after it
    /// was asked.
    async fn sleep(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
    ) -> Result<Option<(SleepingRoles, String)>>;

    /// Where the WAL of a volume ends, if its server was stopped cleanly: no
    /// server can have run since while this stays the same.
    async fn clean_checkpoint(&self, volume: &VolumeId) -> Result<Option<String>>;

    /// Whether a platform session is open that was answered until now, and no answer gave reason
    /// to look closer. Asks nobody, so it costs nothing.
    fn has_answered(&self, instance: &InstanceId) -> bool;

    /// Asks a running server something, on a new session unless one is open, and ends sessions, and rolls
    /// back what is prepared, that keep others from what belongs to PostgreSQL itself. Answers within seconds.
    async fn ask_whether_it_answers(&self, instance: &InstanceId) -> Answer;

    /// Returns when the instance's server has ended, or at once when none runs.
    async fn wait_exit(&self, instance: &InstanceId);

    /// Removes what an instance left outside its volume: configuration, logs,
    /// sockets. It must be stopped.
    async fn remove_instance(&self, instance: &InstanceId) -> Result<()>;

    /// Opens a connection to a running server.
    async fn open(&self, instance: &InstanceId) -> Result<BoxedServerStream>;

    /// What `role` needs to prove, read from the running server; none when
    /// there is no such role, or it is one of the platform's. Answers within
    /// seconds.
    async fn verifier(&self, instance: &InstanceId, role: &str) -> Result<Option<RoleVerifier>>;

    /// The verifier that the managed role of a running server signs in with;
    /// none when it can't sign in, or does not exist. Answers within seconds.
    async fn managed_verifier(&self, instance: &InstanceId) -> Result<Option<String>>;

    /// Sets the managed role's verifier on a running server, and makes the role
    /// usable again whatever its owner did to it. Sessions and prepared
    /// transactions that keep it waiting are ended; after [`EngineError::Held`]
    /// that takes [`Engine::end_holders`]. Answers within seconds.
    async fn set_managed_verifier(&self, instance: &InstanceId, verifier: &str) -> Result<()>;

    /// Makes the role that may only read ([`coppice_core::branch::READER_ROLE`])
    /// on a running server, with this verifier, whatever its owner did to it.
    /// Answers within seconds.
    async fn ensure_reader(&self, instance: &InstanceId, verifier: &str) -> Result<()>;

    /// Makes the login of a key on a running server, whatever its owner did to
    /// it. Answers within seconds.
    async fn ensure_login(&self, instance: &InstanceId, login: &Login) -> Result<()>;

    /// Ends the login of a key on a running server with all its sessions: it is
    /// dropped, or locked where something hangs on it. Answers within seconds.
    async fn end_login(&self, instance: &InstanceId, key: &ApiKeyId) -> Result<()>;

    /// Has nobody write through PostgreSQL's own views on a running server, and nobody but the
    /// managed role in `template1`, unless that is done: a look at a file. Answers within seconds.
    async fn close_system_views(&self, instance: &InstanceId, volume: &VolumeId) -> Result<()>;

    /// Takes the passwords from the roles of a running server, but for the managed
    /// role and those of the platform, and ends the sessions that began before that.
    /// Answers within seconds.
    async fn lock_out(&self, instance: &InstanceId) -> Result<()>;

    /// Ends a session of `role` on a running server, also one that does not let
    /// itself be cancelled. Answers within seconds.
    async fn end_session(&self, instance: &InstanceId, role: &str, process: u32) -> Result<()>;

    /// Stops an instance with all its sessions, and ends these prepared
    /// transactions, which [`EngineError::Held`] named.
    async fn end_holders(&self, instance: &InstanceId, volume: &VolumeId, transactions: &[u32])
    -> Result<()>;

    /// Refuses from now on what older claims want to do with a volume.
    ///
    /// # Errors
    /// [`EngineError::Fenced`] when this claim is an older one,
    /// [`EngineError::NoVolume`] when there is no such volume.
    async fn fence(&self, volume: &VolumeId, claim: ClaimToken) -> Result<()>;

    /// What a running server counted. Answers within seconds.
    async fn statistics(&self, instance: &InstanceId, version: PostgresVersion) -> Result<Observed>;

    /// Whether somebody but its own replicas receives the WAL of a running server
    /// by a replication slot at this moment. Such a connection is the platform's to pass on, not
    /// a client session, and its reader counts on the server being there.
    async fn has_active_slot(&self, instance: &InstanceId) -> Result<bool>;

    /// What an instance has logged, whether or not it runs. Blocks.
    ///
    /// # Errors
    /// When its logs can't be reached. One that never ran has none.
    fn logs(&self, instance: &InstanceId) -> Result<Box<dyn LogFiles>>;

    /// What an instance has done so far, as far as it can be told within a few
    /// seconds. Wakes nothing.
    async fn measure(&self, instance: &InstanceId, volume: &VolumeId) -> InstanceStatistics;

    /// The size of a volume's data as it was last measured, unless that is too
    /// long ago to mean anything.
    fn known_disk_bytes(&self, volume: &VolumeId) -> Option<u64>;

    /// The size of a volume's data now, with what its server has open there or
    /// among its logs without a name, or as it was a moment ago when measuring
    /// it takes long; none when that can't be told in time. It is measured by a turn of whoever
    /// the current task works for.
    async fn disk_bytes(&self, instance: &InstanceId, volume: &VolumeId) -> Option<u64>;

    /// Measures volumes that have changed, whether or not a server runs on them, for
    /// about a second; those that are left have their turn the next time. Each is
    /// measured for a small part of the time only, however large it is.
    async fn measure_volumes(&self) -> Result<()>;

    /// What [`Engine::measure_volumes`] found of a volume; none when it was not
    /// measured yet.
    fn known_volume_bytes(&self, volume: &VolumeId) -> Option<VolumeBytes>;

    /// What a volume has of one database, by its object id, in blocks that another
    /// volume has not at the same place. What servers have not written to their files
    /// yet does not count. Asks no server.
    async fn changed_bytes(
        &self,
        volume: &VolumeId,
        against: &VolumeId,
        database: u32,
    ) -> Result<ChangedBytes>;

    /// Whether history is kept here, as far as there is room.
    fn keeps_history(&self) -> bool;

    /// Looks at the write-ahead log of a running instance, keeps it for so long, and
    /// has the server keep what was not looked at yet. Does nothing where no history
    /// is kept, or while another look goes on. All histories of whoever it is done for
    /// share what one holder's may take.
    async fn keep_history(&self, instance: &InstanceId, volume: &VolumeId, keep: Duration) -> Result<()>;

    /// What is kept of a volume's past, by now; none where nothing is.
    async fn history(&self, volume: &VolumeId) -> Result<Option<History>>;

    /// The moments from and to which there is [`Engine::history`], and the times between
    /// that are not, oldest first; at a smaller price.
    async fn history_window(&self, volume: &VolumeId) -> Result<Option<(Window, Vec<Gap>)>>;

    /// Writes a base of a volume into the store; it may be in use. Blocks that the
    /// newest base of its lineage has are not written again.
    async fn back_up(&self, plan: &BasePlan) -> Result<Written>;

    /// Restores a base for proof, with the log behind it, into a volume that is none:
    /// starts a server there, looks whether what is in it is sound, and removes all of
    /// it. One at a time; skipped where there is no room or memory to spare. Ends
    /// within about an hour.
    async fn drill(&self, plan: &DrillPlan) -> DrillReport;

    /// A part of a volume's write-ahead log that begins at a place, or nothing when it
    /// ends there; none when the log is not kept from there on. Wakes nothing.
    async fn log_from(&self, volume: &VolumeId, from: Lsn) -> Result<Option<Vec<u8>>>;

    /// Ends sessions of clients on a running server: those that have written in
    /// their transaction, or all. Answers within seconds.
    async fn end_sessions(&self, instance: &InstanceId, only_writers: bool) -> Result<()>;

    /// Whether there is so little room for volumes that what nobody needs has to go.
    async fn is_short_of_room(&self) -> Result<bool>;

    /// Labels of all volumes found on disk, for comparison with the metastore.
    async fn volumes(&self) -> Result<Vec<VolumeLabel>>;

    /// Moves a volume that no row knows out of the way, keeping its data.
    async fn quarantine(&self, volume: &VolumeId) -> Result<()>;

    /// Instances of which something runs, whether or not a row knows them.
    async fn running_instances(&self) -> Result<Vec<InstanceId>>;
}

/// An engine shared by the tasks and the gateway.
pub type SharedEngine = Arc<dyn Engine>;

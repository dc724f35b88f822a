//! What the calls of [`Engine`](crate::Engine) are told and what they answer.

use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::storage::Fullness;
use coppice_core::volume::{VolumeLabel, VolumeSource};
use coppice_core::{BranchId, InstanceId, VolumeId};

/// Everything needed to make a volume.
#[derive(Clone, Debug)]
pub struct VolumePlan {
    /// Becomes the volume's label. `label.claim` fences the call: where the
    /// label on disk carries a newer claim, it fails with [`EngineError::Fenced`](crate::EngineError::Fenced).
    pub label: VolumeLabel,
    /// Where the data comes from.
    pub source: VolumeSource,
    /// The source's instance, when the source may be in use by a running server.
    pub source_instance: Option<InstanceId>,
    /// A volume that much of what comes from a store may be like, which then shares its
    /// room.
    pub similar: Option<VolumeId>,
    /// How much the branch may take, in bytes.
    pub storage_bytes: u64,
}

/// What an upgrade came to.
#[derive(Clone, Debug, Default)]
pub struct Upgraded {
    /// What is known of the new volume; none of a trial.
    pub facts: Option<VolumeFacts>,
    /// Names of settings of roles and databases that the new version does not know, and which
    /// memberships and owners no owner may give, that are gone. Empty when the volume was made by an earlier call.
    pub left_out: Vec<String>,
}

/// Everything needed to take a volume to another major version.
#[derive(Clone, Debug)]
pub struct UpgradePlan {
    /// Becomes the label of the new volume, with the release that it is to have;
    /// fences the call as in [`VolumePlan::label`].
    pub label: VolumeLabel,
    /// The volume whose data it gets; it stays as it is.
    pub source: VolumeId,
    /// The source's instance, when a server may run on it.
    pub source_instance: Option<InstanceId>,
    /// The release that the source has.
    pub from: PostgresVersion,
    /// What the branch's server will be, with the account of the new volume.
    pub spec: InstanceSpec,
    /// Whether nothing is kept of it, because only whether it can be done is asked.
    pub is_trial: bool,
}

/// What a base is made of.
#[derive(Clone, Debug)]
pub struct BasePlan {
    /// The volume.
    pub volume: VolumeId,
    /// Its instance, when a server may run on it.
    pub source_instance: Option<InstanceId>,
    /// The volume itself, and those that it is a copy of, nearest first.
    pub lineage: Vec<VolumeId>,
    /// How much its branch may take, in bytes.
    pub storage_bytes: u64,
}

/// Where a new volume stands in the history of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// PostgreSQL's system identifier; parent and child share it.
    pub system_identifier: String,
    /// The timeline of the copy.
    pub timeline: u32,
    /// The position in the source's WAL up to which the copy goes, as
    /// `pg_control` tells (redo location of the last checkpoint for a copy of
    /// a running source), in PostgreSQL's `X/Y` notation.
    pub fork_lsn: String,
}

/// Everything needed to run the server of an instance.
#[derive(Clone, Debug)]
pub struct InstanceSpec {
    /// The instance.
    pub instance: InstanceId,
    /// Its branch.
    pub branch: BranchId,
    /// The volume with its data.
    pub volume: VolumeId,
    /// The primary that it follows, which has to run, if it is a replica.
    pub follows: Option<InstanceId>,
    /// Fences the call, as in [`VolumePlan::label`].
    pub claim: ClaimToken,
    /// The PostgreSQL release to run.
    pub version: PostgresVersion,
    /// Number of the account it runs under, unique among the host's volumes
    /// from when the volume is planned until it is removed.
    pub account: u32,
    /// CPUs it may use, in thousandths.
    pub cpu_millis: u32,
    /// Share of CPU time under contention, relative to other instances.
    pub cpu_weight: u32,
    /// Memory it may use, in bytes.
    pub memory_bytes: u64,
    /// How full its storage is: a full one is read-only, a shut one lets nobody
    /// in but the platform.
    pub fullness: Fullness,
    /// Most that its data, WAL and temporary files may take, in bytes.
    pub storage_bytes: u64,
    /// PostgreSQL parameters from the instance type and the user, in that
    /// order; a later one wins. The platform's own are added by the engine and
    /// can't be overridden.
    pub settings: Vec<(String, String)>,
    /// Libraries that every session has, by name.
    pub preload_libraries: Vec<String>,
}

/// What the first start of a volume has to set.
#[derive(Clone, Debug)]
pub struct FirstStart {
    /// The instance, already started.
    pub spec: InstanceSpec,
    /// Password of the managed role as a SCRAM-SHA-256 verifier (the format
    /// of `pg_authid.rolpassword`), so that the server never sees the password.
    pub managed_role_verifier: String,
}

/// What a primary keeps for one of its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSlot {
    /// The replica's number among the instances of its branch.
    pub ordinal: u32,
    /// How it is.
    pub state: SlotState,
}

/// How far a replica can go on from where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// It receives the log.
    Active,
    /// The log is kept for it.
    Idle,
    /// It was too far behind, and what it lacks is gone.
    Lost,
}

/// How to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Sessions are ended, a checkpoint is written; within a deadline, then
    /// as [`StopMode::Immediate`].
    Fast,
    /// At once, without a checkpoint; for data that is not needed any more.
    Immediate,
}

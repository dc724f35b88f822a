//! Volumes: the copy-on-write directories that hold an instance's data.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::claim::ClaimToken;
use crate::image::PostgresVersion;
use crate::lsn::Lsn;
use crate::{BranchId, HostId, InstallationId, VolumeId};

/// What every volume carries in a file of its own, so that data on disk says
/// whose it is even when the metastore is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLabel {
    /// The installation that made the volume.
    pub installation: InstallationId,
    /// The host that holds it.
    pub host: HostId,
    /// The volume itself.
    pub volume: VolumeId,
    /// The branch it was made for; none for a template.
    pub branch: Option<BranchId>,
    /// The newest claim that acted on it. An older claim must not.
    pub claim: ClaimToken,
    /// The PostgreSQL release that wrote the data.
    pub version: PostgresVersion,
}

/// Where a new volume's data comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeSource {
    /// The template of the image: a base branch.
    Template,
    /// Another volume, as it is now: a child branch.
    Volume(VolumeId),
    /// Another volume, as it was when its write-ahead log ended at this place.
    Moment(VolumeId, Lsn),
    /// A base in the store, by its name, with the log behind it up to a time; with
    /// all of it where none is said.
    Base(String, Option<DateTime<Utc>>),
}

/// How far a volume has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// The row exists; on disk there may be nothing or a half-made copy.
    Planned,
    /// The data is complete on disk; clients were never let in.
    Present,
    /// The first start is done: clients may be let in.
    Admitted,
    /// A tombstone names it; the data is gone or about to be.
    Removed,
}

impl VolumeState {
    /// The name used in the metastore.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Present => "present",
            Self::Admitted => "admitted",
            Self::Removed => "removed",
        }
    }

    /// Reads a name of the metastore.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Planned, Self::Present, Self::Admitted, Self::Removed]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

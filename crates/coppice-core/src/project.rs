//! Projects and their settings.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{OrganizationId, ProjectId};

/// When a branch without clients is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleToZero {
    /// Whether it is at all.
    pub enabled: bool,
    /// Minutes without a client session, 1 to 10080.
    pub inactivity_period_minutes: u32,
}

impl Default for ScaleToZero {
    fn default() -> Self {
        Self { enabled: false, inactivity_period_minutes: 30 }
    }
}

/// A change of a [`ScaleToZero`]; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScaleToZeroChange {
    /// See [`ScaleToZero::enabled`].
    pub enabled: Option<bool>,
    /// See [`ScaleToZero::inactivity_period_minutes`].
    pub inactivity_period_minutes: Option<u32>,
}

impl ScaleToZero {
    /// With a change applied.
    pub fn with(self, change: ScaleToZeroChange) -> Self {
        Self {
            enabled: change.enabled.unwrap_or(self.enabled),
            inactivity_period_minutes: change
                .inactivity_period_minutes
                .unwrap_or(self.inactivity_period_minutes),
        }
    }
}

/// One range of client addresses that may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedRange {
    /// An address or a CIDR block, as it was sent.
    pub cidr: String,
    /// For people; empty when none was given.
    pub description: String,
}

/// Which client addresses may connect to the branches of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpFiltering {
    /// Off means: every address.
    pub enabled: bool,
    /// Allowed ranges; an enabled filter without any admits nobody.
    pub ranges: Vec<AllowedRange>,
}

/// Settings of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectConfiguration {
    /// Default for branches without a parent.
    pub base_branches: ScaleToZero,
    /// Default for branches with a parent.
    pub child_branches: ScaleToZero,
    /// Who may connect.
    pub ip_filtering: IpFiltering,
}

/// A change of a [`ProjectConfiguration`]; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationChange {
    /// See [`ProjectConfiguration::base_branches`].
    pub base_branches: ScaleToZeroChange,
    /// See [`ProjectConfiguration::child_branches`].
    pub child_branches: ScaleToZeroChange,
    /// See [`IpFiltering::enabled`].
    pub ip_filtering_enabled: Option<bool>,
    /// Replaces all of [`IpFiltering::ranges`].
    pub ip_ranges: Option<Vec<AllowedRange>>,
}

impl ProjectConfiguration {
    /// With a change applied.
    pub fn with(self, change: ConfigurationChange) -> Self {
        Self {
            base_branches: self.base_branches.with(change.base_branches),
            child_branches: self.child_branches.with(change.child_branches),
            ip_filtering: IpFiltering {
                enabled: change.ip_filtering_enabled.unwrap_or(self.ip_filtering.enabled),
                ranges: change.ip_ranges.unwrap_or(self.ip_filtering.ranges),
            },
        }
    }
}

/// A project.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// The organization it belongs to.
    pub organization: OrganizationId,
    /// Not unique.
    pub name: String,
    /// Its settings.
    pub configuration: ProjectConfiguration,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

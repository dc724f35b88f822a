//! Projects and their settings.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::image::has_leading_zero;
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

/// Reads an address or a CIDR block (RFC 4632, RFC 4291); host bits are
/// allowed. A block of IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2)
/// means the IPv4 addresses.
pub fn parse_address_range(text: &str) -> Option<IpNet> {
    if text.split_once('/').is_some_and(|(_, length)| has_leading_zero(length)) {
        return None;
    }
    let range = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()?;
    match range {
        IpNet::V6(block) if block.prefix_len() >= 96 => match block.addr().to_ipv4_mapped() {
            Some(address) => Ipv4Net::new(address, block.prefix_len() - 96).ok().map(IpNet::V4),
            None => Some(range),
        },
        IpNet::V4(_) | IpNet::V6(_) => Some(range),
    }
}

impl IpFiltering {
    /// Whether a client with this address may connect.
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_in = |range: &AllowedRange| {
            parse_address_range(&range.cidr).is_some_and(|range| range.contains(&address))
        };
        !self.enabled || self.ranges.iter().any(is_in)
    }
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
    /// Hours after which those are deleted, unless they are told otherwise when
    /// they are made; 0 is never.
    pub child_expiry_hours: u32,
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
    /// See [`ProjectConfiguration::child_expiry_hours`].
    pub child_expiry_hours: Option<u32>,
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
            child_expiry_hours: change.child_expiry_hours.unwrap_or(self.child_expiry_hours),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(enabled: bool, ranges: &[&str], address: &str) -> bool {
        let range = |cidr: &&str| AllowedRange { cidr: (*cidr).to_owned(), description: String::new() };
        let filter = IpFiltering { enabled, ranges: ranges.iter().map(range).collect() };
        filter.admits(address.parse().expect("an address"))
    }

    #[test]
    fn address_ranges_are_recognised() {
        for text in ["10.0.0.1", "10.1.2.3/8", "::1", "2001:db8::/32", "0.0.0.0/0", "::ffff:10.0.0.0/104"] {
            assert!(parse_address_range(text).is_some(), "{text}");
        }
        for text in [
            "",
            "10.0.0",
            "10.0.0.1/33",
            "10.0.0.1/",
            "::1/129",
            "a/8",
            "10.0.0.1/+8",
            "1.2.3.4/08",
            "::1/064",
        ] {
            assert!(parse_address_range(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_filter_admits_its_ranges_only() {
        assert!(admits(true, &["192.0.2.0/24", "2001:db8::/32"], "192.0.2.77"));
        assert!(admits(true, &["192.0.2.0/24", "2001:db8::/32"], "2001:db8::1"));
        assert!(!admits(true, &["192.0.2.0/24"], "192.0.3.1"));
        assert!(admits(true, &["192.0.2.9/24"], "192.0.2.1"), "host bits do not matter");
        assert!(admits(true, &["192.0.2.1"], "::ffff:192.0.2.1"), "mapped addresses are IPv4 addresses");
        assert!(admits(true, &["::ffff:192.0.2.0/120"], "192.0.2.1"), "mapped ranges too");
    }

    #[test]
    fn a_filter_without_ranges_admits_nobody_unless_it_is_off() {
        assert!(!admits(true, &[], "127.0.0.1"));
        assert!(admits(false, &["192.0.2.0/24"], "127.0.0.1"));
    }
}

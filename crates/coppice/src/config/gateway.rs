//! How many clients the gateway takes: flags, variables, or the file.

use std::num::NonZeroU32;

use clap::Args;
use coppice_gateway::ConnectionLimits;
use serde::Deserialize;

/// Connections that are not exceeded however many descriptors there are.
const CONNECTIONS_MAX: usize = 10_000;
const STARTING_PER_ADDRESS: usize = 256;
const FAILURES_PER_MINUTE: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// Settings as they can be written in each place.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GatewayArgs {
    /// Connections to the gateway [default: 10000, or as many as there are descriptors for]
    #[arg(long, env = "COPPICE_GATEWAY_CONNECTIONS", value_name = "N")]
    #[serde(rename = "connections")]
    gateway_connections: Option<NonZeroU32>,
    /// Those of one address that have signed in [default: half of all]
    #[arg(long, env = "COPPICE_GATEWAY_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    #[serde(rename = "connections_per_address")]
    gateway_connections_per_address: Option<NonZeroU32>,
    /// Those of one address that have not signed in yet [default: 256]
    #[arg(long, env = "COPPICE_GATEWAY_STARTING_PER_ADDRESS", value_name = "N")]
    #[serde(rename = "starting_per_address")]
    gateway_starting_per_address: Option<NonZeroU32>,
    /// Sign-ins as one role of a branch that may fail within a minute, of one address; five
    /// times as many in all roles [default: 20]
    #[arg(long, env = "COPPICE_GATEWAY_FAILURES_PER_MINUTE", value_name = "N")]
    #[serde(rename = "failures_per_minute")]
    gateway_failures_per_minute: Option<NonZeroU32>,
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct ClientLimits {
    connections: Option<usize>,
    per_address: Option<usize>,
    starting_per_address: usize,
    pub(crate) failures_per_minute: NonZeroU32,
}

impl GatewayArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            gateway_connections: self.gateway_connections.or(other.gateway_connections),
            gateway_connections_per_address: self
                .gateway_connections_per_address
                .or(other.gateway_connections_per_address),
            gateway_starting_per_address: self
                .gateway_starting_per_address
                .or(other.gateway_starting_per_address),
            gateway_failures_per_minute: self
                .gateway_failures_per_minute
                .or(other.gateway_failures_per_minute),
        }
    }

    pub(super) fn limits(self) -> ClientLimits {
        let number = |chosen: Option<NonZeroU32>| chosen.map(|number| number.get() as usize);
        ClientLimits {
            connections: number(self.gateway_connections),
            per_address: number(self.gateway_connections_per_address),
            starting_per_address: number(self.gateway_starting_per_address).unwrap_or(STARTING_PER_ADDRESS),
            failures_per_minute: self.gateway_failures_per_minute.unwrap_or(FAILURES_PER_MINUTE),
        }
    }
}

impl ClientLimits {
    /// Where so many are possible.
    ///
    /// # Errors
    /// The number of connections that was chosen and that they don't suffice for,
    /// and the one that they do.
    pub(crate) fn connections(&self, possible: usize) -> anyhow::Result<ConnectionLimits> {
        let total = self.connections.unwrap_or(possible.min(CONNECTIONS_MAX));
        anyhow::ensure!(
            (1..=possible).contains(&total),
            "{total} connections to the gateway need more descriptors than there are, which suffice for {possible}: \
             raise the limit of open files (LimitNOFILE of a service, ulimit -n), or set fewer by --gateway-connections",
        );
        Ok(ConnectionLimits {
            total,
            per_address: self.per_address.unwrap_or(total.div_ceil(2)),
            starting: total.div_ceil(2),
            starting_per_address: self.starting_per_address,
        })
    }
}

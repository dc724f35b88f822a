//! How the gateway treats its clients.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use coppice_core::proxies::TrustedProxies;

/// Who may connect without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// Nobody.
    Never,
    /// Clients on this machine.
    Loopback,
    /// Everybody; for networks that are encrypted by other means.
    Always,
}

impl Plaintext {
    /// Whether a client at this address may stay without TLS.
    pub(crate) fn allows(self, client: IpAddr) -> bool {
        match self {
            Self::Never => false,
            Self::Loopback => client.to_canonical().is_loopback(),
            Self::Always => true,
        }
    }
}

/// How many connections there may be at the same time. An address of IPv6
/// counts with its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub total: usize,
    /// Of one address, among those that have signed in.
    pub per_address: usize,
    /// Among those that have not signed in yet.
    pub starting: usize,
    /// Of one address, among those that have not signed in yet.
    pub starting_per_address: usize,
}

/// Settings of a [`crate::Gateway`].
#[derive(Debug)]
pub struct GatewayConfig {
    /// Branches are reached as `<branch>.<domain>`.
    pub domain: Option<String>,
    /// Who may connect without TLS.
    pub plaintext: Plaintext,
    /// Who may say by a PROXY header where a client is.
    pub trusted_proxies: TrustedProxies,
    /// From the first byte to the end of authentication; the time a client
    /// waits for a branch to become ready does not count.
    pub startup_timeout: Duration,
    /// Longest time a client waits for a branch to become ready.
    pub wake_timeout: Duration,
    /// Longest time a client of a pool waits for a session; longer than a wake.
    pub queue_timeout: Duration,
    /// How long a pool keeps a session that nobody uses. As long as it does, the
    /// branch is in use.
    pub pooled_idle_timeout: Duration,
    /// How many connections there may be at the same time, but for those of visitors.
    pub limits: ConnectionLimits,
    /// How many there may be of visitors, each of whom has one to whoever took them in.
    pub visitors: ConnectionLimits,
    /// Sign-ins as one role of a branch that may fail within a minute, of one
    /// address; more in all, see `failures.rs`.
    pub failures_per_minute: NonZeroU32,
    /// How long open sessions may go on after the gateway was told to stop.
    pub drain_timeout: Duration,
    /// Makes up salts for roles that don't exist. As long as it stays the
    /// same, so do they.
    pub fake_salt_secret: [u8; 32],
}

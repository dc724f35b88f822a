//! How the gateway treats its clients.

use std::net::IpAddr;
use std::time::Duration;

use coppice_core::proxies::TrustedProxies;

use crate::Certificate;

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

/// Settings of a [`crate::Gateway`].
#[derive(Debug)]
pub struct GatewayConfig {
    /// Shown to clients that use TLS.
    pub certificate: Certificate,
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
    /// Clients served at the same time.
    pub connections_max: usize,
    /// How long open sessions may go on after the gateway was told to stop.
    pub drain_timeout: Duration,
    /// Makes up salts for roles that don't exist. As long as it stays the
    /// same, so do they.
    pub fake_salt_secret: [u8; 32],
}

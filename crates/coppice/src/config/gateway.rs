//! Where the gateway is, what it shows, and how many clients it takes: flags,
//! variables, or the file.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use coppice_app::GatewayPlace;
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
    /// PEM file with the gateway's certificate and those between it and its authority; read again
    /// when it changes [default: a self-signed one]
    #[arg(long, env = "COPPICE_GATEWAY_CERTIFICATE", value_name = "FILE")]
    #[serde(rename = "certificate")]
    gateway_certificate: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, env = "COPPICE_GATEWAY_KEY", value_name = "FILE")]
    #[serde(rename = "key")]
    gateway_key: Option<PathBuf>,
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
            gateway_certificate: self.gateway_certificate.or(other.gateway_certificate),
            gateway_key: self.gateway_key.or(other.gateway_key),
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

    /// Files of the certificate and its key.
    ///
    /// # Errors
    /// When only one of the two is set.
    pub(super) fn certificate(&self) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
        match (&self.gateway_certificate, &self.gateway_key) {
            (None, None) => Ok(None),
            (Some(chain), Some(key)) => Ok(Some((chain.clone(), key.clone()))),
            (Some(_), None) => bail!("a certificate needs its key: name the file by --gateway-key"),
            (None, Some(_)) => {
                bail!("a key needs its certificate: name the file by --gateway-certificate")
            }
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

/// What clients are told of where the gateway is; what is not set follows from
/// the address that is listened on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PublicGateway {
    host: Option<String>,
    port: Option<u16>,
}

impl PublicGateway {
    /// Reads `HOST` or `HOST:PORT`; an IPv6 address with a port stands in brackets.
    ///
    /// # Errors
    /// When it is neither.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let parsed = Self::host_and_port(text).filter(|(host, port)| is_host(host) && *port != Some(0));
        let Some((host, port)) = parsed else {
            bail!(
                "the public gateway `{text}` is no place that clients can connect to: write for example \
                 db.example.com or db.example.com:5432"
            )
        };
        Ok(Self { host: Some(host.to_owned()), port })
    }

    fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
        if let Some(bracketed) = text.strip_prefix('[') {
            let (host, rest) = bracketed.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            return match rest.strip_prefix(':') {
                Some(port) => Some((host, Some(port.parse().ok()?))),
                None => rest.is_empty().then_some((host, None)),
            };
        }
        match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => Some((text, None)),
            Some((host, port)) => Some((host, Some(port.parse().ok()?))),
            None => Some((text, None)),
        }
    }

    /// Where clients reach a gateway that listens there.
    pub(crate) fn place(&self, listen: SocketAddr, has_domain: bool) -> GatewayPlace {
        if self.host.is_none() && !has_domain && listen.ip().is_unspecified() {
            tracing::warn!(
                "connection strings say {}, which is no place to connect to: name this machine by --public-gateway",
                listen.ip()
            );
        }
        GatewayPlace {
            host: self.host.clone().unwrap_or_else(|| listen.ip().to_string()),
            port: self.port.unwrap_or(listen.port()),
        }
    }
}

/// Whether this is an address, or a name as DNS has them.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(is_fine)
    };
    let is_address = text.parse::<IpAddr>().is_ok_and(|address| !address.is_unspecified());
    // Numbers alone would be a mistyped address.
    let is_name =
        text.len() <= 253 && text.split('.').all(is_label) && text.bytes().any(|b| b.is_ascii_alphabetic());
    is_address || is_name
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_gateway_is_a_host_and_perhaps_a_port() {
        let listen: SocketAddr = "0.0.0.0:7432".parse().expect("an address");
        for (text, host, port) in [
            ("db.example.com", "db.example.com", 7432),
            ("db.example.com:5432", "db.example.com", 5432),
            ("192.0.2.7", "192.0.2.7", 7432),
            ("192.0.2.7:1", "192.0.2.7", 1),
            ("2001:db8::7", "2001:db8::7", 7432),
            ("[2001:db8::7]", "2001:db8::7", 7432),
            ("[2001:db8::7]:5432", "2001:db8::7", 5432),
        ] {
            let place = PublicGateway::parse(text).expect(text).place(listen, false);
            assert_eq!(place, GatewayPlace { host: host.to_owned(), port }, "{text}");
        }
        let default = PublicGateway::default().place("127.0.0.1:7432".parse().expect("an address"), false);
        assert_eq!(default, GatewayPlace { host: "127.0.0.1".to_owned(), port: 7432 });
        for text in [
            "",
            ":5432",
            "db.example.com:",
            "db.example.com:0",
            "db.example.com:65536",
            "postgres://db.example.com",
            "a b",
            "a..b",
            "0.0.0.0",
            "::",
            "[::1",
            "[::1]5432",
            "[db]:1",
            "192.0.2",
            "a/b",
            "a@b",
        ] {
            assert!(PublicGateway::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_certificate_and_its_key_are_named_together() {
        let args = |certificate: Option<&str>, key: Option<&str>| GatewayArgs {
            gateway_certificate: certificate.map(PathBuf::from),
            gateway_key: key.map(PathBuf::from),
            ..GatewayArgs::default()
        };
        assert!(args(None, None).certificate().expect("none").is_none());
        assert!(args(Some("a"), Some("b")).certificate().expect("both").is_some());
        let error = args(Some("a"), None).certificate().expect_err("no key").to_string();
        assert!(error.contains("--gateway-key"), "{error}");
        let error = args(None, Some("b")).certificate().expect_err("no certificate").to_string();
        assert!(error.contains("--gateway-certificate"), "{error}");
    }
}

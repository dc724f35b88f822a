//! Proxies whose word about a client's address is believed.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::project::parse_address_range;

/// Addresses of proxies that are believed when they say where a client is;
/// nobody by default. Whoever connects from one of them can claim any address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Reads addresses and CIDR blocks, IPv4 or IPv6.
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn parse<T: AsRef<str>>(ranges: &[T]) -> Result<Self, &str> {
        let read = |text: &'_ T| parse_address_range(text.as_ref().trim());
        match ranges.iter().find(|text| read(text).is_none()) {
            Some(text) => Err(text.as_ref()),
            None => Ok(Self(ranges.iter().filter_map(read).collect())),
        }
    }

    /// Whether the one at this address is believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_trusted_unless_listed() {
        let trusts = |ranges: &[&str], address: &str| {
            TrustedProxies::parse(ranges).expect("ranges").trusts(address.parse().expect("an address"))
        };
        assert!(!trusts(&[], "127.0.0.1"));
        assert!(trusts(&["10.0.0.0/8", "::1"], "10.1.2.3"));
        assert!(trusts(&["10.0.0.0/8", "::1"], "::1"));
        assert!(trusts(&["10.0.0.0/8"], "::ffff:10.1.2.3"), "mapped addresses are IPv4 addresses");
        assert!(!trusts(&["10.0.0.0/8", "::1"], "11.0.0.1"));
        assert!(!trusts(&["0.0.0.0/0"], "2001:db8::1"));
    }

    #[test]
    fn what_is_no_address_is_named() {
        assert_eq!(TrustedProxies::parse(&["::1", "proxy.example"]), Err("proxy.example"));
        assert_eq!(TrustedProxies::parse(&[""]), Err(""));
    }
}

//! Addresses that the platform may connect to on behalf of its tenants.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::project::parse_address_range;

/// Blocks of IPv4 that are not the internet's (IANA's registry of special
/// addresses, and multicast): the host itself, private networks, those of
/// carriers, links, documentation, benchmarks, relays, what is reserved.
const SPECIAL_V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// The part of IPv6 that is given out.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Blocks in it that are not the internet's: protocols (Teredo among them),
/// documentation, and 6to4, which leads to any address of IPv4.
const SPECIAL_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// Leads to the address of IPv4 that its last 32 bits are (RFC 6052).
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Where tenants may have the platform connect to: everywhere on the internet,
/// and the operator's exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachable(Vec<IpNet>);

impl Reachable {
    /// Reads the exceptions: addresses and CIDR blocks, IPv4 or IPv6.
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn parse<T: AsRef<str>>(ranges: &[T]) -> Result<Self, &str> {
        let read = |text: &T| parse_address_range(text.as_ref().trim()).ok_or(());
        match ranges.iter().find(|text| read(text).is_err()) {
            Some(text) => Err(text.as_ref()),
            None => Ok(Self(ranges.iter().flat_map(read).collect())),
        }
    }

    /// Whether there are exceptions.
    pub fn has_exceptions(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether the operator allows this address, whatever it is.
    pub fn is_exception(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(&address))
    }

    /// Whether this address may be connected to.
    pub fn admits(&self, address: IpAddr) -> bool {
        self.is_exception(address) || is_public(address)
    }
}

/// Whether an address is one of the internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !SPECIAL_V4.into_iter().any(|block| is_in_v4(address, block)),
        IpAddr::V6(address) if is_in_v6(address, NAT64) => {
            let [.., a, b, c, d] = address.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(address) => {
            is_in_v6(address, GLOBAL_V6) && !SPECIAL_V6.into_iter().any(|block| is_in_v6(address, block))
        }
    }
}

fn is_in_v4(address: Ipv4Addr, (first, length): (Ipv4Addr, u8)) -> bool {
    Ipv4Net::new(first, length).is_ok_and(|block| block.contains(&address))
}

fn is_in_v6(address: Ipv6Addr, (first, length): (Ipv6Addr, u8)) -> bool {
    Ipv6Net::new(first, length).is_ok_and(|block| block.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(ranges: &[&str], addresses: &[&str]) -> Vec<bool> {
        let reachable = Reachable::parse(ranges).expect("ranges");
        let one = |address: &&str| reachable.admits(address.parse().expect("an address"));
        addresses.iter().map(one).collect()
    }

    #[test]
    fn the_internet_is_reached() {
        let public = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2003::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
        ];
        assert_eq!(admitted(&[], &public), [true; 16]);
    }

    #[test]
    fn inner_addresses_are_refused_in_every_guise() {
        for inner in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            let mapped = [inner.to_owned(), format!("::ffff:{inner}"), format!("64:ff9b::{inner}")];
            assert_eq!(admitted(&[], &mapped.each_ref().map(String::as_str)), [false; 3], "{inner}");
        }
        for inner in [
            "::",
            "::1",
            "::127.0.0.1",
            "64:ff9b:1::7f00:1",
            "100::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:101:101::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
        ] {
            assert_eq!(admitted(&[], &[inner]), [false], "{inner}");
        }
    }

    #[test]
    fn the_operator_may_allow_ranges() {
        let ranges = ["127.0.0.0/8", "fd00::/8"];
        let addresses = ["127.0.0.1", "::ffff:127.0.0.1", "fd00::1", "10.0.0.1", "::1", "1.1.1.1"];
        assert_eq!(admitted(&ranges, &addresses), [true, true, true, false, false, true]);
        assert_eq!(Reachable::parse(&["10.0.0.0/8", "inside"]), Err("inside"));
        assert!(!Reachable::default().has_exceptions());
    }
}

//! Who is behind an address of the network.

use std::net::{IpAddr, Ipv6Addr};

/// Groups of an IPv6 address that name the network; within it whoever has it
/// may use any address.
const NETWORK_GROUPS: usize = 4;

/// What tells one source of connections from another: an IPv4 address, and of
/// IPv6 the first address of the /64.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let mut groups = address.segments();
            groups[NETWORK_GROUPS..].fill(0);
            IpAddr::V6(Ipv6Addr::from(groups))
        }
    }
}

/// The network that is often one party's altogether: of IPv4 the /24, of IPv6 the /48 that a site gets (RFC 6177).
pub fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            IpAddr::from([a, b, c, 0])
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            IpAddr::from([a, b, c, 0, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_party() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
            ("2001:db8:1:3::6", "2001:db8:1:3::"),
            ("::1", "::"),
        ] {
            let found = source(address.parse().expect("an address"));
            assert_eq!(found.to_string(), expected, "{address}");
        }
    }

    #[test]
    fn a_site_has_all_networks_of_its_own() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.0"),
            ("::ffff:192.0.2.7", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        ] {
            let [address, expected] = [address, expected].map(|text| text.parse().expect("an address"));
            assert_eq!(site(address), expected);
        }
    }
}

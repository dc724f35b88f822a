//! Where the client of a request is: who connected, or whom a trusted proxy
//! names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use coppice_core::proxies::TrustedProxies;

/// Each proxy on the way adds at the end who came to it.
static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the client who sent a request.
pub(crate) fn client_address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip().to_canonical());
    match parts.extensions.get::<Arc<TrustedProxies>>() {
        Some(trusted) => behind(peer, &parts.headers, trusted),
        None => peer,
    }
}

/// What proxies add to a request, and what browsers add to one of a page.
const SENT_BY_OTHERS: [&str; 7] =
    ["cdn-loop", "forwarded", "origin", "true-client-ip", "via", "x-client-ip", "x-cluster-client-ip"];
/// How the names of more begin that proxies add, each some of them.
const ADDED_BY_PROXIES: [&str; 5] = ["cf-", "x-envoy-", "x-forwarded-", "x-original-", "x-real-"];

fn is_sent_by_others(name: &HeaderName) -> bool {
    let name = name.as_str();
    SENT_BY_OTHERS.contains(&name) || ADDED_BY_PROXIES.iter().any(|beginning| name.starts_with(beginning))
}

/// Whether a request comes from a program on this machine, which asks for
/// itself: not from a proxy, trusted or not, and not from a page in a browser.
pub(crate) fn is_from_this_machine(parts: &Parts) -> bool {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let is_local = peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback());
    is_local && !parts.headers.keys().any(is_sent_by_others)
}

/// Goes back from proxy to proxy as long as they are trusted: whoever is not
/// may have made up everything that stands before its own address.
fn behind(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    let mut client = peer;
    for line in headers.get_all(&FORWARDED_FOR).iter().rev() {
        for hop in line.to_str().unwrap_or_default().rsplit(',') {
            match read(hop.trim()) {
                Some(next) if trusted.trusts(client) => client = next,
                Some(_) | None => return client,
            }
        }
    }
    client
}

/// An address, which some proxies send with a port.
fn read(hop: &str) -> Option<IpAddr> {
    let bare = hop.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().or_else(|_| hop.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, Request};

    use super::*;

    fn found(trusted: &[&str], peer: &str, lines: &[&str]) -> String {
        let trusted = TrustedProxies::parse(trusted).expect("ranges");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&FORWARDED_FOR, HeaderValue::from_bytes(line.as_bytes()).expect("a value"));
        }
        behind(peer.parse().expect("an address"), &headers, &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_says_who_is_behind_it() {
        for (trusted, lines, expected) in [
            (&[][..], &["198.51.100.1"][..], "10.0.0.1"),
            (&["10.0.0.0/8"], &[], "10.0.0.1"),
            (&["10.0.0.0/8"], &["198.51.100.1"], "198.51.100.1"),
            (&["192.0.2.0/24"], &["198.51.100.1"], "10.0.0.1"),
            // What the client itself sent stands first and does not count.
            (&["10.0.0.0/8"], &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            (&["10.0.0.0/8"], &["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
            // A chain of trusted ones.
            (&["10.0.0.0/8"], &["203.0.113.9,198.51.100.1 , 10.0.0.2"], "198.51.100.1"),
            (&["10.0.0.0/8"], &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // What makes no sense ends it.
            (&["10.0.0.0/8"], &["198.51.100.1, unknown"], "10.0.0.1"),
            (&["10.0.0.0/8"], &["198.51.100.1, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["10.0.0.0/8"], &[""], "10.0.0.1"),
            (&["10.0.0.0/8"], &["198.51.100.\u{e9}"], "10.0.0.1"),
        ] {
            assert_eq!(found(trusted, "10.0.0.1", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_program_asks_for_itself_where_no_header_is_of_a_proxy_or_a_page() {
        let asks_for_itself = |header: &'static str| {
            let request = Request::get("/metrics").header(header, "x").body(()).expect("a request");
            let (mut parts, ()) = request.into_parts();
            parts.extensions.insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))));
            is_from_this_machine(&parts)
        };
        for own in ["host", "user-agent", "accept", "x-prometheus-scrape-timeout-seconds", "traceparent"] {
            assert!(asks_for_itself(own), "{own}");
        }
        for others in [
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Port",
            "X-Forwarded-Proto",
            "X-Real-IP",
            "X-Client-IP",
            "X-Original-Forwarded-For",
            "X-Envoy-External-Address",
            "CF-Connecting-IP",
            "True-Client-IP",
            "CDN-Loop",
            "Forwarded",
            "Via",
            "Origin",
        ] {
            assert!(!asks_for_itself(others), "{others}");
        }
    }

    #[test]
    fn addresses_come_in_several_forms() {
        for (hop, expected) in [
            ("198.51.100.1:4711", "198.51.100.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("::ffff:198.51.100.1", "198.51.100.1"),
        ] {
            assert_eq!(found(&["::1"], "::1", &[hop]), expected, "{hop}");
        }
    }
}

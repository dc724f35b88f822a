//! Addresses that may connect, and addresses that may not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use coppice_core::branch::BranchState;

use crate::gateway::TestGateway;

#[tokio::test]
async fn an_address_outside_the_filter_is_told_so_when_it_has_signed_in_and_not_before() {
    let gateway = TestGateway::start().await;
    gateway.admit_only("192.0.2.0/24");
    let answer = gateway.refusal("").await;
    assert!(answer.contains("connections from 127.0.0.1 are not allowed"), "{answer}");
    let stranger = gateway.refusal("password=wrong").await;
    assert!(stranger.contains("password authentication failed"), "{stranger}");
    gateway.admit_only("127.0.0.0/8");
    assert_eq!(gateway.query("", "select 1").await, "1");
}

#[tokio::test]
async fn a_filter_holds_for_the_next_client_and_not_for_those_who_are_in() {
    let gateway = TestGateway::start().await;
    let client = gateway.connect().await;
    gateway.admit_only("192.0.2.0/24");
    let answer = gateway.refusal("").await;
    assert!(answer.contains("connections from 127.0.0.1 are not allowed"), "{answer}");
    assert!(client.simple_query("select 1").await.is_ok());
}

#[tokio::test]
async fn an_address_outside_the_filter_wakes_nothing_and_waits_for_nothing() {
    let gateway = TestGateway::start().await;
    gateway.may_wake.store(true, Ordering::Relaxed);
    gateway.admit_only("192.0.2.0/24");
    gateway.state.send_replace(BranchState::Hibernated);
    let answer = gateway.refusal("").await;
    assert!(answer.contains("connections from 127.0.0.1 are not allowed"), "{answer}");
    // Nobody can be asked, and so nobody is let in.
    gateway.state.send_replace(BranchState::Waking);
    let answer = gateway.refusal("").await;
    assert!(answer.contains("password authentication failed"), "{answer}");
    assert_eq!(gateway.wakes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn ipv6_addresses_are_compared_with_ipv6_ranges() {
    let gateway = TestGateway::on(Ipv6Addr::LOCALHOST.into(), |_| {}).await;
    assert_eq!(gateway.address.ip(), IpAddr::from(Ipv6Addr::LOCALHOST));
    for elsewhere in ["2001:db8::/32", "::2", "0.0.0.0/0", "::ffff:0.0.0.0/96"] {
        gateway.admit_only(elsewhere);
        let answer = gateway.refusal("").await;
        assert!(answer.contains("connections from ::1 are not allowed"), "{elsewhere}: {answer}");
    }
    for here in ["::1", "::/0", "::1/128", "0:0:0:0:0:0:0:9/124"] {
        gateway.admit_only(here);
        assert_eq!(gateway.query("", "select 1").await, "1", "{here}");
    }
}

/// A socket for both kinds of addresses sees IPv4 clients as mapped ones.
#[tokio::test]
async fn an_ipv4_client_of_an_ipv6_socket_has_its_ipv4_address() {
    let gateway = TestGateway::on(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), |_| {}).await;
    let reach = "host=127.0.0.1";
    for elsewhere in ["192.0.2.0/24", "::/0", "::1"] {
        gateway.admit_only(elsewhere);
        let answer = gateway.refusal(reach).await;
        assert!(answer.contains("connections from 127.0.0.1 are not allowed"), "{elsewhere}: {answer}");
    }
    for here in ["127.0.0.1", "127.0.0.0/8", "::ffff:127.0.0.1", "::ffff:127.0.0.0/104"] {
        gateway.admit_only(here);
        assert_eq!(gateway.query(reach, "select 1").await, "1", "{here}");
    }
}

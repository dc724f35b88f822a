//! Branches that are not ready, and a gateway that stops.

use std::time::Duration;

use coppice_core::branch::BranchState;
use tokio::net::TcpStream;

use crate::gateway::{TestGateway, eventually};

#[tokio::test]
async fn a_client_waits_until_its_branch_is_ready() {
    let gateway = TestGateway::start().await;
    gateway.state.send_replace(BranchState::Waking);
    let query = gateway.query("", "select 1");
    let wake = async {
        eventually("the client waits", async || gateway.state.receiver_count() > 1).await;
        gateway.state.send_replace(BranchState::Ready);
    };
    assert_eq!(tokio::join!(query, wake).0, "1");
}

#[tokio::test]
async fn a_branch_that_does_not_become_ready_in_time_says_so() {
    let gateway = TestGateway::with(|config| config.wake_timeout = Duration::from_millis(100)).await;
    gateway.state.send_replace(BranchState::Failed);
    let answer = gateway.refusal("").await;
    assert!(answer.contains("FATAL:  the branch is not ready\n"), "{answer}");
}

#[tokio::test]
async fn only_who_signs_in_learns_why_a_branch_is_not_ready() {
    let gateway = TestGateway::with(|config| config.wake_timeout = Duration::from_millis(100)).await;
    gateway.state.send_replace(BranchState::Hibernated);
    let stranger = gateway.refusal("password=wrong").await;
    assert!(stranger.contains("password authentication failed"), "{stranger}");
    let owner = gateway.refusal("").await;
    assert!(owner.contains("is not ready (hibernated)"), "{owner}");
}

#[tokio::test]
async fn a_client_that_stops_waiting_is_forgotten() {
    let gateway = TestGateway::start().await;
    gateway.state.send_replace(BranchState::Waking);
    let mut client = gateway.program("psql").args(["-X", "-c", "select 1"]).spawn().unwrap();
    eventually("the client waits", async || gateway.state.receiver_count() > 1).await;
    client.kill().await.unwrap();
    eventually("nobody waits any more", async || gateway.state.receiver_count() == 1).await;
}

#[tokio::test]
async fn stopping_lets_open_sessions_end() {
    let mut gateway = TestGateway::start().await;
    let client = gateway.connect().await;
    gateway.stop.cancel();
    let address = gateway.address;
    eventually("no client is taken in", async || TcpStream::connect(address).await.is_err()).await;
    assert!(client.simple_query("select 1").await.is_ok());
    let served = gateway.served.take().unwrap();
    assert!(!served.is_finished());
    drop(client);
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("serving ends").unwrap();
}

#[tokio::test]
async fn sessions_that_outlast_the_drain_are_cut() {
    let mut gateway = TestGateway::with(|config| config.drain_timeout = Duration::from_millis(100)).await;
    let client = gateway.connect().await;
    gateway.stop.cancel();
    let served = gateway.served.take().unwrap();
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("serving ends").unwrap();
    assert!(client.simple_query("select 1").await.is_err());
}

#[tokio::test]
async fn a_client_in_its_startup_is_served_although_the_gateway_stops() {
    let gateway = TestGateway::start().await;
    gateway.state.send_replace(BranchState::Waking);
    let query = gateway.query("", "select 1");
    let stop = async {
        eventually("the client waits", async || gateway.state.receiver_count() > 1).await;
        assert_eq!(gateway.sessions.census().starting, 1);
        gateway.stop.cancel();
        let address = gateway.address;
        eventually("no client is taken in", async || TcpStream::connect(address).await.is_err()).await;
        gateway.state.send_replace(BranchState::Ready);
    };
    assert_eq!(tokio::join!(query, stop).0, "1");
    eventually("nobody is there", async || gateway.sessions.census().starting == 0).await;
}

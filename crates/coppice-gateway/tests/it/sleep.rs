//! Branches that sleep.

use std::sync::atomic::Ordering;

use coppice_core::branch::BranchState;

use crate::gateway::{TestGateway, eventually};

async fn asleep() -> TestGateway {
    let gateway = TestGateway::start().await;
    gateway.may_wake.store(true, Ordering::Relaxed);
    gateway.state.send_replace(BranchState::Hibernated);
    gateway
}

#[tokio::test]
async fn whoever_signs_in_wakes_a_sleeping_branch() {
    let gateway = asleep().await;
    assert_eq!(gateway.query("", "select 1").await, "1");
    assert_eq!(gateway.wakes.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_stranger_wakes_nothing() {
    let gateway = asleep().await;
    for stranger in ["password=wrong", &format!("user=nobody.{}", gateway.branch)] {
        let answer = gateway.refusal(stranger).await;
        assert!(answer.contains("password authentication failed"), "{answer}");
    }
    assert_eq!(gateway.wakes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_client_that_comes_while_its_branch_falls_asleep_is_served_after_the_wake() {
    let gateway = TestGateway::start().await;
    gateway.may_wake.store(true, Ordering::Relaxed);
    // When exactly the client looks is left to chance.
    for round in 1..=10 {
        gateway.state.send_replace(BranchState::Ready);
        let nobody_is_there = async || gateway.sessions.count(&gateway.branch) == 0;
        eventually("the last client is gone", nobody_is_there).await;
        let hold = gateway.sessions.hold(&gateway.branch).expect("nobody is there");
        let query = gateway.query("", "select 1");
        let fall_asleep = async {
            for _ in 0..round * 20 {
                tokio::task::yield_now().await;
            }
            gateway.state.send_replace(BranchState::Hibernated);
            drop(hold);
        };
        assert_eq!(tokio::join!(query, fall_asleep).0, "1");
        assert_eq!(gateway.wakes.load(Ordering::Relaxed), round);
    }
}

#[tokio::test]
async fn a_branch_with_a_client_can_not_be_held() {
    let gateway = TestGateway::start().await;
    let client = gateway.connect().await;
    assert!(gateway.sessions.hold(&gateway.branch).is_none());
    assert_eq!(gateway.sessions.last_left(&gateway.branch), None);
    drop(client);
    eventually("the client is gone", async || gateway.sessions.last_left(&gateway.branch).is_some()).await;
    assert!(gateway.sessions.hold(&gateway.branch).is_some());
}

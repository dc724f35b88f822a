//! Many strangers, and those who try many passwords.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio_postgres::NoTls;

use crate::first_bytes::says;
use crate::gateway::{PASSWORD, TestGateway, eventually};

/// Any address of this machine.
async fn connect_from(gateway: &TestGateway, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
    socket.connect(gateway.address).await.unwrap()
}

/// Signs in from there; what is said when that fails.
async fn sign_in_from(gateway: &TestGateway, last: u8, role: &str, password: &str) -> Result<(), String> {
    let mut config = tokio_postgres::Config::new();
    config.user(format!("{role}.{}", gateway.branch)).password(password);
    let stream = connect_from(gateway, last).await;
    let connected = config.connect_raw(stream, NoTls).await;
    connected
        .map(drop)
        .map_err(|error| error.as_db_error().map_or(error.to_string(), |error| error.message().to_owned()))
}

#[tokio::test]
async fn silent_connections_of_one_address_leave_others_their_places() {
    let gateway = TestGateway::with(|config| config.limits.starting_per_address = 5).await;
    let mut silent = vec![];
    for _ in 0..50 {
        silent.push(connect_from(&gateway, 2).await);
    }
    // Five wait to be heard, four at the door, and all others are told at once.
    eventually("the last one is sent away", async || {
        let mut answer = vec![];
        let stream = silent.last_mut().unwrap();
        let _ = stream.read_to_end(&mut answer).await;
        says(&answer, "53300")
    })
    .await;
    assert_eq!(gateway.gateway.occupancy().starting, 5);
    assert_eq!(gateway.query("", "select 1").await, "1", "others don't notice");
    let refused = sign_in_from(&gateway, 2, &gateway.role, PASSWORD).await;
    assert!(refused.is_err(), "the address has no place left");
    silent.clear();
    eventually("its places are free again", async || {
        sign_in_from(&gateway, 2, &gateway.role, PASSWORD).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn silent_connections_of_many_addresses_make_room_for_who_comes_later() {
    let gateway = TestGateway::with(|config| {
        config.limits.starting = 5;
        config.limits.starting_per_address = 1;
    })
    .await;
    let session = gateway.connect().await;
    let mut silent = vec![];
    for last in 2..7 {
        silent.push(connect_from(&gateway, last).await);
    }
    eventually("all places are taken", async || gateway.gateway.occupancy().starting == 5).await;
    eventually("a client gets in", async || sign_in_from(&gateway, 8, &gateway.role, PASSWORD).await.is_ok())
        .await;
    let mut answer = vec![];
    let _ = silent[0].read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "the first one is gone: {answer:?}");
    assert!(session.simple_query("select 1").await.is_ok(), "who has signed in stays");
}

#[tokio::test]
async fn sessions_of_one_address_leave_others_their_places() {
    let gateway = TestGateway::with(|config| config.limits.per_address = 1).await;
    let client = gateway.connect().await;
    let answer = gateway.refusal("").await;
    assert!(answer.contains("too many connections from this address"), "{answer}");
    assert_eq!(sign_in_from(&gateway, 2, &gateway.role, PASSWORD).await, Ok(()));
    assert!(client.simple_query("select 1").await.is_ok());
}

#[tokio::test]
async fn whoever_tries_passwords_has_to_wait_and_the_owner_gets_in_from_elsewhere() {
    let gateway = TestGateway::with(|config| config.failures_per_minute = NonZeroU32::new(3).unwrap()).await;
    let role = gateway.role.clone();
    for role in [role.as_str(), "nobody"] {
        for attempt in 0..3 {
            let wrong = sign_in_from(&gateway, 2, role, "wrong").await.unwrap_err();
            assert!(wrong.contains("password authentication failed"), "{attempt}: {wrong}");
        }
        let refused = sign_in_from(&gateway, 2, role, PASSWORD).await.unwrap_err();
        assert!(refused.contains("too many failed sign-ins from this address, wait"), "{refused}");
    }
    assert_eq!(sign_in_from(&gateway, 3, &role, PASSWORD).await, Ok(()));
    assert_eq!(gateway.query("", "select 1").await, "1");
}

#[tokio::test]
async fn many_attempts_at_once_are_no_more_than_one_after_the_other() {
    let gateway = TestGateway::with(|config| config.failures_per_minute = NonZeroU32::new(3).unwrap()).await;
    let attempts = (0..30).map(|_| sign_in_from(&gateway, 2, &gateway.role, "wrong"));
    let answers = futures_of(attempts).await;
    let tried = answers.iter().filter(|answer| answer.contains("password authentication failed")).count();
    assert_eq!(tried, 3, "{answers:?}");
}

/// What all of them say, run at the same time.
async fn futures_of(attempts: impl Iterator<Item = impl Future<Output = Result<(), String>>>) -> Vec<String> {
    let mut running: Vec<_> = attempts.map(Box::pin).collect();
    let mut answers = vec![];
    std::future::poll_fn(|context| {
        running.retain_mut(|attempt| match attempt.as_mut().poll(context) {
            std::task::Poll::Ready(answer) => {
                answers.push(answer.expect_err("the password is wrong"));
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers
}

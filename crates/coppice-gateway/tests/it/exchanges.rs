//! Messages in orders that nobody thought of: what a pool answers is what a connection of one's own
//! is answered.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use coppice_pgwire::session;
use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::gateway::TestGateway;
use crate::raw::Raw;

/// Scripts in a run that is not told for how long.
const SCRIPTS: u32 = 150;
/// Clients of the pool, which take turns with its sessions, and how many of those there are at most.
const CLIENTS: usize = 3;
const SESSIONS_MAX: usize = 2;
const STATEMENTS: [&str; 3] = ["", "a", "b"];
const PORTALS: [&str; 2] = ["", "p"];
/// What may be prepared.
const SQL: [&str; 24] = [
    "",
    "select 1",
    "select $1::text",
    "select $1::text, 'x'::text",
    "selec",
    "select 1/0",
    "select count(*) from t",
    "insert into t values (1)",
    "insert into t values ($1::text::int)",
    "select generate_series(1, 5)::text",
    "begin",
    "commit",
    "rollback",
    "savepoint s",
    "rollback to s",
    "set timezone = 'Asia/Tokyo'",
    "set local timezone = 'Asia/Dubai'",
    "reset timezone",
    "show timezone",
    "select '2026-01-01 00:00:00+00'::timestamptz::text",
    "declare c cursor for select generate_series(1, 3)::text",
    "fetch 2 from c",
    "copy t from stdin",
    "copy (select i from t order by i) to stdout",
];

/// What a client is answered last whose connection ends.
const GONE: &str = "… gone";

/// A message of the protocol, as it is sent.
type Message = (u8, Vec<u8>);

fn parts(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// One of these, chosen by lot.
fn one_of<'a>(lot: &mut ChaCha8Rng, choices: &[&'a str]) -> &'a str {
    choices.choose(lot).expect("there are some")
}

fn message(lot: &mut ChaCha8Rng) -> Message {
    let (statement, portal) = (one_of(lot, &STATEMENTS), one_of(lot, &PORTALS));
    let (statement, portal, sql) = (statement.as_bytes(), portal.as_bytes(), one_of(lot, &SQL).as_bytes());
    match lot.random_range(0..22) {
        0..5 => (b'P', parts(&[statement, b"\0", sql, b"\0\0\0"])),
        5..9 => {
            let values: &[u8] = if lot.random() { b"\0\x01\0\0\0\x017" } else { b"\0\0" };
            (b'B', parts(&[portal, b"\0", statement, b"\0\0\0", values, b"\0\0"]))
        }
        9..13 => {
            let rows = [0, 1, 2, 100].choose(lot).copied().unwrap_or(0_u32);
            (b'E', parts(&[portal, b"\0", &rows.to_be_bytes()]))
        }
        13 => (b'D', parts(&[b"S", statement, b"\0"])),
        14 => (b'D', parts(&[b"P", portal, b"\0"])),
        15 => (b'C', parts(&[b"S", statement, b"\0"])),
        16 => (b'C', parts(&[b"P", portal, b"\0"])),
        17 => (b'H', vec![]),
        18 | 19 => (b'Q', parts(&[sql, b"\0"])),
        _ => (b'S', vec![]),
    }
}

/// Messages that leave no transaction and no copy open, and end with an answer that no other gives.
fn script(lot: &mut ChaCha8Rng, end: &str) -> Vec<Message> {
    let mut script = vec![];
    for _ in 0..lot.random_range(1..16) {
        let message = message(lot);
        // A query in the middle of a batch is not what the protocol provides for.
        if message.0 == b'Q' {
            script.push((b'S', vec![]));
        }
        script.push(message);
    }
    script.push((b'f', b"enough\0".to_vec()));
    script.push((b'S', vec![]));
    script.push((b'Q', format!("rollback; select '{end}'\0").into_bytes()));
    script
}

/// What a client is answered, a line for each message; of errors their code alone. Parameters that change are told
/// whenever that is seen. In a transaction that has failed nothing can be prepared in another session, so what is
/// answered there to a statement that is there already is another error, or none.
async fn answers(client: &mut Raw, script: &[Message], end: &str) -> String {
    let borrowed: Vec<_> = script.iter().map(|(tag, body)| (*tag, body.as_slice())).collect();
    client.send(&borrowed).await;
    let (mut told, mut has_ended, mut has_failed) = (String::new(), false, false);
    loop {
        let frame = tokio::time::timeout(Duration::from_secs(60), client.next()).await;
        let Ok(Some(frame)) = frame else {
            return format!("{told}{}", if frame.is_ok() { GONE } else { "… silent" });
        };
        match frame.tag {
            b'S' | b'N' => continue,
            b'Z' => {
                has_failed = &frame.body[..] == b"E";
                writeln!(told, "Z {}", frame.body.escape_ascii()).expect("memory");
            }
            _ if has_failed => {}
            b'E' => {
                let code = session::error_field(&frame.body, b'C').unwrap_or_default();
                writeln!(told, "E {}", String::from_utf8_lossy(code)).expect("memory");
            }
            tag => writeln!(told, "{} {}", tag as char, frame.body.escape_ascii()).expect("memory"),
        }
        has_ended |= frame.tag == b'D' && frame.body.ends_with(end.as_bytes());
        if has_ended && frame.tag == b'Z' {
            return told;
        }
    }
}

/// A setting of the run as a number.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[tokio::test]
async fn a_pool_answers_whatever_comes_as_a_connection_of_ones_own_does() {
    let seconds = number("COPPICE_SOAK_SECONDS").map(Duration::from_secs);
    let by_clock = || std::time::UNIX_EPOCH.elapsed().expect("a clock").as_nanos() as u64;
    let seed = number("COPPICE_SOAK_SEED").unwrap_or_else(|| if seconds.is_some() { by_clock() } else { 1 });
    let mut lot = ChaCha8Rng::seed_from_u64(seed);
    // Each has its own database, so what one does is not seen by the other.
    let (shared, own) = (TestGateway::start().await, TestGateway::start().await);
    let sessions = lot.random_range(1..=SESSIONS_MAX);
    shared.limit(sessions).await;
    let (mut pooled, mut direct) = (vec![], vec![]);
    let connect_pooled = async || Raw::connect(&shared, &format!("{}-pooler", shared.user())).await;
    let connect_direct = async || Raw::connect(&own, &own.user()).await;
    for _ in 0..CLIENTS {
        pooled.push(connect_pooled().await);
        direct.push(connect_direct().await);
    }
    let create = [(b'Q', b"create table t (i int)\0".to_vec()), (b'Q', b"select 'made'\0".to_vec())];
    for first in [&mut pooled[0], &mut direct[0]] {
        answers(first, &create, "made").await;
    }
    let began = Instant::now();
    let mut number = 0;
    while seconds.map_or(number < SCRIPTS, |seconds| began.elapsed() < seconds) {
        let (client, end) = (lot.random_range(0..CLIENTS), format!("end {number}"));
        let script = script(&mut lot, &end);
        let got = answers(&mut pooled[client], &script, &end).await;
        let expected = answers(&mut direct[client], &script, &end).await;
        let sent: Vec<_> =
            script.iter().map(|(tag, body)| format!("{} {}", *tag as char, body.escape_ascii())).collect();
        assert_eq!(got, expected, "seed {seed}, script {number} of client {client}: {sent:#?}");
        if got.ends_with(GONE) {
            shared.has_room(sessions).await;
            (pooled[client], direct[client]) = (connect_pooled().await, connect_direct().await);
        }
        number += 1;
    }
}

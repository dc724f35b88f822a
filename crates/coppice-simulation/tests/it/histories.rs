//! Whatever happens, in whatever order, comes out well.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coppice_simulation::{Metastore, Outcome, WAITS_WITH_OTHERS, play};

/// Histories that every run of the tests plays.
const HISTORIES: u64 = 24;
/// As many at the same time.
const THREADS: u64 = 2;
/// What is done in them, besides what is seldom asked for in time.
const KINDS: [&str; 10] = [
    "Child",
    "Configure",
    "Connect",
    "Create",
    "Delete",
    "Hibernate",
    "Replicate",
    "Reset",
    "Rotate",
    "Wake",
];
/// Last lines of a history that went wrong.
const LINES: usize = 80;

fn set(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().expect("a whole number"))
}

/// What there is to know about a history that went wrong.
fn tell(outcome: &Outcome) -> String {
    let last = outcome.log.len().saturating_sub(LINES);
    format!(
        "{}\n\nhistory {} after {} events:\n  {}\nagain: COPPICE_SOAK_SEED={} cargo test --locked -p coppice-simulation",
        outcome.log[last..].join("\n"),
        outcome.seed,
        outcome.events,
        outcome.violations.join("\n  "),
        outcome.seed
    )
}

#[test]
fn every_history_comes_out_well() {
    let first = set("COPPICE_SOAK_SEED");
    let seconds = set("COPPICE_SOAK_SECONDS").map(Duration::from_secs);
    let count = if first.is_some() && seconds.is_none() { 1 } else { HISTORIES };
    let first = first.unwrap_or_else(|| if seconds.is_some() { random_seed() } else { 1 });
    let (began, next, played, events) =
        (Instant::now(), AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(count) {
            scope.spawn(|| {
                let mut metastore = Metastore::start();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = match seconds {
                        Some(seconds) => began.elapsed() >= seconds,
                        None => seed >= first + count,
                    };
                    if is_over {
                        break;
                    }
                    let outcome = play(&mut metastore, seed);
                    if let Some(path) = std::env::var_os("COPPICE_SIMULATION_LOG") {
                        std::fs::write(path, outcome.log.join("\n")).unwrap();
                    }
                    assert!(outcome.violations.is_empty(), "{}", tell(&outcome));
                    played.fetch_add(1, Ordering::Relaxed);
                    events.fetch_add(u64::from(outcome.events), Ordering::Relaxed);
                    for (kind, count) in outcome.done {
                        *done.lock().unwrap().entry(kind).or_insert(0) += count;
                    }
                }
            });
        }
    });
    let (played, seconds) = (played.into_inner(), began.elapsed().as_secs_f64());
    let rate = played as f64 / seconds * 60.0;
    let done = done.into_inner().unwrap();
    println!(
        "{played} histories from seed {first}, {} events, in {seconds:.1} s: {rate:.0} a minute; {done:?}",
        events.into_inner()
    );
    if played >= HISTORIES {
        let never: Vec<_> = KINDS.iter().filter(|kind| !done.contains_key(**kind)).collect();
        assert!(never.is_empty(), "nobody ever did {never:?}");
    }
}

fn random_seed() -> u64 {
    u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
}

#[test]
fn a_seed_plays_the_same_history_again() {
    let (mut metastore, mut compared) = (Metastore::start(), 0);
    for seed in 1000..1008 {
        let logs = until_several_wait([(); 2].map(|()| play(&mut metastore, seed).log));
        compared += logs[0].len();
        let differs = logs[0].iter().zip(&logs[1]).position(|(one, other)| one != other);
        if let Some(at) = differs {
            let before = logs[0][at.saturating_sub(20)..at].join("\n");
            panic!("seed {seed}, line {at}, after\n{before}\n{}\n{}", logs[0][at], logs[1][at]);
        }
        assert_eq!(logs[0].len(), logs[1].len());
    }
    assert!(compared > 1000, "only {compared} lines were compared");
}

/// Logs of a history up to where the server decides in any of them who of several is next: how long they wait
/// together is its own affair, too.
fn until_several_wait(mut logs: [Vec<String>; 2]) -> [Vec<String>; 2] {
    let end = |log: &Vec<String>| log.iter().position(|line| line.ends_with(WAITS_WITH_OTHERS));
    if let Some(end) = logs.iter().filter_map(end).min() {
        logs.iter_mut().for_each(|log| log.truncate(end));
    }
    logs
}

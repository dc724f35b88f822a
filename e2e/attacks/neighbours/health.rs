//! Servers that live and serve nobody.

use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant};

use coppice_test_support::{Platform, Psql, Signal, psql, signal, wait_for};

use super::{PATIENCE, as_superuser, oldest_and_newest};
use crate::branches::{describe, path, status};
use crate::faults::disk::{NO_GROWTH, fill};
use crate::setup::{PROGRAM, every_release};

const HEALTHY: &str = "STATUS_TYPE_HEALTHY";
/// A server that refuses everybody may be called healthy for so long.
const DELUSION_MAX: Duration = Duration::from_secs(15);

fn children(postmaster: u32) -> Vec<u32> {
    let path = format!("/proc/{postmaster}/task/{postmaster}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn title(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Crashes a server in a way that it can't recover from by itself: the process
/// that replays the log stands still.
fn catch_in_recovery(coppice: &Platform, branch: &str) {
    let id = coppice.branch_id(branch);
    as_superuser(coppice, branch, "CREATE TABLE kept AS SELECT 7 AS i");
    wait_for("it is caught before it has recovered", PATIENCE, || {
        let said = psql(
            &coppice.superuser_url(branch),
            "DROP TABLE IF EXISTS wal; CHECKPOINT;
            CREATE TABLE wal AS SELECT repeat('x', 2000) FROM generate_series(1, 40000);
            SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'",
        );
        let walwriter = said.out.lines().last().and_then(|pid| pid.parse().ok())?;
        let postmaster = coppice.postmaster(&id);
        signal(coppice.process(&id, walwriter)?, Signal::KILL).ok()?;
        signal(startup_of(postmaster), Signal::STOP).ok()?;
        // Its sessions end one by one; whether it had recovered before shows after that.
        wait_for("it serves, or refuses everybody", PATIENCE, || {
            let said = psql(&coppice.superuser_url(branch), "SELECT 1");
            let refuses = said.err.contains("the database system is");
            (said.is_ok || refuses).then_some(refuses)
        })
        .then_some(())
    });
}

/// The process that replays the log of a server that crashes now.
fn startup_of(postmaster: u32) -> u32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "{postmaster} does not recover");
        if let Some(pid) = children(postmaster).into_iter().find(|pid| title(*pid).contains("startup")) {
            return pid;
        }
    }
}

/// Sees a branch whose server refuses everybody be called so, and be well again
/// with another server.
fn see_it_started_anew(coppice: &Platform, branch: &str) {
    let (id, path) = (coppice.branch_id(branch), path(coppice, branch));
    let before = coppice.postmaster(&id);
    catch_in_recovery(coppice, branch);
    wait_for("it is called what it is, with the reason", PATIENCE, || {
        let status = describe(coppice, &path)["status"].take();
        let says_why = status["message"].to_string().contains("the database system is");
        (status["statusType"] != HEALTHY && says_why).then_some(())
    });
    assert_eq!(coppice.sql("main", "SELECT 1"), "1", "the neighbour notices nothing");
    // Between its end and its start it may still be called healthy.
    wait_for("it is healthy, and serves", PATIENCE, || {
        let is_healthy = status(coppice, &path) == HEALTHY;
        (is_healthy && psql(&coppice.superuser_url(branch), "SELECT 1").is_ok).then_some(())
    });
    assert_eq!(as_superuser(coppice, branch, "SELECT i FROM kept"), "7", "{branch}");
    assert_ne!(coppice.postmaster(&id), before, "{branch}");
}

/// Takes every connection of a branch, and with them the session that the
/// platform had there, so that it has to open another one.
fn take_every_connection(coppice: &Platform, branch: &str) -> Vec<JoinHandle<Psql>> {
    let url = coppice.connection_string(branch);
    let mut sessions = Vec::new();
    wait_for("every connection is taken", PATIENCE, || {
        let url = url.clone();
        let session = std::thread::spawn(move || psql(&url, "SELECT pg_sleep(600)"));
        let sleepers = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
        let with_it = (sessions.len() + 1).to_string();
        wait_for("it is let in or refused", PATIENCE, || {
            let seen = psql(&coppice.superuser_url(branch), sleepers);
            (session.is_finished() || seen.out == with_it).then_some(())
        });
        let is_refused = session.is_finished();
        sessions.push(session);
        is_refused.then_some(())
    });
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'coppice' AND pid <> pg_backend_pid()";
    as_superuser(coppice, branch, end);
    sessions
}

#[test]
fn a_server_that_refuses_everybody_is_not_called_healthy_and_is_started_anew() {
    let coppice = &every_release();
    for major in ["15", "18"] {
        coppice.cli(&["branch", "create", major, "--image", &format!("postgres:{major}")]);
    }
    coppice.cli(&["branch", "create", "busy", "--parameter", "max_connections=10"]);
    let id_of = |name: &str| coppice.branch_id(name);
    let busy = coppice.postmaster(&id_of("busy"));
    let busy_path = path(coppice, "busy");
    let sessions = take_every_connection(coppice, "busy");
    std::thread::scope(|scope| {
        let of = |major| scope.spawn(move || see_it_started_anew(coppice, major));
        let watches = ["15", "18"].map(of);
        wait_for("both were seen", PATIENCE * 4, || {
            let status = status(coppice, &busy_path);
            assert_eq!(status, HEALTHY, "one without a free connection is well");
            watches.iter().all(ScopedJoinHandle::is_finished).then_some(())
        });
    });
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    as_superuser(coppice, "busy", end);
    for session in sessions {
        let _ = session.join().expect("a session");
    }
    assert_eq!(coppice.sql("busy", "SELECT 1"), "1");
    assert_eq!(coppice.postmaster(&id_of("busy")), busy, "and was left alone");
}

/// Looks at a branch for as long as `looks` says so: nobody may be told for
/// long that a server is healthy which serves nobody.
fn never_deluded(coppice: &Platform, branch: &str, mut looks: impl FnMut(bool) -> bool) {
    let (path, url) = (path(coppice, branch), coppice.superuser_url(branch));
    let mut deluded_since = None;
    loop {
        let is_served = psql(&url, "SELECT 1").is_ok;
        let is_deluded = !is_served && status(coppice, &path) == HEALTHY;
        deluded_since = deluded_since.filter(|_| is_deluded).or_else(|| is_deluded.then(Instant::now));
        let lasting = deluded_since.map(|since: Instant| since.elapsed()).unwrap_or_default();
        assert!(lasting < DELUSION_MAX, "{branch} is called healthy and serves nobody");
        if !looks(is_served) {
            return;
        }
    }
}

#[test]
fn a_full_pool_takes_a_neighbour_down_for_no_longer_than_it_is_full() {
    let mut coppice = Platform::start(PROGRAM, oldest_and_newest(&[]));
    coppice.cli(&["branch", "create", "big", "--parent", "main"]);
    coppice.cli(&["branch", "create", "old", "--image", "postgres:15"]);
    for branch in ["main", "old"] {
        coppice.sql(branch, "CREATE TABLE t AS SELECT 7 AS i");
    }
    coppice.kill();
    coppice.add_flags(&NO_GROWTH);
    coppice.spawn();
    coppice.wait_ready();
    fill(&coppice.connection_string("big"));
    for branch in ["main", "old"] {
        let url = coppice.superuser_url(branch);
        let began = Instant::now();
        // Until it has panicked: what it can't flush, it can't go on with.
        never_deluded(&coppice, branch, |is_served| {
            let write = "INSERT INTO t SELECT generate_series(1, 100000); CHECKPOINT";
            let is_well = is_served && psql(&url, write).is_ok;
            began.elapsed() < Duration::from_secs(if is_well { 5 } else { 15 })
        });
    }
    let (status, answered) = coppice.call("DELETE", &path(&coppice, "big"), None);
    assert_eq!(status, 204, "{answered}");
    for branch in ["main", "old"] {
        let freed = Instant::now();
        never_deluded(&coppice, branch, |is_served| {
            assert!(freed.elapsed() < PATIENCE, "{branch} stays down");
            !is_served
        });
        assert_eq!(
            as_superuser(&coppice, branch, "SELECT count(*) FROM t WHERE i = 7 AND ctid = '(0,1)'"),
            "1"
        );
    }
}

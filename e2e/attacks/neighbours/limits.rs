//! What one server may take of the machine: memory, processes, temporary files
//! and logs.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use coppice_test_support::{Platform, psql, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};

use super::super::native::Native;
use super::{PATIENCE, oldest_and_newest};
use crate::setup::{PROGRAM, every_release};

/// The platform's cgroup that a process is limited by, as this file of it says.
fn cgroup(pid: u32, file: &str) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    let root = Path::new("/sys/fs/cgroup");
    let places = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (name, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let path = path.trim_start_matches('/').to_owned();
        match name {
            // The leaf that it is in has no limits of its own.
            "" => Path::new(&path)
                .ancestors()
                .take(2)
                .flat_map(|path| [root.join(path), root.join("unified").join(path)])
                .collect(),
            _ => vec![root.join(name).join(path)],
        }
    };
    let is_ours = |dir: &PathBuf| dir.iter().any(|part| part == "coppice") && dir.join(file).exists();
    text.lines().flat_map(places).find(is_ours)
}

/// What the memory of a branch's server is charged to.
fn charged(coppice: &Platform, branch: &str) -> Option<u64> {
    let postmaster = coppice.postmaster(&coppice.branch_id(branch));
    let found = ["memory.max", "memory.limit_in_bytes"].iter().find_map(|file| cgroup(postmaster, file))?;
    Some(std::fs::metadata(found).expect("a cgroup").ino())
}

/// Bytes that processes of a branch's server have for themselves, as the kernel
/// charges them to it.
fn anonymous_bytes(coppice: &Platform, branch: &str) -> Option<u64> {
    let postmaster = coppice.postmaster(&coppice.branch_id(branch));
    let found = ["memory.max", "memory.limit_in_bytes"].iter().find_map(|file| cgroup(postmaster, file))?;
    let statistics = std::fs::read_to_string(found.join("memory.stat")).ok()?;
    // Called so in the unified hierarchy and in version 1.
    let names = ["anon ", "total_rss "];
    let number =
        statistics.lines().find_map(|line| names.iter().find_map(|name| line.strip_prefix(*name)))?;
    number.trim().parse().ok()
}

/// How much sooner than by its memory each process of a branch's server goes when
/// the machine has none left (proc(5)).
fn turns(coppice: &Platform, branch: &str) -> Vec<i32> {
    let postmaster = coppice.postmaster(&coppice.branch_id(branch));
    let members = cgroup(postmaster, "cgroup.procs").expect("a cgroup").join("cgroup.procs");
    let members = std::fs::read_to_string(members).expect("its processes");
    // One that has just ended has no turn.
    let turn = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok();
    members.lines().filter_map(turn).map(|turn| turn.trim().parse().expect("a number")).collect()
}

/// Has native code take memory as soon as a server is there, and keep it.
fn what_is_taken_at_once_counts(coppice: &Platform, branch: &str, native: &Native) {
    const PROCESSES: u64 = 6;
    const EACH_MIB: u64 = 20;
    coppice.cli(&["branch", "wake", branch]);
    assert_eq!(native.number(&format!("hoard({PROCESSES}, {EACH_MIB})")), 0);
    wait_for("what native code took is charged", PATIENCE, || {
        anonymous_bytes(coppice, branch).filter(|bytes| *bytes >= (PROCESSES * EACH_MIB) << 20)
    });
    let turns = turns(coppice, branch);
    assert!(turns.len() > 10 && turns.iter().all(|turn| *turn >= 500), "{turns:?}");
    let later = native.number("write('/proc/self/oom_score_adj', '0')");
    assert_eq!(later, i64::from(-libc::EACCES), "none puts it off");
}

/// Sizes of the files below a directory.
fn sizes(directory: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let sizes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => sizes(&entry.path()),
        Ok(found) => vec![found.len()],
        Err(_) => vec![],
    };
    entries.flat_map(sizes).collect()
}

#[test]
fn one_branch_does_not_take_the_memory_processes_and_disk_of_the_machine() {
    let coppice = every_release();
    for major in ["15", "18"] {
        coppice.cli(&["branch", "create", major, "--image", &format!("postgres:{major}"), "--storage", "1"]);
        let postmaster = coppice.postmaster(&coppice.branch_id(major));

        let all = wait_for("its processes are counted", PATIENCE, || cgroup(postmaster, "pids.max"));
        let bomb = format!(
            "echo $$ > {}/cgroup.procs; for i in $(seq 600); do sleep 60 & done; wait",
            all.display()
        );
        let mut forks = Command::new("bash")
            .args(["-c", &bomb])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("bash");
        wait_for("no more processes are made", PATIENCE, || {
            let events = std::fs::read_to_string(all.join("pids.events")).unwrap_or_default();
            events.lines().any(|line| line.starts_with("max ") && line != "max 0").then_some(())
        });
        kill_process_group(Pid::from_child(&forks), Signal::KILL).expect("a group");
        let _ = forks.wait();
        let max: u32 =
            std::fs::read_to_string(all.join("pids.max")).expect("a limit").trim().parse().expect("a number");
        assert!((110..400).contains(&max), "{max} processes");

        let hoard =
            "SELECT array_length(array_agg(repeat('x', 1000000) || g), 1) FROM generate_series(1, 3000) g";
        let said = coppice.psql(major, hoard);
        assert!(
            !said.is_ok && said.err.contains("connection"),
            "its session is ended: {} {}",
            said.out,
            said.err
        );
        assert_eq!(coppice.sql("main", "SELECT 1"), "1", "the neighbour notices nothing");
        wait_for("it answers again", PATIENCE, || coppice.psql(major, "SELECT 1").is_ok.then_some(()));
        assert_eq!(coppice.postmaster(&coppice.branch_id(major)), postmaster, "its server was not ended");

        let sort = "SET work_mem = '64kB'; SELECT count(*) FROM
            (SELECT g, repeat('x', 200) AS x FROM generate_series(1, 2000000) g ORDER BY x, g DESC) s";
        let said = coppice.psql(major, sort);
        assert!(said.err.contains("temporary file size exceeds"), "{} {}", said.out, said.err);
        let said = coppice.psql(major, "SET temp_file_limit = -1");
        assert!(said.err.contains("permission denied"), "{}", said.err);
        let kept =
            "SELECT setting::int BETWEEN 1 AND 4096 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'";
        assert_eq!(coppice.sql(major, kept), "t", "of the log a slot holds so much back");
        let said = coppice.psql(major, "SET max_slot_wal_keep_size = -1");
        assert!(said.err.contains("cannot be changed now"), "{}", said.err);

        let before = wait_for("its memory is counted", PATIENCE, || charged(&coppice, major));
        let native = Native::install(&coppice, major, major.parse().expect("a number"));
        coppice.cli(&["branch", "hibernate", major, "--yes"]);
        what_is_taken_at_once_counts(&coppice, major, &native);
        let after = wait_for("its memory is counted again", PATIENCE, || charged(&coppice, major));
        assert_eq!(after, before, "what one start has read counts at the next one");
    }
    let doctor = coppice.run(&["doctor"]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("CPU") && said.contains("memory") && said.contains("processes"), "{said}");
}

#[test]
fn a_burst_of_log_lines_stays_within_what_is_kept() {
    const KEPT: u64 = 32 << 20;
    /// What a collector writes at most into one file, and begins one a second.
    const FILE: u64 = 16 << 20;
    /// What it writes at most in 12 s, should a busy machine not look at all.
    const BURST: u64 = 12 * FILE;
    let coppice = Platform::start(PROGRAM, oldest_and_newest(&["--logs-size-mib", "32"]));
    coppice.cli(&["branch", "create", "old", "--image", "postgres:15"]);
    for branch in ["main", "old"] {
        let url = coppice.connection_string(branch);
        let home = coppice.data_dir().join("instances").join(format!("{}-1", coppice.branch_id(branch)));
        let loud = "SET statement_timeout = '12s'; DO $$ BEGIN FOR i IN 1..100000000 LOOP
            RAISE LOG '%', repeat('x', 100000); END LOOP; END $$";
        let sessions: Vec<_> = (0..4)
            .map(|_| {
                let url = url.clone();
                std::thread::spawn(move || psql(&url, loud))
            })
            .collect();
        let (mut most, mut largest) = (0, 0);
        while !sessions.iter().all(std::thread::JoinHandle::is_finished) {
            let sizes = sizes(&home);
            most = most.max(sizes.iter().sum());
            largest = largest.max(sizes.into_iter().max().unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
        }
        for session in sessions {
            let said = session.join().expect("a session");
            assert!(said.err.contains("statement timeout"), "{}", said.err);
        }
        assert!(most < KEPT + BURST, "{branch}: {most} bytes");
        assert!(largest <= FILE, "{branch}: {largest} bytes in one file");
        assert!(most > KEPT / 2, "{branch}: there was a burst: {most} bytes");
        // The log goes on.
        let said = Instant::now();
        wait_for("a later line is there", PATIENCE, || {
            let mark = format!("after the burst {}", said.elapsed().as_nanos());
            assert!(psql(&url, &format!("DO $$ BEGIN RAISE LOG '{mark}'; END $$")).is_ok);
            let found = coppice.run(&["logs", branch, "--grep", &mark]);
            String::from_utf8_lossy(&found.stdout).contains(&mark).then_some(())
        });
    }
}

//! A clock that is set, forwards and back, while history is kept and a store is written.
//!
//! The clock is the platform's own: a library that is loaded into its process answers for the C
//! library (`clock.c`). Servers know nothing of it. Local history and the order in the store don't ask
//! them for the time, so it makes no difference there; what the times of commits decide in a store is
//! left out here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use coppice_test_support::{Leftovers, Options, Platform, directory, wait_for};

use crate::http::text_of;
use crate::setup::PROGRAM;
use crate::store::{lsn, recover, said, use_store, wait_for_log, wait_for_records};

const PATIENCE: Duration = Duration::from_secs(120);

/// The clock of the platforms that have its environment.
struct Clock {
    environment: Vec<(String, String)>,
    ahead: File,
    hours: i64,
}

impl Clock {
    fn make(home: &Path) -> Self {
        let (library, ahead) = (home.join("clock.so"), home.join("ahead"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/faults/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        let built = compiler.output().expect("cc is installed");
        assert!(built.status.success(), "{}", said(&built));
        fs::write(&ahead, 0_i64.to_le_bytes()).expect("a file");
        let environment = [("LD_PRELOAD", library), ("COPPICE_TEST_CLOCK", ahead.clone())];
        let environment = environment.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let ahead = File::options().write(true).open(ahead).expect("a file");
        Self { environment: environment.into(), ahead, hours: 0 }
    }

    /// Sets it so many hours before or after what it is elsewhere.
    fn set(&mut self, hours: i64) {
        self.ahead.write_all_at(&(hours * 3600).to_le_bytes(), 0).expect("written");
        self.hours = hours;
    }

    fn now(&self) -> DateTime<Utc> {
        Utc::now() + TimeDelta::hours(self.hours)
    }
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Acknowledged rows up to this one, three more; tells where the log is by then, which was seen.
fn write_three(coppice: &Platform, last: &mut u32) -> String {
    let mut place = String::new();
    for _ in 0..3 {
        *last += 1;
        let insert = format!("BEGIN; INSERT INTO t VALUES ({last}); COMMIT");
        let told = coppice.sql("main", &format!("{insert}; SELECT pg_current_wal_insert_lsn()"));
        place = told.lines().last().expect("a place").to_owned();
    }
    wait_for("the log is looked at", PATIENCE, || {
        let window = coppice.cli(&["branch", "history", "main"])["window"].take();
        (lsn(&text_of(&window["toLsn"])) >= lsn(&place)).then_some(())
    });
    place
}

/// A time of this clock by which all is seen that is written by now.
fn a_time_from_now_on(coppice: &Platform, clock: &Clock) -> DateTime<Utc> {
    let now = clock.now();
    wait_for("it is looked at", PATIENCE, || {
        let window = coppice.cli(&["branch", "history", "main"])["window"].take();
        (text_of(&window["to"]).parse::<DateTime<Utc>>().expect("a time") > now).then_some(())
    });
    now
}

/// All rows from the first to this one are there, and no other.
fn check(coppice: &Platform, branch: &str, last: u32) {
    let asked = || Some(coppice.psql(branch, "SELECT count(*), max(n) FROM t")).filter(|said| said.is_ok);
    let found = wait_for("the branch answers", PATIENCE, asked).out;
    assert_eq!(found, format!("{last}|{last}"), "{branch}");
}

/// A copy that is made so has the rows up to this one.
fn check_copy(coppice: &Platform, made: &[&str], last: u32) {
    coppice.cli(made);
    check(coppice, "then", last);
    coppice.cli(&["branch", "delete", "then", "--purge", "--yes"]);
}

fn check_time(coppice: &Platform, time: DateTime<Utc>, last: u32) {
    let at = rfc3339(time);
    check_copy(coppice, &["branch", "create", "then", "--parent", "main", "--at", &at], last);
    check_copy(coppice, &["backup", "restore", "main", "--name", "then", "--at", &at], last);
}

fn check_refused(coppice: &Platform, time: DateTime<Utc>, why: &str) {
    let refused = coppice.run(&["branch", "create", "never", "--parent", "main", "--at", &rfc3339(time)]);
    assert!(!refused.status.success() && said(&refused).contains(why), "{}", said(&refused));
}

/// Has a table whose rows are written while the clock is set; tells a time before the first step.
fn the_clock_is_set_while_rows_go_in(coppice: &mut Platform, clock: &mut Clock) -> DateTime<Utc> {
    let mut last = 0;
    write_three(coppice, &mut last);
    let before = a_time_from_now_on(coppice, clock);

    clock.set(3);
    write_three(coppice, &mut last);
    let ahead = a_time_from_now_on(coppice, clock);
    assert!(ahead - before > TimeDelta::hours(2));
    write_three(coppice, &mut last);

    clock.set(-2);
    let place = write_three(coppice, &mut last);
    // Another process knows of no other clock than this one.
    coppice.restart();
    write_three(coppice, &mut last);
    check_time(coppice, before, 3);
    check_time(coppice, ahead, 6);
    check_copy(coppice, &["branch", "create", "then", "--parent", "main", "--lsn", &place], 12);
    check_copy(coppice, &["backup", "restore", "main", "--name", "then"], 15);
    check_refused(coppice, before + TimeDelta::minutes(90), "is not known by time");
    check_refused(coppice, clock.now(), "before its history begins");

    clock.set(0);
    write_three(coppice, &mut last);
    check_copy(coppice, &["backup", "restore", "main", "--name", "then"], 18);
    check_time(coppice, before, 3);
    // It was later than that before, and what came since is not taken for what was there then.
    check_refused(coppice, clock.now(), "is not known by time");
    before
}

#[test]
fn whatever_the_clock_is_set_to_what_was_acknowledged_is_given_back() {
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let mut clock = Clock::make(home.path());
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, &store);
    let environment: Vec<_> =
        clock.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    coppice.set_environment(&environment);
    coppice.spawn();
    coppice.wait_ready();
    coppice.sql("main", "CREATE TABLE t (n int)");
    // Its log is sent as soon as it is written down what base there is.
    wait_for_log(&coppice, "main", &store);
    let before = the_clock_is_set_while_rows_go_in(&mut coppice, &mut clock);
    wait_for_log(&coppice, "main", &store);
    coppice.sql("main", "INSERT INTO t VALUES (19)");
    wait_for_log(&coppice, "main", &store);
    wait_for_records(&store);
    for (from, to) in [("secret.key", &key), ("admin.env", &home.path().join("admin.env"))] {
        fs::copy(coppice.data_dir().join(from), to).expect("a copy");
    }
    coppice.cut_power();
    drop(coppice);

    // On a machine whose clock nobody has set, with nothing but the store.
    let mut coppice = Platform::prepare(PROGRAM, Options { begins_with_nothing: true, ..Options::default() });
    use_store(&mut coppice, &store);
    let done = recover(coppice.data_dir(), &store, &key);
    assert!(done.status.success(), "{}", said(&done));
    fs::copy(home.path().join("admin.env"), coppice.data_dir().join("admin.env")).expect("a copy");
    coppice.spawn();
    coppice.wait_ready();
    check(&coppice, "main", 19);
    let at = rfc3339(before);
    check_copy(&coppice, &["backup", "restore", "main", "--name", "then", "--at", &at], 3);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

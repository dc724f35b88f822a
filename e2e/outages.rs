//! A store that is somebody else's, and one that is away for so long that what it misses can't
//! be kept.

use std::fs;
use std::path::Path;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use coppice_test_support::{Leftovers, Options, Platform, directory, psql, wait_for};

use crate::http::text_of;
use crate::setup::PROGRAM;
use crate::store::{
    admin_backup, names, platform_with_store, recover, said, use_store, wait_for_log, wait_for_records,
};

const PATIENCE: Duration = Duration::from_secs(120);

fn lag(coppice: &Platform) -> u64 {
    coppice.cli(&["backup", "show", "main"])["lagSeconds"].as_u64().expect("there is a store")
}

fn log_says(coppice: &Platform, words: &[&str]) {
    wait_for(words[0], PATIENCE, || {
        let log = coppice.log();
        log.lines().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
    });
}

/// All that is in the store.
fn everything(store: &Path) -> Vec<String> {
    let mut found = vec![];
    let mut left = vec![store.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { left.push(path) } else { found.push(path.display().to_string()) }
        }
    }
    found.sort();
    found
}

/// Another installation is told to use it, too.
fn a_store_of_another_installation_is_left_alone(store: &Path) {
    let before = everything(store);
    let mut stranger = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut stranger, store);
    stranger.spawn();
    stranger.wait_end();
    let words = "the store was made with another key";
    assert!(stranger.log().contains(words), "it says why it does not start: {}", stranger.log());
    let after = everything(store);
    let own = |name: &String| before.contains(name) || name.contains("/wal/") || name.contains("/records/");
    assert!(after.iter().all(own), "{after:?}");
}

/// Another process takes the store over, as on a machine to which the platform was recovered.
fn who_lost_the_store_writes_no_more_and_says_so(coppice: &Platform, store: &Path) {
    let taken = store.join("owner/0000000099");
    fs::write(&taken, "").expect("written");
    log_says(coppice, &["the task store_logs failed", "another process has taken the store over"]);
    let before = everything(store);
    coppice.sql("main", "INSERT INTO t VALUES (2)");
    wait_for("it falls behind", PATIENCE, || (lag(coppice) >= 4).then_some(()));
    assert_eq!(everything(store), before, "nothing is written by whoever has it no more");
    fs::remove_file(taken).expect("removed");
    wait_for_log(coppice, "main", store);
}

/// More than the history may take of what one branch writes.
fn write_much(coppice: &Platform) {
    for _ in 0..40 {
        coppice.sql("main", "SELECT pg_logical_emit_message(false, 'far', repeat('x', 10000000)) IS NULL");
    }
}

fn window_begins(coppice: &Platform) -> String {
    text_of(&coppice.cli(&["branch", "history", "main"])["window"]["fromLsn"])
}

/// Its server has nothing of what comes behind a place any more.
fn wait_until_the_server_lets_go(coppice: &Platform, place: &str) {
    let gone = format!(
        "SELECT min(name) > pg_walfile_name('{place}') FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{{24}}$'"
    );
    let url = coppice.superuser_url("main");
    wait_for("it recycles its log", PATIENCE, || {
        assert!(psql(&url, "CHECKPOINT").is_ok);
        (psql(&url, &gone).out == "t").then_some(())
    });
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_store_that_is_anothers_or_away_for_long_harms_nobody_and_has_everything_when_it_is_back() {
    let home = directory("coppice-files-");
    let (store, away) = (home.path().join("store"), home.path().join("away"));
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, &store);
    // Of the pool, so that there is not much to write until it is cut.
    coppice.add_flags(&["--history-share", "1"]);
    coppice.spawn();
    coppice.wait_ready();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    wait_for_log(&coppice, "main", &store);
    a_store_of_another_installation_is_left_alone(&store);
    who_lost_the_store_writes_no_more_and_says_so(&coppice, &store);
    wait_for("it is no more behind than it may be", PATIENCE, || (lag(&coppice) <= 1).then_some(()));

    fs::rename(&store, &away).expect("moved");
    fs::write(&store, "no directory").expect("written");
    log_says(&coppice, &["the task store_logs failed", "in the store"]);
    coppice.sql("main", "INSERT INTO t VALUES (3)");
    let begins = window_begins(&coppice);
    write_much(&coppice);
    wait_for("its history is cut", PATIENCE, || (window_begins(&coppice) != begins).then_some(()));
    let place = coppice.sql("main", "SELECT pg_current_wal_lsn() - 100000000");
    wait_until_the_server_lets_go(&coppice, &place);
    coppice.sql("main", "INSERT INTO t VALUES (4)");
    assert!(lag(&coppice) >= 2, "what was written since then is not there");
    let bases =
        names(&away.join("bases")).into_iter().map(|volume| names(&away.join("bases").join(volume)).len());
    let bases: usize = bases.sum();

    fs::remove_file(&store).expect("removed");
    fs::rename(&away, &store).expect("moved back");
    log_says(&coppice, &["the log of branch", "has a gap behind", "it gets a new base"]);
    // As if the last one had been made longer ago than a minute.
    assert!(psql(&coppice.metastore_url(), "UPDATE bases SET seen_at = seen_at - interval '1 hour'").is_ok);
    wait_for("there is a new base", PATIENCE, || {
        let volumes = names(&store.join("bases")).into_iter();
        let now: usize = volumes.map(|volume| names(&store.join("bases").join(volume)).len()).sum();
        (now > bases).then_some(())
    });
    coppice.sql("main", "INSERT INTO t VALUES (5)");
    wait_for_log(&coppice, "main", &store);
    wait_for("nothing is behind any more", PATIENCE, || (lag(&coppice) <= 1).then_some(()));
    wait_for_records(&store);

    let key = home.path().join("secret.key");
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let admin = fs::read(coppice.data_dir().join("admin.env")).expect("a file");
    coppice.cut_power();
    drop(coppice);
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, &store);
    let done = recover(coppice.data_dir(), &store, &key);
    assert!(done.status.success(), "{}", said(&done));
    fs::write(coppice.data_dir().join("admin.env"), admin).expect("a file");
    coppice.spawn();
    coppice.wait_ready();
    let all = "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t";
    let asked = || Some(coppice.psql("main", all)).filter(|said| said.is_ok).map(|said| said.out);
    assert_eq!(wait_for("the branch is back", PATIENCE, asked), "1 2 3 4 5");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

/// Waits for bases of so many volumes.
fn wait_for_bases(store: &Path, count: usize) {
    wait_for("each branch has a base", PATIENCE, || {
        (names(&store.join("bases")).len() >= count).then_some(())
    });
}

#[test]
fn an_empty_place_gets_everything_anew_and_what_is_there_counts_again_when_it_is_back() {
    let home = directory("coppice-files-");
    let (store, away) = (home.path().join("store"), home.path().join("away"));
    let mut coppice = platform_with_store(&store);
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    coppice.cli(&["branch", "create", "asleep", "--parent", "main"]);
    coppice.sql("asleep", "INSERT INTO t VALUES (2)");
    coppice.cli(&["branch", "hibernate", "asleep"]);
    wait_for_bases(&store, 2);
    let moment = Utc::now();

    // As where it is on a file system that is not mounted.
    coppice.kill();
    fs::rename(&store, &away).expect("moved");
    coppice.spawn();
    coppice.wait_ready();
    wait_for_bases(&store, 2);
    log_says(&coppice, &["bases are not in the store any more"]);
    wait_for_log(&coppice, "main", &store);
    let key = coppice.data_dir().join("secret.key");
    let verified = admin_backup("verify", &store, &key);
    assert!(verified.status.success() && said(&verified).contains("2 bases"), "{}", said(&verified));

    coppice.kill();
    fs::remove_dir_all(&store).expect("removed");
    fs::rename(&away, &store).expect("moved back");
    coppice.spawn();
    coppice.wait_ready();
    let bases = |volume: &String| names(&store.join("bases").join(volume));
    let first =
        |volume: &String| bases(volume).into_iter().min().map(|base| format!("bases/{volume}/{base}"));
    for name in names(&store.join("bases")).iter().filter_map(first) {
        let counts = format!("SELECT count(complete_at) FROM bases WHERE name = '{name}'");
        let is_known = || (psql(&coppice.metastore_url(), &counts).out == "1").then_some(());
        wait_for("what is there counts", PATIENCE, is_known);
    }
    coppice.cli(&["branch", "wake", "asleep"]);
    coppice.sql("asleep", "INSERT INTO t VALUES (3)");
    let at = moment.to_rfc3339_opts(SecondsFormat::Millis, true);
    coppice.cli(&["backup", "restore", "asleep", "--at", &at, "--name", "then"]);
    assert_eq!(coppice.sql("then", "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t"), "1 2");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

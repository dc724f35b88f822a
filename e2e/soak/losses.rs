//! A platform that is lost with its machine while it is written to, again and
//! again, and comes back from its store each time with all that was there.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coppice_test_support::{Leftovers, Options, Platform, directory, psql, wait_for};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::PATIENCE;
use crate::setup::PROGRAM;
use crate::store::{lsn, names, recover, said, wait_for_records};

const BRANCHES: [&str; 2] = ["main", "kid"];
/// Rows that a writer has in a round; it is cut long before.
const ROWS: u64 = 50_000;
/// Before the machine is lost, writing goes on for up to so many milliseconds.
const PAUSE_MAX: u64 = 4000;
/// For this statement: a body can be told from another one by its length.
const TABLE: &str = "CREATE TABLE t (i bigint PRIMARY KEY, body text NOT NULL)";

/// A row whose commit a client was told of.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    row: u64,
    /// Its commit lies before this place in the log.
    place: u64,
    at: Instant,
}

/// What a client writes.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Characters of a row, and a few more.
    length: u64,
    /// Milliseconds between two rows.
    pause: u64,
}

impl Load {
    /// Many small rows, or few large ones, and what is in between.
    fn random(random: &mut ChaCha8Rng) -> Self {
        let length = 1 << random.random_range(0..14);
        Self { length, pause: [0, 0, 1, 20][random.random_range(0..4)] }
    }

    fn statement(self, row: u64) -> String {
        // What does not become smaller, so the log has all of it.
        let body = format!(
            "(SELECT string_agg(md5(({row} * 1000 + n)::text), '') FROM generate_series(0, {}) n)",
            self.length / 32
        );
        format!(
            "INSERT INTO t VALUES ({row}, {body} || repeat('x', ({row} % 32)::int));\n\
             SELECT {row}, pg_current_wal_insert_lsn();\nSELECT FROM pg_sleep({});\n",
            self.pause as f64 / 1000.0
        )
    }
}

/// A client that writes one row after the other, each in a transaction.
struct Writer {
    client: Child,
    told: Arc<Mutex<Vec<Acknowledged>>>,
    reader: JoinHandle<()>,
}

impl Writer {
    fn start(url: &str, load: Load) -> Self {
        let mut client = Command::new("psql")
            .args([url, "-XAtq", "-v", "ON_ERROR_STOP=1", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql runs");
        let mut input = client.stdin.take().expect("a pipe");
        // It takes what it can until it is cut.
        std::thread::spawn(move || {
            (1..ROWS).all(|row| input.write_all(load.statement(row).as_bytes()).is_ok())
        });
        let output = BufReader::new(client.stdout.take().expect("a pipe"));
        let told = Arc::new(Mutex::new(vec![]));
        let kept = told.clone();
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((row, place)) = line.split_once('|') else { continue };
                let (row, place) = (row.parse().expect("a number"), lsn(place));
                let acknowledged = Acknowledged { row, place, at: Instant::now() };
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(acknowledged);
            }
        });
        Self { client, told, reader }
    }

    /// The first row that was acknowledged.
    fn first(&self) -> Option<Acknowledged> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    /// Waits until it has noticed its end; returns all that was acknowledged.
    fn finish(mut self) -> Vec<Acknowledged> {
        let _ = self.client.kill();
        self.client.wait().expect("psql ends");
        self.reader.join().expect("no panic");
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How far the store has the log of a branch.
fn stored(store: &Path, volume: &str) -> u64 {
    let pieces = names(&store.join("wal").join(volume)).into_iter();
    let ends = pieces.filter_map(|piece| u64::from_str_radix(piece.rsplit('-').next()?, 16).ok());
    ends.max().unwrap_or_default()
}

/// Loses the machine so often, and longer if there is time; tells what was lost.
pub(super) fn come_back(seed: u64, time: Duration, rounds: usize, interval: u64) {
    let began = Instant::now();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let mut coppice = prepare(&store, interval);
    coppice.spawn();
    coppice.wait_ready();
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let admin = fs::read(coppice.data_dir().join("admin.env")).expect("a file");
    coppice.sql("main", TABLE);
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let mut found = vec![];
    while found.len() < rounds * BRANCHES.len() || began.elapsed() < time {
        let lost = lose(&mut coppice, &store, &mut random, found.is_empty());
        drop(coppice);
        let began = Instant::now();
        coppice = prepare(&store, interval);
        let done = recover(coppice.data_dir(), &store, &key);
        assert!(done.status.success(), "{}", said(&done));
        fs::write(coppice.data_dir().join("admin.env"), &admin).expect("a file");
        coppice.spawn();
        coppice.wait_ready();
        // As if the machine of before had been lost long ago: bases are made once a minute at most.
        let aged = psql(&coppice.metastore_url(), "UPDATE bases SET seen_at = seen_at - interval '1 hour'");
        assert!(aged.is_ok, "{}", aged.err);
        for (branch, lost) in BRANCHES.into_iter().zip(lost) {
            let seconds = lost.check(&coppice, branch);
            found.push((seconds, began.elapsed().as_secs_f64()));
        }
    }
    report(found, interval);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

fn prepare(store: &Path, interval: u64) -> Platform {
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    let store = format!("file://{}", store.display());
    coppice.add_flags(&["--store", &store, "--store-interval", &interval.to_string()]);
    coppice
}

/// Says how old what was lost was, and how long it took until the branch answered.
fn report(found: Vec<(f64, f64)>, interval: u64) {
    let beyond = found.iter().filter(|(lost, _)| *lost > interval as f64).count();
    let (mut lost, mut back): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let at = |values: &mut Vec<f64>, part: f64| {
        values.sort_by(f64::total_cmp);
        values[((values.len() - 1) as f64 * part).round() as usize]
    };
    let line = |what: &str, values: &mut Vec<f64>| {
        let parts = [("median", 0.5), ("p95", 0.95), ("longest", 1.0)];
        let parts = parts.map(|(name, part)| format!("{name} {:.2} s", at(values, part)));
        println!("soak: {what}: {}", parts.join(", "));
    };
    line("the oldest acknowledged row that was lost was so old", &mut lost);
    line("from the loss of the machine to an answer", &mut back);
    println!("soak: {beyond} of {} lost more than the store's interval of {interval} s", lost.len());
}

/// What clients were told before the machine was lost.
struct Lost {
    load: Load,
    told: Vec<Acknowledged>,
    /// How far the store had the log then.
    stored: u64,
    at: Instant,
}

/// Has clients write, and takes everything away in the middle.
fn lose(coppice: &mut Platform, store: &Path, random: &mut ChaCha8Rng, is_first: bool) -> Vec<Lost> {
    let volumes = BRANCHES.map(|branch| {
        let volume = volume_of(coppice, branch);
        let has_base = || !names(&store.join("bases").join(&volume)).is_empty();
        wait_for("there is a base", PATIENCE, || has_base().then_some(()));
        volume
    });
    let write = |branch| {
        coppice.sql(branch, "TRUNCATE t");
        let load = Load::random(random);
        (load, Writer::start(&coppice.connection_string(branch), load))
    };
    let writers = BRANCHES.map(write);
    for ((_, writer), volume) in writers.iter().zip(&volumes) {
        wait_for("some of it is in the store", PATIENCE, || {
            (stored(store, volume) >= writer.first()?.place).then_some(())
        });
    }
    // The first of these may have been begun before. Those of the next rounds tell nothing else.
    if is_first {
        wait_for_records(store);
        wait_for_records(store);
    }
    std::thread::sleep(Duration::from_millis(random.random_range(0..PAUSE_MAX)));
    let stored = volumes.each_ref().map(|volume| stored(store, volume));
    let at = Instant::now();
    coppice.cut_power();
    let lost = writers.into_iter().zip(stored);
    lost.map(|((load, writer), stored)| Lost { load, told: writer.finish(), stored, at }).collect()
}

impl Lost {
    /// All that was in the store is there, and nothing is missing in between. Tells
    /// for how many seconds the oldest row that is lost had been acknowledged.
    fn check(&self, coppice: &Platform, branch: &str) -> f64 {
        let sql = "SELECT count(*), coalesce(max(i), 0), coalesce(sum(i), 0),
                          count(*) FILTER (WHERE length(body) % 32 <> i % 32
                              OR left(body, 32) <> md5((i * 1000)::text)) FROM t";
        let asked = || Some(coppice.psql(branch, sql)).filter(|said| said.is_ok).map(|said| said.out);
        let found = wait_for("the branch is back", PATIENCE, asked);
        let numbers: Vec<u64> = found.split('|').map(|text| text.parse().expect("a number")).collect();
        let [count, last, sum, wrong] = numbers[..] else { panic!("{found}") };
        assert_eq!((count, sum, wrong), (last, last * (last + 1) / 2, 0), "{branch} has a gap");
        let safe = self.told.iter().filter(|row| row.place <= self.stored).map(|row| row.row).max();
        assert!(Some(last) >= safe, "{branch} ends with {last}, and the store had {safe:?}");
        let gone = self.told.iter().find(|row| row.row > last);
        let seconds = gone.map_or(0.0, |row| self.at.saturating_duration_since(row.at).as_secs_f64());
        let Load { length, pause } = self.load;
        println!(
            "soak: {branch} (rows of {length} characters, a pause of {pause} ms) came back with {last} rows, and lost \
             the last {seconds:.2} s"
        );
        seconds
    }
}

/// The volume that a branch has.
fn volume_of(coppice: &Platform, branch: &str) -> String {
    let data = crate::branches::data_of(coppice, branch);
    let volume = data.parent().and_then(Path::file_name).expect("a directory");
    volume.to_string_lossy().into_owned()
}

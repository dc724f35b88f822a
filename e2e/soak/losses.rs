//! A platform that is lost with its machine while it is written to, again and
//! again, and comes back from its store each time with all that was there.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coppice_test_support::{Leftovers, Options, Platform, directory, wait_for};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::PATIENCE;
use crate::setup::PROGRAM;
use crate::store::{lsn, names, recover, said, use_store, wait_for_records};

const BRANCHES: [&str; 2] = ["main", "kid"];
/// Rows that a writer has in a round; it is cut long before.
const ROWS: u64 = 50_000;
/// Before the machine is lost, writing goes on for up to so many milliseconds.
const PAUSE_MAX: u64 = 4000;

/// A row whose commit a client was told of.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    row: u64,
    /// Its commit lies before this place in the log.
    place: u64,
    at: Instant,
}

/// A client that writes one row after the other, each in a transaction.
struct Writer {
    client: Child,
    told: Arc<Mutex<Vec<Acknowledged>>>,
    reader: JoinHandle<()>,
}

impl Writer {
    fn start(url: &str, after: u64) -> Self {
        let mut client = Command::new("psql")
            .args([url, "-XAtq", "-v", "ON_ERROR_STOP=1", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql runs");
        let mut input = client.stdin.take().expect("a pipe");
        let statement =
            |row| format!("INSERT INTO t VALUES ({row});\nSELECT {row}, pg_current_wal_insert_lsn();\n");
        // It takes what it can until it is cut.
        std::thread::spawn(move || {
            (after + 1..after + ROWS).all(|row| input.write_all(statement(row).as_bytes()).is_ok())
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

/// Loses the machine as often as there is time for, at least once.
pub(super) fn come_back(seed: u64, time: Duration) {
    let began = Instant::now();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, &store);
    coppice.spawn();
    coppice.wait_ready();
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let admin = fs::read(coppice.data_dir().join("admin.env")).expect("a file");
    coppice.sql("main", "CREATE TABLE t (i bigint PRIMARY KEY)");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let mut rows = HashMap::new();
    loop {
        let lost = lose(&mut coppice, &store, random.random_range(0..PAUSE_MAX), &rows);
        drop(coppice);
        coppice = Platform::prepare(PROGRAM, Options::default());
        use_store(&mut coppice, &store);
        let done = recover(coppice.data_dir(), &store, &key);
        assert!(done.status.success(), "{}", said(&done));
        fs::write(coppice.data_dir().join("admin.env"), &admin).expect("a file");
        coppice.spawn();
        coppice.wait_ready();
        for (branch, lost) in BRANCHES.into_iter().zip(lost) {
            rows.insert(branch, lost.check(&coppice, branch));
        }
        if began.elapsed() >= time {
            break;
        }
    }
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

/// What clients were told before the machine was lost.
struct Lost {
    told: Vec<Acknowledged>,
    /// How far the store had the log then.
    stored: u64,
    at: Instant,
}

/// Has clients write, and takes everything away in the middle.
fn lose(coppice: &mut Platform, store: &Path, pause: u64, rows: &HashMap<&str, u64>) -> Vec<Lost> {
    let volumes = BRANCHES.map(|branch| {
        let volume = volume_of(coppice, branch);
        let has_base = || !names(&store.join("bases").join(&volume)).is_empty();
        wait_for("there is a base", PATIENCE, || has_base().then_some(()));
        volume
    });
    let write = |branch| {
        let after = rows.get(branch).copied().unwrap_or_default();
        Writer::start(&coppice.connection_string(branch), after)
    };
    let writers = BRANCHES.map(write);
    for (writer, volume) in writers.iter().zip(&volumes) {
        wait_for("some of it is in the store", PATIENCE, || {
            (stored(store, volume) >= writer.first()?.place).then_some(())
        });
    }
    // The first of these may have been begun before; what is written changes them.
    wait_for_records(store);
    wait_for_records(store);
    std::thread::sleep(Duration::from_millis(pause));
    let stored = volumes.each_ref().map(|volume| stored(store, volume));
    let at = Instant::now();
    coppice.cut_power();
    let lost = writers.into_iter().zip(stored);
    lost.map(|(writer, stored)| Lost { told: writer.finish(), stored, at }).collect()
}

impl Lost {
    /// All that was in the store is there, and nothing is missing in between. Tells
    /// the last row.
    fn check(&self, coppice: &Platform, branch: &str) -> u64 {
        let sql = "SELECT count(*), coalesce(max(i), 0), coalesce(sum(i), 0) FROM t";
        let asked = || Some(coppice.psql(branch, sql)).filter(|said| said.is_ok).map(|said| said.out);
        let found = wait_for("the branch is back", PATIENCE, asked);
        let numbers: Vec<u64> = found.split('|').map(|text| text.parse().expect("a number")).collect();
        let [count, last, sum] = numbers[..] else { panic!("{found}") };
        assert_eq!((count, sum), (last, last * (last + 1) / 2), "{branch} has a gap");
        let safe = self.told.iter().filter(|row| row.place <= self.stored).map(|row| row.row).max();
        assert!(Some(last) >= safe, "{branch} ends with {last}, and the store had {safe:?}");
        let kept = self.told.iter().rfind(|row| row.row <= last);
        let seconds = kept.map_or(0.0, |row| self.at.saturating_duration_since(row.at).as_secs_f64());
        println!("soak: {branch} came back with {last} rows, and lost the last {seconds:.1} s");
        last
    }
}

/// The volume that a branch has.
fn volume_of(coppice: &Platform, branch: &str) -> String {
    let data = crate::branches::data_of(coppice, branch);
    let volume = data.parent().and_then(Path::file_name).expect("a directory");
    volume.to_string_lossy().into_owned()
}

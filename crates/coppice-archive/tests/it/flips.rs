//! Bits that flip anywhere in a store: each is found, and nothing comes back as something else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::Utc;
use coppice_archive::{Archive, ArchiveError, BaseName, LogPiece, Records, RecordsName};
use coppice_core::lsn::Lsn;
use coppice_core::{HostId, VolumeId};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;

use crate::support::{Store, installation, key, tree};

/// Directories of objects that have something in them.
const KINDS: [&str; 4] = ["bases", "packs", "wal", "records"];
/// Flips of each kind, unless it goes on for as long as it is told to.
const FLIPS: usize = 60;

/// A store with two bases, of which the second has blocks of the first, a log and records.
struct Full {
    store: Store,
    bases: Vec<(BaseName, TempDir)>,
    pieces: Vec<(LogPiece, Vec<u8>)>,
    records: Vec<(RecordsName, Records)>,
}

/// Bytes that nothing makes shorter.
fn noise(lot: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    lot.fill(&mut bytes[..]);
    bytes
}

fn source(files: &[(&str, &[u8])]) -> TempDir {
    let home = tempfile::tempdir().expect("a directory");
    for (name, content) in files {
        fs::write(home.path().join(name), content).expect("a file");
    }
    home
}

impl Full {
    fn make(lot: &mut ChaCha8Rng) -> Self {
        let store = Store::new();
        let (volume, now) = (VolumeId::from_trusted("vol_1"), Utc::now());
        let (stays, changes) = (noise(lot, 150_000), noise(lot, 70_000));
        let text = b"what is said again and again, ".repeat(5000);
        let first = source(&[("1", &stays[..]), ("2", &changes[..]), ("3", &text[..]), ("4", &[])]);
        let second = source(&[("1", &stays[..]), ("2", &noise(lot, 70_000)[..]), ("3", &text[..90_000])]);
        let mut bases: Vec<(BaseName, TempDir)> = vec![];
        for (from, taken_ms) in [(first, 1000), (second, 2000)] {
            let previous = bases.last().map(|(base, _)| base);
            let base = store.write(from.path(), taken_ms, previous).expect("written").base;
            bases.push((base, from));
        }
        let (mut at, mut logs, mut exports) = (0x100_0000, vec![], vec![]);
        for length in [1, 3000, 40_000] {
            let bytes = noise(lot, length);
            let put = store.archive.put_log(&volume, now, Lsn(at), &bytes);
            store.runtime.block_on(put).expect("written");
            at += length as u64;
            logs.push(bytes);
            let records = Records { host: HostId::from_trusted("hst_1"), export: noise(lot, length) };
            store.runtime.block_on(store.archive.put_records(&records, now)).expect("written");
            exports.push(records);
        }
        let pieces = store.runtime.block_on(store.archive.log_pieces(&volume)).expect("listed");
        let records = store.runtime.block_on(store.archive.records()).expect("listed");
        let (pieces, records) = (pieces.into_iter().zip(logs), records.into_iter().zip(exports));
        Self { store, bases, pieces: pieces.collect(), records: records.collect() }
    }

    /// Reads everything, and tells what is found to be wrong. What is read is what was written.
    fn look(&self) -> Vec<ArchiveError> {
        let (store, mut found) = (&self.store, vec![]);
        for (base, source) in &self.bases {
            match (store.verify(base), store.restore(base)) {
                (Ok(()), Ok(restored)) => assert_eq!(tree(restored.path()), tree(source.path()), "{base}"),
                (Err(damage), Err(_)) => found.push(damage),
                (verified, restored) => panic!("{base} is {verified:?}, and restored it is {restored:?}"),
            }
            // Of what is there already nothing is read, so it may come back all the same.
            if let Ok(restored) = store.restore_beside(base, Some(self.bases[0].1.path())) {
                assert_eq!(tree(restored.path()), tree(source.path()), "{base}, beside another one");
            }
        }
        for (piece, bytes) in &self.pieces {
            match store.runtime.block_on(store.archive.get_log(piece)) {
                Ok(read) => assert_eq!(read, *bytes, "{piece:?}"),
                Err(damage) => found.push(damage),
            }
        }
        for (name, records) in &self.records {
            match store.runtime.block_on(store.archive.get_records(name)) {
                Ok(read) => assert_eq!(read, *records, "{name:?}"),
                Err(damage) => found.push(damage),
            }
        }
        found
    }

    fn name_of(&self, object: &Path) -> String {
        object.strip_prefix(&self.store.directory).expect("below it").display().to_string()
    }
}

/// The same file with another bit in one place, until this is dropped.
struct Flipped<'a> {
    file: &'a Path,
    whole: Vec<u8>,
}

impl<'a> Flipped<'a> {
    fn flip(file: &'a Path, at: usize, bit: u32) -> Self {
        let whole = fs::read(file).expect("an object");
        let mut content = whole.clone();
        content[at] ^= 1 << bit;
        fs::write(file, content).expect("written");
        Self { file, whole }
    }
}

impl Drop for Flipped<'_> {
    fn drop(&mut self) {
        let _ = fs::write(self.file, &self.whole);
    }
}

fn number(name: &str) -> Option<u64> {
    let set = std::env::var(name).ok().filter(|text| !text.is_empty());
    set.map(|text| text.parse().expect("a whole number"))
}

/// Says how to have the same again.
struct Replay(u64);

impl Replay {
    fn begin(seed: u64) -> Self {
        // Names of objects are drawn, too.
        draw_from(Some(seed));
        Self(seed)
    }
}

#[cfg(debug_assertions)]
fn draw_from(seed: Option<u64>) {
    coppice_core::random::seed_on_this_thread(seed);
}

#[cfg(not(debug_assertions))]
fn draw_from(_: Option<u64>) {}

impl Drop for Replay {
    fn drop(&mut self) {
        draw_from(None);
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "again: COPPICE_SOAK_SEED={seed} cargo test --locked -p coppice-archive --test it flips"
            );
        }
    }
}

/// No byte of these objects is of no use: none is filled up to some length, and all of each is sealed.
#[test]
fn a_bit_that_flips_anywhere_is_found_and_nothing_comes_back_as_something_else() {
    let by_clock = || u64::from(Utc::now().timestamp_subsec_nanos());
    let replay = Replay::begin(number("COPPICE_SOAK_SEED").unwrap_or_else(by_clock));
    let until = number("COPPICE_SOAK_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut lot = ChaCha8Rng::seed_from_u64(replay.0);
    let full = Full::make(&mut lot);
    assert!(full.look().is_empty(), "nothing is wrong yet");
    let is_over = |flips: usize| until.map_or(flips == FLIPS, |until| Instant::now() > until);
    let mut flips = 0;
    while !is_over(flips) {
        flips += 1;
        for kind in KINDS {
            let objects = full.store.objects(kind);
            assert!(objects.len() > 1, "{kind}: {objects:?}");
            let object = &objects[lot.random_range(0..objects.len())];
            let length = fs::metadata(object).expect("an object").len() as usize;
            let (at, bit) = (lot.random_range(0..length), lot.random_range(0..8));
            let flipped = Flipped::flip(object, at, bit);
            let (found, name) = (full.look(), full.name_of(object));
            // A pack is needed by one base, or by both.
            let is_it = |damage: &ArchiveError| matches!(damage, ArchiveError::Damaged { object, .. } if *object == name);
            assert!(
                !found.is_empty() && found.iter().all(is_it),
                "bit {bit} of byte {at} of {length} in {name}: {found:?}"
            );
            drop(flipped);
        }
    }
    assert!(full.look().is_empty(), "all is as it was");
    println!("flips: {} were found", flips * KINDS.len());
}

#[test]
fn nothing_else_of_a_store_has_bits_but_what_it_says_of_itself_which_no_flip_makes_be_believed() {
    let full = Full::make(&mut ChaCha8Rng::seed_from_u64(1));
    let store = &full.store;
    let head = store.directory.join("coppice.json");
    let is_known = |object: &PathBuf| {
        let name = full.name_of(object);
        let is_empty = fs::metadata(object).expect("an object").len() == 0;
        let is_of_a_kind = name.split_once('/').is_some_and(|(kind, _)| KINDS.contains(&kind));
        is_of_a_kind || *object == head || (name.starts_with("owner/") && is_empty)
    };
    let others: Vec<_> = store.objects("").into_iter().filter(|object| !is_known(object)).collect();
    assert!(others.is_empty(), "{others:?}");

    let length = fs::read(&head).expect("a head").len();
    for (at, bit) in (0..length).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let flipped = Flipped::flip(&head, at, bit);
        let taken = store.runtime.block_on(Archive::take(&store.place, &key(1), &installation()));
        let opened = store.runtime.block_on(Archive::open(&store.place, &key(1)));
        drop(flipped);
        assert!(taken.is_err(), "bit {bit} of byte {at}: it is taken over");
        // Whoever only reads is told another name, and compares it with what is sealed.
        let is_believed = opened.is_ok_and(|archive| *archive.installation() == installation());
        assert!(!is_believed, "bit {bit} of byte {at}: it is read as if it were whole");
    }
    store.runtime.block_on(store.archive.check_owner()).expect("nobody took it over");
}

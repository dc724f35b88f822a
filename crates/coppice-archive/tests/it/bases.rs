//! Bases: written, read, found to be damaged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use chrono::{Duration, Utc};
use coppice_archive::{ArchiveError, BaseFacts, BaseWriter};
use coppice_core::VolumeId;
use proptest::prelude::*;

use crate::support::{Store, tree};

const BLOCK: usize = 64 << 10;

pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = std::iter::repeat_with(step).take(length.div_ceil(8));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

pub(crate) fn source(files: &BTreeMap<String, Vec<u8>>) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a directory");
    for (name, content) in files {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, content).expect("a file");
    }
    home
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..10_usize, BLOCK - 1..BLOCK + 2, 0..3 * BLOCK];
    (length, 0..6_u64)
        .prop_map(|(length, seed)| if seed == 0 { vec![0; length] } else { noise(length, seed) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_restored_is_what_was_there(
        first in proptest::collection::btree_map("[ab]/[a-d]{1,2}", proptest::collection::vec(piece(), 0..4), 0..8),
        second in proptest::collection::btree_map("[ab]/[a-d]{1,2}", proptest::collection::vec(piece(), 0..4), 0..8),
    ) {
        let store = Store::new();
        let mut previous = None;
        for (files, taken) in [first, second].into_iter().zip(1..) {
            let files = files.into_iter().map(|(name, pieces)| (name, pieces.concat())).collect();
            let from = source(&files);
            let written = store.write(from.path(), taken, previous.as_ref()).expect("written");
            store.verify(&written.base).expect("sound");
            let to = store.restore(&written.base).expect("restored");
            prop_assert_eq!(tree(from.path()), tree(to.path()));
            previous = Some(written.base);
        }
    }
}

#[test]
fn only_what_changed_is_written_again_and_the_rest_is_swept_when_nobody_needs_it() {
    let store = Store::new();
    let mut files = BTreeMap::from([("base/1".to_owned(), noise(40 * BLOCK, 1))]);
    let first = store.write(source(&files).path(), 1, None).expect("written");
    assert!(first.new_bytes >= 40 * BLOCK as u64 && first.bytes == 40 * BLOCK as u64);

    let again = store.write(source(&files).path(), 2, Some(&first.base)).expect("written");
    assert_eq!(again.new_bytes, 0);
    files.get_mut("base/1").expect("there")[7 * BLOCK + 5] ^= 1;
    let second = store.write(source(&files).path(), 3, Some(&again.base)).expect("written");
    assert!((BLOCK as u64..2 * BLOCK as u64).contains(&second.new_bytes), "{second:?}");
    let unrelated = store.write(source(&files).path(), 4, None).expect("written");
    assert_eq!(store.objects("packs").len(), 3, "a base without a previous one has packs of its own");

    let later = Utc::now() + Duration::hours(1);
    let sweep = |before| store.runtime.block_on(store.archive.sweep(&[], before)).expect("swept");
    let remove = |base| store.runtime.block_on(store.archive.remove_base(base)).expect("removed");
    assert_eq!(sweep(later), 0, "everything is needed");
    remove(&unrelated.base);
    assert_eq!(sweep(Utc::now() - Duration::hours(1)), 0, "what is new may belong to a base in the making");
    assert_eq!(sweep(later), 1);
    remove(&first.base);
    remove(&again.base);
    assert_eq!(sweep(later), 0, "the last one still has blocks of the first");
    assert_eq!(tree(store.restore(&second.base).expect("restored").path()), tree(source(&files).path()));
    remove(&second.base);
    assert_eq!((sweep(later), store.objects("packs").len()), (2, 0));
}

#[test]
fn what_lost_a_pack_is_followed_by_what_is_whole() {
    let store = Store::new();
    let mut files = BTreeMap::from([("base/1".to_owned(), noise(40 * BLOCK, 1))]);
    let first = store.write(source(&files).path(), 1, None).expect("written");
    let lost = store.objects("packs").pop().expect("a pack");
    files.insert("base/2".to_owned(), noise(40 * BLOCK, 2));
    let second = store.write(source(&files).path(), 2, Some(&first.base)).expect("written");
    assert!(second.new_bytes < 41 * BLOCK as u64, "{second:?}");
    fs::remove_file(lost).expect("removed");
    store.verify(&second.base).expect_err("it lacks what the first one wrote");
    let third = store.write(source(&files).path(), 3, Some(&second.base)).expect("written");
    assert!((40 * BLOCK as u64..41 * BLOCK as u64).contains(&third.new_bytes), "{third:?}");
    store.verify(&third.base).expect("sound");
    assert_eq!(tree(store.restore(&third.base).expect("restored").path()), tree(source(&files).path()));
}

#[test]
fn nothing_goes_that_a_base_may_need_which_is_known_of_and_can_not_be_read() {
    let store = Store::new();
    let files = BTreeMap::from([("base/1".to_owned(), noise(5 * BLOCK, 1))]);
    let written = store.write(source(&files).path(), 1, None).expect("written");
    let (manifest, aside) = (store.objects("bases").pop().expect("a manifest"), store.objects("packs").len());
    let bytes = fs::read(&manifest).expect("a manifest");
    fs::remove_file(&manifest).expect("removed");
    let later = Utc::now() + Duration::hours(1);
    let sweep = |unlisted: &[_]| store.runtime.block_on(store.archive.sweep(unlisted, later));
    sweep(std::slice::from_ref(&written.base)).expect_err("it is not known what it needs");
    assert_eq!(store.objects("packs").len(), aside);
    fs::write(&manifest, bytes).expect("written");
    assert_eq!(sweep(&[]).expect("swept"), 0);
    fs::write(&manifest, "junk").expect("written");
    assert_eq!(sweep(&[]).expect("swept"), 0, "it was read before");
}

#[test]
fn a_flipped_byte_anywhere_is_found_and_named() {
    let store = Store::new();
    let files = BTreeMap::from([
        ("base/1".to_owned(), noise(5 * BLOCK + 100, 1)),
        ("base/2".to_owned(), vec![7; 2 * BLOCK]),
    ]);
    let written = store.write(source(&files).path(), 1, None).expect("written");
    let pack = store.objects("packs").pop().expect("a pack");
    let whole = fs::read(&pack).expect("a pack");
    for at in [0, 1000, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&pack, damaged).expect("written");
        let found = store.verify(&written.base).expect_err("damaged").to_string();
        let name = pack.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(found.contains(&format!("packs/{name}")) && found.contains("of base/"), "{found}");
        store.restore(&written.base).expect_err("damaged");
    }
    fs::write(&pack, &whole[..whole.len() - 1]).expect("written");
    let cut = store.verify(&written.base).expect_err("cut off").to_string();
    assert!(cut.contains("too short"), "{cut}");
    fs::remove_file(&pack).expect("removed");
    assert!(matches!(store.verify(&written.base), Err(ArchiveError::Store { .. })));

    let manifest = store.objects("bases").pop().expect("a manifest");
    let mut bytes = fs::read(&manifest).expect("a manifest");
    bytes[40] ^= 1;
    fs::write(&manifest, bytes).expect("written");
    let found = store.verify(&written.base).expect_err("damaged").to_string();
    assert!(found.contains(written.base.as_str()), "{found}");
}

#[test]
fn the_newest_base_is_one_that_can_be_read() {
    let store = Store::new();
    let volume = VolumeId::from_trusted("vol_1");
    let newest = || {
        let mut passed_over = vec![];
        let note = |error: &ArchiveError| passed_over.push(error.to_string());
        let found = store.runtime.block_on(store.archive.newest_base(&volume, note)).expect("read");
        (found.map(|(base, _)| base), passed_over)
    };
    assert_eq!(newest(), (None, vec![]));
    let source = tempfile::tempdir().expect("a directory");
    fs::write(source.path().join("file"), "content").expect("a file");
    let base = store.write(source.path(), 1, None).expect("a base").base;
    // Whoever can write to the store knows the names of volumes.
    let foreign = "bases/vol_1/999999999999999-00000000";
    fs::copy(store.directory.join(base.as_str()), store.directory.join(foreign)).expect("copied");
    let damaged = format!("{foreign} is damaged: it is not what was written there");
    assert_eq!(newest(), (Some(base.clone()), vec![damaged]));
    fs::write(store.directory.join(base.as_str()), "rotten").expect("written");
    assert_eq!(newest().0, None);
}

#[test]
fn packs_without_a_manifest_are_no_base_and_do_not_disturb_the_next() {
    let store = Store::new();
    let files = BTreeMap::from([("base/1".to_owned(), noise(520 * BLOCK, 1))]);
    let from = source(&files);
    store.within(|| {
        let facts = BaseFacts {
            volume: VolumeId::from_trusted("vol_1"),
            taken_ms: 1,
            log_end: None,
            label: "{}".to_owned(),
        };
        let mut writer = BaseWriter::begin(store.archive.clone(), facts, None).expect("begun");
        let file = File::open(from.path().join("base/1")).expect("a file");
        writer.file(b"1", 0o600, 520 * BLOCK as u64, &file).expect("written");
        // The process ends here.
    });
    let volume = VolumeId::from_trusted("vol_1");
    let bases = || store.runtime.block_on(store.archive.bases(&volume)).expect("listed");
    assert_eq!(bases(), []);
    let written = store.write(from.path(), 2, None).expect("written");
    assert!(bases().iter().eq([&written.base]));
    assert_eq!(tree(store.restore(&written.base).expect("restored").path()), tree(from.path()));
}

#[test]
fn names_that_are_no_text_long_holes_and_modes_come_back() {
    let store = Store::new();
    let from = tempfile::tempdir().expect("a directory");
    let hostile = Path::new(std::ffi::OsStr::from_bytes(b"\xff\n`rm -rf`\x01"));
    fs::create_dir(from.path().join(hostile)).expect("a directory");
    fs::set_permissions(from.path().join(hostile), fs::Permissions::from_mode(0o750)).expect("a mode");
    fs::write(from.path().join(hostile).join("..."), "x").expect("a file");
    // Longer than any disk, and nothing in it but one byte.
    let sparse = File::create(from.path().join("sparse")).expect("a file");
    sparse.set_len(1 << 42).expect("a length");
    sparse.write_all_at(b"here", 1 << 41).expect("written");
    let written = store.write(from.path(), 1, None).expect("written");
    let to = store.restore(&written.base).expect("restored");
    let found = to.path().join("sparse").metadata().expect("restored");
    assert!(found.len() == 1 << 42 && found.blocks() < 1000, "{} blocks", found.blocks());
    let mut four = [0; 4];
    File::open(to.path().join("sparse")).expect("a file").read_exact_at(&mut four, 1 << 41).expect("read");
    assert_eq!(&four, b"here");
    for directory in [from.path(), to.path()] {
        fs::remove_file(directory.join("sparse")).expect("removed");
    }
    assert_eq!(tree(from.path()), tree(to.path()));
}

#[test]
fn what_has_no_content_takes_room_where_it_is_put() {
    let store = Store::new();
    let files = [("a/empty", 0), ("a/short", 10), ("long", 5000)];
    let files = files.map(|(name, length)| (name.to_owned(), noise(length, 1)));
    let written = store.write(source(&BTreeMap::from(files)).path(), 1, None).expect("written");
    let manifest = store.manifest(&written.base);
    assert_eq!(manifest.bytes(), 5010);
    // The directory counts, too.
    assert_eq!(manifest.room_bytes(4096), 3 * 4096 + 5000);
}

#[test]
fn a_path_that_leads_elsewhere_is_refused() {
    let store = Store::new();
    let facts = BaseFacts {
        volume: VolumeId::from_trusted("vol_1"),
        taken_ms: 1,
        log_end: None,
        label: "{}".to_owned(),
    };
    store.within(|| {
        let mut writer = BaseWriter::begin(store.archive.clone(), facts, None).expect("begun");
        for path in ["", "/etc", "a//b", "a/../b", "..", ".", "a/.", "a\0b"] {
            let refused = writer.directory(path.as_bytes(), 0o700);
            assert!(matches!(refused, Err(ArchiveError::Refused(_))), "{path:?}");
        }
    });
}

#[test]
fn whatever_a_server_calls_its_files_and_however_long_they_say_to_be_is_bounded() {
    let store = Store::new();
    let facts = BaseFacts {
        volume: VolumeId::from_trusted("vol_1"),
        taken_ms: 1,
        log_end: None,
        label: "{}".to_owned(),
    };
    let empty = tempfile::tempfile().expect("a file");
    store.within(|| {
        let mut writer = BaseWriter::begin(store.archive.clone(), facts, None).expect("begun");
        for name in ["a", "b", "c"] {
            writer.file(name.as_bytes(), 0o600, u64::MAX / 2, &empty).expect("added");
        }
        let names = vec![b'n'; 256 << 20];
        assert!(matches!(writer.directory(&names, 0o700), Err(ArchiveError::Refused(_))));
        assert_eq!(writer.finish().expect("written").bytes, u64::MAX);
    });
}

#[test]
fn what_is_there_already_is_not_read_and_what_is_otherwise_becomes_what_it_was() {
    let store = Store::new();
    let block = 64 << 10;
    let file = |seed| noise(4 * block + 100, seed);
    let files = [("same", file(1)), ("changed", file(2)), ("longer", file(3)), ("shorter", file(4))];
    let mut files: BTreeMap<String, Vec<u8>> = files.map(|(name, text)| (name.to_owned(), text)).into();
    let mut holes = file(5);
    holes[block..3 * block].fill(0);
    files.insert("holes".to_owned(), holes);
    files.insert("missing".to_owned(), file(6));
    let from = source(&files);
    let base = store.write(from.path(), 1, None).expect("written").base;
    let mut there = files.clone();
    there.get_mut("changed").expect("a file")[2 * block] ^= 1;
    there.get_mut("longer").expect("a file").extend(noise(3 * block, 7));
    there.get_mut("shorter").expect("a file").truncate(block + 5);
    there.insert("holes".to_owned(), noise(4 * block + 100, 8));
    there.remove("missing");
    let there = source(&there);
    let found = store.restore_beside(&base, Some(there.path())).expect("restored");
    assert_eq!(tree(found.path()), tree(from.path()));
    // All of it is in packs that are gone.
    store.objects("packs").iter().for_each(|pack| fs::remove_file(pack).expect("removed"));
    let found = store.restore_beside(&base, Some(from.path())).expect("nothing is read");
    assert_eq!(tree(found.path()), tree(from.path()));
    store.restore_beside(&base, Some(there.path())).expect_err("what is otherwise is not there");
}

#[test]
fn a_file_that_is_longer_than_any_disk_is_made_of_a_similar_one_in_no_time() {
    let store = Store::new();
    let block = 64 << 10;
    let from = source(&[("sparse".to_owned(), noise(block, 1))].into());
    let sparse = File::options().write(true).open(from.path().join("sparse")).expect("a file");
    sparse.set_len(1 << 42).expect("a length");
    sparse.write_all_at(b"here", 1 << 41).expect("written");
    let base = store.write(from.path(), 1, None).expect("written").base;
    let there = source(&[("sparse".to_owned(), noise(3 * block, 2))].into());
    let found = store.restore_beside(&base, Some(there.path())).expect("restored");
    let found = File::open(found.path().join("sparse")).expect("a file");
    assert_eq!(found.metadata().expect("restored").len(), 1 << 42);
    let read = |at, length| {
        let mut bytes = vec![0; length];
        found.read_exact_at(&mut bytes, at).map(|()| bytes).expect("read")
    };
    let mut first = noise(block, 1);
    first.extend(vec![0; 3 * block]);
    assert!(read(0, 4 * block) == first, "what was there and has not to be is nothing");
    assert_eq!(read((1 << 41) - 1, 6), b"\0here\0");
}

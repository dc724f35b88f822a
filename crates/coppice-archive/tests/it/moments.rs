//! Which parts of a log a moment needs, and what is refused.

use std::fs::File;

use chrono::{DateTime, Utc};
use coppice_archive::{ArchiveError, BaseFacts, BaseName, BaseWriter};
use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;
use coppice_test_support::make_bucket;

use crate::s3::{bucket, in_each_bucket};
use crate::support::Store;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(second, 0).expect("a time")
}

/// A store with a base of a volume, taken at a second, whose log ends at a place.
fn base(store: &Store, second: i64, log_end: Option<u64>) -> BaseName {
    let volume = VolumeId::from_trusted("vol_1");
    let time = store.runtime.block_on(store.archive.next_time(&volume, at(second))).expect("a time");
    store.within(|| {
        let facts = BaseFacts {
            volume,
            taken_ms: time.timestamp_millis(),
            log_end: log_end.map(Lsn),
            label: "{}".to_owned(),
        };
        BaseWriter::begin(store.archive.clone(), facts, None).expect("begun").finish().expect("written").base
    })
}

/// A piece that was seen at a second, from one place to another.
fn piece(store: &Store, second: i64, from: u64, to: u64) {
    let (volume, bytes) = (VolumeId::from_trusted("vol_1"), vec![0; (to - from) as usize]);
    let put = store.archive.put_log(&volume, at(second), Lsn(from), &bytes);
    store.runtime.block_on(put).expect("written");
}

/// Ends of the pieces that a moment needs; none when it is out of reach.
fn needed(store: &Store, base: &BaseName, until: Option<i64>) -> Option<Vec<u64>> {
    let found = store.runtime.block_on(store.archive.log_behind(&store.manifest(base), until.map(at)));
    match found {
        Ok(pieces) => Some(pieces.iter().map(|piece| piece.end.0).collect()),
        Err(ArchiveError::OutOfReach(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_moment_needs_the_log_up_to_what_was_seen_after_it_and_no_gap() {
    check_moments(&Store::new());
    in_each_bucket("moments::within_a_bucket_with_moments");
}

/// Does something only in the processes that the test above begins.
#[test]
fn within_a_bucket_with_moments() {
    let Some(bucket) = bucket() else { return };
    make_bucket(&[], &bucket);
    check_moments(&Store::within_bucket(format!("s3://{bucket}/p").parse().expect("a bucket")));
    println!("worked in a bucket");
}

fn check_moments(store: &Store) {
    piece(store, 90, 500, 900);
    let first = base(store, 100, Some(1000));
    for (second, from, to) in [(110, 900, 1100), (120, 1100, 1200), (500, 1200, 1300)] {
        piece(store, second, from, to);
    }
    assert_eq!(needed(store, &first, None), Some(vec![1100, 1200, 1300]), "all of it");
    assert_eq!(needed(store, &first, Some(105)), Some(vec![1100]));
    assert_eq!(needed(store, &first, Some(115)), Some(vec![1100, 1200]));
    assert_eq!(
        needed(store, &first, Some(300)),
        Some(vec![1100, 1200, 1300]),
        "what came in between is in it"
    );
    assert_eq!(needed(store, &first, Some(600)), Some(vec![1100, 1200, 1300]), "nothing came since");
    // What was written behind 1300 never came here.
    let second = base(store, 700, Some(1500));
    assert_eq!(needed(store, &first, Some(600)), None);
    piece(store, 710, 1500, 1600);
    assert_eq!(needed(store, &first, Some(600)), None);
    assert_eq!(needed(store, &first, Some(400)), Some(vec![1100, 1200, 1300]), "all of that is there");
    assert_eq!(needed(store, &second, Some(705)), Some(vec![1600]));
}

#[test]
fn behind_another_base_a_log_counts_only_if_it_goes_on_where_the_other_one_ended() {
    let store = Store::new();
    let first = base(&store, 100, Some(1000));
    piece(&store, 110, 1000, 1200);
    base(&store, 200, Some(1200));
    assert_eq!(needed(&store, &first, Some(150)), Some(vec![1200]), "nothing was written until then");
    piece(&store, 210, 1200, 1300);
    assert_eq!(needed(&store, &first, Some(150)), Some(vec![1200, 1300]));

    // A machine lost the end of its log, and went on otherwise.
    let store = Store::new();
    let first = base(&store, 100, Some(1000));
    piece(&store, 110, 1000, 1200);
    base(&store, 200, Some(1150));
    piece(&store, 210, 1150, 1300);
    assert_eq!(needed(&store, &first, Some(150)), None);
    assert_eq!(needed(&store, &first, Some(105)), Some(vec![1200]));
}

#[test]
fn a_base_without_a_log_is_all_that_there_is() {
    let store = Store::new();
    let only = base(&store, 100, None);
    assert_eq!(needed(&store, &only, Some(500)), Some(vec![]));
}

#[test]
fn whatever_a_clock_does_what_was_written_last_comes_last() {
    let mut store = Store::new();
    let first = base(&store, 10_000, Some(1000));
    piece(&store, 10_010, 1000, 1100);
    // Back by two hours, and on by three.
    piece(&store, 2_820, 1100, 1200);
    piece(&store, 13_620, 1200, 1300);
    let second = base(&store, 10_030, Some(1300));
    // Another process, whose clock is behind all of that.
    store.reopen();
    piece(&store, 10_040, 1300, 1400);
    assert_eq!(needed(&store, &first, None), Some(vec![1100, 1200, 1300, 1400]));
    assert_eq!(needed(&store, &second, None), Some(vec![1400]));
    let bases =
        store.runtime.block_on(store.archive.bases(&VolumeId::from_trusted("vol_1"))).expect("listed");
    assert_eq!(bases, [first, second]);
    let third = base(&store, 50, Some(1400));
    piece(&store, 60, 1400, 1500);
    assert_eq!(needed(&store, &third, None), Some(vec![1500]), "and one without what was before it");
}

#[test]
fn a_moment_behind_an_object_whose_time_is_ahead_has_what_was_written_by_then() {
    let store = Store::new();
    let ahead = base(&store, 32_503_680_000, Some(1000));
    for (second, from, to) in [(110, 1000, 1100), (120, 1100, 1200), (130, 1200, 1300), (140, 1300, 1400)] {
        let before = store.objects("wal");
        piece(&store, second, from, to);
        let written = store.objects("wal").into_iter().find(|object| !before.contains(object));
        let written = File::options().write(true).open(written.expect("a piece")).expect("a file");
        written.set_modified(at(second).into()).expect("a time");
    }
    assert_eq!(needed(&store, &ahead, Some(125)), Some(vec![1100, 1200, 1300]));
    assert_eq!(needed(&store, &ahead, Some(200)), Some(vec![1100, 1200, 1300, 1400]));
    assert_eq!(needed(&store, &ahead, Some(50)), Some(vec![1100]));
}

#[test]
fn a_log_reaches_as_far_as_no_piece_is_missing() {
    let store = Store::new();
    let base = base(&store, 100, Some(1000));
    let reaches = || store.runtime.block_on(store.archive.log_reaches(&store.manifest(&base)));
    assert_eq!(reaches().expect("nothing is missing"), Some(Lsn(1000)));
    for (second, from, to) in [(110, 900, 1100), (120, 1100, 1200), (130, 1200, 1300)] {
        piece(&store, second, from, to);
    }
    assert_eq!(reaches().expect("nothing is missing"), Some(Lsn(1300)));
    let mut pieces = store.objects("wal");
    pieces.sort();
    std::fs::remove_file(&pieces[2]).expect("removed");
    assert_eq!(reaches().expect("the newest one is gone, which nothing here tells"), Some(Lsn(1200)));
    std::fs::remove_file(&pieces[0]).expect("removed");
    let Err(ArchiveError::Damaged { why, .. }) = reaches() else { panic!("there is a gap") };
    assert_eq!(why, "the store does not have the log from 0/3E8 to 0/44C");
}

#[test]
fn a_log_that_is_shorter_than_it_was_written_is_damaged() {
    let store = Store::new();
    let base = base(&store, 100, Some(1000));
    piece(&store, 110, 1000, 1100);
    let check = |written| {
        let manifest = store.manifest(&base);
        store.runtime.block_on(store.archive.whole_log(&manifest, Lsn(written)))
    };
    check(1100).expect("all of it is there");
    let Err(ArchiveError::Damaged { why, .. }) = check(1101) else { panic!("the last byte is not there") };
    assert_eq!(why, "the store has the log up to 0/44C, and it was written there up to 0/44D");
}

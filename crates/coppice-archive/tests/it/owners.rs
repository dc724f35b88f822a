//! Several that take one store in the same moment: one of them owns it.

use std::fs;

use coppice_archive::{Archive, ArchiveError, StorePlace};
use coppice_core::InstallationId;
use coppice_test_support::make_bucket;
use tokio::runtime::Runtime;

use crate::s3::{bucket, in_each_bucket};
use crate::support::{Store, installation, key};

/// Stores that are taken by several. Of two such writes OpenStack Swift lets both through every other time.
const STORES: usize = 12;

/// Takes a store as these at once, and tells how many own it afterwards.
fn owners(runtime: &Runtime, place: &StorePlace, takers: &[InstallationId]) -> usize {
    let taken: Vec<_> = takers
        .iter()
        .cloned()
        .map(|taker| {
            let place = place.clone();
            runtime.spawn(async move { Archive::take(&place, &key(1), &taker).await })
        })
        .collect();
    let taken = taken.into_iter().map(|taker| runtime.block_on(taker).expect("no panic"));
    let archives: Vec<Archive> = taken
        .filter_map(|taken| match taken {
            Ok(archive) => Some(archive),
            Err(ArchiveError::OtherInstallation(_)) if takers[0] != takers[1] => None,
            Err(error) => panic!("{}", error.chain()),
        })
        .collect();
    archives.iter().filter(|archive| runtime.block_on(archive.check_owner()).is_ok()).count()
}

fn each_has_one_owner(place: &str) {
    let runtime = Runtime::new().expect("a runtime");
    for store in 0..STORES {
        let place = |name: &str| format!("{place}/{name}{store}").parse().expect("a place");
        let others = [1, 2].map(|n| InstallationId::from_trusted(format!("ins_{n}")));
        assert_eq!(owners(&runtime, &place("shared"), &[installation(), installation()]), 1, "{store}");
        assert_eq!(owners(&runtime, &place("others"), &others), 1, "{store}");
        // Now there are owners before them.
        assert_eq!(owners(&runtime, &place("shared"), &[installation(), installation()]), 1, "{store}");
    }
}

#[test]
fn a_directory_that_two_take_at_once_has_one_owner() {
    let home = tempfile::tempdir().expect("a directory");
    each_has_one_owner(&format!("file://{}", home.path().display()));
}

#[test]
fn a_bucket_that_two_take_at_once_has_one_owner() {
    in_each_bucket("owners::within_a_bucket_that_two_take");
}

/// Does something only in the processes that the test above begins.
#[test]
fn within_a_bucket_that_two_take() {
    let Some(bucket) = bucket() else { return };
    make_bucket(&[], &bucket);
    each_has_one_owner(&format!("s3://{bucket}"));
    println!("worked in a bucket");
}

#[test]
fn an_owner_of_an_earlier_release_is_one() {
    let store = Store::new();
    let earlier = store.directory.join("owner/0000000007");
    fs::write(&earlier, "").expect("a file");
    let lost = store.runtime.block_on(store.archive.check_owner());
    assert!(matches!(lost, Err(ArchiveError::TakenOver)), "its number is greater");
    let next = store.runtime.block_on(Archive::take(&store.place, &key(1), &installation()));
    store.runtime.block_on(next.expect("taken over").check_owner()).expect("the owner");
    assert!(!earlier.exists(), "nobody needs it");
    let names = store.objects("owner");
    assert!(names.len() == 1 && names[0].display().to_string().contains("/0000000008-"), "{names:?}");
}

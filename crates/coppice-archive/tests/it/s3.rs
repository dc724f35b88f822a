//! A store in a bucket, on a server that speaks S3.

use std::process::Command;

use chrono::{Duration, Utc};
use coppice_archive::{Archive, ArchiveError, Records, StorePlace};
use coppice_core::lsn::Lsn;
use coppice_core::{HostId, VolumeId};
use coppice_test_support::{S3_SECRET, S3Server, make_bucket};
use tokio::runtime::Runtime;

use crate::bases::{noise, source};
use crate::support::{Store, installation, key, tree};

/// Set for the process that works in a bucket: it is where credentials are read from.
const BUCKET: &str = "COPPICE_TEST_BUCKET";

/// Does a test of this program in a process of its own, which has a server's bucket.
pub(crate) fn in_a_bucket(test: &str, server: &S3Server, endpoint: &str, more: &[(&str, &str)]) {
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again
        .args(["--exact", test, "--nocapture"])
        .env(BUCKET, "bucket")
        .envs(server.environment())
        .env("AWS_ENDPOINT_URL", endpoint)
        .envs(more.iter().copied());
    let done = again.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("worked in a bucket"), "{said}");
    assert!(!said.contains(S3_SECRET), "{said}");
}

/// The same on each of the servers that there are.
pub(crate) fn in_each_bucket(test: &str) {
    for server in [S3Server::start(), S3Server::swift()] {
        in_a_bucket(test, &server, &server.endpoint(), &[]);
    }
}

/// The bucket of this process; none where it is not such a one.
pub(crate) fn bucket() -> Option<String> {
    std::env::var(BUCKET).ok()
}

#[test]
fn a_bucket_does_what_a_directory_does() {
    in_each_bucket("s3::within_a_bucket");
}

/// Does something only in the processes that the test above begins.
#[test]
fn within_a_bucket() {
    let Some(bucket) = bucket() else { return };
    let runtime = Runtime::new().expect("a runtime");
    let place: StorePlace = format!("s3://{bucket}/a/prefix").parse().expect("a bucket");
    let take = || runtime.block_on(Archive::take(&place, &key(1), &installation()));
    let missing = take().expect_err("there is no bucket").chain();
    assert!(missing.contains("coppice.json"), "{missing}");
    make_bucket(&[], &bucket);

    let first = take().expect("a store");
    let records = Records { host: HostId::from_trusted("hst_1"), export: vec![7; 100_000] };
    runtime.block_on(first.put_records(&records, Utc::now())).expect("written");
    let (volume, bytes) = (VolumeId::from_trusted("vol_1"), vec![9; 1 << 20]);
    runtime.block_on(first.put_log(&volume, Utc::now(), Lsn(1 << 24), &bytes)).expect("written");

    let second = take().expect("taken over");
    let refused = runtime.block_on(first.put_records(&records, Utc::now()));
    assert!(matches!(refused, Err(ArchiveError::TakenOver)), "it has another owner");
    let names = runtime.block_on(second.records()).expect("listed");
    assert_eq!(names.len(), 1);
    assert_eq!(runtime.block_on(second.get_records(&names[0])).expect("read"), records);
    assert!(runtime.block_on(second.logs()).expect("listed").iter().eq([&volume]));
    let pieces = runtime.block_on(second.log_pieces(&volume)).expect("listed");
    assert_eq!(runtime.block_on(second.get_log(&pieces[0])).expect("read"), bytes);
    runtime.block_on(second.remove_log(&volume, Utc::now())).expect("removed");
    assert_eq!(runtime.block_on(second.log_pieces(&volume)).expect("listed"), []);
    assert!(matches!(runtime.block_on(Archive::open(&place, &key(2))), Err(ArchiveError::WrongKey(_))));
    println!("worked in a bucket");
}

#[test]
fn a_base_in_a_bucket_comes_back_and_goes_with_its_packs() {
    in_each_bucket("s3::within_a_bucket_with_bases");
}

/// Does something only in the processes that the test above begins.
#[test]
fn within_a_bucket_with_bases() {
    let Some(bucket) = bucket() else { return };
    make_bucket(&[], &bucket);
    let mut store = Store::within_bucket(format!("s3://{bucket}/p").parse().expect("a bucket"));
    // More than one pack, and names that an URL would have otherwise.
    let mut files = [("a/b", noise(40 << 20, 1)), ("a/\u{e4} +%2F&", noise(100_000, 2)), ("c/empty", vec![])]
        .map(|(name, content)| (name.to_owned(), content))
        .into();
    let from = source(&files);
    let first = store.write(from.path(), 1, None).expect("written").base;
    store.reopen();
    files.insert("c/more".to_owned(), noise(100_000, 3));
    let from = source(&files);
    let second = store.write(from.path(), 2, Some(&first)).expect("written").base;
    let volume = VolumeId::from_trusted("vol_1");
    assert_eq!(
        store.runtime.block_on(store.archive.bases(&volume)).expect("listed"),
        [first.clone(), second.clone()]
    );
    store.verify(&second).expect("sound");
    assert_eq!(tree(store.restore(&second).expect("restored").path()), tree(from.path()));

    let later = Utc::now() + Duration::hours(1);
    let sweep = || store.runtime.block_on(store.archive.sweep(&[], later)).expect("swept");
    let remove = |base| store.runtime.block_on(store.archive.remove_base(base)).expect("removed");
    remove(&first);
    assert_eq!(sweep(), 0, "the second one has blocks of the first");
    store.verify(&second).expect("sound");
    remove(&second);
    assert!(sweep() > 1, "all of them go");
    assert_eq!(store.runtime.block_on(store.archive.all_bases()).expect("listed"), []);
    println!("worked in a bucket");
}

//! Whose a store is, and who may write to it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use aws_lc_rs::hmac;
use chrono::{Duration, Utc};
use coppice_archive::{Archive, ArchiveError, ArchiveKey, Records, StorePlace};
use coppice_core::lsn::Lsn;
use coppice_core::{HostId, InstallationId, VolumeId};
use coppice_test_support::python_program;
use rustix::fs::{CWD, Mode, mkfifoat};
use zeroize::Zeroizing;

use crate::support::{Store, installation, key, tree};

fn records(text: &str) -> Records {
    Records { host: HostId::from_trusted("hst_1"), export: text.as_bytes().to_vec() }
}

#[test]
fn a_wrong_key_another_installation_and_a_later_format_are_refused() {
    let store = Store::new();
    let take = |key, installation| store.runtime.block_on(Archive::take(&store.place, &key, &installation));
    let open = |key| store.runtime.block_on(Archive::open(&store.place, &key));
    let wrong = open(key(2)).expect_err("another key");
    assert!(matches!(&wrong, ArchiveError::WrongKey(whose) if whose == "ins_1"), "{wrong}");
    assert!(matches!(take(key(2), installation()), Err(ArchiveError::WrongKey(_))));
    let other = take(key(1), InstallationId::from_trusted("ins_2")).expect_err("another installation");
    assert!(other.to_string().contains("ins_1"), "{other}");
    assert_eq!(open(key(1)).expect("a reader").installation(), &installation());

    let head = store.directory.join("coppice.json");
    let text = fs::read_to_string(&head).expect("a head");
    fs::write(&head, text.replace("\"format\": 1", "\"format\": 2, \"new\": true")).expect("written");
    assert!(matches!(open(key(1)), Err(ArchiveError::UnknownFormat(2))));
    fs::write(&head, "{").expect("written");
    assert!(matches!(open(key(1)), Err(ArchiveError::Damaged { .. })));

    let empty = tempfile::tempdir().expect("a directory");
    let place = StorePlace::Directory(empty.path().to_owned());
    assert!(matches!(store.runtime.block_on(Archive::open(&place, &key(1))), Err(ArchiveError::NoStore)));
}

#[test]
fn objects_that_are_longer_than_any_that_was_written_are_not_read() {
    let store = Store::new();
    let (runtime, archive) = (&store.runtime, &store.archive);
    runtime.block_on(archive.put_records(&records("first"), Utc::now())).expect("written");
    let volume = VolumeId::from_trusted("vol_1");
    runtime.block_on(archive.put_log(&volume, Utc::now(), Lsn(0x100), b"log")).expect("written");
    let long = vec![0; coppice_archive::PIECE_BYTES_MAX + 1];
    let put = runtime.block_on(archive.put_log(&volume, Utc::now(), Lsn(0x200), &long));
    assert!(matches!(put, Err(ArchiveError::Refused(_))), "what could not be read is not written");
    let source = tempfile::tempdir().expect("a directory");
    fs::write(source.path().join("file"), "content").expect("a file");
    let base = store.write(source.path(), 1, None).expect("a base").base;
    let manifest = store.manifest(&base);

    // None of them takes room on the disk, and all of it in memory.
    let swell = |directory: &str, bytes: u64| {
        let mut path = store.directory.join(directory);
        while path.is_dir() {
            path = fs::read_dir(&path).expect("a directory").next().expect("an entry").expect("read").path();
        }
        fs::OpenOptions::new().write(true).open(path).expect("a file").set_len(bytes).expect("longer");
    };
    let too_long = |refused: ArchiveError| {
        assert!(refused.to_string().contains("it has more than"), "{refused}");
    };
    let piece = runtime.block_on(archive.log_pieces(&volume)).expect("listed").remove(0);
    for directory in ["records", "bases", "wal", "packs"] {
        swell(directory, 1 << 40);
    }
    let name = runtime.block_on(archive.records()).expect("listed").remove(0);
    too_long(runtime.block_on(archive.get_records(&name)).expect_err("records"));
    too_long(runtime.block_on(archive.manifest(&base)).expect_err("a manifest"));
    too_long(runtime.block_on(archive.get_log(&piece)).expect_err("a piece of a log"));
    too_long(store.within(|| archive.verify(&manifest)).expect_err("a pack"));
    swell("coppice.json", 1 << 40);
    too_long(runtime.block_on(Archive::open(&store.place, &key(1))).expect_err("a head"));
}

#[test]
fn names_that_nobody_wrote_are_no_pieces_and_no_owners() {
    let store = Store::new();
    let volume = VolumeId::from_trusted("vol_1");
    let wal = store.directory.join("wal/vol_1");
    fs::create_dir_all(&wal).expect("a directory");
    for name in [
        "001795416883999-0000000000000000-FFFFFFFFFFFFFFFF",
        "001795416883999-FFFFFFFFFFFFFFFF-0000000000000000",
        "001795416883999-0000000000000000-0000000002000001",
        "999999999999999999999-0000000000000000-0000000000000001",
        "notes",
    ] {
        fs::write(wal.join(name), "x").expect("a file");
    }
    assert_eq!(store.runtime.block_on(store.archive.log_pieces(&volume)).expect("listed"), []);
    fs::write(store.directory.join("owner").join(u64::MAX.to_string()), "").expect("a file");
    let refused = store.runtime.block_on(Archive::take(&store.place, &key(1), &installation()));
    assert!(matches!(refused, Err(ArchiveError::Damaged { .. })), "no number is left");
}

#[test]
fn a_link_in_a_directory_leads_nowhere_and_a_pipe_keeps_nothing_waiting() {
    let store = Store::new();
    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::write(elsewhere.path().join("file"), "of the host").expect("a file");
    let put = || store.runtime.block_on(store.archive.put_records(&records("first"), Utc::now()));
    let newest = put().expect("written");
    let thin = || store.runtime.block_on(store.archive.thin_records(&newest, 0));
    // Both sort before what is to be kept, and what takes the store over forgets earlier owners.
    for directory in ["records", "owner"] {
        let link = store.directory.join(directory).join("000");
        symlink(elsewhere.path(), &link).expect("a link");
        let refused = match directory {
            "owner" => {
                store.runtime.block_on(Archive::take(&store.place, &key(1), &installation())).map(drop)
            }
            _ => thin(),
        };
        let refused = refused.expect_err("a link").to_string();
        assert!(refused.contains("000/file: there is a link"), "{refused}");
        assert!(elsewhere.path().join("file").exists(), "{directory}");
        fs::remove_file(link).expect("removed");
    }
    let object = store.objects("records").remove(0);
    fs::rename(&object, elsewhere.path().join("records")).expect("moved");
    symlink(elsewhere.path().join("records"), &object).expect("a link");
    assert!(store.runtime.block_on(store.archive.get_records(&newest)).is_err());
    fs::remove_file(&object).expect("removed");

    let head = store.directory.join("coppice.json");
    fs::remove_file(&head).expect("removed");
    mkfifoat(CWD, &head, Mode::RWXU).expect("a pipe");
    let refused = store.runtime.block_on(Archive::open(&store.place, &key(1))).expect_err("a pipe");
    assert!(refused.to_string().contains("coppice.json: there is a link, or something else"), "{refused}");
    thin().expect("nothing is left to remove");
}

#[test]
fn who_lost_the_store_to_another_process_writes_no_more() {
    let store = Store::new();
    let put = |archive: &Archive| store.runtime.block_on(archive.put_records(&records("first"), Utc::now()));
    put(&store.archive).expect("the owner writes");
    let reader = store.runtime.block_on(Archive::open(&store.place, &key(1))).expect("a reader");
    assert!(matches!(put(&reader), Err(ArchiveError::TakenOver)));
    let next = store.runtime.block_on(Archive::take(&store.place, &key(1), &installation()));
    let next = next.expect("taken over");
    assert!(matches!(put(&store.archive), Err(ArchiveError::TakenOver)));
    put(&next).expect("the new owner writes");
}

#[test]
fn pieces_of_a_log_come_in_the_order_in_which_they_were_seen() {
    let store = Store::new();
    let (runtime, archive) = (&store.runtime, &store.archive);
    let (volume, now) = (VolumeId::from_trusted("vol_1"), Utc::now());
    let other = VolumeId::from_trusted("vol_10");
    for (volume, ago, start, bytes) in
        [(&volume, 2, 0x100, "first"), (&volume, 1, 0x300, "later"), (&other, 3, 0x100, "another's")]
    {
        let seen_at = now - Duration::minutes(ago);
        runtime.block_on(archive.put_log(volume, seen_at, Lsn(start), bytes.as_bytes())).expect("written");
    }
    let pieces = || runtime.block_on(archive.log_pieces(&volume)).expect("listed");
    let places: Vec<_> = pieces().iter().map(|piece| (piece.start.0, piece.end.0)).collect();
    assert_eq!(places, [(0x100, 0x105), (0x300, 0x305)]);
    let read = runtime.block_on(archive.get_log(&pieces()[0])).expect("read");
    assert_eq!(read, b"first");
    let before = now - Duration::seconds(90);
    runtime.block_on(archive.remove_log(&volume, before)).expect("removed");
    assert_eq!(pieces().len(), 1);
    assert_eq!(runtime.block_on(archive.log_pieces(&other)).expect("listed").len(), 1);
    assert_eq!(runtime.block_on(archive.logs()).expect("listed"), [volume, other]);
}

#[test]
fn records_are_kept_as_they_are_and_the_oldest_go() {
    let store = Store::new();
    let (runtime, archive) = (&store.runtime, &store.archive);
    let now = Utc::now();
    let mut newest = None;
    for ago in [3, 2, 1, 0] {
        let text = format!("records of {ago} minutes ago");
        let records = records(&text);
        let put = archive.put_records(&records, now - Duration::minutes(ago));
        newest = Some(runtime.block_on(put).expect("written"));
    }
    let foreign = ["zzz", "999999999999999-00000000"].map(|name| store.directory.join("records").join(name));
    foreign.iter().for_each(|path| fs::write(path, "by somebody else").expect("written"));
    let newest = newest.expect("there is one");
    runtime.block_on(archive.thin_records(&newest, 1)).expect("thinned");
    foreign.iter().for_each(|path| fs::remove_file(path).expect("it is left alone"));
    let left = runtime.block_on(archive.records()).expect("listed");
    let texts = left.iter().map(|name| runtime.block_on(archive.get_records(name)).expect("read"));
    let expected = [1, 0].map(|ago| records(&format!("records of {ago} minutes ago")));
    assert_eq!(texts.collect::<Vec<_>>(), expected);
    assert!(left[1].taken_at() - left[0].taken_at() == Duration::minutes(1));
    let late = records("records after the clock went back");
    runtime.block_on(archive.put_records(&late, now - Duration::hours(3))).expect("written");
    let newest = runtime.block_on(archive.records()).expect("listed").pop().expect("there are some");
    assert_eq!(runtime.block_on(archive.get_records(&newest)).expect("read"), late);
    let stored = fs::read(&store.objects("records")[0]).expect("an object");
    assert!(!stored.windows(7).any(|part| part == b"records"), "it is encrypted");
}

/// The key that a master key of these bytes means.
fn of_master_key(bytes: &[u8]) -> ArchiveKey {
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, bytes), b"coppice archive 1");
    ArchiveKey::new(Zeroizing::new(derived.as_ref().try_into().expect("32 bytes")))
}

#[test]
fn whoever_has_the_key_reads_a_store_without_this_program() {
    let secret = [9; 32];
    let store = Store::with_key(&of_master_key(&secret));
    let source = tempfile::tempdir().expect("a directory");
    for (name, content) in
        [("base/1", vec![7; 200_000]), ("base/2", vec![]), ("PG_VERSION", b"18\n".to_vec())]
    {
        let path = source.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, content).expect("a file");
    }
    let first = store.write(source.path(), 1000, None).expect("written");
    fs::write(source.path().join("base/1"), vec![8; 70_000]).expect("a file");
    let second = store.write(source.path(), 2000, Some(&first.base)).expect("written");
    let newest = records("what the metastore exported");
    store.runtime.block_on(store.archive.put_records(&newest, Utc::now())).expect("written");

    let key_file = source.path().join("secret.key");
    let read = |secret: &[u8], arguments: &[&str]| {
        fs::write(&key_file, secret).expect("a file");
        let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reader/read_store.py");
        let mut command = Command::new(python_program("python"));
        command.arg(reader).arg(&store.directory).arg(&key_file).args(arguments);
        command.output().expect("python runs")
    };
    let verified = read(&secret, &["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(told.contains(&format!("{}: 3 files", second.base)), "{told}");
    let target = source.path().join("restored").display().to_string();
    let restored = read(&secret, &["restore", second.base.as_str(), &target]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let own = store.restore(&second.base).expect("restored");
    assert_eq!(tree(Path::new(&target)), tree(own.path()));
    assert_eq!(read(&secret, &["records"]).stdout, newest.export);
    let text = format!("coppice secret key 2\nkey {0}\narchive {1}\n", "00".repeat(32), {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), b"coppice archive 1");
        hex::encode(derived)
    });
    assert_eq!(read(text.as_bytes(), &["records"]).stdout, newest.export, "after a rekey");
    let refused = read(&[8; 32], &["list"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("not the key"));
}

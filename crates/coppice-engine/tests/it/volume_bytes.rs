//! What volumes own and share, as real file systems tell it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_core::storage::{ChangedBytes, FileBytes, VolumeBytes};
use coppice_engine::local::volumes::{DriverKind, SourceState, Volumes};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::storage::{Storage, data_of, new_volume, on_every_driver};

/// What names and small files take beside what was written.
const BESIDE: u64 = 16 << 10;

fn copy_of(storage: &Storage, volumes: &Volumes, source: &VolumeId) -> VolumeId {
    let label = storage.label(1);
    volumes.copy(source, &label, SourceState::Stopped).unwrap();
    label.volume
}

/// Writes to the beginning of a file of a volume, until it is on the disk.
fn write(volumes: &Volumes, volume: &VolumeId, file: &str, bytes: usize) {
    let path = data_of(volumes, volume).join(file);
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all(&vec![0x5a; bytes]).unwrap();
    file.sync_all().unwrap();
}

fn about(found: Option<u64>, expected: u64) -> bool {
    found.is_some_and(|found| found.abs_diff(expected) <= BESIDE)
}

#[test]
fn a_copy_owns_what_it_writes_and_shares_the_rest() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let alone = volumes.bytes(&parent).unwrap();
        assert_eq!(alone.shared, Some(0));
        assert!(alone.total > 370_000, "{alone:?}");
        let child = copy_of(storage, volumes, &parent);
        let made = volumes.bytes(&child).unwrap();
        assert_eq!(made.total, alone.total);
        let is_shared = volumes.driver() != DriverKind::Copy;
        let inherited = if is_shared { 300_000 + 70_000 } else { 0 };
        assert!(made.shared.is_some_and(|shared| shared >= inherited), "{made:?}");

        write(volumes, &child, "base/5/1259", 100_000);
        write(volumes, &child, "base/5/new", 200_000);
        let VolumeBytes { total, shared } = volumes.bytes(&child).unwrap();
        assert_eq!(total, alone.total + 200_000);
        let overwritten = if is_shared { 100_000 } else { 0 };
        let left = made.shared.unwrap() - overwritten;
        // btrfs counts whole blocks of what is new, too.
        assert!(about(shared, left), "{shared:?} of {left}");
    });
}

#[test]
fn what_a_volume_wrote_stays_its_own_when_it_is_copied_on_btrfs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let parent = new_volume(&storage, &volumes);
    let child = copy_of(&storage, &volumes, &parent);
    write(&volumes, &child, "base/5/new", 200_000);
    let before = volumes.bytes(&child).unwrap();
    let grandchild = copy_of(&storage, &volumes, &child);
    assert_eq!(volumes.bytes(&child).unwrap(), before);
    let VolumeBytes { total, shared } = volumes.bytes(&grandchild).unwrap();
    assert!(about(shared, total), "all that it has: {shared:?} of {total}");
    volumes.remove(&parent).unwrap();
    assert_eq!(volumes.bytes(&child).unwrap(), before, "whether or not its parent is there");
}

#[test]
fn what_a_server_puts_among_its_data_holds_nobody_up() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let child = copy_of(storage, volumes, &parent);
        let before = volumes.bytes(&child).unwrap();
        let data = data_of(volumes, &child);
        mknodat(CWD, data.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink("/", data.join("base/everything")).unwrap();
        symlink("..", data.join("base/loop")).unwrap();
        fs::File::create(data.join("holes")).unwrap().set_len(1 << 30).unwrap();
        let after = volumes.bytes(&child).unwrap();
        assert_eq!(after.total, before.total + (1 << 30) + 3 * 4096, "as it counts for its limit");
        assert!(after.shared.is_some_and(|shared| shared <= after.total), "{after:?}");
    });
}

/// Writes into the middle of a file of a volume, until it is on the disk.
fn write_at(volumes: &Volumes, volume: &VolumeId, file: &str, at: u64, bytes: usize) {
    let file = OpenOptions::new().write(true).open(data_of(volumes, volume).join(file)).unwrap();
    file.write_all_at(&vec![0x5a; bytes], at).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn of_two_volumes_the_blocks_that_one_wrote_are_told_by_file() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        write(volumes, &parent, "base/5/16384", 1 << 20);
        write(volumes, &parent, "base/5/16384.1", 1 << 20);
        write(volumes, &parent, "base/5/16390", 1 << 20);
        let (child, sibling) = (copy_of(storage, volumes, &parent), copy_of(storage, volumes, &parent));
        let found = |of: &VolumeId, against: &VolumeId| volumes.changed_bytes(of, against, 5).unwrap();
        if volumes.driver() == DriverKind::Copy {
            assert!(
                matches!(found(&child, &parent), ChangedBytes::Unknown(why) if why.contains("plain copies"))
            );
            return;
        }
        let changed = |of: &VolumeId, against: &VolumeId, relation: u32| match found(of, against) {
            ChangedBytes::Known(files) => files.get(&relation).copied().unwrap_or_default(),
            ChangedBytes::Unknown(why) => panic!("{why}"),
        };
        let same = FileBytes { bytes: 2 << 20, changed: 0 };
        assert_eq!(changed(&child, &parent, 16384), same);

        write_at(volumes, &child, "base/5/16384.1", 512 << 10, 64 << 10);
        write(volumes, &child, "base/5/16384_fsm", 8192);
        write(volumes, &child, "base/5/20000", 128 << 10);
        let expected = FileBytes { bytes: (2 << 20) + 8192, changed: (64 << 10) + 8192 };
        assert_eq!(changed(&child, &parent, 16384), expected);
        assert_eq!(changed(&child, &sibling, 16384), expected, "who has the rest, too, does not matter");
        assert_eq!(changed(&child, &parent, 16390), FileBytes { bytes: 1 << 20, changed: 0 });
        assert_eq!(changed(&child, &parent, 20000), FileBytes { bytes: 128 << 10, changed: 128 << 10 });
        // What the other one wrote differs as well; what only it has is none of this one's.
        assert_eq!(changed(&parent, &child, 16384), FileBytes { bytes: 2 << 20, changed: 64 << 10 });
        assert_eq!(changed(&parent, &child, 20000), FileBytes::default());
        let grandchild = copy_of(storage, volumes, &child);
        assert_eq!(changed(&child, &parent, 16384), expected, "copies of its own change nothing");
        assert_eq!(changed(&grandchild, &child, 16384).changed, 0);
    });
}

#[test]
fn what_a_server_puts_in_the_place_of_its_files_is_not_opened() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        write(volumes, &parent, "base/5/16384", 1 << 20);
        let child = copy_of(storage, volumes, &parent);
        let known = |of: &VolumeId| match volumes.changed_bytes(of, &parent, 5) {
            Ok(ChangedBytes::Known(files)) => Some(files.get(&16384).copied()),
            Ok(ChangedBytes::Unknown(_)) => None,
            Err(error) => panic!("{error}"),
        };
        let data = data_of(volumes, &child);
        let file = data.join("base/5/16384");
        fs::remove_file(&file).unwrap();
        symlink("/etc/passwd", &file).unwrap();
        assert!(known(&child).is_none_or(|found| found.is_none()), "no link is followed");
        fs::remove_file(&file).unwrap();
        mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(known(&child).is_none_or(|found| found.is_none()), "nobody waits at a pipe");
        fs::rename(data.join("base/5"), data.join("base/6")).unwrap();
        symlink("/etc", data.join("base/5")).unwrap();
        let refused = volumes.changed_bytes(&child, &parent, 5);
        assert_eq!(refused.is_err(), volumes.driver() != DriverKind::Copy, "{refused:?}");
        fs::remove_file(data.join("base/5")).unwrap();
        assert!(known(&child).is_none_or(|found| found.is_none()), "it has no such database");
    });
}

#[test]
fn blocks_that_are_held_for_next_to_nothing_count_on_btrfs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let parent = new_volume(&storage, &volumes);
    let volume = copy_of(&storage, &volumes, &parent);
    let before = volumes.bytes(&volume).unwrap();
    // An extent of all this is kept for the first block.
    let written = 24 << 20;
    write(&volumes, &volume, "base/5/new", written);
    let file = OpenOptions::new().write(true).open(data_of(&volumes, &volume).join("base/5/new")).unwrap();
    file.set_len(8192).unwrap();
    file.sync_all().unwrap();
    let found = volumes.bytes(&volume).unwrap();
    assert!(found.total >= written as u64 / 4, "{found:?}");
    // Its copy has not written that, and holds it all the same: also when it is the only one, and by a copy of it.
    let copy = copy_of(&storage, &volumes, &volume);
    let copied = volumes.bytes(&copy).unwrap();
    assert!(copied.total >= written as u64 / 4, "{copied:?}");
    assert!(about(copied.shared, copied.total), "it owns nothing of that: {copied:?}");
    let last = copy_of(&storage, &volumes, &copy);
    volumes.remove(&copy).unwrap();
    write(&volumes, &last, "base/5/more", written);
    let file_of_last =
        OpenOptions::new().write(true).open(data_of(&volumes, &last).join("base/5/more")).unwrap();
    file_of_last.set_len(8192).unwrap();
    file_of_last.sync_all().unwrap();
    let held_last = volumes.bytes(&last).unwrap();
    assert!(held_last.total >= written as u64 / 2, "what it wrote comes to that: {held_last:?}");
    drop(file);
    fs::remove_file(data_of(&volumes, &volume).join("base/5/new")).unwrap();
    // The file system lets go of it when it comes to that.
    let deadline = Instant::now() + Duration::from_secs(60);
    while volumes.bytes(&volume).unwrap().total != before.total {
        assert!(Instant::now() < deadline, "nothing is held any more");
        std::thread::sleep(Duration::from_millis(10));
    }
}

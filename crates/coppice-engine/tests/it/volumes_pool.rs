//! The platform's own pool: one device, no holes, room that grows, nothing
//! left behind. All of it takes root.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_engine::EngineError;
use coppice_engine::local::volumes::{DriverKind, PoolMode, SourceState, StorageOptions, Volumes};

use crate::storage::{MIB, Storage, data_of, fill, new_volume, run, tree};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn image_bytes(storage: &Storage) -> (u64, u64) {
    let meta = storage.layout().pool_image().metadata().unwrap();
    (meta.len(), meta.blocks() * 512)
}

/// Another test that looks for loop devices holds ours for a moment, and a
/// server that is started meanwhile holds our mount until it ends.
pub(crate) fn wait_for_no_loop_device(storage: &Storage) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !storage.loop_devices().is_empty() {
        assert!(Instant::now() < deadline, "still attached: {:?}", storage.loop_devices());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn opening_twice_attaches_once() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let first = storage.open();
    let volume = new_volume(&storage, &first);
    let second = storage.open();
    assert_eq!(storage.loop_devices().len(), 1);
    assert_eq!(storage.mounts(), [storage.layout().pool().to_str().unwrap()]);
    assert_eq!(tree(&data_of(&second, &volume)), tree(&data_of(&first, &volume)));
}

#[test]
fn a_detached_pool_leaves_nothing_and_comes_back_whole() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let volume = new_volume(&storage, &volumes);
    let before = tree(&data_of(&volumes, &volume));

    let open_file = fs::File::open(data_of(&volumes, &volume).join("PG_VERSION")).unwrap();
    assert!(volumes.detach().is_err(), "a file of it is open");
    drop(open_file);
    volumes.detach().unwrap();
    volumes.detach().unwrap();
    assert!(storage.mounts().is_empty());
    wait_for_no_loop_device(&storage);
    assert!(!volumes.exists(&volume));

    assert_eq!(tree(&data_of(&storage.open(), &volume)), before);
}

#[test]
fn a_device_that_somebody_else_attached_is_used_and_released() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let volume = new_volume(&storage, &volumes);
    volumes.detach().unwrap();
    wait_for_no_loop_device(&storage);
    // Renamed since it was attached: only device and inode tell.
    let image = storage.layout().pool_image();
    let attached_as = image.with_extension("old");
    fs::hard_link(&image, &attached_as).unwrap();
    run(Command::new("losetup").arg("--find").arg(&attached_as));
    fs::remove_file(&attached_as).unwrap();

    let volumes = storage.open();
    assert!(volumes.exists(&volume));
    assert_eq!(storage.loop_devices().len(), 1);
    volumes.detach().unwrap();
    wait_for_no_loop_device(&storage);
}

#[test]
fn a_pool_in_use_is_refused_by_another_path() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let volume = new_volume(&storage, &volumes);
    let mut other = Storage::pool();
    other.data_dir = storage.beside("second");
    fs::hard_link(storage.layout().pool_image(), other.layout().pool_image()).unwrap();

    let refused = other.try_open().unwrap_err().to_string();
    assert!(refused.contains(storage.layout().pool().to_str().unwrap()), "{refused}");
    assert_eq!(storage.loop_devices().len(), 1);
    assert!(volumes.exists(&volume));
    volumes.detach().unwrap();
    assert!(other.open().exists(&volume), "free again");
}

#[test]
fn an_image_has_all_its_blocks_also_after_deleting() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let volume = new_volume(&storage, &volumes);
    fs::write(data_of(&volumes, &volume).join("large"), vec![1; 64 * MIB as usize]).unwrap();
    volumes.remove(&volume).unwrap();
    // An operator's nightly job gives free blocks back wherever that works.
    let _ = Command::new("fstrim").arg(storage.layout().pool()).output();
    sync(&storage);
    let (length, on_disk) = image_bytes(&storage);
    assert_eq!(length, 300 * MIB);
    assert!(on_disk >= length, "{on_disk} of {length} bytes are on disk");

    volumes.detach().unwrap();
    let image = fs::OpenOptions::new().write(true).open(storage.layout().pool_image()).unwrap();
    image.set_len(400 * MIB).unwrap();
    wait_for_no_loop_device(&storage);
    let refused = storage.try_open().unwrap_err().to_string();
    assert!(refused.contains("300 of its 400 MiB"), "{refused}");
}

#[test]
fn a_pool_that_is_short_of_room_grows() {
    if !is_root() {
        return;
    }
    let mut storage = Storage::pool();
    storage.options.pool_step_bytes = 800 * MIB;
    let volumes = storage.open();
    let before = volumes.usage().unwrap();
    volumes.maintain().unwrap();
    volumes.maintain().unwrap();
    let after = volumes.usage().unwrap();
    assert_eq!(after.total_bytes, before.total_bytes + 800 * MIB);
    assert!(after.free_bytes > before.free_bytes + 400 * MIB);
    let (length, on_disk) = image_bytes(&storage);
    assert!(length == 1100 * MIB && on_disk >= length, "{on_disk} of {length}");
}

#[test]
fn what_was_deleted_is_room_soon_where_the_pool_can_not_grow() {
    if !is_root() {
        return;
    }
    let mut storage = Storage::pool();
    let volumes = storage.open();
    let volume = new_volume(&storage, &volumes);
    fs::write(data_of(&volumes, &volume).join("large"), vec![1; 64 * MIB as usize]).unwrap();
    sync(&storage);
    storage.options.pool_step_bytes = 800 * MIB;
    storage.options.host_reserve_bytes = u64::MAX;
    let volumes = storage.open();
    let before = volumes.usage().unwrap().free_bytes;
    volumes.remove(&volume).unwrap();
    // By itself the kernel takes half a minute and more.
    let deadline = Instant::now() + Duration::from_secs(20);
    while volumes.usage().unwrap().free_bytes < before + 60 * MIB {
        assert!(Instant::now() < deadline, "{} bytes are free", volumes.usage().unwrap().free_bytes);
        volumes.maintain().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn growth_that_was_interrupted_is_finished() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let before = volumes.usage().unwrap();
    let image = storage.layout().pool_image();
    run(Command::new("fallocate").args(["--length", "400MiB"]).arg(image));
    storage.open();
    assert_eq!(volumes.usage().unwrap().total_bytes, before.total_bytes + 100 * MIB);
}

#[test]
fn the_hosts_reserve_is_left_alone() {
    if !is_root() {
        return;
    }
    let mut storage = Storage::on_disk(&["mkfs.ext4", "-q"], 1200 * MIB);
    storage.options.host_reserve_bytes = 2000 * MIB;
    assert!(matches!(storage.try_open(), Err(EngineError::NoSpace(_))));
    assert!(!storage.layout().pool_image().exists());

    storage.options = StorageOptions {
        pool_initial_bytes: 5000 * MIB,
        pool_step_bytes: 2000 * MIB,
        host_reserve_bytes: 300 * MIB,
        ..storage.options.clone()
    };
    let volumes = storage.open();
    let host_free = || {
        let stat = rustix::fs::statvfs(&storage.data_dir).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    let (length, _) = image_bytes(&storage);
    assert!(length >= 256 * MIB, "{length}");
    assert!(host_free() >= 290 * MIB, "{}", host_free());
    volumes.maintain().unwrap();
    assert_eq!(image_bytes(&storage).0, length, "there is no step to be had");
}

#[test]
fn a_full_host_does_not_stop_the_pool() {
    if !is_root() {
        return;
    }
    let storage = Storage::on_disk(&["mkfs.ext4", "-q", "-m", "0"], 700 * MIB);
    let volumes = storage.open();
    let parent = new_volume(&storage, &volumes);
    let mut ballast = fs::File::create(storage.data_dir.join("ballast")).unwrap();
    let block = vec![7u8; MIB as usize];
    while ballast.write_all(&block).is_ok() {}
    let _ = ballast.sync_all();
    assert!(fs::write(storage.data_dir.join("more"), &block).is_err(), "the host is full");

    let label = storage.label(1);
    volumes.copy(&parent, &label, SourceState::Stopped).unwrap();
    let path = data_of(&volumes, &label.volume).join("written");
    let mut written = fs::File::create(&path).unwrap();
    for _ in 0..50 {
        written.write_all(&block).unwrap();
    }
    written.sync_all().unwrap();
    drop(written);
    volumes.check_claim(&label.volume, coppice_core::claim::ClaimToken(2)).unwrap();
    volumes.remove(&label.volume).unwrap();
    volumes.create(&storage.label(1), &mut fill).unwrap();
    volumes.maintain().unwrap();
}

#[test]
fn a_full_pool_is_attached_and_deletes() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let kept = new_volume(&storage, &volumes);
    let full = new_volume(&storage, &volumes);
    let data = data_of(&volumes, &full);
    let block = vec![7u8; MIB as usize];
    // Large files take all room for data, small ones what is left for metadata.
    let mut large = fs::File::create(data.join("large")).unwrap();
    while large.write_all(&block).and_then(|()| large.sync_data()).is_ok() {}
    drop(large);
    for number in 0.. {
        let name = data.join(format!("small-{number}-{}", "x".repeat(200)));
        if fs::write(name, &block[..1500]).is_err() {
            break;
        }
    }
    volumes.detach().unwrap();

    let volumes = storage.open();
    assert_eq!(volumes.driver(), DriverKind::Btrfs);
    volumes.remove(&full).unwrap();
    assert!(!volumes.exists(&full));
    assert!(data_of(&volumes, &kept).join("base/5/1259").exists());
}

/// Fills the pool with data and deletes most of that: its room is then in parts that are
/// for data alone. Afterwards it makes small files, which take metadata and nothing else,
/// until one can't be made or `is_enough` of so many of them. Gives the volume with them.
fn take_metadata(storage: &Storage, volumes: &Volumes, is_enough: impl Fn(u32) -> bool) -> VolumeId {
    let (filler, volume) = (new_volume(storage, volumes), new_volume(storage, volumes));
    let (data, small) = (data_of(volumes, &filler), data_of(volumes, &volume));
    let block = vec![7u8; MIB as usize];
    let write = |number: u32| fs::File::create(data.join(number.to_string()))?.write_all(&block);
    let count = (0..).take_while(|number| write(*number).is_ok()).count() as u32;
    sync(storage);
    for number in (0..count).filter(|number| number % 5 < 3) {
        fs::remove_file(data.join(number.to_string())).unwrap();
    }
    sync(storage);
    for number in (0..).take_while(|number| !is_enough(*number)) {
        let make = || fs::write(small.join(number.to_string()), &block[..1900]);
        let is_made = number % 250 > 0 && make().is_ok();
        // What is not written yet takes more, and is not counted.
        if !is_made {
            sync(storage);
            if make().is_err() {
                break;
            }
        }
    }
    sync(storage);
    volume
}

fn sync(storage: &Storage) {
    run(Command::new("sync").arg("--file-system").arg(storage.layout().pool()));
}

#[test]
fn a_pool_without_room_for_metadata_is_short_and_grows() {
    if !is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let volume = take_metadata(&storage, &volumes, |_| false);
    let full = data_of(&volumes, &volume).join("more");
    assert_eq!(fs::write(&full, [7; 1900]).unwrap_err().kind(), ErrorKind::StorageFull);
    let data = rustix::fs::statvfs(storage.layout().pool()).unwrap();
    assert!(data.f_bavail * 4 > data.f_blocks, "there is room for data");
    let usage = volumes.usage().unwrap();
    assert!(usage.is_short(), "{usage:?}");

    volumes.maintain().unwrap();
    assert_eq!(image_bytes(&storage).0, 364 * MIB);
    let usage = volumes.usage().unwrap();
    assert!(!usage.is_short() && usage.free_bytes > 60 * MIB, "{usage:?}");
    fs::write(&full, [7; 1900]).unwrap();
}

#[test]
fn a_pool_that_can_not_grow_gives_room_for_data_to_metadata() {
    if !is_root() {
        return;
    }
    let mut storage = Storage::pool();
    storage.open();
    storage.options.host_reserve_bytes = u64::MAX;
    let volumes = storage.open();
    let kept = new_volume(&storage, &volumes);
    let before = tree(&data_of(&volumes, &kept));
    let is_little = || volumes.usage().is_ok_and(|usage| usage.free_bytes < usage.total_bytes / 12);
    take_metadata(&storage, &volumes, |number| number % 250 == 1 && is_little());
    assert!(is_little(), "{:?}", volumes.usage());

    volumes.maintain().unwrap();
    assert_eq!(image_bytes(&storage).0, 300 * MIB);
    let usage = volumes.usage().unwrap();
    assert!(usage.free_bytes > usage.total_bytes / 10, "{usage:?}");
    assert_eq!(tree(&data_of(&volumes, &kept)), before);
}

#[test]
fn volumes_made_without_a_pool_are_not_hidden_by_one() {
    if !is_root() {
        return;
    }
    let mut storage = Storage::copy();
    let volume = new_volume(&storage, &storage.open());
    storage.options.pool = PoolMode::Auto;
    storage.options.driver = None;
    let volumes = storage.open();
    assert!(volumes.exists(&volume));
    assert!(!storage.layout().pool_image().exists());
}

#[test]
fn drivers_can_be_chosen_and_changed() {
    if !is_root() {
        return;
    }
    let mut storage = Storage::pool();
    storage.options.driver = Some(DriverKind::Reflink);
    let volumes = storage.open();
    assert_eq!(volumes.driver(), DriverKind::Reflink);
    let cloned_way = new_volume(&storage, &volumes);

    storage.options.driver = None;
    let volumes = storage.open();
    assert_eq!(volumes.driver(), DriverKind::Btrfs);
    assert!(!volumes.is_snapshot_atomic(&cloned_way), "it is no subvolume");
    let label = storage.label(1);
    volumes.copy(&cloned_way, &label, SourceState::Stopped).unwrap();
    assert!(volumes.is_snapshot_atomic(&label.volume));
    assert_eq!(tree(&data_of(&volumes, &label.volume)), tree(&data_of(&volumes, &cloned_way)));

    let mut plain = Storage::copy();
    plain.options.driver = Some(DriverKind::Btrfs);
    let refused = plain.try_open().map(|volumes| volumes.driver());
    assert!(refused.is_err(), "{refused:?} without a pool");
}

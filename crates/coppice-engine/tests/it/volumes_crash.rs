//! A crash at any step of making, copying, removing, growing and detaching is
//! made good by doing the same again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use coppice_core::VolumeId;
use coppice_core::claim::ClaimToken;
use coppice_core::volume::VolumeLabel;
use coppice_engine::local::volumes::{LiveSource, SourceState};

use crate::storage::{MIB, Storage, data_of, fill, write_cluster};

const DATA_DIR: &str = "COPPICE_TEST_STORY_DATA_DIR";
const DRIVER: &str = "COPPICE_TEST_STORY_DRIVER";

fn make(driver: &str) -> Storage {
    let mut storage = if driver == "btrfs" { Storage::pool() } else { Storage::copy() };
    storage.options.pool_initial_bytes = 256 * MIB;
    // A small pool always has less than half of this free, so it grows once.
    storage.options.pool_step_bytes = 520 * MIB;
    storage
}

fn label(storage: &Storage, name: &str, claim: i64) -> VolumeLabel {
    VolumeLabel { volume: VolumeId::from_trusted(format!("vol_{name}")), ..storage.label(claim) }
}

/// A server that says what a backup needs to hear.
struct Server;

impl LiveSource for Server {
    fn backup_start(&mut self) -> coppice_engine::Result<()> {
        Ok(())
    }

    fn backup_stop(&mut self) -> coppice_engine::Result<String> {
        Ok("START WAL LOCATION: 0/1000028 (file 000000010000000000000001)\n".to_owned())
    }
}

/// Every step can meet what an earlier run of the same story, under an earlier
/// claim, left.
fn tell(storage: &Storage, claim: i64) {
    let label = |name| label(storage, name, claim);
    let volumes = storage.open();
    volumes.empty_trash().unwrap();
    let parent = label("parent");
    volumes.create(&parent, &mut fill).unwrap();
    volumes.copy(&parent.volume, &label("child"), SourceState::Stopped).unwrap();
    volumes.copy(&parent.volume, &label("live"), SourceState::Live(&mut Server)).unwrap();
    volumes.check_claim(&parent.volume, ClaimToken(claim + 1)).unwrap();
    let unknown = label("unknown");
    if volumes.quarantined().unwrap().is_empty() {
        volumes.create(&unknown, &mut fill).unwrap();
    }
    volumes.quarantine(&unknown.volume).unwrap();
    volumes.remove(&label("parent").volume).unwrap();
    volumes.maintain().unwrap();
    volumes.detach().unwrap();
}

fn check_the_end(storage: &Storage) {
    let volumes = storage.open();
    let list = volumes.list().unwrap();
    let mut names: Vec<String> = list.labels.iter().map(|label| label.volume.to_string()).collect();
    names.sort();
    assert_eq!(names, ["vol_child", "vol_live"]);
    assert!(list.unreadable.is_empty(), "{:?}", list.unreadable);
    let expected = storage.beside("expected");
    write_cluster(&expected);
    for name in names {
        let data = data_of(&volumes, &VolumeId::from_trusted(name));
        for file in ["base/5/1259", "global/pg_control", "pg_wal/000000010000000000000001"] {
            assert_eq!(fs::read(data.join(file)).unwrap(), fs::read(expected.join(file)).unwrap(), "{file}");
        }
    }
    let aside = volumes.quarantined().unwrap();
    assert_eq!(aside.len(), 1);
    assert!(aside[0].path.join("data/base/5/1259").exists());
    for empty in [storage.layout().staging(), storage.layout().trash()] {
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "{}", empty.display());
    }
    volumes.detach().unwrap();
    assert!(storage.mounts().is_empty());
}

/// Runs the story in another process, which a failpoint may abort.
fn tell_elsewhere(storage: &Storage, driver: &str, variable: &str, value: &str) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "volumes_crash::the_story_can_be_told_again_and_again"])
        .env(DATA_DIR, &storage.data_dir)
        .env(DRIVER, driver)
        // What it makes for itself goes with the storage, also when it is aborted.
        .env("TMPDIR", storage.beside("temporary"))
        .env(variable, value)
        .output()
        .unwrap();
    output.status.success()
}

/// Also what the other process runs.
#[test]
fn the_story_can_be_told_again_and_again() {
    if let (Some(data_dir), Ok(driver)) = (std::env::var_os(DATA_DIR), std::env::var(DRIVER)) {
        let mut storage = make(&driver);
        storage.data_dir = PathBuf::from(data_dir);
        tell(&storage, 1);
        return;
    }
    let storage = make("copy");
    tell(&storage, 1);
    check_the_end(&storage);
    tell(&storage, 3);
    check_the_end(&storage);
}

fn crash_everywhere(driver: &str) {
    let trace = make(driver);
    let reached_path = trace.beside("trace").join("reached");
    assert!(tell_elsewhere(&trace, driver, "COPPICE_FAILPOINT_TRACE", reached_path.to_str().unwrap()));
    check_the_end(&trace);
    let reached = read_names(&reached_path);
    assert!(reached.len() > 10, "{reached:?}");
    for name in reached {
        eprintln!("crash at {name}");
        let storage = make(driver);
        assert!(!tell_elsewhere(&storage, driver, "COPPICE_FAILPOINTS", &format!("{name}=abort")));
        if storage.mounts().is_empty() {
            crate::volumes_pool::wait_for_no_loop_device(&storage);
        }
        tell(&storage, 3);
        check_the_end(&storage);
    }
}

fn read_names(path: &Path) -> BTreeSet<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_crash_at_any_step_with_a_pool_is_made_good() {
    if rustix::process::geteuid().is_root() {
        crash_everywhere("btrfs");
    }
}

#[test]
fn a_crash_at_any_step_with_copies_is_made_good() {
    crash_everywhere("copy");
}

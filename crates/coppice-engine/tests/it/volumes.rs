//! Volumes on real file systems: what holds for every driver.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use coppice_core::claim::ClaimToken;
use coppice_core::{InstallationId, VolumeId};
use coppice_engine::EngineError;
use coppice_engine::local::untrusted::UntrustedPath;
use coppice_engine::local::volumes::{DriverKind, LiveSource, SourceState, Volumes};

use crate::storage::{Storage, data_of, fill, new_volume, on_every_driver, tree};

fn copy_of(storage: &Storage, volumes: &Volumes, source: &VolumeId) -> VolumeId {
    let label = storage.label(1);
    volumes.copy(source, &label, SourceState::Stopped).unwrap();
    label.volume
}

#[test]
fn a_copy_and_its_source_go_separate_ways() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let child = copy_of(storage, volumes, &parent);
        let (parent, child) = (data_of(volumes, &parent), data_of(volumes, &child));
        let before = tree(&parent);
        assert_eq!(tree(&child), before);

        fs::write(child.join("base/5/1259"), "of the child").unwrap();
        fs::remove_file(child.join("PG_VERSION")).unwrap();
        assert_eq!(tree(&parent), before);

        let child_before = tree(&child);
        fs::write(parent.join("global/pg_control"), "of the parent").unwrap();
        fs::write(parent.join("base/5/new"), "of the parent").unwrap();
        assert_eq!(tree(&child), child_before);
    });
}

#[test]
fn data_belongs_to_the_storage_account_and_labels_to_us() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let child = copy_of(storage, volumes, &parent);
        let us = rustix::process::geteuid().as_raw();
        let owner = if us == 0 { storage.installation().storage_account() } else { us };
        for volume in [parent, child] {
            let data = data_of(volumes, &volume);
            assert_eq!(data.metadata().unwrap().mode() & 0o777, 0o700);
            for (path, (_, uid, gid, _)) in tree(&data) {
                assert_eq!((uid, gid), (owner, owner), "{}", path.display());
            }
            let directory = storage.layout().volume(&volume);
            assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o711);
            let label = directory.join("label.json").metadata().unwrap();
            assert_eq!((label.mode() & 0o777, label.uid()), (0o600, us));
            assert_eq!(volumes.label(&volume).unwrap().unwrap().volume, volume);
        }
    });
}

#[test]
fn removing_a_volume_leaves_its_relatives_whole() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let child = copy_of(storage, volumes, &parent);
        let grandchild = copy_of(storage, volumes, &child);
        let before = tree(&data_of(volumes, &parent));

        volumes.remove(&child).unwrap();
        assert!(!volumes.exists(&child));
        assert_eq!(tree(&data_of(volumes, &parent)), before);
        volumes.remove(&parent).unwrap();
        assert_eq!(tree(&data_of(volumes, &grandchild)), before);
        assert_eq!(fs::read_dir(storage.layout().trash()).unwrap().count(), 0);

        volumes.remove(&child).unwrap();
        volumes.remove(&VolumeId::from_trusted("vol_never_made")).unwrap();
    });
}

#[test]
fn making_a_volume_again_keeps_what_is_there() {
    on_every_driver(|storage, volumes| {
        let label = storage.label(1);
        volumes.create(&label, &mut fill).unwrap();
        volumes.create(&label, &mut |_| panic!("filled a second time")).unwrap();

        let child = storage.label(1);
        volumes.copy(&label.volume, &child, SourceState::Stopped).unwrap();
        fs::write(data_of(volumes, &child.volume).join("written"), "since").unwrap();
        volumes.copy(&label.volume, &child, SourceState::Stopped).unwrap();
        assert!(data_of(volumes, &child.volume).join("written").exists());
        assert_eq!(volumes.list().unwrap().labels.len(), 2);
    });
}

#[test]
fn a_half_made_volume_is_made_anew() {
    on_every_driver(|storage, volumes| {
        let label = storage.label(1);
        let mut fail_halfway = |data: &UntrustedPath| {
            fs::write(data.host_path().join("half"), "made").unwrap();
            Err(EngineError::Other("interrupted".to_owned()))
        };
        assert!(volumes.create(&label, &mut fail_halfway).is_err());
        assert!(!volumes.exists(&label.volume));
        volumes.create(&label, &mut fill).unwrap();
        assert!(!data_of(volumes, &label.volume).join("half").exists());

        let child = storage.label(1);
        let staged = storage.layout().staging().join(child.volume.as_str());
        fs::create_dir_all(staged.join("data/base")).unwrap();
        fs::write(staged.join("data/base/half"), "made").unwrap();
        volumes.copy(&label.volume, &child, SourceState::Stopped).unwrap();
        assert_eq!(tree(&data_of(volumes, &child.volume)), tree(&data_of(volumes, &label.volume)));
        assert!(!staged.exists());
    });
}

#[test]
fn an_older_claim_is_fenced() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let mut child = storage.label(5);
        volumes.copy(&parent, &child, SourceState::Stopped).unwrap();
        volumes.check_claim(&child.volume, ClaimToken(7)).unwrap();
        assert_eq!(volumes.label(&child.volume).unwrap().unwrap().claim, ClaimToken(7));

        let fenced = |result| matches!(result, Err(EngineError::Fenced(_)));
        assert!(fenced(volumes.check_claim(&child.volume, ClaimToken(6))));
        assert!(fenced(volumes.copy(&parent, &child, SourceState::Stopped)));
        assert!(fenced(volumes.create(&child, &mut fill)));
        child.claim = ClaimToken(9);
        volumes.copy(&parent, &child, SourceState::Stopped).unwrap();
        assert_eq!(storage.open().label(&child.volume).unwrap(), Some(child));

        let missing = VolumeId::from_trusted("vol_missing");
        assert!(matches!(volumes.check_claim(&missing, ClaimToken(1)), Err(EngineError::NoVolume(_))));
        let result = volumes.copy(&missing, &storage.label(1), SourceState::Stopped);
        assert!(matches!(result, Err(EngineError::NoVolume(_))));
    });
}

#[test]
fn a_volume_set_aside_keeps_its_data() {
    on_every_driver(|storage, volumes| {
        let label = storage.label(1);
        for _ in 0..2 {
            volumes.create(&label, &mut fill).unwrap();
            volumes.quarantine(&label.volume).unwrap();
            volumes.quarantine(&label.volume).unwrap();
            assert!(!volumes.exists(&label.volume));
        }
        volumes.empty_trash().unwrap();
        volumes.remove(&label.volume).unwrap();
        let aside = volumes.quarantined().unwrap();
        assert_eq!(aside.len(), 2);
        for volume in aside {
            assert_eq!(volume.label.as_ref(), Some(&label));
            assert!(volume.path.join("data/base/5/1259").exists());
        }
        assert!(volumes.list().unwrap().labels.is_empty());
    });
}

#[test]
fn another_installations_volume_is_left_alone() {
    on_every_driver(|storage, volumes| {
        let mut label = storage.label(1);
        label.installation = InstallationId::from_trusted("ins_other");
        volumes.create(&label, &mut fill).unwrap();
        let before = tree(&storage.layout().volume(&label.volume));

        let refused = volumes.remove(&label.volume).unwrap_err().to_string();
        assert!(refused.contains("ins_other"), "{refused}");
        assert!(volumes.copy(&label.volume, &storage.label(1), SourceState::Stopped).is_err());
        assert_eq!(tree(&storage.layout().volume(&label.volume)), before);
        assert_eq!(volumes.list().unwrap().labels, [label]);
    });
}

#[test]
fn a_volume_without_a_readable_label_is_reported_and_kept() {
    on_every_driver(|storage, volumes| {
        let damaged = new_volume(storage, volumes);
        fs::write(storage.layout().volume(&damaged).join("label.json"), "{").unwrap();
        let bare = new_volume(storage, volumes);
        fs::remove_file(storage.layout().volume(&bare).join("label.json")).unwrap();
        let whole = new_volume(storage, volumes);

        let list = volumes.list().unwrap();
        assert_eq!(list.labels.iter().map(|label| &label.volume).collect::<Vec<_>>(), [&whole]);
        let mut unreadable: Vec<VolumeId> = list.unreadable.into_iter().map(|(volume, _)| volume).collect();
        unreadable.sort();
        assert_eq!(unreadable, [damaged.clone(), bare.clone()]);
        for volume in [damaged, bare] {
            assert!(volumes.remove(&volume).is_err());
            assert!(data_of(volumes, &volume).join("base/5/1259").exists());
            volumes.quarantine(&volume).unwrap();
        }
    });
}

#[test]
fn data_in_several_pieces_is_refused() {
    on_every_driver(|storage, volumes| {
        let refused = |change: &dyn Fn(&Path)| {
            let volume = new_volume(storage, volumes);
            change(&data_of(volumes, &volume));
            let label = storage.label(1);
            let result = volumes.copy(&volume, &label, SourceState::Stopped);
            assert!(matches!(result, Err(EngineError::NotCopyable { .. })), "{result:?}");
            assert!(!volumes.exists(&label.volume));
        };
        let elsewhere = storage.beside("elsewhere");
        refused(&|data| {
            fs::rename(data.join("pg_wal"), data.join("moved")).unwrap();
            symlink(&elsewhere, data.join("pg_wal")).unwrap();
        });
        refused(&|data| symlink(&elsewhere, data.join("pg_tblspc/16384")).unwrap());
        if volumes.driver() == DriverKind::Btrfs {
            refused(&|data| {
                let inner = data.join("inner");
                crate::storage::run(
                    std::process::Command::new("btrfs").args(["subvolume", "create"]).arg(inner),
                );
            });
        } else {
            refused(&|data| symlink("/etc/passwd", data.join("base/5/16385")).unwrap());
        }
    });
}

#[test]
fn subvolumes_inside_each_other_are_deleted_however_many_they_are() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let storage = Storage::pool();
    let volumes = storage.open();
    let volume = new_volume(&storage, &volumes);
    let mut inside = crate::storage::data_of(&volumes, &volume);
    for level in 0..40 {
        inside.push("inner");
        crate::storage::run(std::process::Command::new("btrfs").args(["subvolume", "create"]).arg(&inside));
        fs::create_dir(inside.join("deeper")).unwrap();
        fs::write(inside.join("deeper/file"), "").unwrap();
        if level % 7 == 0 {
            inside.push("deeper");
        }
    }
    volumes.remove(&volume).unwrap();
    assert!(!volumes.exists(&volume));
    assert_eq!(fs::read_dir(storage.layout().trash()).unwrap().count(), 0);
}

#[test]
fn a_volume_tells_that_it_was_changed_where_it_can() {
    on_every_driver(|storage, volumes| {
        let volume = new_volume(storage, volumes);
        let committed = |volume| {
            let data = fs::File::open(crate::storage::data_of(volumes, volume)).unwrap();
            rustix::fs::syncfs(&data).unwrap();
            volumes.generation(volume)
        };
        let before = committed(&volume);
        assert_eq!(before.is_some(), volumes.driver() == DriverKind::Btrfs);
        assert_eq!(committed(&volume), before);
        fs::write(crate::storage::data_of(volumes, &volume).join("base/5/1260"), "new").unwrap();
        assert_eq!(committed(&volume) == before, before.is_none());
    });
}

#[test]
fn what_an_earlier_run_left_is_deleted() {
    on_every_driver(|storage, volumes| {
        let volume = new_volume(storage, volumes);
        let trashed = storage.layout().trash().join("vol_removed");
        fs::rename(storage.layout().volume(&volume), &trashed).unwrap();
        let staged = storage.layout().staging().join("vol_half_made");
        fs::create_dir_all(staged.join("data/base")).unwrap();
        let kept = new_volume(storage, volumes);

        storage.open().empty_trash().unwrap();
        assert!(!trashed.exists() && !staged.exists());
        assert!(volumes.exists(&kept));
    });
}

#[test]
fn an_id_that_is_a_path_is_refused() {
    on_every_driver(|storage, volumes| {
        let outside = storage.data_dir.join("outside");
        fs::create_dir(&outside).unwrap();
        for text in ["../../outside", "", ".", "a/b"] {
            let volume = VolumeId::from_trusted(text);
            assert!(volumes.remove(&volume).is_err(), "{text:?}");
            assert!(volumes.quarantine(&volume).is_err(), "{text:?}");
            assert!(volumes.label(&volume).is_err(), "{text:?}");
        }
        assert!(outside.exists());
    });
}

/// Stands where a server's session would be, and looks at the copy each time
/// it is asked for something.
struct Witness<'a> {
    source: &'a Path,
    copy: &'a Path,
    seen: Vec<(&'static str, bool, bool)>,
}

impl Witness<'_> {
    fn look(&mut self, at: &'static str) {
        let segment = "pg_wal/000000010000000000000001";
        let data_is_there = self.copy.join("base/5/1259").exists();
        self.seen.push((at, data_is_there, self.copy.join(segment).exists()));
    }
}

impl LiveSource for Witness<'_> {
    fn backup_start(&mut self) -> coppice_engine::Result<()> {
        self.look("start");
        fs::write(self.source.join("base/5/1259"), "since the backup began").unwrap();
        Ok(())
    }

    fn backup_stop(&mut self) -> coppice_engine::Result<String> {
        self.look("stop");
        fs::write(self.source.join("pg_wal/000000010000000000000002"), "ends the backup").unwrap();
        Ok("START WAL LOCATION: 0/1000028 (file 000000010000000000000001)\n".to_owned())
    }
}

#[test]
fn a_running_source_is_copied_in_the_order_of_a_backup() {
    on_every_driver(|storage, volumes| {
        let parent = new_volume(storage, volumes);
        let source = data_of(volumes, &parent);
        fs::write(source.join("postmaster.pid"), "1").unwrap();
        let label = storage.label(1);
        let copy = storage.layout().staging().join(label.volume.as_str()).join("data");
        let mut witness = Witness { source: &source, copy: &copy, seen: Vec::new() };
        volumes.copy(&parent, &label, SourceState::Live(&mut witness)).unwrap();
        if volumes.is_snapshot_atomic(&parent) {
            assert_eq!(witness.seen, [], "a snapshot asks nothing of the server");
            return;
        }
        assert_eq!(witness.seen, [("start", false, false), ("stop", true, false)]);
        let copy = data_of(volumes, &label.volume);
        let text = |path: &str| fs::read_to_string(copy.join(path)).unwrap();
        assert_eq!(text("base/5/1259"), "since the backup began");
        assert_eq!(text("pg_wal/000000010000000000000002"), "ends the backup");
        assert!(text("backup_label").starts_with("START WAL LOCATION"));
        let (pid, slot) = (copy.join("postmaster.pid"), copy.join("pg_replslot/old_slot"));
        assert!(!pid.exists() && !slot.exists() && copy.join("pg_replslot").exists());
        let owner = |path: &str| copy.join(path).metadata().map(|meta| (meta.uid(), meta.mode())).unwrap();
        assert_eq!(owner("backup_label"), owner("PG_VERSION"));
    });
}

#[test]
fn a_second_attempt_waits_for_the_first() {
    on_every_driver(|storage, volumes| {
        let label = storage.label(1);
        let (entered, first_is_inside) = std::sync::mpsc::channel();
        let fills = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            let attempt = || {
                volumes.create(&label, &mut |data| {
                    fills.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let _ = entered.send(());
                    fill(data)
                })
            };
            let first = scope.spawn(attempt);
            first_is_inside.recv().unwrap();
            attempt().unwrap();
            first.join().unwrap().unwrap();
        });
        assert_eq!(fills.into_inner(), 1);
        assert!(data_of(volumes, &label.volume).join("base/5/1259").exists());
    });
}

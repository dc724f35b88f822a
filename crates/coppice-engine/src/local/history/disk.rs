//! A btrfs for a test.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

fn run(command: &mut Command) {
    assert!(command.status().expect("it is there").success(), "{command:?}");
}

/// A btrfs of its own, unmounted in the end.
pub(super) struct Disk(tempfile::TempDir);

impl Disk {
    pub(super) fn make() -> Self {
        let disk = Self(tempfile::tempdir().expect("a directory"));
        let image = disk.0.path().join("image");
        File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("a file");
        run(Command::new("mkfs.btrfs").arg("-q").arg(&image));
        fs::create_dir(disk.path()).expect("a directory");
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()));
        disk
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

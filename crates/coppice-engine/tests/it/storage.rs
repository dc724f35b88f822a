//! Data directories on real file systems, and volumes with recognisable data.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::volume::VolumeLabel;
use coppice_core::{BranchId, VolumeId};
use coppice_engine::local::installation::Installation;
use coppice_engine::local::layout::Layout;
use coppice_engine::local::untrusted::UntrustedPath;
use coppice_engine::local::volumes::{DriverKind, PoolMode, StorageOptions, Volumes};

pub(crate) const MIB: u64 = 1 << 20;

/// A data directory that leaves no mount, loop device or file behind.
pub(crate) struct Storage {
    pub(crate) data_dir: PathBuf,
    pub(crate) options: StorageOptions,
    root: tempfile::TempDir,
}

impl Storage {
    /// The platform's own pool, on whatever is under the temporary directory.
    pub(crate) fn pool() -> Self {
        Self::new(small_pool())
    }

    /// Plain copies.
    pub(crate) fn copy() -> Self {
        let driver = Some(DriverKind::Copy);
        Self::new(StorageOptions { pool: PoolMode::Off, driver, ..small_pool() })
    }

    /// A file system of its own, made by `mkfs` with these arguments.
    pub(crate) fn on_disk(mkfs: &[&str], size_bytes: u64) -> Self {
        let storage = Self::new(small_pool());
        let image = storage.root.path().join("disk.img");
        let file = fs::File::create(&image).unwrap();
        file.set_len(size_bytes).unwrap();
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&storage.data_dir));
        storage
    }

    /// XFS, whose files can share blocks.
    pub(crate) fn xfs() -> Self {
        Self::on_disk(&["mkfs.xfs", "-q"], 320 * MIB)
    }

    fn new(options: StorageOptions) -> Self {
        let root = tempfile::Builder::new().prefix("coppice-storage-").tempdir().unwrap();
        // Servers of other accounts pass through it.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let data_dir = root.path().join("data");
        fs::create_dir(&data_dir).unwrap();
        Self { data_dir, options, root }
    }

    /// A directory beside the data directory, on the same file system unless
    /// the data directory has one of its own.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.data_dir, "test")
    }

    pub(crate) fn installation(&self) -> Installation {
        Installation::ensure(&self.data_dir).unwrap()
    }

    pub(crate) fn open(&self) -> Volumes {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> coppice_engine::Result<Volumes> {
        Volumes::open(&self.layout(), &self.installation(), &self.options)
    }

    /// The label of a new volume.
    pub(crate) fn label(&self, claim: i64) -> VolumeLabel {
        let installation = self.installation();
        VolumeLabel {
            installation: installation.installation,
            host: installation.host,
            volume: VolumeId::generate(chrono::Utc::now()),
            branch: Some(BranchId::generate()),
            claim: ClaimToken(claim),
            version: PostgresVersion { major: 17, minor: 6 },
        }
    }

    /// Loop devices that hold a file of this storage.
    pub(crate) fn loop_devices(&self) -> Vec<String> {
        let listed =
            Command::new("losetup").args(["--list", "--noheadings", "-O", "NAME,BACK-FILE"]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let root = self.root.path().to_str().unwrap();
        let ours = listed.lines().filter(|line| line.contains(root));
        ours.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    }

    /// Mount points of this storage, the innermost first.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = self.root.path().to_str().unwrap();
        let points = table.lines().filter_map(|line| line.split_whitespace().nth(4));
        let mut ours: Vec<String> =
            points.filter(|point| point.starts_with(root)).map(str::to_owned).collect();
        ours.reverse();
        ours
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        for point in self.mounts() {
            // Lazily, since a program that another test is just starting has all open
            // files of this process for a moment.
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
        for device in self.loop_devices() {
            let _ = Command::new("losetup").args(["--detach", &device]).status();
        }
    }
}

fn small_pool() -> StorageOptions {
    StorageOptions {
        pool: PoolMode::Auto,
        pool_initial_bytes: 300 * MIB,
        pool_step_bytes: 64 * MIB,
        host_reserve_bytes: 64 * MIB,
        history_share: 25,
        driver: None,
    }
}

/// Runs `story` once per driver this account can have.
pub(crate) fn on_every_driver(story: fn(&Storage, &Volumes)) {
    let mut expected = vec![(DriverKind::Copy, Storage::copy as fn() -> Storage)];
    if rustix::process::geteuid().is_root() {
        expected.push((DriverKind::Btrfs, Storage::pool));
        expected.push((DriverKind::Reflink, Storage::xfs));
    }
    for (driver, make) in expected {
        eprintln!("driver {driver}");
        let storage = make();
        let volumes = storage.open();
        assert_eq!(volumes.driver(), driver, "{}", volumes.driver_reason());
        story(&storage, &volumes);
    }
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Writes files like those of PostgreSQL's data directory.
pub(crate) fn fill(data: &UntrustedPath) -> coppice_engine::Result<()> {
    write_cluster(data.host_path());
    Ok(())
}

/// The same in an ordinary directory.
pub(crate) fn write_cluster(data: &Path) {
    for directory in ["base/5", "global", "pg_wal/archive_status", "pg_tblspc", "pg_replslot/old_slot"] {
        fs::create_dir_all(data.join(directory)).unwrap();
    }
    for (path, size) in [
        ("PG_VERSION", 3),
        ("base/5/1259", 300_000),
        ("base/5/empty", 0),
        ("global/pg_control", 8192),
        ("pg_wal/000000010000000000000001", 70_000),
        ("pg_replslot/old_slot/state", 200),
    ] {
        let content: Vec<u8> = path.bytes().cycle().take(size).collect();
        fs::write(data.join(path), content).unwrap();
        fs::set_permissions(data.join(path), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Where the data of a volume is.
pub(crate) fn data_of(volumes: &Volumes, volume: &VolumeId) -> PathBuf {
    volumes.data_dir(volume).host_path().to_owned()
}

/// A new volume with the data of [`fill`].
pub(crate) fn new_volume(storage: &Storage, volumes: &Volumes) -> VolumeId {
    let label = storage.label(1);
    volumes.create(&label, &mut fill).unwrap();
    label.volume
}

/// Everything about a tree that a copy has to keep: path to mode, owner and content.
pub(crate) fn tree(path: &Path) -> BTreeMap<PathBuf, (u32, u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(next) = waiting.pop() {
        let meta = next.symlink_metadata().unwrap();
        let content = if meta.is_file() { fs::read(&next).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()));
        }
        let below = next.strip_prefix(path).unwrap().to_owned();
        found.insert(below, (meta.mode(), meta.uid(), meta.gid(), content));
    }
    found
}

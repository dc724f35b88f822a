//! A store in a directory, and trees of files to put there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coppice_archive::{
    Archive, ArchiveKey, BaseFacts, BaseName, BaseWriter, Manifest, Result, StorePlace, Target, Written,
};
use coppice_core::{InstallationId, VolumeId};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) fn key(byte: u8) -> ArchiveKey {
    ArchiveKey::new(zeroize::Zeroizing::new([byte; 32]))
}

pub(crate) fn installation() -> InstallationId {
    InstallationId::from_trusted("ins_1")
}

/// A store, and the runtime that it is used in.
pub(crate) struct Store {
    pub(crate) runtime: Runtime,
    pub(crate) place: StorePlace,
    pub(crate) archive: Arc<Archive>,
    pub(crate) directory: PathBuf,
    _home: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::with_key(&key(1))
    }

    pub(crate) fn with_key(key: &ArchiveKey) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let place = StorePlace::Directory(home.path().join("store"));
        Self::take(place, key, home)
    }

    /// One that is not a directory: there is nothing in its own.
    pub(crate) fn within_bucket(place: StorePlace) -> Self {
        Self::take(place, &key(1), tempfile::tempdir().expect("a directory"))
    }

    fn take(place: StorePlace, key: &ArchiveKey, home: TempDir) -> Self {
        let directory = home.path().join("store");
        let runtime = Runtime::new().expect("a runtime");
        let archive = runtime.block_on(Archive::take(&place, key, &installation())).expect("a store");
        Self { runtime, place, archive: Arc::new(archive), directory, _home: home }
    }

    /// As another process takes it over.
    pub(crate) fn reopen(&mut self) {
        let taken = self.runtime.block_on(Archive::take(&self.place, &key(1), &installation()));
        self.archive = Arc::new(taken.expect("a store"));
    }

    /// Does something on this thread that waits for the store.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        work()
    }

    pub(crate) fn write(&self, source: &Path, taken_ms: i64, previous: Option<&BaseName>) -> Result<Written> {
        let previous = previous.map(|base| self.manifest(base));
        self.within(|| {
            let facts = BaseFacts {
                volume: VolumeId::from_trusted("vol_1"),
                taken_ms,
                log_end: None,
                label: "{}".to_owned(),
            };
            let mut writer = BaseWriter::begin(self.archive.clone(), facts, previous)?;
            add(&mut writer, source, Path::new(""))?;
            writer.finish()
        })
    }

    pub(crate) fn manifest(&self, base: &BaseName) -> Manifest {
        self.runtime.block_on(self.archive.manifest(base)).expect("a manifest")
    }

    pub(crate) fn restore(&self, base: &BaseName) -> Result<TempDir> {
        self.restore_beside(base, None)
    }

    /// The same where there is something similar, whose files it begins with.
    pub(crate) fn restore_beside(&self, base: &BaseName, similar: Option<&Path>) -> Result<TempDir> {
        let target = tempfile::tempdir().expect("a directory");
        let manifest = self.runtime.block_on(self.archive.manifest(base))?;
        let mut plain = Plain { top: target.path().to_owned(), similar: similar.map(Path::to_owned) };
        self.within(|| self.archive.restore(&manifest, &mut plain))?;
        Ok(target)
    }

    pub(crate) fn verify(&self, base: &BaseName) -> Result<()> {
        let manifest = self.runtime.block_on(self.archive.manifest(base))?;
        self.within(|| self.archive.verify(&manifest))
    }

    /// Files of the store below a directory.
    pub(crate) fn objects(&self, below: &str) -> Vec<PathBuf> {
        let mut found = vec![];
        let mut left = vec![self.directory.join(below)];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() { left.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }
}

fn add(writer: &mut BaseWriter, source: &Path, below: &Path) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(source.join(below))
        .expect("a directory")
        .map(|entry| entry.expect("an entry"))
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        let found = entry.metadata().expect("metadata");
        let (bytes, mode) = (path.as_os_str().as_bytes(), found.permissions().mode() & 0o7777);
        if found.is_dir() {
            writer.directory(bytes, mode)?;
            add(writer, source, &path)?;
        } else {
            writer.file(bytes, mode, found.len(), &File::open(entry.path()).expect("a file"))?;
        }
    }
    Ok(())
}

/// An ordinary directory, and one that is like it.
struct Plain {
    top: PathBuf,
    similar: Option<PathBuf>,
}

impl Plain {
    fn path(&self, path: &[u8]) -> PathBuf {
        self.top.join(std::ffi::OsStr::from_bytes(path))
    }
}

impl Target for Plain {
    fn directory(&mut self, path: &[u8], mode: u32) -> io::Result<()> {
        fs::create_dir(self.path(path))?;
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode))
    }

    fn make_file(&mut self, path: &[u8], mode: u32) -> io::Result<File> {
        fs::OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(self.path(path))
    }

    fn resemble(&mut self, path: &[u8], mut file: &File) -> bool {
        let similar = self.similar.as_ref().map(|top| top.join(std::ffi::OsStr::from_bytes(path)));
        let content = similar.and_then(|path| fs::read(path).ok());
        content.is_some_and(|content| file.write_all(&content).is_ok())
    }

    fn open_file(&mut self, path: &[u8]) -> io::Result<File> {
        fs::OpenOptions::new().write(true).open(self.path(path))
    }
}

/// Everything below a directory, by its path: modes, and contents of files.
pub(crate) fn tree(directory: &Path) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            let mode = path.metadata().expect("metadata").permissions().mode() & 0o7777;
            let content = path.is_file().then(|| fs::read(&path).expect("a file"));
            if path.is_dir() {
                left.push(path.clone());
            }
            found.insert(path.strip_prefix(directory).expect("below it").to_owned(), (mode, content));
        }
    }
    found
}

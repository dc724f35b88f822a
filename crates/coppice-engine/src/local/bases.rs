//! Volumes in a store: what is written there, and what is made from it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use coppice_archive::{
    Archive, ArchiveError, BaseFacts, BaseName, BaseWriter, Connection, LogPiece, Manifest, PIECE_BYTES_MAX,
    StoreFailure, Target, Written,
};
use coppice_core::VolumeId;
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use coppice_core::volume::VolumeLabel;
use coppice_failpoint::failpoint;
use rustix::fs::{FileType, Stat};
use tokio::runtime::Handle;

use super::LocalEngine;
use super::base_room::{Room, require_length};
use super::blocking::blocking;
use super::history::append_log;
use super::pace::{GivesUp, Pace};
use super::taken::{ENTRIES_MAX, LEVELS_MAX};
use super::untrusted::{ENTRY_BYTES_MIN, UntrustedDir, UntrustedPath};
use super::volumes::Volumes;
use crate::{BasePlan, EngineError, Result, VolumePlan};

/// A relation's data is in files of this size at most (PostgreSQL manual, section 73.1).
const SEGMENT_BYTES: i64 = 1 << 30;
/// Directories inside each other; PostgreSQL makes four.
const DEPTH_MAX: usize = 32;

impl From<ArchiveError> for EngineError {
    fn from(error: ArchiveError) -> Self {
        // What it becomes is told to whoever has the branch.
        if matches!(error, ArchiveError::Store { .. }) {
            tracing::warn!("{}", error.chain());
        }
        match &error {
            ArchiveError::Damaged { .. }
            | ArchiveError::Store { source: StoreFailure::NotFound { .. }, .. } => {
                Self::Damaged(error.for_tenants())
            }
            _ => Self::Other(error.for_tenants()),
        }
    }
}

/// A base in the store, with the log behind it.
pub(super) struct StoredBase {
    archive: Arc<Archive>,
    manifest: Manifest,
    pieces: Vec<LogPiece>,
    until: Option<DateTime<Utc>>,
    major: u32,
    runtime: Handle,
}

impl StoredBase {
    /// Looks up a base for a server of a major version, with the log behind it up to a
    /// time.
    pub(super) async fn find(
        archive: Arc<Archive>,
        base: &str,
        major: u32,
        until: Option<DateTime<Utc>>,
    ) -> Result<Self> {
        let base = BaseName::from_trusted(base);
        let manifest = archive.manifest(&base).await?;
        let of: VolumeLabel = serde_json::from_str(&manifest.facts().label)
            .map_err(|error| EngineError::Other(format!("the label in {base} is damaged: {error}")))?;
        if of.version.major != major {
            return Err(EngineError::Other(format!("{base} is of PostgreSQL {}", of.version)));
        }
        let pieces = archive.log_behind(&manifest, until).await?;
        Ok(Self { archive, manifest, pieces, until, major, runtime: Handle::current() })
    }

    /// Has the log behind it go as far as it was written.
    pub(super) async fn require_log(&mut self, written: Lsn) -> Result<()> {
        self.pieces = self.archive.whole_log(&self.manifest, written).await?;
        Ok(())
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let log = self.pieces.iter().map(|piece| piece.end.0.saturating_sub(piece.start.0));
        self.manifest.room_bytes(ENTRY_BYTES_MIN).saturating_add(log.sum())
    }

    /// Puts it into an empty directory of a volume, unless it is given up, or there is no room
    /// for it; what is as in the data of a similar volume shares its room. Blocks.
    fn put_into(
        &self,
        data: &UntrustedPath,
        similar: Option<UntrustedDir>,
        pace: &Pace,
        volumes: Arc<Volumes>,
    ) -> Result<()> {
        // Content can be shared; names, and what is known about files, can't.
        let shared_bytes = if similar.is_some() { self.manifest.bytes() } else { 0 };
        let mut room = Some(Room::find(volumes, self.bytes().saturating_sub(shared_bytes))?);
        self.restore_with(data, similar, pace, &mut room)?;
        self.append_log_with(data, pace, &mut room).map(drop)
    }

    /// Puts the base alone into an empty directory for which there is room, unless it is given up. Blocks.
    pub(super) fn restore_into(&self, data: &UntrustedPath, pace: &Pace) -> Result<()> {
        self.restore_with(data, None, pace, &mut None)
    }

    /// Puts the log behind it there. Tells where that ends, if there is one. Blocks.
    pub(super) fn append_log_to(&self, data: &UntrustedPath, pace: &Pace) -> Result<Option<Lsn>> {
        self.append_log_with(data, pace, &mut None)
    }

    fn restore_with(
        &self,
        data: &UntrustedPath,
        similar: Option<UntrustedDir>,
        pace: &Pace,
        room: &mut Option<Room>,
    ) -> Result<()> {
        let top = data.require().map_err(EngineError::io("opening a new volume"))?;
        Ok(self.archive.restore(&self.manifest, &mut Restored { top, similar, pace, room })?)
    }

    fn append_log_with(
        &self,
        data: &UntrustedPath,
        pace: &Pace,
        room: &mut Option<Room>,
    ) -> Result<Option<Lsn>> {
        let Some(end) = self.manifest.facts().log_end else { return Ok(None) };
        let mut read = |piece: &LogPiece| {
            let bytes = self.runtime.block_on(self.archive.get_log(piece))?;
            let reading = || EngineError::io("reading the log from the store");
            pace.after(bytes.len()).map_err(reading())?;
            room.as_mut().map_or(Ok(()), |room| room.wrote(bytes.len())).map_err(reading())?;
            Ok((piece.start, bytes))
        };
        let until = self.until.map(|time| time.timestamp_millis());
        append_log(data, self.major, end, until, &mut self.pieces.iter().map(&mut read)).map(Some)
    }
}

impl LocalEngine {
    fn connection(&self) -> Result<&Connection> {
        let none = || EngineError::Other("it is in a store, and none is set (`--store`)".to_owned());
        self.store.as_deref().ok_or_else(none)
    }

    /// [`crate::Engine::back_up`]
    pub(super) async fn write_base(&self, plan: &BasePlan) -> Result<Written> {
        let archive = self.connection()?.archive().await?;
        let mut previous = None;
        for volume in &plan.lineage {
            let noting = |error: &ArchiveError| {
                tracing::warn!("a base is not made by what is new since the newest one: {error}");
            };
            if let Some((_, newest)) = archive.newest_base(volume, noting).await? {
                previous = Some(newest);
                break;
            }
        }
        let label = self.volumes.label(&plan.volume)?;
        let label = label.ok_or_else(|| EngineError::NoVolume(plan.volume.clone()))?;
        let label = serde_json::to_string(&label).map_err(|error| EngineError::Other(error.to_string()))?;
        let taken_ms = archive.next_time(&plan.volume, Utc::now()).await?.timestamp_millis();
        let (volume, storage_bytes) = (plan.volume.clone(), plan.storage_bytes);
        let read = move |data: &UntrustedPath, log_end: Option<Lsn>| {
            failpoint!("base.frozen");
            let top = data.require().map_err(EngineError::io("opening a copy"))?;
            require_length(top.size(ENTRIES_MAX, LEVELS_MAX), storage_bytes)?;
            let facts = BaseFacts { volume, taken_ms, log_end, label };
            let mut writer = BaseWriter::begin(archive, facts, previous)?;
            add(&mut writer, &top, &mut vec![], 0)?;
            failpoint!("base.read");
            Ok(writer.finish()?)
        };
        self.with_frozen(plan.source_instance.as_ref(), &plan.volume, read).await
    }

    /// Makes a volume from a base and the log behind it, up to a time if one is said; ends
    /// soon when nobody waits for it any more.
    pub(super) async fn create_from_base(
        &self,
        plan: &VolumePlan,
        base: &str,
        until: Option<DateTime<Utc>>,
    ) -> Result<()> {
        let base = self.find_base(base, plan.label.version, until).await?;
        require_length(base.manifest.room_bytes(ENTRY_BYTES_MIN), plan.storage_bytes)?;
        let (volumes, label) = (self.volumes.clone(), plan.label.clone());
        let similar = plan.similar.as_ref().map(|volume| volumes.data_dir(volume));
        let gives_up = GivesUp::default();
        let pace = gives_up.hasty();
        let room = volumes.clone();
        let put = move |data: &UntrustedPath| {
            // Without it there is nothing to share.
            let similar = similar.as_ref().and_then(|data| data.open().ok().flatten());
            base.put_into(data, similar, &pace, room.clone())
        };
        blocking(move || volumes.create(&label, &mut |data| put(data))).await
    }

    /// Looks up a base for a server of this release.
    pub(super) async fn find_base(
        &self,
        base: &str,
        version: PostgresVersion,
        until: Option<DateTime<Utc>>,
    ) -> Result<StoredBase> {
        let archive = self.connection()?.archive_for_requests().await?;
        StoredBase::find(archive, base, version.major, until).await
    }

    /// [`crate::Engine::log_from`]
    pub(super) async fn read_log(&self, volume: &VolumeId, from: Lsn) -> Result<Option<Vec<u8>>> {
        let (volumes, volume) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.log_from(&volume, from, PIECE_BYTES_MAX as u64)).await
    }
}

/// Adds a directory and what is in it. `path` ends where it did before.
fn add(writer: &mut BaseWriter, directory: &UntrustedDir, path: &mut Vec<u8>, depth: usize) -> Result<()> {
    let refused = |path: &[u8], why: &str| {
        EngineError::Other(format!("it can't be backed up: {} {why}", String::from_utf8_lossy(path)))
    };
    if depth > DEPTH_MAX {
        return Err(refused(path, "is too deep"));
    }
    let length = path.len();
    for name in directory.each_name().map_err(EngineError::io("reading a copy"))? {
        let name = name.map_err(EngineError::io("reading a copy"))?;
        // Of sorts and the like that went on; a server deletes them when it starts.
        if name.to_bytes().starts_with(b"pgsql_tmp") {
            continue;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        add_entry(writer, directory, &name, path, depth, &refused)?;
        path.truncate(length);
    }
    Ok(())
}

fn add_entry(
    writer: &mut BaseWriter,
    directory: &UntrustedDir,
    name: &CStr,
    path: &mut Vec<u8>,
    depth: usize,
    refused: &dyn Fn(&[u8], &str) -> EngineError,
) -> Result<()> {
    let reading = |path: &[u8]| EngineError::io(format!("reading {}", String::from_utf8_lossy(path)));
    let stat = directory.stat(name).map_err(reading(path))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let inner = directory.directory(name).map_err(reading(path))?;
            let inner = inner.ok_or_else(|| refused(path, "went away"))?;
            writer.directory(path, stat.st_mode & 0o777)?;
            add(writer, &inner, path, depth + 1)
        }
        FileType::RegularFile => {
            let opened = directory.file(name).map_err(reading(path))?;
            let (file, stat) = opened.ok_or_else(|| refused(path, "can't be opened"))?;
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            Ok(writer.file(path, stat.st_mode & 0o777, size, &file)?)
        }
        FileType::Socket => Ok(()),
        _ => Err(refused(path, "is a link or device")),
    }
}

/// The data directory of a volume that is being made: nobody else is in it.
struct Restored<'a> {
    top: UntrustedDir,
    similar: Option<UntrustedDir>,
    pace: &'a Pace,
    /// None where somebody else saw to it.
    room: &'a mut Option<Room>,
}

impl Restored<'_> {
    /// Does something with the directory that a path is in, and its last name.
    fn in_parent<T>(
        &self,
        path: &[u8],
        work: impl FnOnce(&UntrustedDir, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        self.pace.go_on()?;
        in_parent(&self.top, path, work)
    }

    fn made_entry(&mut self) -> io::Result<()> {
        self.room.as_mut().map_or(Ok(()), Room::made_entry)
    }
}

fn in_parent<T>(
    top: &UntrustedDir,
    path: &[u8],
    work: impl FnOnce(&UntrustedDir, &[u8]) -> io::Result<T>,
) -> io::Result<T> {
    let mut names = path.split(|byte| *byte == b'/');
    let name = names.next_back().unwrap_or_default();
    let mut inner: Option<UntrustedDir> = None;
    for above in names {
        let opened = inner.as_ref().unwrap_or(top).directory(above)?;
        inner = Some(opened.ok_or(io::ErrorKind::NotFound)?);
    }
    work(inner.as_ref().unwrap_or(top), name)
}

impl Target for Restored<'_> {
    fn directory(&mut self, path: &[u8], mode: u32) -> io::Result<()> {
        let made = self.in_parent(path, |parent, name| parent.make_directory(name))?;
        rustix::fs::fchmod(made, (mode | 0o700).into())?;
        self.made_entry()
    }

    fn make_file(&mut self, path: &[u8], mode: u32) -> io::Result<File> {
        let file = self.in_parent(path, |parent, name| parent.make_file(name))?;
        file.set_permissions(std::fs::Permissions::from_mode(mode | 0o600))?;
        self.made_entry()?;
        Ok(file)
    }

    fn open_file(&mut self, path: &[u8]) -> io::Result<File> {
        let file = self.in_parent(path, |parent, name| parent.file_for_writing(name))?;
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn resemble(&mut self, path: &[u8], file: &File) -> bool {
        // Of its log, nothing is another volume's.
        let Some(similar) = self.similar.as_ref().filter(|_| !path.starts_with(b"pg_wal/")) else {
            return false;
        };
        let found = in_parent(similar, path, |parent, name| parent.file(name));
        // A server writes no longer files, but its owner's code may.
        let is_fit = |(_, stat): &(File, Stat)| stat.st_size <= SEGMENT_BYTES;
        let Ok(Some((found, _))) = found.map(|found| found.filter(is_fit)) else { return false };
        rustix::fs::ioctl_ficlone(file, found).is_ok()
    }

    fn wrote(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        self.pace.wrote(file, bytes)?;
        self.room.as_mut().map_or(Ok(()), |room| room.wrote(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::installation::Installation;
    use crate::local::layout::Layout;
    use crate::local::volumes::{PoolMode, StorageOptions};

    #[test]
    fn room_is_taken_also_by_what_has_no_content() {
        let home = tempfile::tempdir().expect("a directory");
        let installation = Installation::ensure(home.path()).expect("made");
        let options = StorageOptions {
            pool: PoolMode::Off,
            pool_initial_bytes: 0,
            pool_step_bytes: 0,
            host_reserve_bytes: 0,
            history_share: 0,
            driver: None,
        };
        let volumes =
            Volumes::open(&Layout::new(home.path(), "test"), &installation, &options).expect("volumes");
        let data = UntrustedPath::new(home.path(), "restored");
        std::fs::create_dir(data.host_path()).expect("a directory");
        let mut room = Some(Room::find(Arc::new(volumes), 0).expect("a beginning"));
        let (top, pace) = (data.require().expect("it is there"), Pace::default());
        let mut restored = Restored { top, similar: None, pace: &pace, room: &mut room };
        restored.directory(b"base", 0o700).expect("a directory");
        for name in ["base/1", "base/2"] {
            restored.make_file(name.as_bytes(), 0o600).expect("a file");
        }
        assert_eq!(room.as_ref().map(Room::written), Some(3 * ENTRY_BYTES_MIN));
    }
}

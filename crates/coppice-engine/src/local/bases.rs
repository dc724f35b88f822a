//! Volumes in a store: what is written there, and what is made from it.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use chrono::Utc;
use coppice_archive::{
    Archive, ArchiveError, BaseFacts, BaseName, BaseWriter, LogPiece, Manifest, Target, Written,
};
use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;
use coppice_core::volume::VolumeLabel;
use coppice_failpoint::failpoint;
use rustix::fs::FileType;
use tokio::runtime::Handle;

use super::LocalEngine;
use super::blocking::blocking;
use super::history::append_log;
use super::untrusted::{UntrustedDir, UntrustedPath};
use crate::{BasePlan, EngineError, Result, VolumePlan};

/// Directories inside each other; PostgreSQL makes four.
const DEPTH_MAX: usize = 32;
/// Most of a log that is read at once.
const PIECE_BYTES_MAX: u64 = 32 << 20;

impl From<ArchiveError> for EngineError {
    fn from(error: ArchiveError) -> Self {
        Self::Other(error.chain())
    }
}

impl LocalEngine {
    async fn archive(&self) -> Result<Arc<Archive>> {
        match &self.store {
            Some(store) => Ok(store.archive().await?),
            None => Err(EngineError::Other("it is in a store, and none is set (`--store`)".to_owned())),
        }
    }

    /// [`crate::Engine::back_up`]
    pub(super) async fn write_base(&self, plan: &BasePlan) -> Result<Written> {
        let archive = self.archive().await?;
        let mut previous = None;
        for volume in &plan.lineage {
            if let Some(newest) = archive.bases(volume).await?.pop() {
                previous = Some(archive.manifest(&newest).await?);
                break;
            }
        }
        let label = self.volumes.label(&plan.volume)?;
        let label = label.ok_or_else(|| EngineError::NoVolume(plan.volume.clone()))?;
        let label = serde_json::to_string(&label).map_err(|error| EngineError::Other(error.to_string()))?;
        let (volume, taken_ms) = (plan.volume.clone(), Utc::now().timestamp_millis());
        let read = move |data: &UntrustedPath, log_end: Option<Lsn>| {
            failpoint!("base.frozen");
            let facts = BaseFacts { volume, taken_ms, log_end, label };
            let mut writer = BaseWriter::begin(archive, facts, previous);
            let top = data.require().map_err(EngineError::io("opening a copy"))?;
            add(&mut writer, &top, &mut vec![], 0)?;
            failpoint!("base.read");
            Ok(writer.finish()?)
        };
        self.with_frozen(plan.source_instance.as_ref(), &plan.volume, read).await
    }

    /// Makes a volume from a base.
    pub(super) async fn create_from_base(&self, plan: &VolumePlan, base: &str) -> Result<()> {
        let (archive, base) = (self.archive().await?, BaseName::from_trusted(base));
        let manifest = archive.manifest(&base).await?;
        let of: VolumeLabel = serde_json::from_str(&manifest.facts().label)
            .map_err(|error| EngineError::Other(format!("the label in {base} is damaged: {error}")))?;
        if of.version.major != plan.label.version.major {
            return Err(EngineError::Other(format!("{base} is of PostgreSQL {}", of.version)));
        }
        let pieces = log_behind(&archive, &manifest).await?;
        let (volumes, label, runtime) = (self.volumes.clone(), plan.label.clone(), Handle::current());
        blocking(move || {
            volumes.create(&label, &mut |data| {
                let top = data.require().map_err(EngineError::io("opening a new volume"))?;
                archive.restore(&manifest, &mut Restored(top))?;
                let Some(end) = manifest.facts().log_end else { return Ok(()) };
                let read = |piece: &LogPiece| Ok((piece.start, runtime.block_on(archive.get_log(piece))?));
                append_log(data, label.version.major, end, &mut pieces.iter().map(read)).map(drop)
            })
        })
        .await
    }

    /// [`crate::Engine::log_from`]
    pub(super) async fn read_log(&self, volume: &VolumeId, from: Lsn) -> Result<Option<Vec<u8>>> {
        let (volumes, volume) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.log_from(&volume, from, PIECE_BYTES_MAX)).await
    }
}

/// Pieces of the log that go on where a base ends, oldest first.
async fn log_behind(archive: &Archive, manifest: &Manifest) -> Result<Vec<LogPiece>> {
    let BaseFacts { volume, log_end, taken_ms, .. } = manifest.facts();
    let Some(end) = log_end else { return Ok(vec![]) };
    let pieces = archive.log_pieces(volume).await?.into_iter();
    let is_behind = |piece: &LogPiece| piece.seen_at.timestamp_millis() >= *taken_ms && piece.end > *end;
    Ok(pieces.filter(is_behind).collect())
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
struct Restored(UntrustedDir);

impl Restored {
    /// Does something with the directory that a path is in, and its last name.
    fn in_parent<T>(
        &self,
        path: &[u8],
        work: impl FnOnce(&UntrustedDir, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut names = path.split(|byte| *byte == b'/');
        let name = names.next_back().unwrap_or_default();
        let mut inner: Option<UntrustedDir> = None;
        for above in names {
            let opened = inner.as_ref().unwrap_or(&self.0).directory(above)?;
            inner = Some(opened.ok_or(io::ErrorKind::NotFound)?);
        }
        work(inner.as_ref().unwrap_or(&self.0), name)
    }
}

impl Target for Restored {
    fn directory(&mut self, path: &[u8], mode: u32) -> io::Result<()> {
        let made = self.in_parent(path, |parent, name| parent.make_directory(name))?;
        Ok(rustix::fs::fchmod(made, (mode | 0o700).into())?)
    }

    fn make_file(&mut self, path: &[u8], mode: u32) -> io::Result<File> {
        let file = self.in_parent(path, |parent, name| parent.make_file(name))?;
        file.set_permissions(std::fs::Permissions::from_mode(mode | 0o600))?;
        Ok(file)
    }

    fn open_file(&mut self, path: &[u8]) -> io::Result<File> {
        let file = self.in_parent(path, |parent, name| parent.file_for_writing(name))?;
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

//! A backup in the layout that barman-cloud reads, in a bucket or a directory: as
//! plain as PostgreSQL has it, for servers that are not ours.
//!
//! | object | what |
//! |---|---|
//! | `<server>/base/<id>/data.tar.gz` | the data directory |
//! | `<server>/base/<id>/backup.info` | what barman knows of it; without it there is no backup |
//! | `<server>/wals/<log>/<file>.gz` | a file of the write-ahead log |

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use futures_util::TryStreamExt as _;
use object_store::path::{Path, PathPart};
use object_store::{ObjectStore, ObjectStoreExt as _, WriteMultipart};
use tokio::runtime::Handle;

use crate::{ArchiveError, Result, StorePlace};

/// Length of what is sent at a time. A bucket takes 10,000 of them for an object.
const PART: usize = 32 << 20;
/// Parts on their way at a time.
const PARTS_AT_ONCE: usize = 2;
/// Of the 24 digits of a file's name, those that name its directory.
const LOG_DIGITS: usize = 16;

/// A place in a write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// From the beginning of the log.
    pub lsn: Lsn,
    /// The file that it is in.
    pub file: String,
    /// From the beginning of that file, in bytes.
    pub offset: u64,
}

/// What barman is told of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarmanBackup {
    /// The release that wrote it.
    pub version: PostgresVersion,
    /// Identifies the cluster.
    pub system: u64,
    /// The timeline of its log.
    pub timeline: u32,
    /// Bytes in its files.
    pub bytes: u64,
    /// Where recovery begins.
    pub begin: LogPlace,
    /// Where the log ends.
    pub end: LogPlace,
    /// When it was made.
    pub made_at: DateTime<Utc>,
}

impl BarmanBackup {
    /// Its name, as barman gives them.
    pub fn id(made_at: DateTime<Utc>) -> String {
        made_at.format("%Y%m%dT%H%M%S").to_string()
    }

    /// As `backup.info` has it.
    fn info(&self, server: &str) -> String {
        let (begin, end) = (&self.begin, &self.end);
        let made_at = self.made_at.to_rfc3339_opts(SecondsFormat::Micros, false);
        let fields = [
            ("server_name", server.to_owned()),
            ("status", "DONE".to_owned()),
            ("mode", "concurrent".to_owned()),
            ("version", (self.version.major * 10_000 + self.version.minor).to_string()),
            ("systemid", self.system.to_string()),
            ("timeline", self.timeline.to_string()),
            ("size", self.bytes.to_string()),
            ("begin_time", made_at.clone()),
            ("begin_xlog", begin.lsn.to_string()),
            ("begin_wal", begin.file.clone()),
            ("begin_offset", begin.offset.to_string()),
            ("end_time", made_at),
            ("end_xlog", end.lsn.to_string()),
            ("end_wal", end.file.clone()),
            ("end_offset", end.offset.to_string()),
        ];
        fields.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name}={value}");
            text
        })
    }
}

/// Where the backup of one server goes.
#[derive(Debug)]
pub struct BarmanServer {
    objects: Arc<dyn ObjectStore>,
    name: String,
}

impl BarmanServer {
    /// The place of a server of which nothing is there yet.
    ///
    /// # Errors
    /// When it is no name of a directory, when there is something of that name, and
    /// when the place can't be read.
    pub async fn begin(place: &StorePlace, name: &str) -> Result<Self> {
        if name.is_empty() || PathPart::from(name).as_ref() != name {
            return Err(ArchiveError::Place(format!(
                "{name:?} can't name a server: take letters, digits, - and _"
            )));
        }
        let objects = place.open()?.objects;
        let found = objects.list(Some(&Path::from(name))).try_next().await;
        match found.map_err(ArchiveError::store(format!("listing {name}")))? {
            None => Ok(Self { objects, name: name.to_owned() }),
            Some(found) => Err(ArchiveError::Place(format!(
                "{place} has {} already: name another server, or delete what is there",
                found.location
            ))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins with the data directory of a backup, an archive of tar in gzip.
    ///
    /// # Errors
    /// When the place can't be written.
    pub async fn data(&self, id: &str) -> Result<BarmanUpload> {
        self.upload(format!("{}/base/{id}/data.tar.gz", self.name)).await
    }

    /// Begins with a file of the log, in gzip.
    ///
    /// # Errors
    /// When the place can't be written.
    pub async fn log_file(&self, file: &str) -> Result<BarmanUpload> {
        let log = file.get(..LOG_DIGITS).unwrap_or_default();
        self.upload(format!("{}/wals/{log}/{file}.gz", self.name)).await
    }

    async fn upload(&self, object: String) -> Result<BarmanUpload> {
        let begun = self.objects.put_multipart(&Path::from(object.as_str())).await;
        let begun = begun.map_err(ArchiveError::store(format!("writing {object}")))?;
        let parts = WriteMultipart::new_with_chunk_size(begun, PART);
        Ok(BarmanUpload { parts, object, runtime: Handle::current() })
    }

    /// Says that a backup is complete.
    ///
    /// # Errors
    /// When the place can't be written.
    pub async fn complete(&self, backup: &BarmanBackup) -> Result<()> {
        let object = format!("{}/base/{}/backup.info", self.name, BarmanBackup::id(backup.made_at));
        let put = self.objects.put(&Path::from(object.as_str()), backup.info(&self.name).into()).await;
        put.map(drop).map_err(ArchiveError::store(format!("writing {object}")))
    }
}

/// An object in the making. To be written to on a thread that may block.
#[derive(Debug)]
pub struct BarmanUpload {
    parts: WriteMultipart,
    object: String,
    runtime: Handle,
}

impl BarmanUpload {
    /// Waits until all of it is there; before, nothing is.
    ///
    /// # Errors
    /// When the place can't be written.
    pub fn finish(self) -> Result<()> {
        let Self { parts, object, runtime } = self;
        let done = runtime.block_on(parts.finish());
        done.map(drop).map_err(ArchiveError::store(format!("writing {object}")))
    }
}

impl io::Write for BarmanUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _within = self.runtime.enter();
        self.runtime.block_on(self.parts.wait_for_capacity(PARTS_AT_ONCE)).map_err(io::Error::other)?;
        self.parts.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

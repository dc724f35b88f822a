//! The log files of an instance.
//!
//! Their directory belongs to the account of its server, so nothing in it is
//! trusted: names are those that the server is told to use, nothing is
//! followed, and only ordinary files are opened.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use chrono::{DateTime, NaiveDateTime};
use coppice_core::InstanceId;
use rustix::fs::FileType;

use super::HostEngine;
use super::storage_usage::free_bytes;
use super::untrusted::{UntrustedDir, UntrustedPath};
use crate::{EngineError, LogFile, LogFiles, LogRetention, ReadAt, Result};

/// What `log_filename` of `config.rs` makes of a time, with the ending that
/// `jsonlog` gives it.
const NAME: &str = "postgresql-%Y%m%d-%H%M%S.json";
/// Most names that are looked at; the server itself makes a fraction of that.
pub(super) const NAMES_MAX: usize = 100_000;

/// What a file takes at least, for its name and what is known about it.
const FILE_BYTES_MIN: u64 = 4096;
/// A log file that is longer is not spared for being the newest: the server begins another one at 10 MB.
const SPARED_BYTES_MAX: u64 = 64 << 20;
/// Most of a directory in the place of a log that is removed at once.
const ENTRIES_AT_ONCE: u64 = 100_000;

/// The log directory of an instance; none while it never ran.
#[derive(Debug)]
pub(super) struct LogDirectory(Option<UntrustedDir>);

impl LogDirectory {
    pub(super) fn open(path: &UntrustedPath) -> Result<Self> {
        path.open().map(Self).map_err(EngineError::io("opening a log directory"))
    }

    fn names(&self) -> io::Result<Vec<CString>> {
        self.0.as_ref().map_or(Ok(vec![]), |directory| directory.names(NAMES_MAX))
    }
}

/// When a file was begun, by its name, in seconds since the Unix epoch.
fn began(name: &CStr) -> Option<i64> {
    let name = name.to_str().ok()?;
    let time = NaiveDateTime::parse_from_str(name, NAME).ok()?.and_utc().timestamp();
    // Only the name that the server would give it: each time has one file.
    (name_of(time)? == name).then_some(time)
}

/// The log file that was begun last: what the server writes to, or wrote to.
pub(super) fn newest(directory: &UntrustedDir) -> io::Result<Option<CString>> {
    let names = directory.names(NAMES_MAX)?;
    // The names tell the time.
    Ok(names.into_iter().filter(|name| began(name).is_some()).max())
}

/// Whether the server would give a file this name, with this ending: early messages have another one.
fn is_of_server(name: &CStr, ending: &[u8]) -> bool {
    let stem = name.to_bytes().strip_suffix(ending);
    stem.and_then(|stem| CString::new([stem, b".json"].concat()).ok())
        .is_some_and(|name| began(&name).is_some())
}

fn name_of(began: i64) -> Option<String> {
    DateTime::from_timestamp(began, 0).map(|time| time.format(NAME).to_string())
}

/// A log file, whatever its server does to it.
struct Content(File);

impl ReadAt for Content {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }
}

impl LogFiles for LogDirectory {
    fn list(&self) -> io::Result<Vec<i64>> {
        Ok(self.names()?.iter().filter_map(|name| began(name)).collect())
    }

    fn open(&self, began: i64) -> io::Result<Option<LogFile>> {
        let (Some(directory), Some(name)) = (&self.0, name_of(began)) else { return Ok(None) };
        let Some((file, stat)) = directory.file(name)? else { return Ok(None) };
        let length = u64::try_from(stat.st_size).unwrap_or_default();
        let modified_ms = modified_ns(&stat) / 1_000_000;
        let modified_ms = i64::try_from(modified_ms).unwrap_or(i64::MAX);
        Ok(Some(LogFile { content: Box::new(Content(file)), length, modified_ms }))
    }
}

fn modified_ns(stat: &rustix::fs::Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// Something in a log directory that could go.
#[derive(Debug)]
struct Removable {
    name: CString,
    modified_ns: i128,
    bytes: u64,
}

/// What became of a log directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trimmed {
    /// Files and directories that went.
    removed: u32,
    /// Bytes that stay.
    left: u64,
}

/// The most that each may have for so many bytes less in all, where who has most loses first.
fn level(mut sizes: Vec<u64>, less: u64) -> u64 {
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let mut largest = 0_u64;
    for (count, (at, size)) in (1..).zip(sizes.iter().enumerate()) {
        largest += size;
        let next = sizes.get(at + 1).copied().unwrap_or_default();
        if largest - count * next >= less {
            return (largest - less) / count;
        }
    }
    0
}

/// What is in a log directory.
#[derive(Debug, Default)]
struct Found {
    /// Oldest first.
    files: Vec<Removable>,
    directories: Vec<CString>,
    /// Whether that is everything.
    is_all: bool,
}

impl LogDirectory {
    fn look(&self, directory: &UntrustedDir) -> io::Result<Found> {
        let names = self.names()?;
        let mut found = Found { is_all: names.len() < NAMES_MAX, ..Found::default() };
        for name in names {
            let Ok(stat) = directory.stat(&name) else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                found.directories.push(name);
            } else {
                let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
                let bytes = (blocks * 512).max(FILE_BYTES_MIN);
                found.files.push(Removable { name, modified_ns: modified_ns(&stat), bytes });
            }
        }
        found.files.sort_by(|a, b| (a.modified_ns, &a.name).cmp(&(b.modified_ns, &b.name)));
        Ok(found)
    }

    /// Removes what is too old, then the oldest of what is too much. What the
    /// server writes to stays: the newest of each kind, by name and by time, of those
    /// that are as its logs are. What is beyond, it has open without a name, which counts to
    /// its storage. Directories go; a server makes none. Where there are more names than are
    /// looked at, nobody knows how much there is, and all of these go.
    fn trim(&self, retention: &LogRetention, now: DateTime<chrono::Utc>) -> io::Result<Trimmed> {
        let Some(directory) = &self.0 else { return Ok(Trimmed::default()) };
        let Found { files: found, directories, is_all } = self.look(directory)?;
        let mut kept: Vec<CString> = vec![];
        for ending in [&b".json"[..], b".log"] {
            let is_spared =
                |one: &&Removable| one.bytes <= SPARED_BYTES_MAX && is_of_server(&one.name, ending);
            let of_kind = || found.iter().filter(is_spared);
            kept.extend(of_kind().max_by_key(|one| one.modified_ns).map(|one| one.name.clone()));
            kept.extend(of_kind().max_by_key(|one| &one.name).map(|one| one.name.clone()));
        }
        let age_ns = i128::try_from(retention.age.as_nanos()).unwrap_or(i128::MAX);
        let oldest_ns = i128::from(now.timestamp_millis()) * 1_000_000 - age_ns;
        let mut total: u64 = found.iter().map(|one| one.bytes).sum();
        let mut removed = 0;
        for one in found {
            let is_too_much = !is_all || total > retention.bytes_max;
            if kept.contains(&one.name) || !(is_too_much || one.modified_ns < oldest_ns) {
                continue;
            }
            removed += u32::from(directory.unlink(&one.name)?);
            total = total.saturating_sub(one.bytes);
        }
        for name in directories {
            directory.remove_some(&name, ENTRIES_AT_ONCE)?;
            removed += 1;
        }
        Ok(Trimmed { removed, left: total })
    }
}

impl HostEngine {
    /// The log files of an instance. Blocks.
    pub(super) fn log_files(&self, instance: &InstanceId) -> Result<LogDirectory> {
        LogDirectory::open(&self.layout().instance_logs(instance))
    }

    /// To be called now and then: removes logs that are kept no longer. Blocks.
    ///
    /// # Errors
    /// When the instances can't be listed; one whose logs can't be removed
    /// keeps none of the others from it.
    pub fn trim_logs(&self, retention: &LogRetention) -> Result<()> {
        let instances = self.instances_with_files()?;
        let left = instances.iter().map(|instance| self.trim_logs_of(instance, retention).left);
        let left: Vec<_> = left.collect();
        let data_dir = self.layout().data_dir();
        let shortage = retention.free_min.saturating_sub(free_bytes(data_dir)?);
        if shortage == 0 {
            return Ok(());
        }
        let retention = LogRetention { bytes_max: level(left, shortage), ..retention.clone() };
        let removed = instances.iter().map(|instance| self.trim_logs_of(instance, &retention).removed);
        let removed: u32 = removed.sum();
        // It is looked again in seconds, for as long as there is no room.
        if removed > 0 {
            tracing::warn!(
                "there is little room in {}, so {removed} of the longest logs of branches gave way: make room there",
                data_dir.display()
            );
        }
        Ok(())
    }

    fn instances_with_files(&self) -> Result<Vec<InstanceId>> {
        let action = || "listing the instances";
        let found = match std::fs::read_dir(self.layout().data_dir().join("instances")) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(EngineError::io(action())(error)),
        };
        let name = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.map_err(EngineError::io(action()))?.file_name();
            Ok(InstanceId::from_trusted(name.to_string_lossy()))
        };
        found.map(name).collect()
    }

    fn trim_logs_of(&self, instance: &InstanceId, retention: &LogRetention) -> Trimmed {
        let trim = |directory: LogDirectory| {
            let trimmed = directory.trim(retention, chrono::Utc::now());
            trimmed.map_err(EngineError::io("removing old logs"))
        };
        let trimmed = self.log_files(instance).and_then(trim).unwrap_or_else(|error| {
            tracing::warn!(%instance, "logs of {instance}: {}", error.chain());
            Trimmed::default()
        });
        if trimmed.removed > 0 {
            tracing::debug!(%instance, "removed {} old logs of {instance}", trimmed.removed);
        }
        trimmed
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::*;

    const BEGAN: i64 = 1_767_323_045;
    const FIRST: &str = "postgresql-20260102-030405.json";

    fn retention(age_secs: u64, bytes_max: u64) -> LogRetention {
        LogRetention { age: Duration::from_secs(age_secs), bytes_max, free_min: 0 }
    }

    /// A file that was last written so many seconds ago.
    fn open(directory: &Path) -> Result<LogDirectory> {
        let (parent, name) = (directory.parent().expect("a parent"), directory.file_name().expect("a name"));
        LogDirectory::open(&UntrustedPath::new(parent, name.to_str().expect("ASCII")))
    }

    fn write(directory: &Path, name: &str, bytes: usize, seconds_ago: u64) {
        let path = directory.join(name);
        fs::write(&path, vec![b'x'; bytes]).expect("written");
        let time = SystemTime::now() - Duration::from_secs(seconds_ago);
        File::options().write(true).open(path).expect("a file").set_modified(time).expect("a time");
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_ordinary_files_with_names_of_the_servers_are_opened() {
        let root = tempfile::tempdir().expect("a directory");
        let secret = root.path().join("secret");
        fs::write(&secret, "secret").expect("written");
        let logs = root.path().join("log");
        fs::create_dir(&logs).expect("a directory");
        fs::write(logs.join(FIRST), "line\n").expect("written");
        symlink(&secret, logs.join("postgresql-20260102-030406.json")).expect("a link");
        fs::create_dir(logs.join("postgresql-20260102-030407.json")).expect("a directory");
        let fifo = logs.join("postgresql-20260102-030408.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo, rustix::fs::Mode::RWXU).expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(logs.join("postgresql-20260102-030409.json"));
        for other in ["x", "postgresql-20260102-030405.log", "postgresql-2026012-030405.json", "\u{e9}.json"]
        {
            fs::write(logs.join(other), "x").expect("written");
        }
        let directory = open(&logs).expect("readable");
        let mut listed = directory.list().expect("readable");
        listed.sort_unstable();
        assert_eq!(listed, (BEGAN..BEGAN + 5).collect::<Vec<_>>());
        let opened: Vec<_> = listed.iter().map(|began| directory.open(*began).expect("readable")).collect();
        let found: Vec<_> = opened.iter().map(Option::is_some).collect();
        assert_eq!(found, [true, false, false, false, false]);
        assert_eq!(opened[0].as_ref().map(|log| log.length), Some(5));
        assert!(directory.open(i64::MIN).expect("nothing").is_none());
    }

    #[test]
    fn a_log_directory_that_is_a_link_is_refused_and_a_missing_one_is_empty() {
        let root = tempfile::tempdir().expect("a directory");
        symlink("/etc", root.path().join("log")).expect("a link");
        assert!(open(&root.path().join("log")).is_err());
        let missing = open(&root.path().join("nothing")).expect("readable");
        assert!(missing.list().expect("readable").is_empty());
        let trimmed = missing.trim(&retention(0, 0), chrono::Utc::now()).expect("nothing to do");
        assert_eq!(trimmed, Trimmed::default());
    }

    #[test]
    fn old_logs_go_and_the_newest_stays() {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path(), FIRST, 10, 1000);
        write(root.path(), "postgresql-20260102-030405.log", 0, 1000);
        write(root.path(), "postgresql-20260103-030405.json", 10, 500);
        write(root.path(), "postgresql-20260104-030405.json", 10, 400);
        write(root.path(), "postgresql-20260104-030405.log", 0, 400);
        let directory = open(root.path()).expect("readable");
        let trim =
            |age| directory.trim(&retention(age, 1 << 30), chrono::Utc::now()).expect("trimmed").removed;
        assert_eq!((trim(2000), trim(900), trim(900)), (0, 2, 0));
        assert_eq!(trim(1), 1);
        assert_eq!(names(root.path()), ["postgresql-20260104-030405.json", "postgresql-20260104-030405.log"]);
    }

    #[test]
    fn who_has_most_gives_way_first() {
        assert_eq!(level(vec![10, 500, 300], 100), 400);
        assert_eq!(level(vec![10, 500, 300], 300), 250);
        assert_eq!(level(vec![10, 500, 300], 809), 0);
        assert_eq!(level(vec![10, 500, 300], 10_000), 0);
        assert_eq!(level(vec![], 1), 0);
    }

    #[test]
    fn too_much_goes_oldest_first_whatever_it_is_called() {
        let root = tempfile::tempdir().expect("a directory");
        let secret = tempfile::NamedTempFile::new().expect("a file");
        symlink(secret.path(), root.path().join("link")).expect("a link");
        write(root.path(), "anything", 100_000, 900);
        write(root.path(), FIRST, 100_000, 800);
        write(root.path(), "postgresql-20260103-030405.json", 100_000, 700);
        // The clock was set back: the newest name is not what is written to.
        write(root.path(), "postgresql-20260102-120000.json", 100_000, 10);
        fs::create_dir_all(root.path().join("directory/deeper")).expect("a directory");
        let directory = open(root.path()).expect("readable");
        let trim =
            |bytes| directory.trim(&retention(1 << 30, bytes), chrono::Utc::now()).expect("trimmed").removed;
        assert_eq!(trim(350_000), 2, "one file, and the directory");
        assert!(!names(root.path()).contains(&"anything".to_owned()));
        trim(0);
        let kept = ["postgresql-20260102-120000.json", "postgresql-20260103-030405.json"];
        assert_eq!(names(root.path()), kept);
        assert!(secret.path().exists());
    }

    #[test]
    fn nothing_is_spared_that_is_not_as_logs_of_the_server_are() {
        let root = tempfile::tempdir().expect("a directory");
        let long = File::create(root.path().join("postgresql-20260105-030405.json")).expect("a file");
        let length = SPARED_BYTES_MAX + FILE_BYTES_MIN;
        rustix::fs::fallocate(&long, rustix::fs::FallocateFlags::empty(), 0, length).expect("room");
        for name in [FIRST, "postgresql-20260102-030405.log", "zzz.json", "zzz.log", "postgresql-x.log"] {
            write(root.path(), name, 10, 100);
        }
        let directory = open(root.path()).expect("readable");
        let trim = |bytes| directory.trim(&retention(1 << 30, bytes), chrono::Utc::now()).expect("trimmed");
        assert_eq!((trim(SPARED_BYTES_MAX * 2).removed, trim(0).removed), (0, 4));
        assert_eq!(names(root.path()), [FIRST, "postgresql-20260102-030405.log"]);
    }

    #[test]
    fn more_files_than_are_looked_at_go_whatever_they_take() {
        let root = tempfile::tempdir_in("/dev/shm").expect("a directory");
        for number in 0..NAMES_MAX + 9 {
            File::create(root.path().join(number.to_string())).expect("a file");
        }
        let directory = open(root.path()).expect("readable");
        directory.trim(&retention(1 << 30, 1 << 30), chrono::Utc::now()).expect("trimmed");
        assert_eq!(names(root.path()).len(), 9);
    }
}

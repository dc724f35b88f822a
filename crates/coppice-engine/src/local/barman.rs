//! A branch as a plain PostgreSQL server has it, from the store: for whoever goes
//! on elsewhere.
//!
//! Recovery happens here, by a server in its single-user mode that nobody can
//! connect to, confined as those of branches are. What comes out is of one moment and was stopped cleanly, so that
//! nothing but its last file of the log is needed to start it, and it has a
//! superuser of the usual name, without which others' tools do not get in.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use coppice_archive::{Archive, BarmanBackup, BarmanServer, BarmanUpload, BaseName, LogPlace};
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use coppice_wal::Segment;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};

use super::bases::StoredBase;
use super::blocking::blocking;
use super::durable::write_durably;
use super::following::NAMES as REPLICAS;
use super::history::trim_wal;
use super::images::InstalledImage;
use super::launch::{DATA as DATA_PLACE, ProgramPlan, ProgramUse, place_of, program_spec};
use super::pace::Pace;
use super::packing::{SUPERUSER, pack};
use super::process::launch::spawn;
use super::session::PLATFORM_ROLE;
use super::untrusted::{UntrustedDir, UntrustedPath};
use super::volumes::LEFT_BEHIND;
use super::{control_file, first_start, images, logs};
use crate::{EngineError, Result};

/// The data directory in the place to work in.
const DATA: &str = "pgdata";

/// What the data has of its own where no platform is; who runs it puts something else there.
const FILES: [(&str, &str); 3] = [
    (
        "postgresql.conf",
        "listen_addresses = 'localhost'\npassword_encryption = 'scram-sha-256'\nmax_prepared_transactions = 20\n",
    ),
    (
        "pg_hba.conf",
        "local all postgres peer\nlocal all all scram-sha-256\n\
         host all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 scram-sha-256\n",
    ),
    ("pg_ident.conf", ""),
];

/// What to export, and with what.
#[derive(Debug)]
pub struct BarmanPlan {
    /// The store.
    pub archive: Arc<Archive>,
    /// The base that it begins with.
    pub base: BaseName,
    /// Up to what was committed by then; all there is where none is said.
    pub until: Option<DateTime<Utc>>,
    /// The release that wrote it; any minor one of the same major is fine.
    pub version: PostgresVersion,
    /// Where PostgreSQL is looked for besides the system's own place.
    pub postgres_dirs: Vec<PathBuf>,
    /// Uid and gid that run the server; none where this process may itself.
    pub account: Option<u32>,
    /// This program, as what becomes the server.
    pub launcher: PathBuf,
    /// An empty directory, with room for all of the data.
    pub scratch: PathBuf,
}

/// Recovers a base with the log behind it, and writes what comes out where barman
/// reads it.
///
/// # Errors
/// When something in the store is missing or damaged; when no such PostgreSQL is
/// installed; when recovery fails; when there is no room, or the place can't be
/// written.
pub async fn export_to_barman(plan: BarmanPlan, server: &BarmanServer) -> Result<BarmanBackup> {
    let stored =
        StoredBase::find(plan.archive.clone(), plan.base.as_str(), plan.version.major, plan.until).await?;
    let (data, made_at) = (UntrustedPath::new(&plan.scratch, DATA), Utc::now());
    let (made, version, scratch) = (data.clone(), plan.version, plan.scratch.clone());
    let image = blocking(move || {
        let image = images::copy_newest(&plan.postgres_dirs, version.major, &scratch)?;
        make_data(&stored, &made, &scratch)?;
        image.ok_or(EngineError::NoImage(version))
    })
    .await?;
    recover(&image, &plan.launcher, &plan.scratch, plan.account).await?;
    let trimmed = data.clone();
    let end = blocking(move || trim_wal(&trimmed, version.major)).await?;
    let upload = server.data(&BarmanBackup::id(made_at)).await?;
    let (packed, disk) = (data.clone(), plan.scratch.clone());
    let bytes = blocking(move || {
        let disk = rustix::fs::statvfs(&disk).map_err(EngineError::io("asking how long the disk is"))?;
        pack(&packed, disk.f_blocks.saturating_mul(disk.f_frsize), upload)
    })
    .await?;
    for file in log_files(&data).await? {
        let upload = server.log_file(&file).await?;
        let wal = data.clone();
        blocking(move || send_log_file(&wal, &file, upload)).await?;
    }
    let backup = blocking(move || describe(&data, version, bytes, end, made_at)).await?;
    server.complete(&backup).await?;
    Ok(backup)
}

/// Puts what is in the store into a new data directory.
fn make_data(stored: &StoredBase, data: &UntrustedPath, scratch: &Path) -> Result<()> {
    let action = || EngineError::io("preparing the data");
    let above = UntrustedPath::new(scratch, "").require().map_err(action())?;
    above.make_directory(DATA).map_err(action())?;
    let pace = Pace::default();
    stored.restore_into(data, &pace)?;
    let top = data.require().map_err(action())?;
    for name in LEFT_BEHIND.iter().chain(FILES.iter().map(|(name, _)| name)) {
        top.unlink(&CString::new(*name).map_err(|error| action()(error.into()))?).map_err(action())?;
    }
    for (name, text) in FILES {
        top.make_file(name).and_then(|mut file| file.write_all(text.as_bytes())).map_err(action())?;
    }
    first_start::remove_inherited_files(data)?;
    stored.append_log_to(data, &pace).map(drop)
}

/// Has a server recover the data, make the superuser, and stop. Nobody can connect to
/// it, it loads no library, and does nothing of what is set for roles and databases.
async fn recover(
    image: &InstalledImage,
    launcher: &Path,
    scratch: &Path,
    account: Option<u32>,
) -> Result<()> {
    let action = || EngineError::io("recovering the data");
    let (data, input, said) = (scratch.join(DATA), scratch.join("statements"), scratch.join("said"));
    if let Some(account) = account {
        let given = data.clone();
        blocking(move || give(&given, account).map_err(EngineError::io("giving the data away"))).await?;
    }
    write_durably(&input, statements().as_bytes(), 0o600)?;
    let place = place_of(account, &data, DATA_PLACE).display().to_string();
    // It may write nowhere but to the data, and what the statements set off ends.
    let settings = [
        "shared_preload_libraries=",
        "exit_on_error=on",
        "dynamic_shared_memory_type=mmap",
        "session_replication_role=replica",
        "statement_timeout=5min",
    ];
    let settings = settings.into_iter().flat_map(|setting| ["-c", setting]);
    let spec = program_spec(ProgramPlan {
        image,
        program: "postgres",
        arguments: ["--single", "-D", &place]
            .into_iter()
            .chain(settings)
            .chain(["postgres"])
            .map(str::to_owned)
            .collect(),
        environment: vec![],
        input: Some(input),
        account,
        cgroup: None,
        directories: vec![(&data, DATA_PLACE, ProgramUse::Write)],
    });
    let words = File::create_new(&said).map_err(action())?;
    let status = match spawn(launcher, &spec, &words).await? {
        Some(launched) => {
            let mut running = EndOnDrop(Pid::from_raw(launched.pid.cast_signed()));
            let status = launched.wait().await.map_err(action())?;
            // From here on the number may be another process's.
            running.0 = None;
            status
        }
        None => None,
    };
    if status == Some(0) {
        return Ok(());
    }
    Err(EngineError::Other(format!(
        "PostgreSQL could not recover the branch and make a superuser {SUPERUSER} in it: {}",
        telling(&logs::tail(&said))
    )))
}

/// What makes the superuser, and takes their rights from the roles that only serve here.
fn statements() -> String {
    format!(
        "CREATE ROLE {SUPERUSER} SUPERUSER CREATEDB CREATEROLE REPLICATION BYPASSRLS LOGIN\n\
         ALTER ROLE {PLATFORM_ROLE} NOLOGIN PASSWORD NULL\n\
         UPDATE pg_authid SET rolcanlogin = false, rolsuper = false, rolreplication = false, rolpassword = NULL \
         WHERE rolreplication AND rolname ~ '{REPLICAS}'\n"
    )
}

/// A server that does not outlive whoever waits for it.
struct EndOnDrop(Option<Pid>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Of what a server said, why it ended.
fn telling(said: &str) -> &str {
    let is_end = |line: &&str| ["FATAL:", "PANIC:"].iter().any(|word| line.contains(word));
    let is_other = |line: &&str| !["LOG:", "backend>", "stand-alone"].iter().any(|word| line.contains(word));
    said.lines().find(is_end).or_else(|| said.lines().find(is_other)).unwrap_or_default()
}

/// Gives a directory with everything in it away. Nobody else is in it.
fn give(path: &Path, account: u32) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        for entry in path.read_dir()? {
            give(&entry?.path(), account)?;
        }
    }
    lchown(path, Some(account), Some(account))
}

/// The files of the log that are needed.
async fn log_files(data: &UntrustedPath) -> Result<Vec<String>> {
    let data = data.clone();
    blocking(move || {
        let names = wal_of(&data).and_then(|wal| wal.each_name()?.collect::<io::Result<Vec<_>>>());
        let names = names.map_err(EngineError::io("listing pg_wal"))?.into_iter();
        let is_file = |name: &CString| Segment::USUAL.parse(name.to_bytes()).is_some();
        let mut files: Vec<_> =
            names.filter(is_file).map(|name| name.to_string_lossy().into_owned()).collect();
        files.sort();
        Ok(files)
    })
    .await
}

fn wal_of(data: &UntrustedPath) -> io::Result<UntrustedDir> {
    data.require()?.directory("pg_wal")?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Opens a file of the log. What is longer than one is none.
fn log_file(data: &UntrustedPath, name: &str) -> Result<File> {
    let found = wal_of(data).and_then(|wal| wal.file(name)?.ok_or_else(|| io::ErrorKind::NotFound.into()));
    let (file, stat) = found.map_err(EngineError::io(format!("sending {name}")))?;
    match u64::try_from(stat.st_size) {
        Ok(bytes) if bytes <= Segment::USUAL.bytes => Ok(file),
        _ => Err(EngineError::Other(format!("pg_wal/{name} is longer than a file of the log"))),
    }
}

fn send_log_file(data: &UntrustedPath, name: &str, upload: BarmanUpload) -> Result<()> {
    let action = || EngineError::io(format!("sending {name}"));
    let file = log_file(data, name)?;
    let mut packed = GzEncoder::new(upload, Compression::fast());
    io::copy(&mut file.take(Segment::USUAL.bytes), &mut packed).map_err(action())?;
    Ok(packed.finish().map_err(action())?.finish()?)
}

fn describe(
    data: &UntrustedPath,
    version: PostgresVersion,
    bytes: u64,
    end: Lsn,
    made_at: DateTime<Utc>,
) -> Result<BarmanBackup> {
    let found = control_file::checkpoint(data)?;
    if !found.is_clean {
        return Err(EngineError::Other("its server was not stopped cleanly".to_owned()));
    }
    let segment = Segment::USUAL;
    let place = |lsn: Lsn| {
        let number = segment.number(lsn);
        LogPlace { lsn, file: segment.name(found.timeline, number), offset: lsn.0 - segment.start(number).0 }
    };
    Ok(BarmanBackup {
        version,
        system: found.system,
        timeline: found.timeline,
        bytes,
        begin: place(found.redo),
        end: place(end),
        made_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_server_said_the_reason_of_its_end_is_told() {
        let said = "LOG:  redo done\nFATAL:  role \"postgres\" already exists\nLOG:  checkpoint complete";
        assert_eq!(telling(said), "FATAL:  role \"postgres\" already exists");
        assert_eq!(
            telling("LOG:  begins\nit may not run as root.\nSee the manual."),
            "it may not run as root."
        );
        assert_eq!(telling(""), "");
    }

    #[test]
    fn what_is_longer_than_a_file_of_the_log_is_none() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(home.path().join("data/pg_wal")).expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        let file = File::create(home.path().join("data/pg_wal/a")).expect("a file");
        for (more, is_sent) in [(0, true), (1, false)] {
            file.set_len(Segment::USUAL.bytes + more).expect("a length");
            assert_eq!(log_file(&data, "a").is_ok(), is_sent);
        }
    }
}

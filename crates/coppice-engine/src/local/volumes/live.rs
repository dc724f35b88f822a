//! Copies the data of a running server file by file.
//!
//! There is one right order, and this module offers nothing else: backup
//! start; everything but `pg_wal`; backup stop; then `pg_wal`; then
//! `backup_label`. A checkpoint in the middle of a bare copy moves the redo
//! position past pages that were copied before it, and nothing in the copy
//! tells; `backup_label` makes the copy's recovery begin where the backup
//! did. WAL copied before the stop lacks the record that ends the backup.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use coppice_core::VolumeId;
use coppice_failpoint::failpoint;

use super::LiveSource;
use super::clone::{FileMethod, Met, Selected, Walk};
use crate::local::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// Directories whose content means nothing to another server; PostgreSQL
/// expects them to be there.
const EMPTIED: [&str; 8] = [
    "pg_dynshmem",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_wal",
];

/// Files of the running server, or of a copy that its own data came from.
const LEFT_OUT: [&str; 9] = [
    "backup_label",
    "backup_label.old",
    "backup_manifest",
    "current_logfiles.tmp",
    "postgresql.auto.conf.tmp",
    "postmaster.opts",
    "postmaster.pid",
    "tablespace_map",
    "tablespace_map.old",
];

/// Copies `source` into `target`, both PostgreSQL data directories, the latter
/// empty, and makes nothing durable.
pub(super) fn copy(
    volume: &VolumeId,
    source: &UntrustedPath,
    target: &UntrustedPath,
    method: FileMethod,
    server: &mut dyn LiveSource,
) -> Result<()> {
    server.backup_start()?;
    failpoint!("volume.live.after_start");
    Walk { volume, method, select: &select_all_but_wal, is_live: true, met: Met::default() }
        .copy(source, target)?;
    failpoint!("volume.live.after_data");
    let label = server.backup_stop()?;
    failpoint!("volume.live.after_stop");
    let wal = UntrustedPath::new(target.host_path(), "pg_wal");
    let source_wal = source.require().and_then(|source| source.directory("pg_wal"));
    let source_wal = source_wal.map_err(EngineError::io("opening the source's pg_wal"))?;
    let source_wal = source_wal.ok_or_else(|| EngineError::Other("the source has no pg_wal".to_owned()))?;
    Walk { volume, method, select: &select_wal, is_live: true, met: Met::default() }
        .copy_directory(&source_wal, &wal)?;
    check_wal_is_there(&label, wal.host_path())?;
    failpoint!("volume.live.after_wal");
    write_backup_label(target.host_path(), &label)
}

fn select_all_but_wal(path: &Path) -> Selected {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_at_top = path.components().count() == 1;
    if is_at_top && EMPTIED.contains(&name.as_ref()) {
        return Selected::Empty;
    }
    let is_temporary = name.starts_with("pgsql_tmp") || name.starts_with("pg_internal.init");
    if is_temporary || (is_at_top && LEFT_OUT.contains(&name.as_ref())) {
        return Selected::No;
    }
    Selected::Yes
}

/// The archiver's notes are the source's own affair.
fn select_wal(path: &Path) -> Selected {
    if path == Path::new("archive_status") { Selected::Empty } else { Selected::Yes }
}

/// The segment where recovery begins. Without it the server would not start;
/// here the copy can still be made again.
fn check_wal_is_there(label: &str, wal: &Path) -> Result<()> {
    let first = first_segment(label)
        .ok_or_else(|| EngineError::Other("the server ended the backup without a backup label".to_owned()))?;
    if wal.join(first).exists() {
        return Ok(());
    }
    Err(EngineError::Other(format!(
        "the source recycled its WAL ({first}) while it was copied; try again, or stop it first"
    )))
}

/// From `START WAL LOCATION: 0/2000028 (file 000000010000000000000002)`.
fn first_segment(label: &str) -> Option<&str> {
    let line = label.lines().find(|line| line.starts_with("START WAL LOCATION:"))?;
    let (_, rest) = line.split_once("(file ")?;
    let segment = rest.strip_suffix(')')?;
    (segment.len() == 24 && segment.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(segment)
}

fn write_backup_label(target: &Path, label: &str) -> Result<()> {
    let path = target.join("backup_label");
    let write = || -> std::io::Result<()> {
        let owner = target.metadata()?;
        let mut file: File = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        let meta = file.metadata()?;
        if (meta.uid(), meta.gid()) != (owner.uid(), owner.gid()) {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.write_all(label.as_bytes())
    };
    write().map_err(EngineError::io(format!("writing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_running_server_stays_behind() {
        let selected = |path: &str| select_all_but_wal(Path::new(path));
        for path in ["postmaster.pid", "base/5/pgsql_tmp", "base/5/pg_internal.init", "backup_label"] {
            assert_eq!(selected(path), Selected::No, "{path}");
        }
        for path in ["pg_wal", "pg_replslot"] {
            assert_eq!(selected(path), Selected::Empty, "{path}");
        }
        for path in ["base/5/1259", "global/pg_control", "PG_VERSION", "pg_logical/replorigin_checkpoint"] {
            assert_eq!(selected(path), Selected::Yes, "{path}");
        }
    }

    #[test]
    fn a_backup_label_names_the_first_segment() {
        let label =
            "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\nCHECKPOINT LOCATION: 0/2000060\n";
        assert_eq!(first_segment(label), Some("000000010000000000000002"));
        assert_eq!(first_segment("START WAL LOCATION: 0/2000028 (file ../../etc/passwd)"), None);
    }
}

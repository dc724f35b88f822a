//! What is mounted where, as the kernel tells in `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::{EngineError, Result};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Which directory of the file system is mounted; `/` for all of it.
    pub(super) root: PathBuf,
    /// Where.
    pub(super) point: PathBuf,
    /// For example `btrfs`.
    pub(super) kind: String,
    /// For example `/dev/loop3`.
    pub(super) source: PathBuf,
}

/// All mounts of this process's mount namespace; a later one hides an earlier
/// one at the same place.
pub(super) fn read() -> Result<Vec<Mount>> {
    let path = "/proc/self/mountinfo";
    let text = fs::read(path).map_err(EngineError::io(format!("reading {path}")))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Whether anything is mounted at `directory` or below it.
pub(in crate::local) fn has_mounts_below(directory: &Path) -> Result<bool> {
    let directory =
        directory.canonicalize().map_err(EngineError::io(format!("looking for {}", directory.display())))?;
    Ok(read()?.iter().any(|mount| mount.point.starts_with(&directory)))
}

/// `36 35 98:0 /root /point options [optional…] - kind source options`
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| field == b"-")?;
    Some(Mount {
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: unescape(fields.get(dash + 2)?),
    })
}

/// Blanks, line ends and backslashes are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = rest.get(1..4).and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                bytes.push(value);
                rest = &rest[4..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_blanks_is_read() {
        let line = br"36 35 7:0 / /srv/my\040data/pool rw,noatime shared:1 - btrfs /dev/loop0 rw";
        let mount = parse(line).expect("well formed");
        assert_eq!(mount.point, Path::new("/srv/my data/pool"));
        assert_eq!((mount.kind.as_str(), mount.source.as_path()), ("btrfs", Path::new("/dev/loop0")));
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(br"a\9b"), Path::new(r"a\9b"));
        assert_eq!(unescape(br"a\134"), Path::new(r"a\"));
    }
}

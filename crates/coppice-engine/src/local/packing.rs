//! A data directory as one archive, for where no platform is.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use coppice_archive::BarmanUpload;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{FileType, SeekFrom, seek};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::untrusted::{UntrustedDir, UntrustedPath};
use super::volumes::LEFT_BEHIND;
use crate::{EngineError, Result};

/// The superuser that other tools expect, and who data belongs to there.
pub(super) const SUPERUSER: &str = "postgres";
/// Directories inside each other; PostgreSQL makes four.
const DEPTH_MAX: usize = 32;
/// So many bytes more than there are in a file are sent of it: a server makes room that it has not used yet.
const HOLES_MAX: u64 = 64 << 20;

/// Sends the data directory, if its files are no longer together than the disk that they
/// are on, and none than what is in it: a hole can be longer, and would be sent as zeros. Tells how many bytes
/// they have.
pub(super) fn pack(data: &UntrustedPath, bytes_max: u64, upload: BarmanUpload) -> Result<u64> {
    let action = || EngineError::io("packing the data");
    let mut archive = Builder::new(GzEncoder::new(upload, Compression::fast()));
    let top = data.require().map_err(action())?;
    let mut header = header(EntryType::Directory, 0o700, 0);
    archive.append_data(&mut header, ".", io::empty()).map_err(action())?;
    let mut left = bytes_max;
    add(&mut archive, &top, &mut PathBuf::new(), 0, &mut left)?;
    let packed = archive.into_inner().map_err(action())?;
    packed.finish().map_err(action())?.finish()?;
    Ok(bytes_max - left)
}

fn header(kind: EntryType, mode: u32, bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    // By name: the numbers are others there.
    let _ = header.set_username(SUPERUSER).and_then(|()| header.set_groupname(SUPERUSER));
    header
}

/// Adds what is in a directory, of which so many bytes are left. `path` ends where it did before.
fn add(
    archive: &mut Builder<impl Write>,
    directory: &UntrustedDir,
    path: &mut PathBuf,
    depth: usize,
    left: &mut u64,
) -> Result<()> {
    let reading = |path: &Path| EngineError::io(format!("packing {}", path.display()));
    let refused = |path: &Path, why: &str| EngineError::Other(format!("{} {why}", path.display()));
    if depth > DEPTH_MAX {
        return Err(refused(path, "is too deep"));
    }
    for name in directory.each_name().map_err(reading(path))? {
        let name = name.map_err(reading(path))?;
        if depth == 0 && LEFT_BEHIND.iter().any(|left| left.as_bytes() == name.to_bytes()) {
            continue;
        }
        path.push(OsStr::from_bytes(name.to_bytes()));
        let stat = directory.stat(&name).map_err(reading(path))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let inner = directory.directory(name.as_c_str()).map_err(reading(path))?;
                let inner = inner.ok_or_else(|| refused(path, "went away"))?;
                let mut header = header(EntryType::Directory, 0o700, 0);
                archive.append_data(&mut header, &*path, io::empty()).map_err(reading(path))?;
                add(archive, &inner, path, depth + 1, left)?;
            }
            FileType::RegularFile => {
                let opened = directory.file(name.as_c_str()).map_err(reading(path))?;
                let (file, stat) = opened.ok_or_else(|| refused(path, "can't be opened"))?;
                let bytes = u64::try_from(stat.st_size).unwrap_or_default();
                let fits = left.checked_sub(bytes).ok_or_else(|| refused(path, "is longer than the disk"))?;
                *left = fits;
                let held = held(&file, bytes).map_err(reading(path))?;
                if bytes - held > HOLES_MAX {
                    return Err(refused(path, "is longer than what is in it"));
                }
                add_file(archive, path, &file, bytes).map_err(reading(path))?;
            }
            _ => return Err(refused(path, "is a link or device")),
        }
        path.pop();
    }
    Ok(())
}

/// How many bytes of a file are there, however few they take on the disk.
fn held(mut file: &File, bytes: u64) -> io::Result<u64> {
    let (mut held, mut at) = (0, 0);
    while at < bytes {
        let begin = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            // Not every file system tells.
            Err(Errno::INVAL) => return Ok(bytes),
            begin => begin?.min(bytes),
        };
        at = seek(file, SeekFrom::Hole(begin))?.min(bytes);
        held += at.saturating_sub(begin);
    }
    file.rewind()?;
    Ok(held)
}

fn add_file(archive: &mut Builder<impl Write>, path: &Path, file: &File, bytes: u64) -> io::Result<()> {
    let mut header = header(EntryType::Regular, 0o600, bytes);
    archive.append_data(&mut header, path, file.take(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn files_that_are_longer_than_the_disk_are_refused_and_others_counted() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(home.path().join("base/1")).expect("a directory");
        let sparse = |name: &str, length| {
            let file = File::create(home.path().join(name)).expect("a file");
            file.set_len(length).expect("a length");
        };
        let pack = |bytes_max| {
            let top = UntrustedPath::new(home.path(), "").require().expect("opened");
            let mut left = bytes_max;
            let packed = add(&mut Builder::new(io::sink()), &top, &mut PathBuf::new(), 0, &mut left);
            packed.map(|()| bytes_max - left)
        };
        sparse("base/1/1", 8192);
        sparse("base/1/2", 100);
        assert_eq!(pack(1 << 30).expect("packed"), 8292);
        assert_eq!(pack(8292).expect("packed"), 8292);
        pack(8291).expect_err("together they are too long");
        let whole = File::options().write(true).open(home.path().join("base/1/1")).expect("a file");
        whole.set_len(HOLES_MAX).expect("a length");
        assert_eq!(pack(1 << 30).expect("packed"), HOLES_MAX + 100);
        whole.set_len(HOLES_MAX + 8192).expect("a length");
        let refused = pack(1 << 30).expect_err("nothing is in it");
        assert!(refused.to_string().contains("base/1/1 is longer than what is in it"), "{refused}");
        whole.write_all_at(&[1; 8192], HOLES_MAX / 2).expect("written");
        assert_eq!(pack(1 << 30).expect("packed"), HOLES_MAX + 8292);
        sparse("base/1/3", 1 << 42);
        let refused = pack(1 << 40).expect_err("it is longer than any disk");
        assert!(refused.to_string().contains("base/1/3 is longer than the disk"), "{refused}");
    }
}

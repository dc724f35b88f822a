//! Copies a tree file by file, sharing blocks where the file system can.
//!
//! The source may belong to a server that is not trusted, and may be changing
//! while it is read. So directories are walked by descriptor and nothing is
//! followed: a link put in place of a file must not make root read another
//! file into the copy.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use coppice_core::VolumeId;
use rustix::fs::{self, FileType, Mode, SeekFrom, Stat};
use rustix::io::Errno;

use crate::local::untrusted::{UntrustedDir, UntrustedPath};
use crate::{EngineError, Result, errand};

/// Reading `pg_control` again and again while a server writes it ends after this many times.
const STABLE_READS_MAX: u32 = 1000;

/// Most bytes of `pg_control`, which has 8192.
const CONTROL_FILE_LENGTH_MAX: u64 = 64 << 10;
/// Directories inside each other; PostgreSQL makes four.
const DEPTH_MAX: usize = 32;

/// Files that are met once more under another name, and their bytes: PostgreSQL gives no file two
/// names, but renames some while they are copied, segments of its log most of all. Whoever writes
/// there could have one copied any number of times.
const AGAIN_MAX: u64 = 10_000;
const AGAIN_BYTES_MAX: u64 = 1 << 30;

/// How one file becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileMethod {
    /// The copy shares the blocks.
    Reflink,
    /// The bytes are copied.
    Bytes,
}

/// What to do with an entry of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selected {
    /// Copy it, a directory with all that is selected in it.
    Yes,
    /// Leave it out.
    No,
    /// Make the directory and leave it empty.
    Empty,
}

/// One walk over a source.
pub(super) struct Walk<'a> {
    /// Named in errors.
    pub(super) volume: &'a VolumeId,
    pub(super) method: FileMethod,
    /// Decides by the path below the directory where the walk began.
    pub(super) select: &'a dyn Fn(&Path) -> Selected,
    /// A server may remove, extend and truncate files during the walk.
    pub(super) is_live: bool,
    pub(super) met: Met,
}

/// The files that a walk has met.
#[derive(Debug, Default)]
pub(super) struct Met(RefCell<MetFiles>);

#[derive(Debug, Default)]
struct MetFiles {
    /// By number and when they were made: numbers are given again.
    known: HashSet<(u64, Option<SystemTime>)>,
    again: u64,
    again_bytes: u64,
}

impl Met {
    /// Notes one, and whether it may be copied.
    fn note(&self, file: &File) -> io::Result<bool> {
        let meta = file.metadata()?;
        let mut met = self.0.borrow_mut();
        if met.known.insert((meta.ino(), meta.created().ok())) {
            return Ok(true);
        }
        met.again += 1;
        met.again_bytes += meta.blocks() * 512;
        Ok(met.again <= AGAIN_MAX && met.again_bytes <= AGAIN_BYTES_MAX)
    }
}

impl Walk<'_> {
    /// Copies what is in `source` into `target`, which exists and is empty.
    /// Modes and owners are kept. The caller makes the result durable.
    pub(super) fn copy(&self, source: &UntrustedPath, target: &UntrustedPath) -> Result<()> {
        let opening =
            |path: &UntrustedPath| EngineError::io(format!("opening {}", path.host_path().display()));
        let from = source.require().map_err(opening(source))?;
        self.copy_directory(&from, target)
    }

    /// The same for a directory in the source.
    pub(super) fn copy_directory(&self, from: &UntrustedDir, target: &UntrustedPath) -> Result<()> {
        let to =
            target.require().map_err(EngineError::io(format!("opening {}", target.host_path().display())))?;
        let device = from.device().map_err(EngineError::io("looking at the source"))?;
        self.directory(from, &to, Path::new(""), device)
    }

    fn directory(&self, from: &UntrustedDir, to: &UntrustedDir, below: &Path, device: u64) -> Result<()> {
        let reading = || format!("reading directory data/{}", below.display());
        if below.components().count() > DEPTH_MAX {
            return Err(self.not_copyable(format!("its directories are more than {DEPTH_MAX} levels deep")));
        }
        for name in from.each_name().map_err(EngineError::io(reading()))? {
            let name = name.map_err(EngineError::io(reading()))?;
            let path = below.join(bytes_as_path(name.to_bytes()));
            let selected = (self.select)(&path);
            if selected == Selected::No {
                continue;
            }
            let action = || format!("copying data/{}", path.display());
            errand::go_on().map_err(EngineError::io(action()))?;
            let stat = match from.stat(&name) {
                Err(error) if self.is_live && is_not_found(&error) => continue,
                stat => stat.map_err(EngineError::io(action()))?,
            };
            if stat.st_dev != device {
                return Err(self.not_copyable(format!("another file system is at data/{}", path.display())));
            }
            let done = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.subdirectory(from, to, &path, &stat, selected)?,
                FileType::RegularFile => match self.file(from, to, &path) {
                    Ok(false) => {
                        let reason = format!(
                            "data/{} and others are the same files under other names: make each a file of its own, or remove it",
                            path.display()
                        );
                        return Err(self.not_copyable(reason));
                    }
                    done => done.map(drop),
                },
                FileType::Socket => Ok(()),
                _ => return Err(self.not_copyable(format!("data/{} is a link or device", path.display()))),
            };
            match done {
                Err(error) if self.is_live && is_not_found(&error) => {}
                done => done.map_err(EngineError::io(action()))?,
            }
        }
        Ok(())
    }

    /// The outer error is one that must stop the walk, the inner one may mean
    /// that the directory is gone.
    fn subdirectory(
        &self,
        from: &UntrustedDir,
        to: &UntrustedDir,
        path: &Path,
        stat: &Stat,
        selected: Selected,
    ) -> Result<io::Result<()>> {
        let name = path.file_name().unwrap_or_default();
        let opened = || -> io::Result<(UntrustedDir, UntrustedDir)> {
            let inner_from = from.directory(name)?.ok_or(io::ErrorKind::NotFound)?;
            Ok((inner_from, to.make_directory(name)?))
        };
        let (inner_from, inner_to) = match opened() {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        if selected == Selected::Yes {
            self.directory(&inner_from, &inner_to, path, stat.st_dev)?;
        }
        Ok(copy_attributes(stat, &inner_to))
    }

    /// False where it has been copied too often already.
    fn file(&self, from: &UntrustedDir, to: &UntrustedDir, path: &Path) -> io::Result<bool> {
        let name = path.file_name().unwrap_or_default();
        let (source, stat) = from.file(name)?.ok_or(io::ErrorKind::NotFound)?;
        // Of what is open: there may be another one under its name by now.
        if !self.met.note(&source)? {
            return Ok(false);
        }
        let mut target = to.make_file(name)?;
        if !(self.method == FileMethod::Reflink && reflink(&source, &target)?) {
            if self.is_live && path == Path::new("global/pg_control") {
                io::Write::write_all(&mut target, &read_stable(&source)?)?;
            } else {
                copy_bytes(&source, &target, u64::try_from(stat.st_size).unwrap_or_default())?;
            }
        }
        copy_attributes(&stat, &target).map(|()| true)
    }

    fn not_copyable(&self, reason: String) -> EngineError {
        EngineError::NotCopyable { volume: self.volume.clone(), reason }
    }
}

/// False where this file can't share its blocks with a copy.
fn reflink(source: &File, target: &File) -> io::Result<bool> {
    match fs::ioctl_ficlone(target, source) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::XDEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies the first `length` bytes: what is added meanwhile is in the WAL, and a
/// file that only grows has no end. Where nothing was ever written nothing is
/// written either: a file can be longer than any disk and take no room.
fn copy_bytes(source: &File, mut target: &File, length: u64) -> io::Result<()> {
    let mut at = 0;
    while at < length {
        let data = match fs::seek(source, SeekFrom::Data(at)) {
            Ok(data) if data < length => data,
            // Nothing but a hole is left.
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = fs::seek(source, SeekFrom::Hole(data))?.min(length);
        for file in [source, target] {
            fs::seek(file, SeekFrom::Start(data))?;
        }
        let copied = io::copy(&mut source.take(end - data), &mut target)?;
        if copied == 0 {
            // It was cut off meanwhile.
            break;
        }
        at = data + copied;
    }
    target.set_len(length.min(source.metadata()?.len()))
}

/// A server rewrites this file in one piece, and a read may meet that in the
/// middle; two equal reads in a row did not.
fn read_stable(file: &File) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let read = || -> io::Result<Vec<u8>> {
        let length = file.metadata()?.len().min(CONTROL_FILE_LENGTH_MAX);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let mut last = read()?;
    for _ in 0..STABLE_READS_MAX {
        let next = read()?;
        if next == last {
            return Ok(next);
        }
        last = next;
    }
    Err(io::Error::other("it never stayed the same for two reads"))
}

fn copy_attributes(stat: &Stat, to: impl AsFd) -> io::Result<()> {
    let now = fs::fstat(&to)?;
    if (now.st_uid, now.st_gid) != (stat.st_uid, stat.st_gid) {
        fs::fchown(&to, Some(fs::Uid::from_raw(stat.st_uid)), Some(fs::Gid::from_raw(stat.st_gid)))?;
    }
    // No set-user-ID bit ever: nothing PostgreSQL writes has one.
    Ok(fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o777))?)
}

fn is_not_found(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn bytes_as_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Gives everything below `path` to one account. Nothing else may write there.
pub(in crate::local) fn give_to(path: &Path, account: u32) -> io::Result<()> {
    use std::os::unix::fs::lchown;
    let meta = path.symlink_metadata()?;
    if meta.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give_to(&entry?.path(), account)?;
        }
    }
    if (meta.uid(), meta.gid()) != (account, account) {
        lchown(path, Some(account), Some(account))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_hole_stays_a_hole_and_bytes_stay_bytes() {
        let [source, target] = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
        let length = 1_u64 << 40;
        source.set_len(length + 100).expect("a long file");
        for (at, text) in [(0, "first"), (10 << 20, "second"), (length - 4, "last, cut")] {
            source.write_all_at(text.as_bytes(), at).expect("written");
        }
        copy_bytes(&source, &target, length).expect("copied");
        let read = |at, count| {
            let mut bytes = vec![0; count];
            target.read_exact_at(&mut bytes, at).map(|()| String::from_utf8_lossy(&bytes).into_owned())
        };
        assert_eq!(read(0, 6).expect("read"), "first\0");
        assert_eq!(read(10 << 20, 6).expect("read"), "second");
        assert_eq!(read(length - 4, 4).expect("read"), "last");
        let meta = target.metadata().expect("told");
        assert_eq!(meta.len(), length);
        assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    }

    #[test]
    fn a_file_of_many_names_becomes_few_files() {
        let home = tempfile::tempdir().expect("a directory");
        let (source, target) =
            (UntrustedPath::new(home.path(), "data"), UntrustedPath::new(home.path(), "copy"));
        for place in [&source, &target] {
            std::fs::create_dir(place.host_path()).expect("a directory");
        }
        let name = |number: u64| source.host_path().join(number.to_string());
        std::fs::write(name(0), "").expect("a file");
        for number in 1..=AGAIN_MAX + 1 {
            std::fs::hard_link(name(0), name(number)).expect("another name");
        }
        let (volume, select) = (VolumeId::from_trusted("one".to_owned()), |_: &Path| Selected::Yes);
        let method = FileMethod::Bytes;
        let walk = Walk { volume: &volume, method, select: &select, is_live: false, met: Met::default() };
        let refused = walk.copy(&source, &target).expect_err("a file of many names").to_string();
        assert!(refused.contains("the same files"), "{refused}");
    }

    #[test]
    fn a_large_file_is_not_copied_under_many_names() {
        let file = tempfile::tempfile().expect("a file");
        fs::fallocate(&file, fs::FallocateFlags::empty(), 0, 400 << 20).expect("room");
        let met = Met::default();
        let copied = (0..10).take_while(|_| met.note(&file).expect("told")).count();
        assert_eq!(copied, 3, "once, and twice of what may be again");
        let other = tempfile::tempfile().expect("a file");
        assert!(met.note(&other).expect("told"), "another one is not met again");
    }

    #[test]
    fn what_was_cut_off_meanwhile_is_not_made_longer() {
        let [source, target] = [(); 2].map(|()| tempfile::tempfile().expect("a file"));
        source.write_all_at(b"short", 0).expect("written");
        copy_bytes(&source, &target, 1 << 20).expect("copied");
        assert_eq!(target.metadata().expect("told").len(), 5);
    }
}

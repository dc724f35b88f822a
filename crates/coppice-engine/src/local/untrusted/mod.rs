//! Directories that a server can write: its data, its logs, its socket.
//!
//! Whoever runs code inside a server can put anything there, at any moment: a
//! link to a file of the host, a pipe that is never written to, a file without
//! end, directories without bottom. This process often is root. So nothing else
//! opens what is below such a directory: here every name is looked up in an
//! open directory, no link is followed, nothing waits, only ordinary files are
//! read, and only so much of them.
//!
//! Every call blocks on the disk and belongs on a thread that may.

mod removal;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

pub(super) use removal::delete_tree;

/// Where such a directory is. Its own name and all above it can be changed by
/// this account only, what is below by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedPath(PathBuf);

impl UntrustedPath {
    /// The directory `name` in `parent`, which no server can change.
    pub(super) fn new(parent: &Path, name: &str) -> Self {
        Self(parent.join(name))
    }

    /// To name it to the kernel (as what is mounted, or where a process works)
    /// and to people. Not to open anything below it.
    pub fn host_path(&self) -> &Path {
        &self.0
    }

    /// The directory that it is in, which no server can change.
    pub(super) fn parent(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }

    /// Opens it; none when it is not there.
    ///
    /// # Errors
    /// When it is there and is no directory, or can't be opened.
    pub(super) fn open(&self) -> io::Result<Option<UntrustedDir>> {
        absent_as_none(open_directory(CWD, &self.0))
    }

    /// Opens a directory that has to be there.
    ///
    /// # Errors
    /// When it is not there, or as [`open`](Self::open).
    pub(super) fn require(&self) -> io::Result<UntrustedDir> {
        open_directory(CWD, &self.0)
    }
}

/// A directory that a server can write, opened: whatever happens to its name,
/// this stays the same one.
#[derive(Debug)]
pub(super) struct UntrustedDir(OwnedFd);

impl UntrustedDir {
    /// Opens a directory in this one; none when it is not there.
    ///
    /// # Errors
    /// When it is there and is no directory, or can't be opened.
    pub(super) fn directory(&self, name: impl rustix::path::Arg) -> io::Result<Option<Self>> {
        absent_as_none(open_directory(&self.0, name))
    }

    /// Opens an ordinary file for reading, and tells about it; none when there
    /// is no such file, or it is something else.
    ///
    /// # Errors
    /// When it is there and can't be opened.
    pub(super) fn file(&self, name: impl rustix::path::Arg) -> io::Result<Option<(File, Stat)>> {
        self.open_file(name, OFlags::RDONLY)
    }

    fn open_file(&self, name: impl rustix::path::Arg, access: OFlags) -> io::Result<Option<(File, Stat)>> {
        // Without NONBLOCK, opening a pipe waits for who is at its other end.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&file)?;
        let is_ordinary = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_ordinary.then(|| (File::from(file), stat)))
    }

    /// The first bytes of an ordinary file, at most `bytes_max`; none when there
    /// is no such file, or it is something else.
    ///
    /// # Errors
    /// When it is there and can't be read.
    pub(super) fn read(&self, name: impl rustix::path::Arg, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some((file, _)) = self.file(name)? else { return Ok(None) };
        let mut bytes = vec![];
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Adds to the end of an ordinary file. One that is not there, or something
    /// else, stays as it is.
    ///
    /// # Errors
    /// When it is there and can't be written.
    pub(super) fn append(&self, name: &CStr, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND;
        match self.open_file(name, flags)? {
            Some((mut file, _)) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    /// Leaves of an ordinary file the first `length` bytes; the rest of it is a
    /// hole. One that is not there, or something else, stays as it is.
    ///
    /// # Errors
    /// When it is there and can't be changed.
    pub(super) fn cut_off(&self, name: impl rustix::path::Arg, length: u64) -> io::Result<()> {
        let Some((file, stat)) = self.open_file(name, OFlags::WRONLY)? else { return Ok(()) };
        let whole = u64::try_from(stat.st_size).unwrap_or_default();
        file.set_len(length.min(whole))?;
        file.set_len(whole)
    }

    /// Makes a directory in this one, and opens it.
    ///
    /// # Errors
    /// When there is something of that name, or it can't be made.
    pub(super) fn make_directory(&self, name: impl rustix::path::Arg + Copy) -> io::Result<Self> {
        mkdirat(&self.0, name, Mode::RWXU)?;
        open_directory(&self.0, name)
    }

    /// Makes a file in this one, for writing and reading.
    ///
    /// # Errors
    /// When there is something of that name, or it can't be made.
    pub(super) fn make_file(&self, name: impl rustix::path::Arg) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Puts an empty file where this name is, which belongs to whoever has `other`.
    ///
    /// # Errors
    /// When it can't be made, or there is no `other`.
    pub(super) fn put_empty(&self, name: &CStr, other: &CStr) -> io::Result<()> {
        self.unlink(name)?;
        let file = self.make_file(name)?;
        let owner = self.stat(other)?;
        fchown(&file, Some(owner.st_uid), Some(owner.st_gid))
    }

    /// Opens an ordinary file for writing; none when there is no such file, or it is
    /// something else.
    ///
    /// # Errors
    /// When it is there and can't be opened.
    pub(super) fn file_for_writing(&self, name: impl rustix::path::Arg) -> io::Result<Option<File>> {
        Ok(self.open_file(name, OFlags::WRONLY)?.map(|(file, _)| file))
    }

    /// Names of what is in it, at most `count_max`, in no order.
    ///
    /// # Errors
    /// When it can't be read.
    pub(super) fn names(&self, count_max: usize) -> io::Result<Vec<CString>> {
        names_in(&self.0, count_max)
    }

    /// Names of everything in it, one after the other: how many there are is up
    /// to the server. In no order.
    ///
    /// # Errors
    /// When it can't be read.
    pub(super) fn each_name(&self) -> io::Result<impl Iterator<Item = io::Result<CString>> + use<>> {
        each_name_in(&self.0)
    }

    /// What a name stands for, a link for itself.
    ///
    /// # Errors
    /// When it is not there.
    pub(super) fn stat(&self, name: &CStr) -> io::Result<Stat> {
        Ok(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives it and the ordinary files in it, of the first `count_max` names, to another
    /// account. One that has another name elsewhere stays whose it is.
    ///
    /// # Errors
    /// When it can't be read, or given away.
    pub(super) fn give_to(&self, account: u32, count_max: usize) -> io::Result<()> {
        for name in self.names(count_max)? {
            match self.file(&name)? {
                Some((file, stat)) if stat.st_nlink == 1 => fchown(&file, Some(account), Some(account))?,
                _ => {}
            }
        }
        fchown(&self.0, Some(account), Some(account))
    }

    /// Whose it is.
    ///
    /// # Errors
    /// When it can't be asked.
    pub(super) fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.0)?.st_uid)
    }

    /// The file system it is on.
    ///
    /// # Errors
    /// When it can't be asked.
    pub(super) fn device(&self) -> io::Result<u64> {
        Ok(fstat(&self.0)?.st_dev)
    }

    /// Removes anything but a directory; one that is not there is fine, and then
    /// this is false.
    ///
    /// # Errors
    /// When it can't be removed.
    pub(super) fn unlink(&self, name: &CStr) -> io::Result<bool> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes in the ordinary files of it and below, of each entry a block of the
    /// disk at least, as long as there are no more than `entries_max` entries;
    /// those beyond do not count. What is more than `depth_max` levels deep is
    /// nothing that PostgreSQL made, and counts more than any disk has. Files come
    /// and go meanwhile.
    pub(super) fn size(&self, entries_max: usize, depth_max: usize) -> u64 {
        let mut entries_left = entries_max;
        size_below(&self.0, &mut entries_left, depth_max)
    }
}

impl AsFd for UntrustedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn names_in(directory: &OwnedFd, count_max: usize) -> io::Result<Vec<CString>> {
    each_name_in(directory)?.take(count_max).collect()
}

fn each_name_in(directory: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<CString>> + use<>> {
    let entries = Dir::read_from(directory)?.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_in_it = |name: &io::Result<CString>| {
        !name.as_ref().is_ok_and(|name| name.as_c_str() == c"." || name.as_c_str() == c"..")
    };
    Ok(entries.filter(is_in_it))
}

/// What an entry counts at least: names, and what is known about files, take
/// room, too, and some file systems have only so many of them.
pub(super) const ENTRY_BYTES_MIN: u64 = 4096;
/// What a directory counts that is too deep to be looked into.
const TOO_DEEP_BYTES: u64 = 1 << 50;

fn size_below(directory: &OwnedFd, entries_left: &mut usize, depth_left: usize) -> u64 {
    let Ok(entries) = Dir::read_from(directory) else { return 0 };
    let mut bytes = 0_u64;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Some(left) = entries_left.checked_sub(1) else { return bytes };
        *entries_left = left;
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let size = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or_default(),
            FileType::Directory if depth_left > 0 => open_directory(directory, name)
                .map_or(0, |inner| size_below(&inner.0, entries_left, depth_left - 1)),
            FileType::Directory => TOO_DEEP_BYTES,
            _ => 0,
        };
        // A file without blocks can be as long as it likes.
        bytes = u64::saturating_add(bytes, size.max(ENTRY_BYTES_MIN));
    }
    bytes
}

fn open_directory(at: impl AsFd, name: impl rustix::path::Arg) -> io::Result<UntrustedDir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(UntrustedDir(openat(at, name, flags, Mode::empty())?))
}

fn absent_as_none<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn directory() -> (tempfile::TempDir, UntrustedPath) {
        let parent = tempfile::tempdir().unwrap();
        let path = UntrustedPath::new(parent.path(), "data");
        fs::create_dir(path.host_path()).unwrap();
        (parent, path)
    }

    fn make_pipe(path: &Path) {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    #[test]
    fn only_an_ordinary_file_is_read_and_only_so_much_of_it() {
        let (parent, path) = directory();
        let below = |name: &str| path.host_path().join(name);
        fs::write(parent.path().join("secret"), "of the host").unwrap();
        fs::write(below("file"), "0123456789").unwrap();
        symlink("../secret", below("link")).unwrap();
        make_pipe(&below("pipe"));
        fs::create_dir(below("directory")).unwrap();
        let open = path.require().unwrap();
        assert_eq!(open.read("file", 4).unwrap().as_deref(), Some(&b"0123"[..]));
        for name in ["link", "pipe", "directory", "missing"] {
            assert_eq!(open.read(name, 100).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn a_link_is_no_directory() {
        let (parent, path) = directory();
        fs::create_dir(parent.path().join("outside")).unwrap();
        symlink("../outside", path.host_path().join("link")).unwrap();
        let open = path.require().unwrap();
        assert!(open.directory("link").is_err());
        assert!(open.directory("missing").unwrap().is_none());
        fs::rename(path.host_path(), parent.path().join("moved")).unwrap();
        symlink("outside", path.host_path()).unwrap();
        assert!(path.open().is_err());
    }

    #[test]
    fn the_size_is_that_of_its_files_and_counting_ends() {
        let (_parent, path) = directory();
        let below = |name: &str| path.host_path().join(name);
        fs::create_dir(below("base")).unwrap();
        fs::write(below("base/1"), [0; 8192]).unwrap();
        fs::write(below("PG_VERSION"), "18\n").unwrap();
        symlink("/etc/passwd", below("link")).unwrap();
        symlink(".", below("base/loop")).unwrap();
        let open = path.require().unwrap();
        // Five entries, of which one is longer than a block.
        assert_eq!(open.size(100, 8), 8192 + 3 * 4096);
        assert_eq!(open.size(100, 0), (1 << 50) + 2 * 4096, "nobody looks deeper");
        assert_eq!(open.size(0, 8), 0, "more entries than that do not count");
    }
}

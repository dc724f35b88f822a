//! Deletes directories, whatever is in them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, RenameFlags, fstat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::{UntrustedDir, names_in, open_directory};
use crate::errand;
use crate::local::btrfs;

/// Descriptors that are open at the same time, and calls that wait for each
/// other; what lies deeper is moved up first.
const DEPTH_MAX: u32 = 32;
/// Names looked at before they are deleted.
const NAMES_AT_ONCE: usize = 1024;

/// Deletes a file, or a directory with all that is in it. `path` itself and
/// everything above it can be changed by this account only; what is below, not
/// even its shape, is trusted. One that is not there is fine.
///
/// # Errors
/// When something can't be deleted.
pub(in crate::local) fn delete_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match open_directory(CWD, parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        parent => parent?,
    };
    Removal::of(u64::MAX).delete(&parent.0, &CString::new(name.as_bytes())?, None)
}

impl UntrustedDir {
    /// Deletes what a name stands for: a link itself, a directory with all that
    /// is in it. One that is not there is fine.
    ///
    /// # Errors
    /// When something can't be deleted.
    pub(in crate::local) fn remove(&self, name: &CStr) -> io::Result<()> {
        Removal::of(u64::MAX).delete(&self.0, name, None)
    }

    /// The same where a server may go on to put something there: at most
    /// `entries_max` entries go.
    ///
    /// # Errors
    /// When something can't be deleted, or there is more.
    pub(in crate::local) fn remove_some(&self, name: &CStr, entries_max: u64) -> io::Result<()> {
        Removal::of(entries_max).delete(&self.0, name, None)
    }
}

/// How far a removal is.
struct Removal {
    entries_left: u64,
    /// How many directories were moved up because they were too deep.
    moved_up: u64,
}

impl Removal {
    fn of(entries_max: u64) -> Self {
        Self { entries_left: entries_max, moved_up: 0 }
    }

    /// `name` in `parent`, which may be a subvolume in `outermost`, the first
    /// of those that are deleted.
    fn delete(&mut self, parent: &OwnedFd, name: &CStr, outermost: Option<&OwnedFd>) -> io::Result<()> {
        if unlink(parent, name)? {
            return Ok(());
        }
        // Refused where there are others inside, and for an account without rights.
        if btrfs::delete_subvolume_in(parent, name).is_ok() {
            return Ok(());
        }
        let top = open_directory(parent, name)?.0;
        Emptying { top: &top, outermost, removal: self }.empty(&top, DEPTH_MAX)?;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // One that was set read-only can still be deleted as a subvolume.
            Err(Errno::ROFS) => btrfs::delete_subvolume_in(parent, name),
            removed => Ok(removed?),
        }
    }

    /// Moves `name` in `directory` to `up`, under a name that is free there.
    fn move_up(&mut self, directory: &OwnedFd, name: &CStr, up: &OwnedFd) -> io::Result<()> {
        loop {
            self.moved_up += 1;
            let free = format!(".deleting-{}", self.moved_up);
            match renameat_with(directory, name, up, free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                moved => return Ok(moved?),
            }
        }
    }
}

/// Removes anything but a directory. False for a directory.
fn unlink(parent: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A directory on its way to be empty.
struct Emptying<'a> {
    top: &'a OwnedFd,
    /// Where it is itself below another one.
    outermost: Option<&'a OwnedFd>,
    removal: &'a mut Removal,
}

impl Emptying<'_> {
    /// Deletes what is in `directory`, the top or one below it.
    fn empty(&mut self, directory: &OwnedFd, depth_left: u32) -> io::Result<()> {
        loop {
            let names = names_in(directory, NAMES_AT_ONCE)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in &names {
                self.delete(directory, name, depth_left)?;
            }
        }
    }

    fn delete(&mut self, directory: &OwnedFd, name: &CStr, depth_left: u32) -> io::Result<()> {
        errand::go_on()?;
        self.removal.entries_left = self.removal.entries_left.checked_sub(1).ok_or_else(|| {
            io::Error::other("it has too many entries to be deleted at once; some are left")
        })?;
        if unlink(directory, name)? || unlinkat(directory, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(());
        }
        let inner = open_directory(directory, name)?.0;
        if fstat(&inner)?.st_dev != fstat(directory)?.st_dev {
            // Subvolumes can be inside each other to any depth, and can be
            // moved from one to another.
            return match self.outermost {
                None => self.removal.delete(directory, name, Some(self.top)),
                Some(outermost) => self.removal.move_up(directory, name, outermost),
            };
        }
        if depth_left == 0 {
            return self.removal.move_up(directory, name, self.top);
        }
        self.empty(&inner, depth_left - 1)?;
        Ok(unlinkat(directory, name, AtFlags::REMOVEDIR)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{Mode, mkdirat};

    use super::*;

    /// Directories in each other, more than a path can name.
    fn dig(top: &Path, levels: usize) {
        let mut here = open_directory(CWD, top).unwrap().0;
        for _ in 0..levels {
            mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = open_directory(&here, "d").unwrap().0;
        }
    }

    #[test]
    fn a_tree_goes_however_deep_it_is() {
        let parent = tempfile::tempdir().unwrap();
        let tree = parent.path().join("tree");
        fs::create_dir(&tree).unwrap();
        dig(&tree, 5000);
        fs::create_dir(tree.join("wide")).unwrap();
        for number in 0..3000 {
            fs::write(tree.join(format!("wide/{number}")), "").unwrap();
        }
        // A name that is in the way of those moved up.
        fs::create_dir_all(tree.join(".deleting-1/x")).unwrap();
        delete_tree(&tree).unwrap();
        assert!(!tree.exists());
        delete_tree(&tree).unwrap();
    }

    #[test]
    fn where_much_is_put_only_so_much_is_deleted_at_once() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("wide")).unwrap();
        for number in 0..30 {
            fs::write(parent.path().join(format!("wide/{number}")), "").unwrap();
        }
        let open = open_directory(CWD, parent.path()).unwrap();
        assert!(open.remove_some(c"wide", 20).is_err());
        assert_eq!(fs::read_dir(parent.path().join("wide")).unwrap().count(), 10);
        open.remove_some(c"wide", 20).unwrap();
        assert!(!parent.path().join("wide").exists());
    }

    #[test]
    fn what_links_lead_to_stays() {
        let parent = tempfile::tempdir().unwrap();
        let kept = parent.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let tree = parent.path().join("tree");
        fs::create_dir_all(tree.join("inner")).unwrap();
        symlink(&kept, tree.join("inner/link")).unwrap();
        symlink(&kept, tree.join("link")).unwrap();
        delete_tree(&tree).unwrap();
        assert!(kept.join("file").exists());
        symlink(&kept, &tree).unwrap();
        delete_tree(&tree).unwrap();
        assert!(kept.join("file").exists() && !tree.exists());
    }
}

//! The pool's image: a file with all its blocks, formatted once.
//!
//! A sparse image on a full host can't be written any more, and then every
//! branch on it is read-only. So blocks are reserved before they are offered.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use coppice_failpoint::failpoint;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::local::storage_options::StorageOptions;
use crate::local::storage_usage::free_bytes;
use crate::{EngineError, Result};

const MIB: u64 = 1 << 20;
/// Below this btrfs has no room to work.
const POOL_BYTES_MIN: u64 = 256 * MIB;

/// Holds other processes off the image while it is attached, grown or
/// detached. Not held in between: a control plane that drains must not keep
/// the next one out.
#[derive(Debug)]
pub(super) struct ImageLock {
    _file: File,
}

impl ImageLock {
    /// Waits for the lock of the image that is, or will be, at `image`. It is
    /// a file beside it, since the image is replaced when its creation is redone.
    pub(super) fn take(image: &Path) -> Result<Self> {
        let path = image.with_extension("lock");
        let action = || format!("locking {}", path.display());
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(EngineError::io(action()))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(EngineError::io(action()))?;
        Ok(Self { _file: file })
    }
}

/// Opens the image, making it first when there is none.
pub(super) fn open_or_create(image: &Path, options: &StorageOptions) -> Result<File> {
    if !image.exists() {
        create(image, options)?;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .map_err(EngineError::io(format!("opening {}", image.display())))?;
    Ok(file)
}

/// Reserves blocks up to `length`; on failure the file is as long as before.
pub(super) fn reserve(image: &File, length: u64) -> Result<()> {
    let before = image.metadata().map_err(EngineError::io("reading the pool's image"))?.len();
    if let Err(error) = rustix::fs::fallocate(image, FallocateFlags::empty(), 0, length) {
        image.set_len(before).map_err(EngineError::io("shrinking the pool's image again"))?;
        return Err(EngineError::io("reserving space for the pool")(error));
    }
    image.sync_all().map_err(EngineError::io("flushing the pool's image"))?;
    refuse_sparse(image)
}

/// Whether blocks can be reserved in `directory`. Some file systems can't, and
/// some say that they did and did not.
pub(in crate::local) fn can_reserve_blocks(directory: &Path) -> Result<bool> {
    let path = directory.join(".probe-blocks");
    let probe = || -> io::Result<bool> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, MIB) {
            Ok(()) => Ok(file.metadata()?.blocks() * 512 >= MIB),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    let result = probe();
    let _ = fs::remove_file(&path);
    result.map_err(EngineError::io(format!("trying to reserve blocks in {}", directory.display())))
}

/// Refuses an image with holes.
pub(super) fn refuse_sparse(image: &File) -> Result<()> {
    let meta = image.metadata().map_err(EngineError::io("reading the pool's image"))?;
    if meta.blocks() * 512 >= meta.len() {
        return Ok(());
    }
    Err(EngineError::Other(format!(
        "the pool's image has only {} of its {} MiB on disk; a full host would make every branch read-only. \
         `fallocate --length {} <image>` fills the holes while the pool is detached",
        meta.blocks() * 512 / MIB,
        meta.len() / MIB,
        meta.len(),
    )))
}

/// Formats a file under another name and renames it, so that an image that
/// bears the name is complete.
fn create(image: &Path, options: &StorageOptions) -> Result<()> {
    let directory = image.parent().unwrap_or(Path::new("."));
    let unfinished = image.with_extension("img.new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(EngineError::io(format!("removing {}", unfinished.display()))(error));
        }
        _ => {}
    }
    let length = initial_length(directory, options)?;
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(EngineError::io(format!("making {}", unfinished.display())))?;
    failpoint!("pool.create.after_file");
    reserve(&file, length)?;
    failpoint!("pool.create.after_reserve");
    format(&unfinished)?;
    failpoint!("pool.create.after_format");
    file.sync_all().map_err(EngineError::io(format!("flushing {}", unfinished.display())))?;
    refuse_sparse(&file)?;
    fs::rename(&unfinished, image).map_err(EngineError::io(format!("naming {}", image.display())))?;
    failpoint!("pool.create.after_rename");
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(EngineError::io(format!("flushing {}", directory.display())))
}

/// What was asked for, or what the host has beyond its reserve.
fn initial_length(directory: &Path, options: &StorageOptions) -> Result<u64> {
    let free = free_bytes(directory)?;
    let available = free.saturating_sub(options.host_reserve_bytes);
    let length = options.pool_initial_bytes.min(available) / MIB * MIB;
    if length >= POOL_BYTES_MIN {
        return Ok(length);
    }
    Err(EngineError::NoSpace(format!(
        "{} has {} MiB free, of which {} MiB stay in reserve for the host; a pool takes at least {} MiB. \
         Free some space, lower the reserve, or switch the pool off",
        directory.display(),
        free / MIB,
        options.host_reserve_bytes / MIB,
        POOL_BYTES_MIN / MIB,
    )))
}

/// Tries of a program that somebody else may be in the way of.
const TRIES: u32 = 10;
/// Before the second of them; then twice as long before each.
const REST: Duration = Duration::from_millis(20);

/// Without discarding: that would give the reserved blocks back.
fn format(image: &Path) -> Result<()> {
    let mut mkfs = Command::new("mkfs.btrfs");
    mkfs.args(["--quiet", "--force", "--nodiscard", "--label", "coppice"]).arg(image).stdin(Stdio::null());
    let run = || mkfs.output().map_err(EngineError::io("starting mkfs.btrfs (Debian package btrfs-progs)"));
    let output = undisturbed(run)?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(EngineError::Other(format!("mkfs.btrfs failed: {}", reason.trim())))
}

/// Runs mkfs.btrfs again when it could not see whether the image is in use: to find that
/// out it looks at every loop device of the machine, and fails when one goes meanwhile.
fn undisturbed(mut run: impl FnMut() -> Result<Output>) -> Result<Output> {
    let mut rest = REST;
    for _ in 1..TRIES {
        let output = run()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let is_disturbed = said.contains("cannot check mount status")
            && ["No such device or address", "No such file or directory"]
                .iter()
                .any(|why| said.contains(why));
        if output.status.success() || !is_disturbed {
            return Ok(output);
        }
        std::thread::sleep(rest);
        rest *= 2;
    }
    run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that says something and fails, so many times, and then does well.
    fn disturbed(times: u32, words: &str) -> (u32, bool) {
        let mut runs = 0;
        let output = undisturbed(|| {
            runs += 1;
            let script = if runs > times { "exit 0" } else { "echo \"$0\" >&2; exit 1" };
            let run = Command::new("sh").args(["-c", script, words]).output();
            run.map_err(EngineError::io("starting sh"))
        });
        (runs, output.expect("it runs").status.success())
    }

    #[test]
    fn a_loop_device_that_goes_while_the_pool_is_made_does_not_keep_it_from_being_made() {
        let words = "ERROR: cannot check mount status of /x/pool.img.new: No such device or address";
        assert_eq!(disturbed(2, words), (3, true));
        assert_eq!(disturbed(1, "ERROR: /x/pool.img.new is mounted"), (1, false), "nobody is in the way");
    }
}

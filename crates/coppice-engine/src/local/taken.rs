//! What a server takes of the disk: its data, and what it has open there, or among
//! its logs, that no directory names any more.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::process::usage;
use super::untrusted::{UntrustedDir, UntrustedPath};
use super::{btrfs, btrfs_written};

/// Most files and directories that are counted: a million relations have about
/// three million.
pub(super) const ENTRIES_MAX: usize = 10_000_000;
/// Levels of directories below the data; PostgreSQL makes two.
pub(super) const LEVELS_MAX: usize = 16;

/// btrfs keeps an extent while a block of it is in use, so ordinary writing holds about twice what is in files, and who
/// is out for it holds a thousand times that. One part in so many of what is held counts, where that is more.
const HELD_SHARE: u64 = 4;
/// For how long extents are counted; how many there are is up to who writes them.
const HELD_PATIENCE: Duration = Duration::from_secs(10);
/// What a volume holds by what it was made with only gets less, and may be all of a large one. It is counted for one
/// part in so many of the time, as long as that makes the pauses no longer than this.
const INHERITED_SHARE: u32 = 100;
const INHERITED_PAUSE_MAX: Duration = Duration::from_secs(300);

/// What a volume holds by what it was made with, as it was counted last.
#[derive(Clone, Copy)]
pub(super) struct Inherited {
    bytes: u64,
    counted: Instant,
    took: Duration,
}

impl Inherited {
    fn is_due(&self) -> bool {
        let pause = self.took.saturating_mul(INHERITED_SHARE).min(INHERITED_PAUSE_MAX);
        self.counted.elapsed() >= pause
    }
}

/// Where to look for it.
#[derive(Clone)]
pub(super) struct Taken {
    data: UntrustedPath,
    logs: UntrustedPath,
    processes: Vec<u32>,
}

impl Taken {
    /// By a server's data, the directory of its logs, and its processes.
    pub(super) fn new(data: UntrustedPath, logs: UntrustedPath, processes: Vec<u32>) -> Self {
        Self { data, logs, processes }
    }

    /// Bytes as files tell them, or a share of what the file system holds for them, if that is more; 0 where there
    /// is no data.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes_knowing(&mut None)
    }

    /// The same, for one who keeps what was counted of what the volume was made with.
    pub(super) fn bytes_knowing(&self, inherited: &mut Option<Inherited>) -> u64 {
        let size = |data: UntrustedDir| {
            let told = data.size(ENTRIES_MAX, LEVELS_MAX).saturating_add(self.nameless_bytes(&data));
            told.max(self.held_bytes(inherited) / HELD_SHARE)
        };
        self.data.require().map_or(0, size)
    }

    /// Where the data is no subvolume, nobody tells. What a copy was made with counts in full: who made it may have
    /// gone since, and then nobody else has it.
    fn held_bytes(&self, inherited: &mut Option<Inherited>) -> u64 {
        let volume = self.data.parent();
        if !btrfs::is_subvolume(volume) {
            return 0;
        }
        let count = |count: fn(&Path, Instant) -> io::Result<u64>| {
            count(volume, Instant::now() + HELD_PATIENCE).unwrap_or_else(|error| {
                tracing::debug!("what {} holds of the disk is not known: {error}", volume.display());
                0
            })
        };
        let known = inherited.take().filter(|known| !known.is_due()).unwrap_or_else(|| {
            let started = Instant::now();
            let bytes = count(btrfs_written::inherited);
            Inherited { bytes, counted: Instant::now(), took: started.elapsed() }
        });
        *inherited = Some(known);
        count(btrfs_written::held).saturating_add(known.bytes)
    }

    fn nameless_bytes(&self, data: &UntrustedDir) -> u64 {
        let logs = self.logs.require().ok();
        let directories = [Some(data), logs.as_ref()].into_iter().flatten();
        let device = |directory: &UntrustedDir| Some(rustix::fs::fstat(directory).ok()?.st_dev);
        let devices: Vec<_> = directories.filter_map(device).collect();
        usage::nameless_bytes(&self.processes, &devices)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_server_has_without_a_name_is_taken_too() {
        let home = tempfile::tempdir().expect("a directory");
        let paths = ["data", "log"].map(|name| UntrustedPath::new(home.path(), name));
        let nameless = paths.each_ref().map(|path| {
            fs::create_dir(path.host_path()).expect("a directory");
            let path = path.host_path().join("file");
            fs::write(&path, [0; 5000]).expect("a file");
            let file = fs::File::open(&path).expect("it is there");
            fs::remove_file(path).expect("its name goes");
            file
        });
        let ([data, logs], [one, other]) = (paths, nameless);
        fs::write(data.host_path().join("named"), [0; 5000]).expect("a file");
        let mut server = Command::new("sleep").arg("600").stdin(one).stderr(other).spawn().expect("sleep");
        let bytes = Taken::new(data, logs, vec![server.id()]).bytes();
        server.kill().and_then(|()| server.wait()).expect("it ends");
        assert_eq!(bytes, 15_000);
    }
}

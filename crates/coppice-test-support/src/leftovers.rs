//! What a platform may leave outside its data directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Signal, signal};

/// Everything on this machine that belongs to one data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Pids of processes that have a file of the directory open or mounted.
    pub processes: Vec<u32>,
    /// Mount points below it.
    pub mounts: Vec<PathBuf>,
    /// Loop devices whose image lies in it.
    pub loop_devices: Vec<String>,
}

impl Leftovers {
    /// Looks for what belongs to `data_dir`.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            processes: processes(data_dir),
            mounts: mounts(data_dir),
            loop_devices: loop_devices(data_dir),
        }
    }

    /// Ends, unmounts and detaches all of it.
    pub fn clear(data_dir: &Path) {
        for pid in processes(data_dir) {
            let _ = signal(pid, Signal::KILL);
        }
        for mount in mounts(data_dir).iter().rev() {
            let _ = Command::new("umount").arg("--lazy").arg(mount).status();
        }
        for device in loop_devices(data_dir) {
            let _ = Command::new("losetup").args(["--detach", &device]).status();
        }
    }
}

/// Processes with the directory in their arguments, working directory or mounts.
fn processes(data_dir: &Path) -> Vec<u32> {
    let needle = data_dir.display().to_string();
    let place = Place::of(data_dir);
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    let mine = std::process::id();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != mine)
        .filter(|pid: &u32| {
            let read = |file: &str| {
                let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let is_dead =
                read("stat").rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'));
            let is_named = read("cmdline").contains(&needle);
            let is_inside =
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(data_dir));
            // A server's own mounts show where its logs go.
            let is_server = || {
                read("comm").starts_with("postgres")
                    && place.as_ref().is_some_and(|place| place.is_mounted_in(&read("mountinfo")))
            };
            !is_dead && (is_named || is_inside || is_server())
        })
        .collect()
}

/// Where a directory is, seen from the file system that it is on.
struct Place {
    /// Numbers of the file system's device.
    device: String,
    /// From the root of the file system.
    path: PathBuf,
}

impl Place {
    fn of(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let (device, root, point) = text
            .lines()
            .filter_map(mount_of)
            .filter(|(_, _, point)| directory.starts_with(point))
            // Of those at one place, the last one is on top.
            .max_by_key(|(_, _, point)| point.as_os_str().len())?;
        Some(Self { device: device.to_owned(), path: root.join(directory.strip_prefix(point).ok()?) })
    }

    /// Whether a mount table has an entry for something below `instances`, as
    /// the private mounts of the directory's own servers do.
    fn is_mounted_in(&self, mountinfo: &str) -> bool {
        let instances = self.path.join("instances");
        let mut mounts = mountinfo.lines().filter_map(mount_of);
        mounts.any(|(device, root, _)| device == self.device && root.starts_with(&instances))
    }
}

/// Device, root in the file system and mount point of a line of a mount table.
fn mount_of(line: &str) -> Option<(&str, &Path, &Path)> {
    let mut fields = line.split(' ').skip(2);
    Some((fields.next()?, Path::new(fields.next()?), Path::new(fields.next()?)))
}

fn mounts(data_dir: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(data_dir) && point != data_dir).collect()
}

fn loop_devices(data_dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return vec![] };
    entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            Path::new(backing.trim()).starts_with(data_dir)
        })
        .filter_map(|entry| Some(format!("/dev/{}", entry.file_name().to_str()?)))
        .collect()
}

//! What a platform may leave outside its data directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid as i32),
                nix::sys::signal::Signal::SIGKILL,
            );
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
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    let mine = std::process::id();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != mine)
        .filter(|pid: &u32| {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let is_dead = String::from_utf8_lossy(&read("stat"))
                .rsplit_once(')')
                .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'));
            let is_named = String::from_utf8_lossy(&read("cmdline")).contains(&needle);
            let is_inside =
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(data_dir));
            // A server's own mounts show where its data comes from.
            let is_server = String::from_utf8_lossy(&read("comm")).starts_with("postgres")
                && String::from_utf8_lossy(&read("mountinfo")).contains(&format!("{needle}/"))
                && has_mount_of(&read("mountinfo"), &needle);
            !is_dead && (is_named || is_inside || is_server)
        })
        .collect()
}

/// Whether a mount table has an entry whose root lies below `directory`, as the
/// private mounts of the directory's own servers do.
fn has_mount_of(mountinfo: &[u8], directory: &str) -> bool {
    String::from_utf8_lossy(mountinfo)
        .lines()
        .filter_map(|line| line.split(' ').nth(3))
        .any(|root| root.contains(&format!("{directory}/instances/")))
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

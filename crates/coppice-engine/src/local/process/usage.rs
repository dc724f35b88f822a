//! What processes use, as `/proc` tells it: for servers that no cgroup counts.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use super::identity;

/// Linux shows times to programs in this unit, whatever its own is (proc(5)).
const TICK: Duration = Duration::from_millis(10);
/// How often processes are counted again because one ended meanwhile.
const ATTEMPTS: usize = 5;

/// CPU times of a process, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    own: u64,
    /// Of its children that have ended.
    children: u64,
}

fn times(pid: u32) -> Option<Times> {
    let text = identity::read(pid, "stat")?;
    // The command name is in parentheses and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    Some(Times { own: next()? + next()?, children: next()? + next()? })
}

/// Processes that a process has started itself and that live.
pub(in crate::local) fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// CPU time used so far by a process and its children, those that ended
/// included. All processes of a server are children of the first one.
pub(in crate::local) fn cpu_used(pid: u32) -> Option<Duration> {
    let mut before = times(pid)?;
    for _ in 0..ATTEMPTS {
        let living: u64 = children(pid).into_iter().filter_map(times).map(|child| child.own).sum();
        let after = times(pid)?;
        // A child that ended in between was counted twice, or not at all.
        if after.children == before.children {
            let ticks = after.own + after.children + living;
            return Some(TICK * u32::try_from(ticks).unwrap_or(u32::MAX));
        }
        before = after;
    }
    None
}

/// Memory that processes of one server hold: what each has for itself, and what
/// they share once.
pub(in crate::local) fn memory(pids: &[u32]) -> Option<u64> {
    let (mut own_kib, mut shared_kib, mut files_kib) = (0_u64, 0_u64, 0_u64);
    for pid in pids {
        // One that has just ended holds nothing.
        let Some(text) = identity::read(*pid, "status") else { continue };
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        own_kib += number("RssAnon").unwrap_or_default();
        // Shared buffers are in whoever touched them; the one that touched most
        // comes closest to all of them.
        shared_kib = shared_kib.max(number("RssShmem").unwrap_or_default());
        files_kib = files_kib.max(number("RssFile").unwrap_or_default());
    }
    (own_kib > 0).then_some((own_kib + shared_kib + files_kib) * 1024)
}

/// Bytes of files on these file systems, by their device numbers, that processes
/// have open although no directory names them any more. What is only mapped does
/// not count: so are libraries that the host has replaced meanwhile.
pub(in crate::local) fn nameless_bytes(pids: &[u32], devices: &[u64]) -> u64 {
    // What several of them have takes its room once.
    let mut found = HashSet::new();
    let mut bytes = 0_u64;
    let places = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    for entry in places.flatten().filter_map(Result::ok) {
        // Of what the entry leads to, which is never opened.
        let Ok(file) = fs::metadata(entry.path()) else { continue };
        let takes_room = file.is_file() && file.nlink() == 0 && devices.contains(&file.dev());
        if takes_room && found.insert((file.dev(), file.ino())) {
            bytes = bytes.saturating_add(file.len());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_file_without_a_name_counts_once_while_somebody_has_it() {
        let home = tempfile::tempdir().expect("a directory");
        let device = fs::metadata(home.path()).expect("a directory").dev();
        let path = home.path().join("file");
        fs::write(&path, [0; 12345]).expect("a file");
        let open = || fs::File::open(&path).expect("it is there");
        let mut holder =
            Command::new("sleep").arg("600").stdin(open()).stderr(open()).spawn().expect("sleep");
        let pid = holder.id();
        assert_eq!(nameless_bytes(&[pid], &[device]), 0, "it has a name");
        fs::remove_file(&path).expect("its name goes");
        assert_eq!(nameless_bytes(&[pid, pid], &[device]), 12345);
        assert_eq!(nameless_bytes(&[pid], &[]), 0, "of other file systems");
        holder.kill().and_then(|()| holder.wait()).expect("it ends");
        assert_eq!(nameless_bytes(&[pid], &[device]), 0);
    }

    #[test]
    fn the_time_of_a_child_counts_while_it_lives_and_afterwards() {
        let own = std::process::id();
        let before = cpu_used(own).expect("this process lives");
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh runs");
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let burnt = loop {
            let burnt = cpu_used(own).expect("this process lives").saturating_sub(before);
            if burnt >= Duration::from_millis(200) || std::time::Instant::now() > deadline {
                break burnt;
            }
        };
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        let afterwards = cpu_used(own).expect("this process lives").saturating_sub(before);
        assert!(burnt >= Duration::from_millis(200) && afterwards >= burnt, "{burnt:?} {afterwards:?}");
    }

    #[test]
    fn a_process_holds_memory() {
        assert!(memory(&[std::process::id()]).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(memory(&[]), None);
    }
}

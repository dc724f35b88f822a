//! One cgroup leaf per instance: to end all its processes, to know that they
//! are gone, and to limit them.
//!
//! A leaf is made for each start. The directory that it lies in has the limits,
//! and stays for as long as the instance does, because that is where memory is
//! charged: pages of files that one start has read are still there at the next
//! one, which may use them.
//!
//! Grouping always uses the unified hierarchy (cgroup v2), which also hybrid
//! hosts mount: only there `cgroup.kill` ends everything at once. Limits use
//! whichever hierarchy has the controller.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::controllers::{Controller, Limits};
use super::frozen::{self, Frozen, has_event};
use super::identity::ProcessDirectory;
use crate::{EngineError, Result};

/// How long the kernel may take to end killed processes.
const KILL_PATIENCE: Duration = Duration::from_secs(20);
/// How often it is asked whether it has.
const KILL_POLL: Duration = Duration::from_millis(1);
/// How often frozen processes are looked through: more than once only where one
/// waits for a disk, which nothing can freeze.
const FROZEN_LOOKS_MAX: usize = 10;

/// The leaf, in its instance's directory of the unified hierarchy. No controller
/// is told of it, so all that is in there counts for that directory.
const PROCESSES: &str = "processes";

/// Held while a leaf may be frozen: one that is found frozen was left so.
static MOVING: Mutex<()> = Mutex::new(());

/// What this host offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    unified: PathBuf,
    /// Controllers of the unified hierarchy.
    v2: Vec<Controller>,
    /// Controllers of version 1, each with its directory.
    v1: Vec<(Controller, PathBuf)>,
}

/// The leaf of one instance.
#[derive(Clone, Debug)]
pub struct Leaf {
    cgroups: Cgroups,
    /// Of the directories of its instance, below the root of each hierarchy.
    name: PathBuf,
}

/// Directories that a program of an instance is in from the beginning.
#[derive(Clone, Debug)]
pub struct Membership {
    /// In the unified hierarchy: it is born there.
    pub birth: PathBuf,
    /// Of version 1: it joins them.
    pub joined: Vec<PathBuf>,
}

impl Cgroups {
    /// Looks at the host; none when there is no writable unified hierarchy.
    pub fn detect() -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let unified = [root.to_owned(), root.join("unified")]
            .into_iter()
            .find(|dir| dir.join("cgroup.controllers").exists())?;
        let probe = unified.join("coppice");
        fs::create_dir_all(&probe).ok()?;
        if !probe.join("cgroup.kill").exists() {
            return None;
        }
        let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        let is_unified = |one: &Controller| controllers.split_whitespace().any(|name| name == one.name());
        let (v2, others): (Vec<_>, Vec<_>) = Controller::ALL.into_iter().partition(is_unified);
        let v1 = others.into_iter().map(|one| (one, root.join(one.v1_name())));
        let v1 = v1.filter(|(_, directory)| directory.join("cgroup.procs").exists()).collect();
        Some(Self { unified, v2, v1 })
    }

    /// A sentence for people.
    pub fn describe(&self) -> String {
        let titles = |controllers: &mut dyn Iterator<Item = Controller>| {
            controllers.map(Controller::title).collect::<Vec<_>>().join(", ")
        };
        let v2 = titles(&mut self.v2.iter().copied());
        let v1 = titles(&mut self.v1.iter().map(|(one, _)| *one));
        match (v2.as_str(), v1.as_str()) {
            ("", "") => "processes in cgroup v2, which limits nothing here".to_owned(),
            (v2, "") => format!("cgroup v2, limits by it: {v2}"),
            ("", v1) => format!("hybrid: processes in cgroup v2, limits by cgroup v1: {v1}"),
            (v2, v1) => format!("hybrid: limits by cgroup v2: {v2}; by cgroup v1: {v1}"),
        }
    }

    /// What nothing limits here, for people; none when everything is limited.
    pub fn unlimited(&self) -> Option<String> {
        let is_limited = |one: &Controller| self.v2.contains(one) || self.v1.iter().any(|(v1, _)| v1 == one);
        let missing = Controller::ALL.iter().filter(|one| !is_limited(one)).map(|one| one.title());
        Some(missing.collect::<Vec<_>>().join(", ")).filter(|missing| !missing.is_empty())
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.unified).chain(self.v1.iter().map(|(_, directory)| directory))
    }

    /// The root of the hierarchy that counts memory, if any does.
    fn memory_root(&self) -> Option<&PathBuf> {
        if self.v2.contains(&Controller::Memory) {
            return Some(&self.unified);
        }
        self.v1.iter().find_map(|(one, root)| (*one == Controller::Memory).then_some(root))
    }

    /// The leaf of an instance of the engine `key`.
    pub fn leaf(&self, key: &str, instance: &str) -> Leaf {
        Leaf { cgroups: self.clone(), name: Path::new("coppice").join(key).join(instance) }
    }

    /// Names of leaves of the engine `key` in which a process lives.
    pub fn populated(&self, key: &str) -> Vec<String> {
        let parent = self.unified.join("coppice").join(key);
        let Ok(entries) = fs::read_dir(parent) else { return vec![] };
        entries
            .filter_map(io::Result::ok)
            .filter(|entry| entry.path().join("cgroup.procs").exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| self.leaf(key, name).is_populated())
            .collect()
    }

    /// Removes the directories of an engine of which nothing runs.
    pub fn remove_parent(&self, key: &str) {
        for root in self.roots() {
            let parent = root.join("coppice").join(key);
            for instance in fs::read_dir(&parent).into_iter().flatten().filter_map(io::Result::ok) {
                let _ = fs::remove_dir(instance.path());
            }
            let _ = fs::remove_dir(parent);
        }
    }
}

impl Leaf {
    /// The directories of its instance, that of the unified hierarchy first.
    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        self.cgroups.roots().map(|root| root.join(&self.name))
    }

    fn unified(&self) -> PathBuf {
        self.cgroups.unified.join(&self.name)
    }

    /// Where its processes are.
    fn place(&self) -> PathBuf {
        self.unified().join(PROCESSES)
    }

    /// What its memory is charged to, if that is counted.
    fn charged(&self) -> Option<PathBuf> {
        self.cgroups.memory_root().map(|root| root.join(&self.name))
    }

    /// Makes the leaf, in which nothing runs, and sets its limits; returns where its
    /// first process has to be. Blocks, and for a while when an earlier start had
    /// more memory and has filled it with files.
    ///
    /// # Errors
    /// When a directory can't be made or a limit can't be set.
    pub fn ensure(&self, limits: &Limits) -> Result<Membership> {
        let action = || format!("making the cgroup {}", self.name.display());
        for directory in self.directories() {
            fs::create_dir_all(&directory).map_err(EngineError::io(action()))?;
        }
        self.enable_controllers().map_err(EngineError::io(action()))?;
        let v2 = self.cgroups.v2.iter().flat_map(|one| limits.v2(*one));
        let v2 = v2.map(|setting| (self.unified(), setting));
        let v1 = self.cgroups.v1.iter().flat_map(|(one, root)| {
            let directory = root.join(&self.name);
            limits.v1(*one).into_iter().map(move |setting| (directory.clone(), setting))
        });
        for (directory, setting) in v2.chain(v1) {
            let action = || format!("{}: setting {}", action(), setting.file);
            setting.write(&directory).map_err(EngineError::io(action()))?;
        }
        let place = self.place();
        // Some kernels (6.18 is one) end at once what is born in a
        // cgroup that was ever killed, so each start gets a new one.
        let _ = fs::remove_dir(&place);
        fs::create_dir_all(&place).map_err(EngineError::io(action()))?;
        let held = self.cgroups.v1.iter().filter(|(one, _)| one.is_held());
        Ok(Membership { birth: place, joined: held.map(|(_, root)| root.join(&self.name)).collect() })
    }

    /// Puts the processes of the leaf under the limits of version 1
    /// controllers, where there are any. What is held is limited from the first
    /// process on, see [`ensure`](Self::ensure). A start is to be fast, so CPU and
    /// I/O are limited afterwards, where moving processes makes no client wait,
    /// and now and then; what is forked later inherits it. Where forks are faster
    /// than that, all are frozen until they are moved. Blocks.
    pub fn limit_members(&self) {
        if self.cgroups.v1.is_empty() {
            return;
        }
        let _one = MOVING.lock();
        frozen::end_left_behind(&self.place());
        // For this alone no client has to wait, and few servers need more.
        let has_outside = |directory: PathBuf| !self.outside(&directory).is_empty();
        if !self.move_members() || !self.limiting().any(has_outside) {
            return;
        }
        let _frozen = Frozen::begin(self.place());
        for _ in 0..FROZEN_LOOKS_MAX {
            if !self.move_members() {
                return;
            }
        }
    }

    /// Moves what it finds outside of a limit, and tells whether that was anything.
    fn move_members(&self) -> bool {
        let mut has_found = false;
        for directory in self.limiting() {
            for pid in self.outside(&directory) {
                has_found = true;
                // One that has just ended needs no limit.
                let process = pid.parse().ok().and_then(ProcessDirectory::open);
                if process.is_some_and(|process| self.is_home_of(&process)) {
                    let _ = fs::write(directory.join("cgroup.procs"), pid);
                }
            }
        }
        has_found
    }

    /// The directories that limit only what is moved there.
    fn limiting(&self) -> impl Iterator<Item = PathBuf> {
        self.directories().skip(1)
    }

    /// Processes of the leaf that are not in this directory. One that has ended
    /// meanwhile is among them, since it may have forked another one there.
    fn outside(&self, directory: &Path) -> Vec<String> {
        let members = |directory: &Path| {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            text.lines().map(str::to_owned).collect::<HashSet<_>>()
        };
        // In this order: what is forked in between is in the second one only.
        let (all, limited) = (members(&self.place()), members(directory));
        all.difference(&limited).cloned().collect()
    }

    /// Whether a process lives here.
    pub fn is_home_of(&self, process: &ProcessDirectory) -> bool {
        let text = process.read("cgroup").unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::"));
        path.is_some_and(|path| Path::new(path).ends_with(self.name.join(PROCESSES)))
    }

    fn enable_controllers(&self) -> io::Result<()> {
        if self.cgroups.v2.is_empty() {
            return Ok(());
        }
        let wanted: Vec<_> = self.cgroups.v2.iter().map(|one| format!("+{}", one.name())).collect();
        let mut directory = self.cgroups.unified.clone();
        for part in self.name.parent().into_iter().flat_map(Path::components) {
            fs::write(directory.join("cgroup.subtree_control"), wanted.join(" "))?;
            directory.push(part);
        }
        fs::write(directory.join("cgroup.subtree_control"), wanted.join(" "))
    }

    /// Whether a process lives in it; one that has ended and was not waited
    /// for does not count.
    pub fn is_populated(&self) -> bool {
        has_event(&self.unified(), "populated 1")
    }

    /// Ends every process in it and returns when they are gone.
    ///
    /// # Errors
    /// When processes are still there after [`KILL_PATIENCE`].
    pub async fn kill(&self) -> Result<()> {
        let started = Instant::now();
        while self.is_populated() {
            fs::write(self.unified().join("cgroup.kill"), "1")
                .map_err(EngineError::io(format!("killing the cgroup {}", self.name.display())))?;
            if started.elapsed() > KILL_PATIENCE {
                let message = format!("processes in the cgroup {} do not end", self.name.display());
                return Err(EngineError::Other(message));
            }
            tokio::time::sleep(KILL_POLL).await;
        }
        Ok(())
    }

    /// CPU time that everything in the leaf has used since it was made. The
    /// kernel counts it with and without the controller.
    pub fn cpu_used(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.place().join("cpu.stat")).ok()?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        usage.trim().parse().ok().map(Duration::from_micros)
    }

    /// Memory that can't be taken from its instance without swapping; none where
    /// the unified hierarchy does not count it.
    pub fn memory_bytes(&self) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(self.unified().join(file)).ok();
        let all: u64 = read("memory.current")?.trim().parse().ok()?;
        let statistics = read("memory.stat")?;
        let inactive = statistics.lines().find_map(|line| line.strip_prefix("inactive_file "))?;
        Some(all.saturating_sub(inactive.trim().parse().ok()?))
    }

    /// Processes in it.
    pub fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.place().join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Removes the empty leaf, and keeps what its memory is charged to. A directory
    /// that is still busy is left for the next time.
    pub fn clear(&self) {
        let _ = fs::remove_dir(self.place());
        let kept = self.charged();
        for directory in self.directories().filter(|one| Some(one) != kept.as_ref()) {
            let _ = fs::remove_dir(directory);
        }
    }

    /// Removes the empty leaf of an instance that is no more, and whose files are
    /// gone. A directory that is still busy is left for the next time.
    pub fn remove(&self) {
        self.clear();
        if let Some(charged) = self.charged() {
            let _ = fs::remove_dir(charged);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use super::*;

    const LIMITS: Limits =
        Limits { cpu_millis: 1000, cpu_weight: 100, memory_bytes: 256 << 20, processes_max: 200 };

    /// A leaf of the machine's own cgroups, and the key that it is below; none where no others than the
    /// platform's may be made.
    fn real_leaf(name: &str) -> Option<(Leaf, String)> {
        let key = format!("test-{name}-{}", std::process::id());
        Some((Cgroups::detect()?.leaf(&key, "instance"), key))
    }

    #[test]
    fn what_nothing_limits_is_told() {
        let cgroups = |v2: &[Controller], v1: &[Controller]| Cgroups {
            unified: PathBuf::new(),
            v2: v2.to_vec(),
            v1: v1.iter().map(|one| (*one, PathBuf::new())).collect(),
        };
        let all = cgroups(&[Controller::Cpu, Controller::Io], &[Controller::Memory, Controller::Processes]);
        assert_eq!(all.unlimited(), None);
        assert_eq!(
            all.describe(),
            "hybrid: limits by cgroup v2: CPU, I/O weight; by cgroup v1: memory, processes"
        );
        let some = cgroups(&[Controller::Cpu, Controller::Memory], &[]);
        assert_eq!(some.unlimited().as_deref(), Some("processes, I/O weight"));
    }

    #[tokio::test]
    async fn others_are_served_while_what_is_killed_does_not_end() {
        let unified = tempfile::tempdir().expect("a directory");
        let cgroups = Cgroups { unified: unified.path().to_owned(), v2: vec![], v1: vec![] };
        let leaf = cgroups.leaf("key", "instance");
        fs::create_dir_all(leaf.unified()).expect("a directory");
        let events = leaf.unified().join("cgroup.events");
        fs::write(&events, "populated 1\n").expect("a file");
        let others = async {
            tokio::task::yield_now().await;
            assert!(leaf.unified().join("cgroup.kill").exists(), "it was told to end");
            fs::write(&events, "populated 0\n").expect("a file");
        };
        let (killed, ()) = tokio::join!(leaf.kill(), others);
        killed.expect("it has ended in time");
    }

    #[test]
    fn memory_is_charged_to_one_place_over_all_starts() {
        let Some((leaf, key)) = real_leaf("charged") else { return };
        let number = |directory: PathBuf| fs::metadata(directory).expect("a directory").ino();
        let start = || {
            let place = leaf.ensure(&LIMITS).expect("a cgroup").birth;
            (leaf.charged().map(number), number(place))
        };
        let (first, again) = (start(), start());
        leaf.clear();
        let after_stop = start();
        leaf.remove();
        let is_left = leaf.directories().any(|directory| directory.exists());
        leaf.cgroups.remove_parent(&key);
        assert_eq!((again.0, after_stop.0), (first.0, first.0));
        assert!(again.1 != first.1 && after_stop.1 != again.1, "each start has a leaf of its own");
        assert!(!is_left, "with the instance all of it goes");
    }

    #[tokio::test]
    async fn one_look_limits_also_what_forks_faster_than_it_is_moved() {
        let Some((leaf, key)) = real_leaf("forks").filter(|(leaf, _)| !leaf.cgroups.v1.is_empty()) else {
            return;
        };
        let Membership { birth: place, joined } = leaf.ensure(&LIMITS).expect("a cgroup");
        let joins: String = joined.iter().map(|one| format!("echo 0 > {}/tasks; ", one.display())).collect();
        // Each process of a chain starts the next one and ends.
        let chains = "next() { next & exit; }; for chain in 1 2 3 4 5 6; do next & done; sleep 600";
        let mut first = Command::new("sh")
            .args(["-c", &format!("echo $$ > {}/cgroup.procs; {joins}{chains}", place.display())])
            .spawn()
            .expect("sh");
        let deadline = Instant::now() + Duration::from_secs(60);
        while leaf.processes().len() < 7 && Instant::now() < deadline {
            tokio::time::sleep(KILL_POLL).await;
        }
        let frozen = Frozen::begin(place.clone());
        let born_outside = joined.iter().map(|directory| leaf.outside(directory).len()).sum::<usize>();
        drop(frozen);
        leaf.limit_members();
        let frozen = Frozen::begin(place.clone());
        let outside: Vec<_> = leaf.limiting().flat_map(|directory| leaf.outside(&directory)).collect();
        let living = leaf.processes().len();
        drop(frozen);
        // As somebody leaves it who ends in between.
        fs::write(place.join("cgroup.freeze"), "1").expect("it can be frozen");
        leaf.limit_members();
        let freeze = fs::read_to_string(place.join("cgroup.freeze")).expect("a file");
        leaf.kill().await.expect("it ends");
        first.wait().expect("it has ended");
        leaf.remove();
        leaf.cgroups.remove_parent(&key);
        assert_eq!(born_outside, 0, "what is born of who has joined is there, too");
        assert!(outside.is_empty() && living > 1, "{outside:?} of {living}");
        assert_eq!(freeze.trim(), "0", "it goes on");
    }
}

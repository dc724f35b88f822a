//! What the launched process does to itself before it becomes the program.
//!
//! The launcher is a hidden subcommand with a single thread. Every mount is
//! made in its private mount namespace, and System V and POSIX shared memory
//! are private too, so nothing is left of it when its processes are gone.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};
use rustix::fs::Mode;
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, WaitOptions, chdir, getrlimit, kill_process, setrlimit, setsid,
    umask, waitpid,
};
use rustix::stdio::dup2_stdin;
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::failure::{Context, Failure};
use super::launch::{FileAccess, Isolation, LaunchSpec};
use super::syscalls::{
    Fork, execute, filter_calls, fork_beside, fork_child, keep_descriptors_from_programs, leave_namespaces,
    unblock_signals,
};
use super::{oom, root, seccomp};

/// The newest Landlock rules this program knows; an older kernel enforces what
/// it can.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Files that each process may have open. A server's keep to 1000 (`max_files_per_process`,
/// which no parameter of a branch is) and a few besides; the whole machine shares one table.
const FILES_MAX: u64 = 1200;

/// Reads a [`LaunchSpec`] from standard input, confines this process to it
/// and becomes its program. Does not return.
#[expect(clippy::disallowed_methods, reason = "a launcher that failed has nothing to clean up")]
pub fn launcher_main() -> ! {
    let failure = match launch() {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    eprintln!("launcher: {failure}");
    std::process::exit(71);
}

fn launch() -> Result<std::convert::Infallible, Failure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("reading the description")?;
    let spec: LaunchSpec = serde_json::from_str(&text).context("understanding the description")?;

    // Seen from here, where processes have the numbers that `/proc` shows.
    let owners = spec.isolation.as_ref().and_then(owner_on_disk_and_account);
    let owners = owners.map(|(owner, account)| id_mapping_namespace(owner, account)).transpose();
    let owners = owners.context("mapping the owner of files")?;
    begin(&spec)?;
    for directory in &spec.joined {
        join(directory).with_context(|| format!("joining {}", directory.display()))?;
    }
    if spec.goes_first {
        oom::go_first();
    }

    // Fails only for a process that leads a group already.
    let _ = setsid();
    unblock_signals().context("clearing the signal mask")?;
    let input = spec.input.as_deref().unwrap_or(Path::new("/dev/null"));
    let input = fs::File::open(input).context("opening the input")?;
    dup2_stdin(&input).context("taking the input")?;
    drop(input);
    if let Some(isolation) = &spec.isolation {
        isolate(isolation, owners.as_ref(), spec.starts_programs)?;
    }
    drop(owners);
    // Neither a file nor, as 0 would do, a program of the host that takes it.
    let no_core = Rlimit { current: Some(1), maximum: Some(1) };
    setrlimit(Resource::Core, no_core).context("forbidding core dumps")?;
    let files = getrlimit(Resource::Nofile).maximum.map_or(FILES_MAX, |most| most.min(FILES_MAX));
    let files = Rlimit { current: Some(files), maximum: Some(files) };
    setrlimit(Resource::Nofile, files).context("limiting open files")?;
    // Pages of files count for whoever had them read, and can't be taken back while they are locked.
    let no_locked = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Memlock, no_locked).context("forbidding locked memory")?;
    confine_files(&spec.access)?;
    umask(Mode::from_raw_mode(0o077));
    chdir("/").context("changing the directory")?;
    become_program(&spec)
}

/// Filters system calls and becomes the program.
fn become_program(spec: &LaunchSpec) -> Result<std::convert::Infallible, Failure> {
    let c_string = |bytes: &[u8]| CString::new(bytes).context("preparing the program");
    let program = c_string(spec.program.as_os_str().as_bytes())?;
    let mut arguments = vec![program.clone()];
    for argument in &spec.arguments {
        arguments.push(c_string(argument.as_bytes())?);
    }
    let environment =
        spec.environment.iter().map(|(name, value)| c_string(format!("{name}={value}").as_bytes()));
    let environment = environment.collect::<Result<Vec<_>, _>>()?;
    let mut key = [0; 24];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).context("making a key")?;
    let key = [0, 8, 16].map(|at| key[at..at + 8].iter().fold(0, |part, byte| part << 8 | u64::from(*byte)));

    keep_descriptors_from_programs().context("keeping descriptors from the program")?;
    rustix::thread::set_no_new_privs(true).context("giving up new privileges")?;
    let filter = seccomp::filter((!spec.starts_programs).then_some(&key));
    filter_calls(&filter).context("filtering system calls")?;
    let error = execute(&program, &arguments, &environment, &key);
    Err(error).with_context(|| format!("running {}", spec.program.display()))
}

/// Goes on in the process that is to be the program, and tells its pid: inside
/// its cgroup and, when isolated, as the first process of a pid namespace,
/// whose end is the end of all others there.
fn begin(spec: &LaunchSpec) -> Result<(), Failure> {
    let is_first = spec.isolation.is_some();
    if spec.cgroup.is_none() && !is_first {
        return tell(std::process::id());
    }
    let cgroup = spec.cgroup.as_deref().map(fs::File::open).transpose().context("opening the cgroup")?;
    // A process that is born in a cgroup costs nothing; one that moves there
    // waits until every processor has noticed, 10 to 20 ms.
    match fork_beside(cgroup.as_ref().map(AsFd::as_fd), is_first) {
        Ok(Fork::Child) => Ok(()),
        Ok(Fork::Parent(child)) => leave_to(child, None),
        // A kernel before 5.7, or one that forbids it.
        Err(_) => match fork_beside(None, is_first).context("making the first process")? {
            Fork::Child => Ok(()),
            Fork::Parent(child) => leave_to(child, spec.cgroup.as_deref()),
        },
    }
}

/// Moves this thread, the only one of its process, into a cgroup of version 1. For
/// a thread that moves itself nobody has to wait, as for a process that is moved:
/// this takes 0.1 ms.
fn join(directory: &Path) -> io::Result<()> {
    fs::write(directory.join("tasks"), "0")
}

/// Puts the child into a cgroup, if there is one left to join, tells its pid,
/// and ends the launcher, whose work the child does.
#[expect(clippy::disallowed_methods, reason = "nothing is open")]
fn leave_to(child: Pid, cgroup: Option<&Path>) -> Result<(), Failure> {
    let joined = cgroup.map_or(Ok(()), |cgroup| {
        fs::write(cgroup.join("cgroup.procs"), child.as_raw_pid().to_string())
            .with_context(|| format!("joining {}", cgroup.display()))
    });
    joined.and_then(|()| tell(child.as_raw_pid().unsigned_abs())).inspect_err(|_| {
        // Nobody would know of it.
        let _ = kill_process(child, Signal::KILL);
    })?;
    std::process::exit(0);
}

fn tell(pid: u32) -> Result<(), Failure> {
    rustix::io::write(io::stdin(), &pid.to_le_bytes()).context("telling the pid")?;
    Ok(())
}

fn isolate(isolation: &Isolation, owners: Option<&OwnedFd>, has_programs: bool) -> Result<(), Failure> {
    let door = isolation.neighbour.as_ref().map(root::socket_of).transpose();
    let door = door.context("finding the socket of the server to follow")?;
    let apart = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWCGROUP;
    leave_namespaces(apart).context("leaving the host's namespaces")?;
    umask(Mode::from_raw_mode(0o022));
    root::enter(isolation, owners, door.as_ref(), has_programs)?;

    let (uid, gid) = (Uid::from_raw(isolation.account), Gid::from_raw(isolation.account));
    let groups: Vec<_> = isolation.neighbour.iter().map(|one| Gid::from_raw(one.group)).collect();
    // Of this thread, which is the only one.
    set_thread_groups(&groups).context("leaving groups")?;
    set_thread_res_gid(gid, gid, gid).context("changing the group")?;
    set_thread_res_uid(uid, uid, uid).context("changing the account")
}

/// Whose files on disk are to appear as the account's.
fn owner_on_disk_and_account(isolation: &Isolation) -> Option<(u32, u32)> {
    let owner = isolation.mounts.iter().find_map(|mount| mount.owner_on_disk)?;
    Some((owner, isolation.account))
}

/// A user namespace in which `owner` on disk is `account`. A namespace needs a
/// process while it is opened, so a child makes it and waits to be ended.
fn id_mapping_namespace(owner: u32, account: u32) -> io::Result<OwnedFd> {
    let (made_read, made_write) = rustix::pipe::pipe()?;
    let child = fork_child(move || {
        if leave_namespaces(UnshareFlags::NEWUSER).is_ok() {
            let _ = rustix::io::write(&made_write, b"x");
            // Long enough to be opened; the caller ends it much sooner.
            std::thread::sleep(std::time::Duration::from_secs(30));
        }
    })?;
    let outcome = (|| {
        if rustix::io::read(&made_read, &mut [0; 1][..])? == 0 {
            return Err(io::Error::other("this kernel makes no user namespace"));
        }
        let map = format!("{owner} {account} 1\n");
        let process = PathBuf::from(format!("/proc/{}", child.as_raw_pid()));
        fs::write(process.join("uid_map"), &map)?;
        fs::write(process.join("gid_map"), &map)?;
        Ok(OwnedFd::from(fs::File::open(process.join("ns/user"))?))
    })();
    let _ = kill_process(child, Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
    outcome
}

fn confine_files(access: &FileAccess) -> Result<(), Failure> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // Somebody outside could stumble over these.
    let odd = AccessFs::MakeSym | AccessFs::MakeFifo | AccessFs::MakeChar | AccessFs::MakeBlock;
    let write = AccessFs::from_all(LANDLOCK_ABI) & !(odd | AccessFs::Execute);
    let write_files = write & !AccessFs::MakeDir;
    let rules = |paths: &[PathBuf], rights| {
        let present: Vec<_> = paths.iter().filter(|path| Path::exists(path)).cloned().collect();
        path_beneath_rules(present, rights)
    };
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(LANDLOCK_ABI)))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(rules(&access.execute, read | AccessFs::Execute)))
        .and_then(|ruleset| ruleset.add_rules(rules(&access.read, read)))
        .and_then(|ruleset| ruleset.add_rules(rules(&access.write, write)))
        .and_then(|ruleset| ruleset.add_rules(rules(&access.write_files, write_files)))
        // Also sets no_new_privs.
        .and_then(landlock::RulesetCreated::restrict_self)
        .context("confining file access")?;
    Ok(())
}

/// The newest version of Landlock's rules that this kernel and this program
/// know; none without Landlock.
pub fn landlock_version() -> Option<u32> {
    let versions = [(6, ABI::V6), (5, ABI::V5), (4, ABI::V4), (3, ABI::V3), (2, ABI::V2), (1, ABI::V1)];
    let is_known = |abi| {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))
            .and_then(|ruleset| {
                let scopes = Scope::from_all(abi);
                if scopes.is_empty() { Ok(ruleset) } else { ruleset.scope(scopes) }
            })
            .and_then(Ruleset::create)
            .is_ok()
    };
    versions.into_iter().find(|(_, abi)| is_known(*abi)).map(|(version, _)| version)
}

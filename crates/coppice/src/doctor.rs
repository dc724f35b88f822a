//! `coppice doctor`: how the platform is, what this machine offers, and how to
//! improve it.

mod platform;

use std::path::Path;

use clap::Args;
use coppice_engine::local::installation::Installation;
use coppice_engine::local::layout::Layout;
use coppice_engine::local::process::cgroup::Cgroups;
use coppice_engine::local::process::landlock_version;
use serde::Serialize;
use serde_json::json;

use crate::config::DataDir;

/// Flags of `coppice doctor`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// Directories searched for PostgreSQL besides /usr/lib/postgresql
    #[arg(long, env = "COPPICE_POSTGRES_DIRS", value_name = "DIRS", value_delimiter = ':')]
    postgres_dirs: Vec<std::path::PathBuf>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be.
    Ok,
    /// It works, and could be better.
    Advice,
    /// It has to be mended.
    Problem,
}

/// One finding: what was looked at, what was seen, and what would be better.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    seen: String,
    advice: Option<String>,
    /// Whether what is advised has to be done.
    is_problem: bool,
}

impl Finding {
    /// With advice, if there is some, that need not be followed.
    fn new(name: &'static str, seen: impl Into<String>, advice: Option<String>) -> Self {
        Self { name, seen: seen.into(), advice, is_problem: false }
    }

    /// Something that has to be mended.
    fn problem(name: &'static str, seen: impl Into<String>, advice: String) -> Self {
        Self { name, seen: seen.into(), advice: Some(advice), is_problem: true }
    }

    fn level(&self) -> Level {
        match (self.is_problem, &self.advice) {
            (true, _) => Level::Problem,
            (false, Some(_)) => Level::Advice,
            (false, None) => Level::Ok,
        }
    }
}

/// The exit code when something has to be mended.
const HAS_PROBLEMS: i32 = 1;

/// Looks at the platform and the machine and says what it found; changes
/// nothing. Returns the exit code.
pub(crate) async fn doctor(args: &DoctorArgs, as_json: bool) -> anyhow::Result<i32> {
    let data_dir = std::path::absolute(args.data_dir.path()?)?;
    let mut findings = platform::findings(&data_dir).await;
    findings.extend([
        data_directory(&data_dir),
        postgres(&args.postgres_dirs),
        volumes(&data_dir),
        accounts(),
        cgroups(),
        landlock(),
        space(&data_dir),
        quarantine(&data_dir),
    ]);
    let level = findings.iter().map(Finding::level).max().unwrap_or(Level::Ok);
    if as_json {
        let list = findings.iter().map(|finding| {
            json!({ "name": finding.name, "seen": finding.seen, "level": finding.level(), "advice": finding.advice })
        });
        say!("{}", serde_json::to_string_pretty(&list.collect::<Vec<_>>())?);
    } else {
        for finding in &findings {
            say!("{:16} {}", finding.name, finding.seen);
            if let Some(advice) = &finding.advice {
                say!("{:16} {} {advice}", "", if finding.is_problem { "!" } else { "→" });
            }
        }
    }
    Ok(if level == Level::Problem { HAS_PROBLEMS } else { 0 })
}

fn data_directory(data_dir: &Path) -> Finding {
    let place = data_dir.display();
    match data_dir.join("installation.json").try_exists() {
        Ok(true) => Finding::new("data directory", format!("{place} (holds an installation)"), None),
        Ok(false) => Finding::new("data directory", format!("{place} (not used yet)"), None),
        Err(error) => Finding::problem(
            "data directory",
            format!("{place} (can't be looked into: {error})"),
            "run this as the account that runs the platform, or name another --data-dir".to_owned(),
        ),
    }
}

fn postgres(directories: &[std::path::PathBuf]) -> Finding {
    let versions: Vec<_> =
        coppice_engine::local::images::found(directories).iter().map(ToString::to_string).collect();
    let advice = versions.is_empty().then(|| {
        "install PostgreSQL (Debian: apt install postgresql), or name its directory in COPPICE_POSTGRES_DIRS".to_owned()
    });
    let seen = if versions.is_empty() { "none found".to_owned() } else { versions.join(", ") };
    Finding { is_problem: advice.is_some(), ..Finding::new("PostgreSQL", seen, advice) }
}

fn volumes(data_dir: &Path) -> Finding {
    let existing = data_dir.ancestors().find(|dir| dir.exists()).unwrap_or(data_dir);
    let kind = rustix::fs::statfs(existing).map(|stat| stat.f_type as u64).unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let (seen, advice) = match (kind, is_root) {
        (0x9123_683E, true) => ("btrfs: branches are snapshots", None),
        (0x9123_683E, false) => {
            ("btrfs without rights: branches are clones of files", Some("run as root for snapshots"))
        }
        (0x5846_5342, _) => ("XFS: branches are clones of files, if it was made with reflink=1", None),
        (_, true) => ("no copy-on-write here: coppice makes a btrfs pool of its own", None),
        (_, false) => (
            "no copy-on-write here: branches are full copies",
            Some("put the data directory on btrfs or XFS, or run as root, for instant branches"),
        ),
    };
    Finding::new("volumes", seen.to_owned(), advice.map(str::to_owned))
}

fn accounts() -> Finding {
    if rustix::process::geteuid().is_root() {
        let seen = "each branch runs under a uid of its own, in namespaces of its own".to_owned();
        return Finding::new("isolation", seen, None);
    }
    Finding::new(
        "isolation",
        "not root: all branches run under your account and share one trust domain",
        Some("run as root to keep branches apart by uid, network and mount namespaces".to_owned()),
    )
}

fn cgroups() -> Finding {
    let found = if rustix::process::geteuid().is_root() { Cgroups::detect() } else { None };
    match found {
        Some(cgroups) => Finding::new(
            "cgroups",
            cgroups.describe(),
            cgroups.unlimited().map(|missing| {
                format!("nothing limits {missing}: boot with a kernel that has these cgroup controllers")
            }),
        ),
        None => Finding::new(
            "cgroups",
            "none: instances are not limited, and found by their working directory",
            Some("run as root on a kernel with cgroup v2 (5.14 or newer) for limits".to_owned()),
        ),
    }
}

fn landlock() -> Finding {
    let (seen, advice) = match landlock_version() {
        // Older ones don't know signals and abstract sockets.
        Some(version @ 6..) => {
            (format!("version {version}: a server reaches its own files and processes only"), None)
        }
        Some(version) => (
            format!("version {version}: a server reaches its own files only"),
            Some("a kernel from 6.12 on also keeps servers from signalling each other"),
        ),
        None => ("off".to_owned(), Some("add landlock to the kernel's lsm= list")),
    };
    Finding::new("Landlock", seen, advice.map(str::to_owned))
}

fn space(data_dir: &Path) -> Finding {
    let existing = data_dir.ancestors().find(|dir| dir.exists()).unwrap_or(data_dir);
    let (free, total) = rustix::fs::statvfs(existing)
        .map(|stat| (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
        .unwrap_or_default();
    let advice = (free < 5 << 30).then(|| "free some space: less than 5 GiB are left".to_owned());
    let seen = format!("{} GiB free of {} GiB", free >> 30, total >> 30);
    Finding { is_problem: advice.is_some(), ..Finding::new("space", seen, advice) }
}

fn quarantine(data_dir: &Path) -> Finding {
    let Ok(installation) = (if data_dir.join("installation.json").exists() {
        Installation::ensure(data_dir)
    } else {
        return Finding::new("quarantine", "nothing".to_owned(), None);
    }) else {
        return Finding::problem(
            "quarantine",
            "the installation can't be read",
            "run this as the account that runs the platform".to_owned(),
        );
    };
    let place = Layout::new(data_dir, &installation.key(data_dir)).quarantine();
    let count = std::fs::read_dir(&place).map(Iterator::count).unwrap_or_default();
    let advice = (count > 0).then(|| {
        format!(
            "{} holds volumes that no record knows; look at them, then move or delete them",
            place.display()
        )
    });
    Finding::new("quarantine", format!("{count} volumes"), advice)
}

//! `coppice doctor`: how the platform is, what this machine offers, and how to
//! improve it.

mod platform;

use std::path::Path;

use clap::Args;
use coppice_engine::local::installation::Installation;
use coppice_engine::local::layout::Layout;
use coppice_engine::local::process::cgroup::Cgroups;
use coppice_engine::local::process::landlock_version;
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One finding: what was looked at, what was seen, and what would be better.
struct Finding {
    name: &'static str,
    seen: String,
    advice: Option<String>,
}

/// Looks at the platform and the machine and says what it found; changes nothing.
pub(crate) async fn doctor(args: &DoctorArgs) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(args.data_dir.path())?;
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
    if args.json {
        let list: Vec<_> = findings
            .iter()
            .map(|finding| json!({ "name": finding.name, "seen": finding.seen, "advice": finding.advice }))
            .collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    for finding in &findings {
        println!("{:16} {}", finding.name, finding.seen);
        if let Some(advice) = &finding.advice {
            println!("{:16} → {advice}", "");
        }
    }
    Ok(())
}

fn data_directory(data_dir: &Path) -> Finding {
    let is_used = data_dir.join("installation.json").exists();
    let state = if is_used { "holds an installation" } else { "not used yet" };
    Finding { name: "data directory", seen: format!("{} ({state})", data_dir.display()), advice: None }
}

fn postgres(directories: &[std::path::PathBuf]) -> Finding {
    let versions: Vec<_> =
        coppice_engine::local::images::found(directories).iter().map(ToString::to_string).collect();
    let advice = versions.is_empty().then(|| {
        "install PostgreSQL (Debian: apt install postgresql), or name its directory in COPPICE_POSTGRES_DIRS".to_owned()
    });
    let seen = if versions.is_empty() { "none found".to_owned() } else { versions.join(", ") };
    Finding { name: "PostgreSQL", seen, advice }
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
    Finding { name: "volumes", seen: seen.to_owned(), advice: advice.map(str::to_owned) }
}

fn accounts() -> Finding {
    if rustix::process::geteuid().is_root() {
        let seen = "each branch runs under a uid of its own, in namespaces of its own".to_owned();
        return Finding { name: "isolation", seen, advice: None };
    }
    Finding {
        name: "isolation",
        seen: "not root: all branches run under your account and share one trust domain".to_owned(),
        advice: Some("run as root to keep branches apart by uid, network and mount namespaces".to_owned()),
    }
}

fn cgroups() -> Finding {
    let found = if rustix::process::geteuid().is_root() { Cgroups::detect() } else { None };
    match found {
        Some(cgroups) => Finding {
            name: "cgroups",
            seen: cgroups.describe(),
            advice: cgroups.unlimited().map(|missing| {
                format!("nothing limits {missing}: boot with a kernel that has these cgroup controllers")
            }),
        },
        None => Finding {
            name: "cgroups",
            seen: "none: instances are not limited, and found by their working directory".to_owned(),
            advice: Some("run as root on a kernel with cgroup v2 (5.14 or newer) for limits".to_owned()),
        },
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
    Finding { name: "Landlock", seen, advice: advice.map(str::to_owned) }
}

fn space(data_dir: &Path) -> Finding {
    let existing = data_dir.ancestors().find(|dir| dir.exists()).unwrap_or(data_dir);
    let (free, total) = rustix::fs::statvfs(existing)
        .map(|stat| (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
        .unwrap_or_default();
    let advice = (free < 5 << 30).then(|| "free some space: less than 5 GiB are left".to_owned());
    Finding { name: "space", seen: format!("{} GiB free of {} GiB", free >> 30, total >> 30), advice }
}

fn quarantine(data_dir: &Path) -> Finding {
    let Ok(installation) = (if data_dir.join("installation.json").exists() {
        Installation::ensure(data_dir)
    } else {
        return Finding { name: "quarantine", seen: "nothing".to_owned(), advice: None };
    }) else {
        return Finding {
            name: "quarantine",
            seen: "the installation can't be read".to_owned(),
            advice: None,
        };
    };
    let place = Layout::new(data_dir, &installation.key(data_dir)).quarantine();
    let count = std::fs::read_dir(&place).map(Iterator::count).unwrap_or_default();
    let advice = (count > 0).then(|| {
        format!(
            "{} holds volumes that no record knows; look at them, then move or delete them",
            place.display()
        )
    });
    Finding { name: "quarantine", seen: format!("{count} volumes"), advice }
}

//! What `initdb` makes, made once for a program and kept beside it: it takes a machine longer than
//! all the rest of a platform's first start.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What the platform itself keeps of it, below its data directory.
const KEPT: &str = "fresh";
/// Where a first start ends when it has kept it.
const STOP: &str = "metastore.in_place=abort";

/// Held while one is made.
static MAKING: Mutex<()> = Mutex::new(());

/// See the module.
#[derive(Debug)]
pub(crate) struct Fresh(PathBuf);

impl Fresh {
    /// What platforms with this environment begin with.
    pub(crate) fn of(program: &str, environment: &[(String, String)]) -> Self {
        let places = environment.iter().find(|(name, _)| name == "COPPICE_POSTGRES_DIRS");
        let places = places.map(|(_, places)| places.as_str());
        let all = Path::new(program).with_file_name(KEPT);
        let of_program = all.join(stamp(Path::new(program)).expect("the executable"));
        let mut hasher = DefaultHasher::new();
        places.hash(&mut hasher);
        let fresh = Self(of_program.join(format!("{:x}", hasher.finish())));
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if !fresh.0.exists() {
            forget_but(&all, &of_program);
            fs::create_dir_all(&of_program).expect("a directory beside the executable");
            fresh.make(program, places);
        }
        fresh
    }

    fn make(&self, program: &str, places: Option<&str>) {
        let directory = crate::directory("coppice-fresh-");
        let data_dir = directory.path().join("data");
        let run = |arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).arg("--data-dir").arg(&data_dir).stdin(Stdio::null());
            command.envs(places.map(|places| ("COPPICE_POSTGRES_DIRS", places)));
            command.env("COPPICE_FAILPOINTS", STOP).output().expect("the executable runs")
        };
        let begun = run(&["serve", "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0"]);
        let said = String::from_utf8_lossy(&begun.stderr);
        assert!(data_dir.join(KEPT).exists(), "{said}");
        let staging = self.0.with_extension(std::process::id().to_string());
        copy(&data_dir.join(KEPT), &staging);
        // Another process may have made the same.
        if fs::rename(&staging, &self.0).is_err() {
            fs::remove_dir_all(&staging).expect("its own directory");
        }
        run(&["stop", "--all"]);
    }

    /// Puts a copy into a data directory that is still to be made.
    pub(crate) fn copy_to(&self, data_dir: &Path) {
        fs::create_dir_all(data_dir).expect("a writable directory");
        copy(&self.0, &data_dir.join(KEPT));
    }
}

/// Names a build of a program, and this run of the machine: the platform takes it for no longer.
fn stamp(program: &Path) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let built = fs::metadata(program)?.modified()?.duration_since(std::time::UNIX_EPOCH);
    Ok(format!("{}-{:x}", boot.trim(), built.unwrap_or_default().as_nanos()))
}

/// Removes what was made for other builds.
fn forget_but(all: &Path, this: &Path) {
    for found in fs::read_dir(all).into_iter().flatten().filter_map(Result::ok) {
        if found.path() != this {
            let _ = fs::remove_dir_all(found.path());
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--archive", "--no-target-directory"]).arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success(), "copying what initdb made");
}

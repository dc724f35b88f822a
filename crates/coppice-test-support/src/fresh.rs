//! What `initdb` makes, made once for the platforms of a program: it takes a machine longer than all
//! the rest of a platform's first start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

/// What the platform itself keeps of it, below its data directory.
const KEPT: &str = "fresh";
/// Where a first start ends when it has kept it.
const STOP: &str = "metastore.in_place=abort";

/// By where PostgreSQL is looked for.
static MADE: Mutex<BTreeMap<String, Weak<Fresh>>> = Mutex::new(BTreeMap::new());

/// See the module. It goes with the last platform that has it.
pub(crate) struct Fresh(TempDir);

impl Fresh {
    /// What platforms with this environment begin with.
    pub(crate) fn of(program: &str, environment: &[(String, String)]) -> Arc<Self> {
        let places = environment.iter().find(|(name, _)| name == "COPPICE_POSTGRES_DIRS");
        let places = places.map(|(_, places)| places.clone());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = made.entry(places.clone().unwrap_or_default()).or_default();
        known.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Self::make(program, places.as_deref()));
            *known = Arc::downgrade(&fresh);
            fresh
        })
    }

    fn make(program: &str, places: Option<&str>) -> Self {
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
        fs::rename(data_dir.join(KEPT), directory.path().join(KEPT)).unwrap_or_else(|_| panic!("{said}"));
        run(&["stop", "--all"]);
        fs::remove_dir_all(data_dir).expect("its own directory");
        Self(directory)
    }

    /// Puts a copy into a data directory that is still to be made.
    pub(crate) fn copy_to(&self, data_dir: &Path) {
        fs::create_dir_all(data_dir).expect("a writable directory");
        let copied = Command::new("cp").arg("--archive").arg(self.0.path().join(KEPT)).arg(data_dir).status();
        assert!(copied.expect("cp runs").success(), "copying what initdb made");
    }
}

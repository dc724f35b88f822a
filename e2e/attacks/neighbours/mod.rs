//! Branches that take what is everybody's: room on the disk, logs, processes.
//! Their neighbours are served all the same, or again as soon as there is room.

mod health;
mod limits;
mod meanwhile;
mod storage;

use std::time::Duration;

use coppice_test_support::{Options, Platform, psql};

use crate::setup::postgres_dir;

const PATIENCE: Duration = Duration::from_secs(120);

/// For a platform with the oldest and the newest release.
fn oldest_and_newest(flags: &[&str]) -> Options {
    let newest = postgres_dir().join("18.4").display().to_string();
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), newest)];
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    Options { environment, flags, ..Options::default() }
}

/// Runs SQL as the platform's own superuser.
fn as_superuser(coppice: &Platform, branch: &str, sql: &str) -> String {
    let said = psql(&coppice.superuser_url(branch), sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

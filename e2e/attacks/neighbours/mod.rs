//! Branches that take what is everybody's: room on the disk, logs, processes.
//! Their neighbours are served all the same, or again as soon as there is room.

mod health;
mod limits;
mod meanwhile;
mod storage;

use std::time::Duration;

use coppice_test_support::{Platform, psql};

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs SQL as the platform's own superuser.
fn as_superuser(coppice: &Platform, branch: &str, sql: &str) -> String {
    let said = psql(&coppice.superuser_url(branch), sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

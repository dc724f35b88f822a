//! Faults of disks, servers, clocks and data: what they break, what they must
//! not, and what is told.

mod claims;
mod clock;
mod connections;
pub(crate) mod disk;
mod servers;
mod steps;
mod wakes;

use std::time::Duration;

use coppice_test_support::{Platform, wait_for};
use serde_json::json;

use crate::branches::{change, describe, path, status, wait_for_status};

const PATIENCE: Duration = Duration::from_secs(120);

/// Lets connections wake the branch.
fn make_sleepy(coppice: &Platform, path: &str, minutes: u32) {
    change(coppice, path, &json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": minutes } }));
}

/// Waits until a branch answers this SQL, and returns what it says.
fn answer(coppice: &Platform, branch: &str, sql: &str) -> String {
    let url = coppice.connection_string(branch);
    let ask = || Some(coppice_test_support::psql(&url, sql)).filter(|said| said.is_ok);
    wait_for("the branch answers", PATIENCE, ask).out
}

/// Connects as a driver does; returns SQLSTATE and message of the refusal.
fn refusal(url: &str) -> (String, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let connected = runtime.block_on(tokio_postgres::connect(url, tokio_postgres::NoTls));
    let Err(error) = connected else { panic!("{url} takes connections") };
    let said = error.as_db_error().unwrap_or_else(|| panic!("no answer but: {error}"));
    (said.code().code().to_owned(), said.message().to_owned())
}

/// The same URL with another password.
fn with_wrong_password(url: &str) -> String {
    let (user, rest) = url.rsplit_once('@').expect("a URL");
    let (user, _) = user.rsplit_once(':').expect("a password");
    format!("{user}:wrong@{rest}")
}

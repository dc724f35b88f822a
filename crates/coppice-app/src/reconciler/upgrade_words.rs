//! What a branch says of its upgrade.

use coppice_core::branch::TRIAL_PASSED;

/// What a branch says whose upgrade went well when it was tried.
pub(super) fn trial_passed(major: u32, seconds: f64) -> String {
    format!("{} {major}: it took {seconds:.1} s, and clients would wait for about as long", TRIAL_PASSED)
}

/// What it says when it did not.
pub(super) fn trial_failed(major: u32, reason: &str) -> String {
    format!("a trial upgrade to PostgreSQL {major} failed: {reason}")
}

/// What it says when it goes on as it was.
pub(super) fn not_upgraded(major: u32, from: u32, reason: &str) -> String {
    format!(
        "it was not upgraded to PostgreSQL {major}, and goes on with {from} and all of its data: {reason}"
    )
}

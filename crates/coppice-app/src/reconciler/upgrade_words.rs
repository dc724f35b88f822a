//! What a branch says of its upgrade.

use std::collections::BTreeSet;

use coppice_core::branch::TRIAL_PASSED;

/// So much of what is left out is named.
const TOLD_MAX: usize = 20;

/// What a branch says whose upgrade went well when it was tried.
pub(super) fn trial_passed(major: u32, seconds: f64, left_out: &[String]) -> String {
    let took =
        format!("{TRIAL_PASSED} {major}: it took {seconds:.1} s, and clients would wait for about as long");
    match names_of(left_out) {
        Some(names) => format!("{took}; what it would go without: {names}"),
        None => took,
    }
}

/// What it says of what it went without; none where it has all.
pub(super) fn goes_without(major: u32, left_out: &[String]) -> Option<String> {
    let names = names_of(left_out)?;
    Some(format!(
        "it was upgraded to PostgreSQL {major}, which does not know these settings of its roles and databases, or no \
         owner may give these roles, and goes without them: {names}"
    ))
}

/// Each once.
fn names_of(settings: &[String]) -> Option<String> {
    let names: BTreeSet<&str> = settings.iter().map(String::as_str).collect();
    let told: Vec<&str> = names.iter().take(TOLD_MAX).copied().collect();
    let more = if names.len() > TOLD_MAX { ", …" } else { "" };
    (!told.is_empty()).then(|| told.join(", ") + more)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_gone_are_named_once() {
        let gone = ["b", "a", "b"].map(str::to_owned);
        assert!(goes_without(18, &gone).is_some_and(|said| said.ends_with("without them: a, b")));
        assert!(trial_passed(18, 1.0, &gone).ends_with("go without: a, b"));
        assert_eq!(goes_without(18, &[]), None);
        let many: Vec<_> = (0..30).map(|number| format!("s{number:02}")).collect();
        assert!(goes_without(18, &many).is_some_and(|said| said.ends_with("s18, s19, …")));
    }
}

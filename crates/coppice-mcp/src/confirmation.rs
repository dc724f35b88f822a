//! What an agent has to say back before something is gone that nobody can make
//! anew.

use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::SystemRandom;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The argument that it is said in.
pub(crate) const CONFIRM: &str = "confirm";
/// It is good for so long, and at most twice that.
const PERIOD: Duration = Duration::from_secs(300);

/// Makes and knows confirmations. They end with the process: who has an old one
/// is asked again.
#[derive(Debug)]
pub(crate) struct Confirmations(Key);

impl Confirmations {
    pub(crate) fn new() -> Self {
        Self(Key::generate(HMAC_SHA256, &SystemRandom::new()).expect("random bytes"))
    }

    /// For one thing that one credential wants to do.
    pub(crate) fn make(&self, credential: &str, what: &str) -> String {
        self.at(period(), credential, what)
    }

    pub(crate) fn is_good(&self, said: &str, credential: &str, what: &str) -> bool {
        let now = period();
        [now, now.saturating_sub(1)].into_iter().any(|period| {
            verify_slices_are_equal(self.at(period, credential, what).as_bytes(), said.as_bytes()).is_ok()
        })
    }

    fn at(&self, period: u64, credential: &str, what: &str) -> String {
        let tag = sign(&self.0, format!("{period}\n{credential}\n{what}").as_bytes());
        URL_SAFE_NO_PAD.encode(&tag.as_ref()[..12])
    }
}

fn period() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() / PERIOD.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_is_for_one_thing_and_one_credential() {
        let confirmations = Confirmations::new();
        let said = confirmations.make("key_1", "delete br_1");
        assert!(confirmations.is_good(&said, "key_1", "delete br_1"));
        assert!(!confirmations.is_good(&said, "key_2", "delete br_1"));
        assert!(!confirmations.is_good(&said, "key_1", "delete br_2"));
        assert!(!confirmations.is_good("", "key_1", "delete br_1"));
        assert!(!Confirmations::new().is_good(&said, "key_1", "delete br_1"));
    }

    #[test]
    fn a_confirmation_ends() {
        let confirmations = Confirmations::new();
        let old = confirmations.at(period() - 2, "key_1", "delete br_1");
        assert!(!confirmations.is_good(&old, "key_1", "delete br_1"));
    }
}

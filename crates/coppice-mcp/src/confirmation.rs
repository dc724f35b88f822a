//! What an agent has to say back before something is gone that nobody can make
//! anew.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coppice_core::random;
use parking_lot::Mutex;

/// The argument that it is said in.
pub(crate) const CONFIRM: &str = "confirm";
/// It is good for so long, and at most twice that.
const PERIOD: Duration = Duration::from_secs(300);
/// Random bytes that it begins with: the same thing is asked for anew each time.
const UNIQUE_BYTES: usize = 9;
const TAG_BYTES: usize = 12;
/// As long as what HMAC-SHA-256 makes (RFC 2104, section 3).
const KEY_BYTES: usize = 32;

/// Makes and knows confirmations, each of which is good once. They end with the
/// process: who has an old one is asked again.
#[derive(Debug)]
pub(crate) struct Confirmations {
    key: Key,
    /// Confirmations that were used, each with its period.
    used: Mutex<BTreeMap<String, u64>>,
}

impl Confirmations {
    pub(crate) fn new() -> Self {
        let mut key = [0; KEY_BYTES];
        random::fill(&mut key);
        Self { key: Key::new(HMAC_SHA256, &key), used: Mutex::default() }
    }

    /// For one thing that one credential wants to do.
    pub(crate) fn make(&self, credential: &str, what: &str) -> String {
        let mut unique = [0; UNIQUE_BYTES];
        random::fill(&mut unique);
        self.at(period(), &unique, credential, what)
    }

    /// Whether it is one, which it is not again.
    pub(crate) fn use_up(&self, said: &str, credential: &str, what: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(said) else { return false };
        let Some((unique, _)) = bytes.split_at_checked(UNIQUE_BYTES) else { return false };
        let now = period();
        let is_known = [now, now.saturating_sub(1)].into_iter().any(|period| {
            let good = self.at(period, unique, credential, what);
            verify_slices_are_equal(good.as_bytes(), said.as_bytes()).is_ok()
        });
        if !is_known {
            return false;
        }
        let mut used = self.used.lock();
        // Older confirmations are not valid any more, so they need not be remembered.
        used.retain(|_, period| *period + 1 >= now);
        used.insert(said.to_owned(), now).is_none()
    }

    fn at(&self, period: u64, unique: &[u8], credential: &str, what: &str) -> String {
        let shown = URL_SAFE_NO_PAD.encode(unique);
        let tag = sign(&self.key, format!("{period}\n{shown}\n{credential}\n{what}").as_bytes());
        shown + &URL_SAFE_NO_PAD.encode(&tag.as_ref()[..TAG_BYTES])
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
        assert!(!confirmations.use_up(&said, "key_2", "delete br_1"));
        assert!(!confirmations.use_up(&said, "key_1", "delete br_2"));
        assert!(!confirmations.use_up("", "key_1", "delete br_1"));
        assert!(!confirmations.use_up("_", "key_1", "delete br_1"));
        assert!(!Confirmations::new().use_up(&said, "key_1", "delete br_1"));
        assert!(confirmations.use_up(&said, "key_1", "delete br_1"), "others have not used it up");
    }

    #[test]
    fn a_confirmation_is_good_once_and_the_same_thing_is_confirmed_anew() {
        let confirmations = Confirmations::new();
        let [first, second] = [(); 2].map(|()| confirmations.make("key_1", "delete br_1"));
        assert_ne!(first, second);
        for said in [first, second] {
            assert!(confirmations.use_up(&said, "key_1", "delete br_1"));
            assert!(!confirmations.use_up(&said, "key_1", "delete br_1"));
        }
    }

    #[test]
    fn a_confirmation_ends() {
        let confirmations = Confirmations::new();
        let old = confirmations.at(period() - 2, &[7; UNIQUE_BYTES], "key_1", "delete br_1");
        assert!(!confirmations.use_up(&old, "key_1", "delete br_1"));
    }
}

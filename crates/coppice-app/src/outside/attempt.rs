//! One attempt to sign in, as the browser carries it there and back.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chrono::{DateTime, TimeDelta, Utc};
use coppice_oauth::random;
use serde::{Deserialize, Serialize};

use super::error::{OutsideError, Result};

/// Clocks may differ by this.
const SKEW: TimeDelta = TimeDelta::seconds(30);
/// How long a person may take at the provider.
pub(super) const PATIENCE: TimeDelta = TimeDelta::minutes(10);

/// What must be remembered between the way there and the way back. It is to be
/// kept where only the same browser brings it again, and sealed.
#[derive(Clone, Deserialize, Serialize)]
pub struct OutsideAttempt {
    /// Comes back in the answer's address.
    pub(super) state: String,
    /// Comes back inside the signed answer.
    pub(super) nonce: String,
    /// Shows the provider that who began redeems.
    pub(super) verifier: String,
    began: DateTime<Utc>,
    /// Whether the provider was to ask who they are even if it knew.
    #[serde(default)]
    pub(super) anew: bool,
    /// Path and query where the person goes on afterwards.
    pub then: String,
}

impl OutsideAttempt {
    /// A new attempt, after which the person goes on at `then`.
    pub(super) fn begin(then: &str, anew: bool) -> Self {
        let (state, nonce, verifier) = (random::secret(), random::secret(), random::secret());
        Self { state, nonce, verifier, began: Utc::now(), anew, then: then.to_owned() }
    }

    /// Whether the provider asked who they are, as it says when it did so last
    /// (in seconds). That it was told to is no proof: the person's browser
    /// carries the question there.
    pub(super) fn was_asked(&self, auth_time: Option<f64>) -> bool {
        let earliest = (self.began - SKEW).timestamp() as f64;
        self.anew && auth_time.is_some_and(|time| time >= earliest)
    }

    /// Names the attempt among those of the same browser.
    pub fn label(state: &str) -> Option<&str> {
        state
            .get(..8)
            .filter(|label| label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'))
    }

    /// This attempt's label.
    pub fn own_label(&self) -> &str {
        &self.state[..8]
    }

    /// How long an attempt lives, in seconds.
    pub fn lifetime_seconds() -> i64 {
        PATIENCE.num_seconds()
    }

    /// The challenge that goes with the verifier (RFC 7636, `S256`).
    pub(super) fn challenge(&self) -> String {
        BASE64.encode(digest::digest(&digest::SHA256, self.verifier.as_bytes()))
    }

    /// Whether an answer with this state, arriving now, is of this attempt.
    pub(super) fn check(&self, state: &str, now: DateTime<Utc>) -> Result<()> {
        if verify_slices_are_equal(self.state.as_bytes(), state.as_bytes()).is_err() {
            return Err(OutsideError::Foreign("the state is another one".to_owned()));
        }
        if now < self.began - TimeDelta::minutes(1) || now > self.began + PATIENCE {
            return Err(OutsideError::Foreign("the attempt has expired".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_attempt_with_its_state_for_ten_minutes() {
        let (attempt, other) = (OutsideAttempt::begin("/", false), OutsideAttempt::begin("/", false));
        let now = Utc::now();
        assert!(attempt.check(&attempt.state, now).is_ok());
        assert!(attempt.check(&attempt.state, now + TimeDelta::minutes(9)).is_ok());
        for (state, time) in
            [(&other.state, now), (&attempt.state, now + TimeDelta::minutes(11)), (&String::new(), now)]
        {
            assert!(matches!(attempt.check(state, time), Err(OutsideError::Foreign(_))));
        }
    }

    #[test]
    fn the_challenge_is_the_one_of_the_standard() {
        let attempt = OutsideAttempt {
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned(),
            ..OutsideAttempt::begin("/", false)
        };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_person_was_asked_when_the_provider_was_told_to_and_says_that_it_did() {
        let now = Utc::now().timestamp() as f64;
        for (anew, auth_time, was_asked) in [
            (true, Some(now), true),
            (true, Some(now - 20.0), true),
            (true, Some(now - 40.0), false),
            (true, None, false),
            (false, Some(now), false),
        ] {
            let attempt = OutsideAttempt::begin("/", anew);
            assert_eq!(attempt.was_asked(auth_time), was_asked, "{anew} {auth_time:?}");
        }
    }

    #[test]
    fn a_label_can_be_part_of_a_name() {
        let attempt = OutsideAttempt::begin("/", false);
        assert_eq!(OutsideAttempt::label(&attempt.state), Some(attempt.own_label()));
        assert_eq!(OutsideAttempt::label("short"), None);
        assert_eq!(OutsideAttempt::label("a=b; c=d;"), None);
    }
}

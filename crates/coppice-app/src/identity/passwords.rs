//! Passwords: Argon2id, away from the threads that serve requests.

use std::time::Duration;

use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use coppice_core::{Error, Result};
use coppice_turns::{Turns, do_holding};
use zeroize::Zeroizing;

use super::line::Line;

/// Fewest characters of a password.
pub const PASSWORD_MIN: usize = 10;
/// Most characters of a password.
pub const PASSWORD_MAX: usize = 256;
/// Memory that one check takes, in KiB: a guess costs an attacker as much.
const MEMORY_KIB: u32 = 32 << 10;
const PASSES: u32 = 2;
/// Checks at the same time; the others wait.
const CHECKS_MAX: usize = 4;
/// For so long.
const PATIENCE: Duration = Duration::from_secs(10);

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).expect("parameters within bounds");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Checks that a password may be used, and hashes it. Takes a while.
///
/// # Errors
/// `invalid_field` when it is too short or too long.
pub fn hash_password(password: &str) -> Result<String> {
    let length = password.chars().count();
    if !(PASSWORD_MIN..=PASSWORD_MAX).contains(&length) {
        let why = format!("must have {PASSWORD_MIN} to {PASSWORD_MAX} characters");
        return Err(Error::invalid_field("password", why));
    }
    let hash = argon2().hash_password(password.as_bytes()).map_err(Error::internal)?;
    Ok(hash.to_string())
}

/// Checks passwords. Of one source one is checked at a time, however many come from there.
#[derive(Debug)]
pub(crate) struct Passwords {
    sources: Turns<String>,
    line: Line,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { sources: Turns::of_each(1), line: Line::new(CHECKS_MAX) }
    }
}

/// What is checked where there is no password, so that it takes as long: the
/// parameters of all hashes with random bytes for the rest.
const NOBODYS: &str =
    "$argon2id$v=19$m=32768,t=2,p=1$x3HtuAk7uBRgZoGs8DtmzQ$twpgstDhHm4fQB1xCrHEMs0G/1mIZVQnrq+D3RHlhB8";

impl Passwords {
    async fn run<T: Send + 'static>(
        &self,
        from: Option<&str>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let waiting = async {
            let turn = match from {
                Some(from) => Some(self.sources.take(&from.to_owned()).await),
                None => None,
            };
            (turn, self.line.take().await)
        };
        let held = tokio::time::timeout(PATIENCE, waiting).await;
        let held = held.map_err(|_| Error::unavailable("too many passwords are being checked"))?;
        do_holding(held, work).await.map_err(Error::internal)
    }

    /// Whether `password`, which comes from somewhere, is the one that `hash` was made
    /// from; without a hash it is not, which takes as long to find out.
    ///
    /// # Errors
    /// `unavailable` when it has to wait for too long.
    pub(super) async fn verify(
        &self,
        password: Zeroizing<String>,
        hash: Option<String>,
        from: &str,
    ) -> Result<bool> {
        self.run(Some(from), move || {
            let known = hash.as_deref().unwrap_or(NOBODYS);
            let is_right = argon2().verify_password(password.as_bytes(), known).is_ok();
            is_right && hash.is_some()
        })
        .await
    }

    /// See [`hash_password`].
    pub(crate) async fn hash(&self, password: Zeroizing<String>) -> Result<String> {
        self.run(None, move || hash_password(&password)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_is_known_again_and_no_other_is() {
        let passwords = Passwords::default();
        let hash = passwords.hash(text("correct horse")).await.expect("a hash");
        assert!(hash.starts_with("$argon2id$v=19$m=32768,t=2,p=1$"), "{hash}");
        assert!(passwords.verify(text("correct horse"), Some(hash.clone()), "here").await.expect("checked"));
        assert!(!passwords.verify(text("Correct horse"), Some(hash), "here").await.expect("checked"));
    }

    #[tokio::test]
    async fn without_a_password_none_is_right_and_as_much_is_computed() {
        let passwords = Passwords::default();
        assert!(!passwords.verify(text(""), None, "here").await.expect("checked"));
        let kind = |hash: &str| hash.rsplitn(3, '$').nth(2).map(str::to_owned);
        let real = passwords.hash(text("correct horse")).await.expect("a hash");
        assert_eq!(kind(NOBODYS), kind(&real), "change it with the parameters");
        assert!(argon2::password_hash::phc::PasswordHash::new(NOBODYS).is_ok());
    }

    #[tokio::test]
    async fn who_goes_away_frees_no_place_before_the_work_ends() {
        let passwords = Passwords::default();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let work = passwords.run(None, move || {
            begun.send(()).expect("somebody waits for it");
            may_end.recv().expect("the word to end");
        });
        tokio::select! {
            biased;
            ended = work => panic!("it ended by itself: {ended:?}"),
            _ = has_begun => {}
        }
        // By now who waited has gone.
        assert_eq!(passwords.line.free(), CHECKS_MAX - 1);
        end.send(()).expect("the work listens");
        let all = async {
            let mut all = vec![];
            for _ in 0..CHECKS_MAX {
                all.push(passwords.line.take().await);
            }
        };
        let all = tokio::time::timeout(Duration::from_secs(60), all).await;
        assert!(all.is_ok(), "the place stays taken");
    }

    #[tokio::test]
    async fn a_password_has_10_to_256_characters() {
        let passwords = Passwords::default();
        for (length, is_fine) in [(9, false), (10, true), (256, true), (257, false)] {
            let outcome = passwords.hash(text(&"ä".repeat(length))).await;
            assert_eq!(outcome.is_ok(), is_fine, "{length}");
        }
    }
}

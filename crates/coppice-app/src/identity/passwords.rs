//! Passwords: Argon2id, away from the threads that serve requests.

use std::time::Duration;

use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use coppice_core::audit::RequestOrigin;
use coppice_core::organization::Holder;
use coppice_core::{Error, Result, UserId, network};
use coppice_turns::{PartedTurns, Turn, Turns, do_holding};
use zeroize::Zeroizing;

use super::line::{Line, Place};

/// Fewest characters of a password.
pub const PASSWORD_MIN: usize = 10;
/// Most characters of a password.
pub const PASSWORD_MAX: usize = 256;
/// Memory that one check takes, in KiB: a guess costs an attacker as much.
const MEMORY_KIB: u32 = 32 << 10;
const PASSES: u32 = 2;
/// Checks at the same time, of strangers and of those who were here before.
const STRANGERS_MAX: usize = 3;
const KNOWN_MAX: usize = 1;
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

/// Whoever has a password checked, or made.
#[derive(Debug)]
pub(crate) enum Asker {
    /// Somebody who is signed in, or signs in from where they did before: who answers for the account, and the account.
    /// From wherever it is one, for addresses cost nothing.
    Known(String, String),
    /// Anybody else, by the network that they come from.
    Stranger(String),
}

impl Asker {
    pub(crate) fn known(holder: &Holder, user: &UserId) -> Self {
        Self::Known(holder.as_str().to_owned(), user.as_str().to_owned())
    }

    pub(crate) fn stranger(origin: &RequestOrigin) -> Self {
        Self::Stranger(origin.address.map(|address| network::site(address).to_string()).unwrap_or_default())
    }
}

/// Checks passwords. Of one network one is checked at a time, however many come from there, and
/// strangers never take all places. Of who was here before, one is checked at a time of those for whom the same one
/// answers, by turns of their accounts.
#[derive(Debug)]
pub(crate) struct Passwords {
    accounts: PartedTurns<String>,
    known: Turns<String>,
    networks: Turns<String>,
    line: Line,
}

/// A place in which a password is checked.
#[derive(Debug)]
enum Held {
    Known { _of_account: Turn<String>, _turn: Turn<String> },
    Stranger { _turn: Turn<String>, _place: Place },
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            accounts: PartedTurns::of_each(KNOWN_MAX),
            known: Turns::new(KNOWN_MAX, KNOWN_MAX),
            networks: Turns::of_each(1),
            line: Line::new(STRANGERS_MAX),
        }
    }
}

/// What is checked where there is no password, so that it takes as long: the
/// parameters of all hashes with random bytes for the rest.
const NOBODYS: &str =
    "$argon2id$v=19$m=32768,t=2,p=1$x3HtuAk7uBRgZoGs8DtmzQ$twpgstDhHm4fQB1xCrHEMs0G/1mIZVQnrq+D3RHlhB8";

impl Passwords {
    async fn run<T: Send + 'static>(
        &self,
        asker: &Asker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let waiting = async {
            match asker {
                Asker::Known(holder, account) => Held::Known {
                    _of_account: self.accounts.take(holder, account).await,
                    _turn: self.known.take(holder).await,
                },
                Asker::Stranger(network) => {
                    let turn = self.networks.take(network).await;
                    Held::Stranger { _turn: turn, _place: self.line.take().await }
                }
            }
        };
        let held = tokio::time::timeout(PATIENCE, waiting).await;
        let held = held.map_err(|_| Error::unavailable("too many passwords are being checked"))?;
        do_holding(held, work).await.map_err(Error::internal)
    }

    /// Whether `password` is the one that `hash` was made
    /// from; without a hash it is not, which takes as long to find out.
    ///
    /// # Errors
    /// `unavailable` when it has to wait for too long.
    pub(super) async fn verify(
        &self,
        password: Zeroizing<String>,
        hash: Option<String>,
        asker: &Asker,
    ) -> Result<bool> {
        self.run(asker, move || {
            let known = hash.as_deref().unwrap_or(NOBODYS);
            let is_right = argon2().verify_password(password.as_bytes(), known).is_ok();
            is_right && hash.is_some()
        })
        .await
    }

    /// See [`hash_password`].
    pub(crate) async fn hash(&self, password: Zeroizing<String>, asker: &Asker) -> Result<String> {
        self.run(asker, move || hash_password(&password)).await?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn text(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    fn here() -> Asker {
        Asker::Stranger("192.0.2.0".to_owned())
    }

    #[tokio::test]
    async fn strangers_keep_nobody_waiting_who_was_here_before() {
        let passwords = Passwords::default();
        let mut held = vec![];
        for _ in 0..STRANGERS_MAX {
            held.push(passwords.line.take().await);
        }
        let known = asker("usr_1", "usr_1");
        let checked = tokio::time::timeout(Duration::from_secs(60), passwords.verify(text(""), None, &known));
        assert!(!checked.await.expect("it has a place of its own").expect("checked"));
        let asker = here();
        let mut stranger = std::pin::pin!(passwords.verify(text(""), None, &asker));
        assert!(futures_util::poll!(&mut stranger).is_pending());
        drop(held);
        assert!(!stranger.await.expect("checked"));
    }

    fn asker(holder: &str, account: &str) -> Asker {
        Asker::known(&Holder::from_trusted(holder), &UserId::from_trusted(account))
    }

    #[tokio::test]
    async fn nobody_who_was_here_before_waits_for_more_than_one_of_those_that_somebody_else_asks_for() {
        let passwords = Passwords::default();
        let (others, own) =
            (["usr_2", "usr_3"].map(|one| asker("guests of usr_1", one)), asker("usr_4", "usr_4"));
        let third = asker("guests of usr_1", "usr_5");
        let checked = Arc::new(parking_lot::Mutex::new(vec![]));
        let check = async |who: &Asker, name: &'static str| {
            let checked = checked.clone();
            passwords.run(who, move || checked.lock().push(name)).await.expect("it is checked");
        };
        let held = passwords.known.take(&"somebody".to_owned()).await;
        let mut many: Vec<_> = (0..40).map(|at| Box::pin(check(&others[at % 2], "other"))).collect();
        for one in &mut many {
            assert!(futures_util::poll!(one).is_pending());
        }
        let mut later = [Box::pin(check(&own, "own")), Box::pin(check(&third, "third"))];
        for one in &mut later {
            assert!(futures_util::poll!(one).is_pending());
        }
        drop(held);
        futures_util::future::join(
            futures_util::future::join_all(many),
            futures_util::future::join_all(later),
        )
        .await;
        let checked = checked.lock().clone();
        let place = |name: &str| checked.iter().position(|found| *found == name).expect("it was checked");
        assert!(place("own") <= 2 && place("third") <= 6, "{checked:?}");
    }

    #[tokio::test]
    async fn a_password_is_known_again_and_no_other_is() {
        let passwords = Passwords::default();
        let hash = passwords.hash(text("correct horse"), &here()).await.expect("a hash");
        assert!(hash.starts_with("$argon2id$v=19$m=32768,t=2,p=1$"), "{hash}");
        assert!(passwords.verify(text("correct horse"), Some(hash.clone()), &here()).await.expect("checked"));
        assert!(!passwords.verify(text("Correct horse"), Some(hash), &here()).await.expect("checked"));
    }

    #[tokio::test]
    async fn without_a_password_none_is_right_and_as_much_is_computed() {
        let passwords = Passwords::default();
        assert!(!passwords.verify(text(""), None, &here()).await.expect("checked"));
        let kind = |hash: &str| hash.rsplitn(3, '$').nth(2).map(str::to_owned);
        let real = passwords.hash(text("correct horse"), &here()).await.expect("a hash");
        assert_eq!(kind(NOBODYS), kind(&real), "change it with the parameters");
        assert!(argon2::password_hash::phc::PasswordHash::new(NOBODYS).is_ok());
    }

    #[tokio::test]
    async fn who_goes_away_frees_no_place_before_the_work_ends() {
        let (passwords, asker) = (Passwords::default(), here());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let work = passwords.run(&asker, move || {
            begun.send(()).expect("somebody waits for it");
            may_end.recv().expect("the word to end");
        });
        tokio::select! {
            biased;
            ended = work => panic!("it ended by itself: {ended:?}"),
            _ = has_begun => {}
        }
        // By now who waited has gone.
        assert_eq!(passwords.line.free(), STRANGERS_MAX - 1);
        end.send(()).expect("the work listens");
        let all = async {
            let mut all = vec![];
            for _ in 0..STRANGERS_MAX {
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
            let outcome = passwords.hash(text(&"ä".repeat(length)), &here()).await;
            assert_eq!(outcome.is_ok(), is_fine, "{length}");
        }
    }
}

//! People's passwords: kept as Argon2id hashes (RFC 9106).
//!
//! A hash takes tens of megabytes and milliseconds on purpose, so it is made
//! off the async threads, and only so many at once as there are CPUs: whoever
//! tries passwords waits, and nobody else does.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use coppice_core::organization::User;
use coppice_core::{Error, Result, UserId};
use coppice_store::StoreError;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::App;
use crate::secrets::new_password;

/// Fewest and most characters of a password.
const CHARACTERS: std::ops::RangeInclusive<usize> = 10..=256;

/// Makes and checks hashes of passwords.
#[derive(Debug)]
pub struct Passwords {
    running: Arc<Semaphore>,
    /// Of a password that nobody knows: what is compared where there is none.
    nobodys: tokio::sync::OnceCell<String>,
}

impl Default for Passwords {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self { running: Arc::new(Semaphore::new(cpus)), nobodys: Default::default() }
    }
}

/// Whether a text may be a password: 10 to 256 characters.
///
/// # Errors
/// `invalid_field` saying what it has to be.
pub fn check_password(password: &str) -> Result<()> {
    if CHARACTERS.contains(&password.chars().count()) {
        return Ok(());
    }
    let (least, most) = (CHARACTERS.start(), CHARACTERS.end());
    Err(Error::invalid("invalid_field", format!("invalid password: must have {least} to {most} characters")))
}

impl Passwords {
    /// Hashes a password, as a PHC string.
    ///
    /// # Errors
    /// `internal_error`
    pub async fn hash(&self, password: Zeroizing<String>) -> Result<String> {
        self.run(move || {
            let hash = Argon2::default().hash_password(password.as_bytes());
            hash.map(|hash| hash.to_string()).map_err(|error| internal(&error))
        })
        .await
    }

    /// Whether a password is the one that `hash` was made of. Without a hash
    /// the answer is no, after the same time.
    ///
    /// # Errors
    /// `internal_error` when the hash is none.
    pub async fn verify(&self, password: Zeroizing<String>, hash: Option<&str>) -> Result<bool> {
        let nobodys = self.nobodys.get_or_try_init(|| self.hash(new_password())).await?;
        let (hash, is_somebodys) = (hash.unwrap_or(nobodys).to_owned(), hash.is_some());
        self.run(move || {
            let hash = PasswordHash::new(&hash).map_err(|error| internal(&error))?;
            let is_right = Argon2::default().verify_password(password.as_bytes(), &hash).is_ok();
            Ok(is_right && is_somebodys)
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let permit = self.running.clone().acquire_owned().await.map_err(|error| internal(&error))?;
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))?
    }
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("hashing a password: {error}"))
}

impl App {
    /// Makes and checks hashes of passwords.
    pub fn passwords(&self) -> &Passwords {
        &self.passwords
    }

    /// Gives a person another password and ends their sessions.
    ///
    /// # Errors
    /// `invalid_field` when it can't be a password.
    pub async fn set_password(&self, user: &UserId, password: Zeroizing<String>) -> Result<()> {
        check_password(&password)?;
        let hash = self.passwords.hash(password).await?;
        let mut tx = self.store.begin().await?;
        self.store.user_set_password_in_tx(&mut tx, user, &hash).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// The person with this email address, with any case of letters, if the
    /// password is theirs and they may sign in.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn user_with_password(&self, email: &str, password: Zeroizing<String>) -> Result<Option<User>> {
        let account = self.store.user_find_by_email(email).await?;
        let hash = account.as_ref().and_then(|account| account.password.as_deref());
        let is_right = self.passwords.verify(password, hash).await?;
        Ok(account.filter(|account| is_right && !account.is_disabled).map(|account| account.user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn only_the_right_password_is_right() {
        let passwords = Passwords::default();
        let hash = passwords.hash(text("correct horse")).await.unwrap();
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert_ne!(hash, passwords.hash(text("correct horse")).await.unwrap());
        assert!(passwords.verify(text("correct horse"), Some(&hash)).await.unwrap());
        assert!(!passwords.verify(text("correct horsf"), Some(&hash)).await.unwrap());
        assert!(!passwords.verify(text("correct horse"), None).await.unwrap());
        assert!(passwords.verify(text("correct horse"), Some("no hash")).await.is_err());
    }

    #[test]
    fn characters_are_counted_and_not_bytes() {
        assert!(check_password(&"é".repeat(10)).is_ok());
        assert!(check_password(&"é".repeat(256)).is_ok());
        for wrong in ["".to_owned(), "é".repeat(9), "x".repeat(257)] {
            assert!(check_password(&wrong).is_err(), "{wrong}");
        }
    }
}

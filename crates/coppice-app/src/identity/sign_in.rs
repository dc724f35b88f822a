//! People at their browsers.

use chrono::{TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::{Error, Result, UserId, email};
use coppice_oauth::random;
use coppice_store::BrowserSession;
use zeroize::Zeroizing;

use super::attempts::{SIGN_IN, SIGN_INS, party};
use crate::{AccountEvent, AccountEventKind, App};

/// A browser session ends when it is not used for this long.
pub(super) const IDLE: TimeDelta = TimeDelta::hours(24);
/// A browser session ends after this long in any case.
pub const SESSION_LIFETIME: TimeDelta = TimeDelta::days(14);
/// Longest address that is looked up.
const EMAIL_MAX: usize = 254;

/// How an attempt to sign in ended.
pub enum SignIn {
    /// Signed in; what the browser is to keep.
    Done(Zeroizing<String>),
    /// There is no such account, or the password is another one.
    Wrong,
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Done",
            Self::Wrong => "Wrong",
            Self::TooOften(_) => "TooOften",
        })
    }
}

/// How an attempt to change a password ended.
#[derive(Clone, Debug)]
pub enum PasswordChange {
    /// Changed; every other session has ended.
    Done,
    /// The password until now is another one.
    Wrong,
    /// The new one can't be used; why.
    Unusable(String),
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
}

impl App {
    /// Signs somebody in who knows an address and its password.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn sign_in(
        &self,
        email: &str,
        password: Zeroizing<String>,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<SignIn> {
        let email = email.trim();
        match self.check_password(email, password, origin).await {
            Ok(Some(user)) => Ok(SignIn::Done(self.begin_browser_session(&user, origin, replaced).await?)),
            Ok(None) => Ok(SignIn::Wrong),
            Err(Error::TooMany { retry_after_seconds, .. }) => Ok(SignIn::TooOften(retry_after_seconds)),
            Err(error) => Err(error),
        }
    }

    /// Who has this address and password. Takes as long for addresses that
    /// nobody has.
    async fn check_password(
        &self,
        email: &str,
        password: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<Option<UserId>> {
        let from = origin.address.map(party).unwrap_or_default();
        let who = format!("{} {from}", email::folded(email));
        // Counted before the check, so that attempts at the same time count too.
        self.count_attempt(SIGN_INS, &from).await?;
        self.count_attempt(SIGN_IN, &who).await?;
        let is_possible = email.len() <= EMAIL_MAX && password.chars().count() <= super::PASSWORD_MAX;
        let found = if is_possible { self.store.user_sign_in(email).await? } else { None };
        let hash = found.as_ref().and_then(|found| found.password.clone());
        let password = if is_possible { password } else { Zeroizing::default() };
        let is_right = self.identity.passwords.verify(password, hash).await?;
        let Some(found) = found else { return Ok(None) };
        let user = UserId::from_trusted(found.id);
        if !is_right || found.disabled {
            // Addresses that somebody has would else take longer.
            self.note_account_event_later(AccountEventKind::SignInFailed, user, origin);
            return Ok(None);
        }
        self.take_attempt_back(SIGN_INS, &from).await?;
        self.take_attempt_back(SIGN_IN, &who).await?;
        Ok(Some(user))
    }

    /// Signs somebody in who showed otherwise who they are; returns what the
    /// browser is to keep. What it kept until now ends.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn begin_browser_session(
        &self,
        user: &UserId,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<Zeroizing<String>> {
        let secret = Zeroizing::new(random::secret());
        let replaced = replaced.map(|replaced| replaced.id_hash.as_str());
        let hash = self.key.hash(&secret);
        self.store.browser_session_insert(&hash, user, Utc::now() + SESSION_LIFETIME, replaced).await?;
        self.note_account_event(&AccountEvent::new(AccountEventKind::SignedIn, user, origin)).await;
        Ok(secret)
    }

    /// The session of a browser that kept this.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn browser_session(&self, secret: &str) -> Result<Option<BrowserSession>> {
        // Everything else was made up.
        if secret.len() != random::SECRET_LENGTH {
            return Ok(None);
        }
        Ok(self.store.browser_session_find(&self.key.hash(secret), IDLE).await?)
    }

    /// Signs a browser out, and the clients that end with it.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn sign_out(&self, session: &BrowserSession, origin: &RequestOrigin) -> Result<()> {
        self.store.browser_session_end(&session.id_hash).await?;
        let event = AccountEvent::new(AccountEventKind::SignedOut, &session.user, origin);
        self.note_account_event(&event).await;
        Ok(())
    }

    /// The text that shows that a form for `purpose` was made by us, for this
    /// browser and this session of it.
    pub fn form_token(&self, browser: &str, session: Option<&BrowserSession>, purpose: &str) -> String {
        let session = session.map_or("", |session| session.id_hash.as_str());
        self.key.form_token(&[browser, session, purpose])
    }

    /// Changes a person's own password. Every session of theirs ends but this one.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn change_password(
        &self,
        session: &BrowserSession,
        current: Zeroizing<String>,
        new: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<PasswordChange> {
        match self.check_password(&session.email, current, origin).await {
            Ok(Some(user)) if user == session.user => {}
            Ok(_) => return Ok(PasswordChange::Wrong),
            Err(Error::TooMany { retry_after_seconds, .. }) => {
                return Ok(PasswordChange::TooOften(retry_after_seconds));
            }
            Err(error) => return Err(error),
        }
        match self.set_password(session, new, origin).await {
            Ok(()) => Ok(PasswordChange::Done),
            Err(Error::Invalid { public, .. }) => Ok(PasswordChange::Unusable(public)),
            Err(error) => Err(error),
        }
    }

    /// The hash of a password that is to be kept.
    ///
    /// # Errors
    /// `invalid_field` when it can't be one.
    pub async fn hash_off_thread(&self, password: Zeroizing<String>) -> Result<String> {
        self.identity.passwords.hash(password).await
    }

    /// Sets a person's own password without asking for the one until now. Every
    /// session of theirs ends but this one.
    ///
    /// # Errors
    /// `invalid_field` when it can't be one.
    pub async fn set_password(
        &self,
        session: &BrowserSession,
        new: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<()> {
        let hash = self.hash_off_thread(new).await?;
        self.store.user_set_password(&session.user, &hash, Some(&session.id_hash)).await?;
        let event = AccountEvent::new(AccountEventKind::PasswordChanged, &session.user, origin);
        self.note_account_event(&event).await;
        Ok(())
    }
}

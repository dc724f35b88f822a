//! People at their browsers.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::authentication::Methods;
use coppice_core::{Error, ErrorCode, Result, UserId, email};
use coppice_oauth::random;
use coppice_store::{BrowserSession, NewBrowserSession, OldPassword, Renewed, Tx};
use zeroize::Zeroizing;

use super::Identity;
use super::passwords::Asker;
use crate::attempts::{SIGN_IN, SIGN_INS, source};
use crate::users::check_not_from_vercel;
use crate::{AccountEvent, AccountEventKind};

/// A browser session ends when it is not used for this long.
pub(super) const IDLE: TimeDelta = TimeDelta::hours(24);
/// A browser session ends after this long in any case.
pub const SESSION_LIFETIME: TimeDelta = TimeDelta::days(14);
/// Who changes how they sign in, or does in the console what can't be undone, has shown
/// within this time who they are.
const RECENT: TimeDelta = TimeDelta::minutes(15);
/// Whether a sign-in at this time counts as recent.
pub(super) fn is_recent(asked_at: DateTime<Utc>) -> bool {
    Utc::now() - asked_at < RECENT
}

/// Longest address that is looked up.
const EMAIL_MAX: usize = 254;

/// How an attempt to sign in ended.
pub enum SignIn {
    /// Signed in; what the browser is to keep.
    Done(Zeroizing<String>),
    /// The second factor is to be shown next; what the browser is to keep until
    /// then.
    Half(Zeroizing<String>),
    /// There is no such account, or the password is another one.
    Wrong,
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Done",
            Self::Half(_) => "Half",
            Self::Wrong => "Wrong",
            Self::TooOften(_) => "TooOften",
        })
    }
}

/// How an attempt to change a password ended.
pub enum PasswordChange {
    /// Changed; every other session has ended. What the browser is to keep of this one from now on.
    Done(Zeroizing<String>),
    /// The password until now is another one.
    Wrong,
    /// There is none until now, and it is too long ago that the person showed
    /// who they are.
    Stale,
    /// The new one can't be used; why.
    Unusable(String),
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
}

impl std::fmt::Debug for PasswordChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Done",
            Self::Wrong => "Wrong",
            Self::Stale => "Stale",
            Self::Unusable(_) => "Unusable",
            Self::TooOften(_) => "TooOften",
        })
    }
}

/// Somebody whose password was found to be right.
pub(super) struct Known {
    pub(super) user: UserId,
    /// What it was compared with.
    password: String,
}

/// Somebody who showed who they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) user: &'a UserId,
    /// See [`NewBrowserSession::password`].
    pub(super) password: Option<&'a str>,
    /// Whether they were asked just now.
    pub(super) was_asked: bool,
    /// How.
    pub(super) methods: &'a Methods,
}

impl Identity {
    /// Signs somebody in who knows an address and its password.
    pub async fn sign_in(
        &self,
        email: &str,
        password: Zeroizing<String>,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<SignIn> {
        let email = email.trim();
        let known = match self.check_password(email, password, origin).await {
            Ok(Some(known)) => known,
            Ok(None) => return Ok(SignIn::Wrong),
            Err(Error::TooMany { retry_after_seconds, .. }) => {
                return Ok(SignIn::TooOften(retry_after_seconds));
            }
            Err(error) => return Err(error),
        };
        // Checking takes a while, in which another password may have been set.
        let shown = Shown {
            user: &known.user,
            password: Some(&known.password),
            was_asked: true,
            methods: &Methods::password(),
        };
        self.go_on(shown, origin, replaced).await
    }

    /// Who has this address and password. Takes as long for addresses that
    /// nobody has.
    pub(super) async fn check_password(
        &self,
        email: &str,
        password: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<Option<Known>> {
        let from = origin.address.map(source).unwrap_or_default();
        let who = format!("{} {from}", email::folded(email));
        // Counted before the check, so that attempts at the same time count too.
        self.attempts.count(SIGN_INS, &from).await?;
        self.attempts.count(SIGN_IN, &who).await?;
        let is_possible = email.len() <= EMAIL_MAX && password.chars().count() <= super::PASSWORD_MAX;
        let found = if is_possible { self.store.user_find_by_email(email).await? } else { None };
        let hash = found.as_ref().and_then(|found| found.password.clone());
        let password = if is_possible { password } else { Zeroizing::default() };
        let is_known =
            is_possible && self.store.sign_in_source_is_known(email, &self.key.hash(&from)).await?;
        let asker = match &found {
            Some(found) if is_known => self.known_asker(&found.user.id).await?,
            _ => Asker::stranger(origin),
        };
        let is_right = match self.passwords.verify(password, hash, &asker).await {
            Ok(is_right) => is_right,
            Err(error) => {
                // Nothing was tried.
                self.attempts.take_back(SIGN_INS, &from).await?;
                self.attempts.take_back(SIGN_IN, &who).await?;
                return Err(error);
            }
        };
        let Some(found) = found else { return Ok(None) };
        let user = found.user.id;
        if !is_right || found.is_disabled {
            let kind = match is_right {
                true => AccountEventKind::SignInDisabled,
                false => AccountEventKind::SignInFailed,
            };
            // Addresses that somebody has would else take longer.
            self.audit.note_account_later(kind, user, origin);
            return Ok(None);
        }
        self.attempts.take_back(SIGN_INS, &from).await?;
        self.attempts.take_back(SIGN_IN, &who).await?;
        self.store.sign_in_source_note(&user, &self.key.hash(&from)).await?;
        Ok(found.password.map(|password| Known { user, password }))
    }

    async fn known_asker(&self, user: &UserId) -> Result<Asker> {
        let holder = self.store.user_holder(user).await?;
        Ok(holder.map_or_else(|| Asker::Stranger(String::new()), |holder| Asker::known(&holder, user)))
    }

    /// Signs somebody in who showed otherwise who they are, and `was_asked` to
    /// do so just now or not. What the browser kept until now ends.
    ///
    /// # Errors
    /// `invalid_token` when the account is disabled or gone by now.
    pub async fn begin_browser_session(
        &self,
        user: &UserId,
        was_asked: bool,
        methods: &Methods,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<SignIn> {
        let shown = Shown { user, password: None, was_asked, methods };
        match self.go_on(shown, origin, replaced).await? {
            SignIn::Wrong => Err(Error::Unauthenticated { code: ErrorCode::InvalidToken }),
            begun => Ok(begun),
        }
    }

    /// Signs somebody in, or asks first for the second factor that they have.
    /// `Wrong` when the account is disabled or gone, or has another password.
    async fn go_on(
        &self,
        shown: Shown<'_>,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<SignIn> {
        let is_half = !shown.methods.has_second_factor() && self.has_second_factor(shown.user).await?;
        if is_half {
            return Ok(self.begin_half(shown).await?.map_or(SignIn::Wrong, SignIn::Half));
        }
        let mut tx = self.store.begin().await?;
        let Some(secret) = self.begin_in_browser(&mut tx, shown, replaced).await? else {
            return Ok(SignIn::Wrong);
        };
        tx.commit().await?;
        self.audit.note_account(&AccountEvent::new(AccountEventKind::SignedIn, shown.user, origin)).await;
        Ok(SignIn::Done(secret))
    }

    /// None when the account is disabled or gone, has another password, or a
    /// second factor that was not shown.
    pub(super) async fn begin_in_browser(
        &self,
        tx: &mut Tx,
        shown: Shown<'_>,
        replaced: Option<&BrowserSession>,
    ) -> Result<Option<Zeroizing<String>>> {
        let secret = Zeroizing::new(random::secret());
        let new = NewBrowserSession {
            id_hash: &self.key.hash(&secret),
            user: shown.user,
            password: shown.password,
            was_asked: shown.was_asked,
            methods: shown.methods,
            expires_at: Utc::now() + SESSION_LIFETIME,
            replaced: replaced.map(|replaced| replaced.id_hash.as_str()),
        };
        let is_begun = self.store.browser_session_insert_in_tx(tx, &new).await?;
        Ok(is_begun.then_some(secret))
    }

    /// The session of a browser that kept this.
    pub async fn browser_session(&self, secret: &str) -> Result<Option<BrowserSession>> {
        // Everything else was made up.
        if secret.len() != random::SECRET_LENGTH {
            return Ok(None);
        }
        Ok(self.store.browser_session_find(&self.key.hash(secret), IDLE).await?)
    }

    /// Signs a browser out, and the clients that end with it.
    pub async fn sign_out(&self, session: &BrowserSession, origin: &RequestOrigin) -> Result<()> {
        self.store.browser_session_end(&session.id_hash).await?;
        let event = AccountEvent::new(AccountEventKind::SignedOut, &session.user, origin);
        self.audit.note_account(&event).await;
        Ok(())
    }

    /// The text that shows that a form for `purpose` was made by us, for this
    /// browser and this session of it.
    pub fn form_token(&self, browser: &str, session: Option<&BrowserSession>, purpose: &str) -> String {
        let session = session.map_or("", |session| session.id_hash.as_str());
        self.key.form_token(&[browser, session, purpose])
    }

    /// Changes a person's own password. Every session of theirs ends but this one.
    pub async fn change_password(
        &self,
        session: &BrowserSession,
        current: Zeroizing<String>,
        new: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<PasswordChange> {
        let known = match self.check_password(&session.email, current, origin).await {
            Ok(Some(known)) if known.user == session.user => known,
            Ok(_) => return Ok(PasswordChange::Wrong),
            Err(Error::TooMany { retry_after_seconds, .. }) => {
                return Ok(PasswordChange::TooOften(retry_after_seconds));
            }
            Err(error) => return Err(error),
        };
        self.replace_password(session, Some(&known.password), new, origin).await
    }

    /// Whether a person signed in not long ago, whether or not they were asked then who they are.
    pub fn signed_in_lately(&self, session: &BrowserSession) -> bool {
        is_recent(session.signed_in_at)
    }

    /// Whether a person may set a first password or a second factor, or let in what goes on without the browser.
    /// Whoever finds a browser signed in must not be able to keep the account.
    pub fn was_just_asked(&self, session: &BrowserSession) -> bool {
        session.was_asked && is_recent(session.signed_in_at)
    }

    /// Gives a person a password who has none yet, as who comes from the
    /// outside provider. Every session of theirs ends but this one.
    ///
    /// # Errors
    /// `role_not_allowed` for who comes from Vercel.
    pub async fn set_first_password(
        &self,
        session: &BrowserSession,
        new: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<PasswordChange> {
        if !self.was_just_asked(session) {
            return Ok(PasswordChange::Stale);
        }
        check_not_from_vercel(&self.store, &session.user).await?;
        self.replace_password(session, None, new, origin).await
    }

    async fn replace_password(
        &self,
        session: &BrowserSession,
        old_hash: Option<&str>,
        new: Zeroizing<String>,
        origin: &RequestOrigin,
    ) -> Result<PasswordChange> {
        let asker = self.known_asker(&session.user).await?;
        let hash = match self.passwords.hash(new, &asker).await {
            Ok(hash) => hash,
            Err(Error::Invalid { public, .. }) => return Ok(PasswordChange::Unusable(public)),
            Err(error) => return Err(error),
        };
        let secret = Zeroizing::new(random::secret());
        let (old, new) = (OldPassword::Exactly(old_hash), self.key.hash(&secret));
        let renewed = Renewed { old: &session.id_hash, new: &new };
        if !self.store.user_set_password(&session.user, &hash, old, Some(renewed)).await? {
            return Ok(PasswordChange::Wrong);
        }
        let event = AccountEvent::new(AccountEventKind::PasswordChanged, &session.user, origin);
        self.audit.note_account(&event).await;
        Ok(PasswordChange::Done(secret))
    }

    /// Whether a user has a password. Who came from the outside provider has
    /// none at first.
    pub async fn has_password(&self, user: &UserId) -> Result<bool> {
        Ok(self.store.user_has_password(user).await?)
    }
}

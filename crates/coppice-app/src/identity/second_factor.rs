//! The second factor: adding it, showing it after the first, removing it.

use chrono::{TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::authentication::Methods;
use coppice_core::{Error, Result, UserId};
use coppice_oauth::{random, totp};
use coppice_store::{
    AddedFactor, Addition, BrowserSession, HalfSignIn, NewHalfSignIn, NewSecondFactor, SecondFactor, Tx,
};
use zeroize::Zeroizing;

use super::Identity;
use super::RecoveryCodes;
use super::proofs::{Evidence, Judged, Proof};
use super::sign_in::Shown;
use crate::attempts::SECOND_FACTOR;
use crate::{AccountEvent, AccountEventKind};

/// How long somebody may take to show the second factor after the first.
pub const HALF_LIFETIME: TimeDelta = TimeDelta::minutes(10);

/// What an app is given to make codes with.
pub struct NewFactor {
    /// The secret, as base32.
    pub secret: Zeroizing<String>,
    /// The same with the name of the account, as apps read it from a picture.
    pub address: Zeroizing<String>,
}

impl std::fmt::Debug for NewFactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewFactor")
    }
}

/// How an attempt to show the second factor ended.
pub enum SecondStep {
    /// Signed in; what the browser is to keep.
    Done(Zeroizing<String>),
    /// This is no code, or it was used before.
    Wrong,
    /// It is too late, or the account has changed: begin again.
    Over,
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
    /// Too many wrong codes of the app, from wherever; seconds until it counts
    /// again, unless a recovery code is shown.
    CodesPaused(u32),
}

/// How an attempt to add a second factor ended.
pub enum Enrolment {
    /// Added, and there was none before. Every session until now has ended.
    First {
        /// What helps who loses their phone.
        codes: RecoveryCodes,
        /// What the browser is to keep: its new session.
        secret: Zeroizing<String>,
    },
    /// Added to what there was.
    Another,
    /// The app shows other codes; or this is no new passkey.
    Wrong,
    /// It is too long ago that the person showed who they are, or there can't be
    /// another one.
    Stale,
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
}

/// How an attempt to get other recovery codes ended.
pub enum NewRecoveryCodes {
    /// These are good, and those before are not.
    Done(RecoveryCodes),
    /// This is no code, or it was used before.
    Wrong,
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
    /// See [`SecondStep::CodesPaused`].
    CodesPaused(u32),
}

/// How an attempt to remove the second factor ended.
#[derive(Clone, Copy, Debug)]
pub enum SecondFactorRemoval {
    /// Removed. Every session has ended.
    Done,
    /// This is not the password.
    WrongPassword,
    /// This is no code or passkey, or it was used before.
    WrongProof,
    /// There is no password, and it is too long ago that the person showed who
    /// they are.
    Stale,
    /// Too many attempts; seconds until the next one makes sense.
    TooOften(u32),
    /// See [`SecondStep::CodesPaused`].
    CodesPaused(u32),
}

macro_rules! shows_no_secret {
    ($($kind:ident: $($variant:ident)|+;)+) => {
        $(impl std::fmt::Debug for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::TooOften(seconds) => write!(f, "TooOften({seconds})"),
                    $(Self::$variant { .. } => f.write_str(stringify!($variant)),)+
                }
            }
        })+
    };
}

shows_no_secret! {
    SecondStep: Done | Wrong | Over | CodesPaused;
    Enrolment: First | Another | Wrong | Stale;
    NewRecoveryCodes: Done | Wrong | CodesPaused;
}

impl Identity {
    /// A person's second factor, if they have one.
    pub async fn second_factor(&self, user: &UserId) -> Result<Option<SecondFactor>> {
        Ok(self.store.second_factor_find(user).await?)
    }

    pub(super) async fn has_second_factor(&self, user: &UserId) -> Result<bool> {
        Ok(self.second_factor(user).await?.is_some())
    }

    /// What an app is given for a person with this address. It counts when they
    /// have shown a code of it; `secret` is what it is made of, if it was made.
    ///
    /// # Errors
    /// When the secret is none.
    pub fn new_factor(&self, email: &str, secret: Option<&str>) -> Result<NewFactor> {
        let secret = secret.map_or_else(totp::generate, |secret| Zeroizing::new(secret.to_owned()));
        let address = totp::address(&secret, email).map_err(Error::internal)?;
        Ok(NewFactor { secret, address })
    }

    /// Adds an authenticator app whose `secret` was made for this session, for
    /// who shows a code of it.
    pub async fn add_second_factor(
        &self,
        session: &BrowserSession,
        secret: &str,
        typed: &str,
        origin: &RequestOrigin,
    ) -> Result<Enrolment> {
        if let Some(refusal) = self.refuse_enrolment(session, origin).await? {
            return Ok(refusal);
        }
        let step = totp::step_of(secret, typed, Utc::now()).map_err(Error::internal)?;
        let Some(step) = step else { return Ok(Enrolment::Wrong) };
        let sealed = self.key.seal(session.user.as_str(), secret);
        let factor = AddedFactor::Totp { sealed: &sealed, step };
        self.enrol(session, factor, session.methods.clone().and_code(), origin).await
    }

    /// Why this session can't add a second factor now, if so. Asking counts as an
    /// attempt.
    pub(super) async fn refuse_enrolment(
        &self,
        session: &BrowserSession,
        origin: &RequestOrigin,
    ) -> Result<Option<Enrolment>> {
        if !self.was_just_asked(session) {
            return Ok(Some(Enrolment::Stale));
        }
        let pause = self.count_tries(&session.user, &[SECOND_FACTOR], origin).await?;
        Ok(pause.map(Enrolment::TooOften))
    }

    /// Adds a second factor that was shown just now, which makes the session one
    /// of these methods.
    pub(super) async fn enrol(
        &self,
        session: &BrowserSession,
        factor: AddedFactor<'_>,
        methods: Methods,
        origin: &RequestOrigin,
    ) -> Result<Enrolment> {
        let user = &session.user;
        let (codes, hashes) = self.new_recovery_codes(user);
        let new = NewSecondFactor { user, factor, recovery_codes: &hashes, session: &session.id_hash };
        let mut tx = self.store.begin().await?;
        let secret = match self.store.second_factor_add_in_tx(&mut tx, &new).await? {
            Addition::Refused => return Ok(Enrolment::Stale),
            Addition::Another => None,
            Addition::First => {
                let shown = Shown { user, password: None, was_asked: session.was_asked, methods: &methods };
                let begun = self.begin_in_browser(&mut tx, shown, None).await?;
                let Some(secret) = begun else { return Ok(Enrolment::Stale) };
                Some(secret)
            }
        };
        tx.commit().await?;
        self.take_tries_back(user, &[SECOND_FACTOR], origin).await?;
        let event = match factor {
            AddedFactor::Totp { .. } => AccountEvent::new(AccountEventKind::SecondFactorAdded, user, origin),
            AddedFactor::Passkey { id, .. } => {
                AccountEvent::new(AccountEventKind::PasskeyAdded, user, origin).about(id)
            }
        };
        self.audit.note_account(&event).await;
        Ok(secret.map_or(Enrolment::Another, |secret| Enrolment::First { codes, secret }))
    }

    /// Gives a person other recovery codes who shows their second factor.
    pub async fn renew_recovery_codes(
        &self,
        session: &BrowserSession,
        proof: Proof<'_>,
        origin: &RequestOrigin,
    ) -> Result<NewRecoveryCodes> {
        let user = &session.user;
        let shown = match self.judge(user, &session.id_hash, proof, origin).await? {
            Judged::Good(shown) => shown,
            Judged::Wrong => return Ok(NewRecoveryCodes::Wrong),
            Judged::TooOften(seconds) => return Ok(NewRecoveryCodes::TooOften(seconds)),
            Judged::CodesPaused(seconds) => return Ok(NewRecoveryCodes::CodesPaused(seconds)),
        };
        let (codes, hashes) = self.new_recovery_codes(user);
        let mut tx = self.store.begin().await?;
        if !self.store.second_factor_use_in_tx(&mut tx, user, shown.proof()).await? {
            return Ok(NewRecoveryCodes::Wrong);
        }
        self.check_goes_on(&mut tx, session).await?;
        self.store.recovery_codes_replace_in_tx(&mut tx, user, &hashes).await?;
        tx.commit().await?;
        self.note_use(user, &shown, origin).await?;
        self.audit.note_account(&AccountEvent::new(AccountEventKind::RecoveryCodesMade, user, origin)).await;
        Ok(NewRecoveryCodes::Done(codes))
    }

    /// Removes the second factor of a person who shows it and knows their
    /// password. Every session of theirs ends.
    pub async fn remove_second_factor(
        &self,
        session: &BrowserSession,
        password: Zeroizing<String>,
        proof: Proof<'_>,
        origin: &RequestOrigin,
    ) -> Result<SecondFactorRemoval> {
        let user = &session.user;
        if self.has_password(user).await? {
            match self.check_password(&session.email, password, origin).await {
                Ok(Some(known)) if known.user == *user => {}
                Ok(_) => return Ok(SecondFactorRemoval::WrongPassword),
                Err(Error::TooMany { retry_after_seconds, .. }) => {
                    return Ok(SecondFactorRemoval::TooOften(retry_after_seconds));
                }
                Err(error) => return Err(error),
            }
        } else if !self.was_just_asked(session) {
            return Ok(SecondFactorRemoval::Stale);
        }
        let shown = match self.judge(user, &session.id_hash, proof, origin).await? {
            Judged::Good(shown) => shown,
            Judged::Wrong => return Ok(SecondFactorRemoval::WrongProof),
            Judged::TooOften(seconds) => return Ok(SecondFactorRemoval::TooOften(seconds)),
            Judged::CodesPaused(seconds) => return Ok(SecondFactorRemoval::CodesPaused(seconds)),
        };
        let mut tx = self.store.begin().await?;
        if !self.store.second_factor_use_in_tx(&mut tx, user, shown.proof()).await? {
            return Ok(SecondFactorRemoval::WrongProof);
        }
        self.check_goes_on(&mut tx, session).await?;
        self.store.second_factor_remove_in_tx(&mut tx, user).await?;
        tx.commit().await?;
        self.note_use(user, &shown, origin).await?;
        let event = AccountEvent::new(AccountEventKind::SecondFactorRemoved, user, origin);
        self.audit.note_account(&event).await;
        Ok(SecondFactorRemoval::Done)
    }

    /// Lets somebody wait who is to show their second factor next; what the
    /// browser is to keep. None when the account is disabled or gone, or has
    /// another password.
    pub(super) async fn begin_half(&self, shown: Shown<'_>) -> Result<Option<Zeroizing<String>>> {
        let secret = Zeroizing::new(random::secret());
        let new = NewHalfSignIn {
            id_hash: &self.key.hash(&secret),
            user: shown.user,
            password: shown.password,
            was_asked: shown.was_asked,
            methods: shown.methods,
            expires_at: Utc::now() + HALF_LIFETIME,
        };
        Ok(self.store.half_sign_in_insert(&new).await?.then_some(secret))
    }

    /// The sign-in that waits for the second factor in a browser that kept this.
    pub async fn half_sign_in(&self, secret: &str) -> Result<Option<HalfSignIn>> {
        // Everything else was made up.
        if secret.len() != random::SECRET_LENGTH {
            return Ok(None);
        }
        Ok(self.store.half_sign_in_find(&self.key.hash(secret)).await?)
    }

    /// Signs somebody in who shows the second factor after the first.
    pub async fn finish_sign_in(
        &self,
        half: &HalfSignIn,
        proof: Proof<'_>,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<SecondStep> {
        let user = &half.user;
        let shown = match self.judge(user, &half.id_hash, proof, origin).await? {
            Judged::Good(shown) => shown,
            Judged::Wrong => {
                self.note_second_factor_failed(user, origin).await;
                return Ok(SecondStep::Wrong);
            }
            Judged::TooOften(seconds) => return Ok(SecondStep::TooOften(seconds)),
            Judged::CodesPaused(seconds) => return Ok(SecondStep::CodesPaused(seconds)),
        };
        let mut tx = self.store.begin().await?;
        if !self.store.second_factor_use_in_tx(&mut tx, user, shown.proof()).await? {
            drop(tx);
            self.note_second_factor_failed(user, origin).await;
            return Ok(SecondStep::Wrong);
        }
        let Some(secret) = self.begin_second(&mut tx, half, &shown, replaced).await? else {
            return Ok(SecondStep::Over);
        };
        tx.commit().await?;
        self.note_use(user, &shown, origin).await?;
        self.audit.note_account(&AccountEvent::new(AccountEventKind::SignedIn, user, origin)).await;
        Ok(SecondStep::Done(secret))
    }

    async fn begin_second(
        &self,
        tx: &mut Tx,
        half: &HalfSignIn,
        shown: &Evidence,
        replaced: Option<&BrowserSession>,
    ) -> Result<Option<Zeroizing<String>>> {
        if !self.store.half_sign_in_end_in_tx(tx, &half.id_hash).await? {
            return Ok(None);
        }
        let methods = match shown {
            Evidence::Passkey(_) => half.methods.clone().and_key(),
            Evidence::Totp { .. } | Evidence::Recovery { .. } => half.methods.clone().and_code(),
        };
        // Its password was compared when the waiting began, which another one ends.
        let shown = Shown { user: &half.user, password: None, was_asked: half.was_asked, methods: &methods };
        self.begin_in_browser(tx, shown, replaced).await
    }

    async fn note_second_factor_failed(&self, user: &UserId, origin: &RequestOrigin) {
        let event = AccountEvent::new(AccountEventKind::SecondFactorFailed, user, origin);
        self.audit.note_account(&event).await;
    }
}

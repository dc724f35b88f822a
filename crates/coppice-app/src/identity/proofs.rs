//! What shows that somebody has their second factor: a code of an
//! authenticator app, what a passkey has signed, or a recovery code for who has
//! lost those. Each is good once, and tries are counted.

use chrono::Utc;
use coppice_core::audit::RequestOrigin;
use coppice_core::{Error, Result, UserId};
use coppice_oauth::passkey::Signed;
use coppice_oauth::{recovery_code, totp};
use coppice_store::SecondProof;
use zeroize::Zeroizing;

use super::Identity;
use crate::attempts::{Bound, CODES, SECOND_FACTOR, source};
use crate::{AccountEvent, AccountEventKind};

/// What a person is shown once: codes of which each lets them in one time.
pub type RecoveryCodes = Vec<Zeroizing<String>>;

/// What a form brings to show a second factor.
#[derive(Clone, Copy)]
pub struct Proof<'a> {
    /// What was typed.
    pub code: &'a str,
    /// What the browser says that a passkey signed; empty when a code was typed.
    pub passkey: &'a str,
}

impl std::fmt::Debug for Proof<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proof")
    }
}

/// What was shown, in a form that it can be used up in.
pub(super) enum Evidence {
    Totp { sealed: Vec<u8>, step: i64 },
    Recovery { code_hash: String },
    Passkey(Signed),
}

impl Evidence {
    pub(super) fn proof(&self) -> SecondProof<'_> {
        match self {
            Self::Totp { sealed, step } => SecondProof::Totp { sealed, step: *step },
            Self::Recovery { code_hash } => SecondProof::Recovery { code_hash },
            Self::Passkey(Signed { before, after }) => {
                SecondProof::Passkey { id: &before.id, before: &before.credential, after }
            }
        }
    }
}

/// What was found out about what somebody showed.
pub(super) enum Judged {
    /// It is right; whether it was used before shows when it is used.
    Good(Evidence),
    Wrong,
    TooOften(u32),
    CodesPaused(u32),
}

impl Identity {
    /// Judges what somebody showed for their second factor in a browser that was
    /// asked as `holder`. It counts as an attempt until it is used.
    pub(super) async fn judge(
        &self,
        user: &UserId,
        holder: &str,
        proof: Proof<'_>,
        origin: &RequestOrigin,
    ) -> Result<Judged> {
        if let Some(seconds) = self.count_tries(user, &[SECOND_FACTOR], origin).await? {
            return Ok(Judged::TooOften(seconds));
        }
        if !proof.passkey.is_empty() {
            let signed = self.signed(holder, proof.passkey).await?;
            return Ok(signed.map_or(Judged::Wrong, |signed| Judged::Good(Evidence::Passkey(signed))));
        }
        if let Some(code) = recovery_code::parse(proof.code) {
            return Ok(Judged::Good(Evidence::Recovery { code_hash: self.recovery_hash(user, &code) }));
        }
        let factor = self.second_factor(user).await?;
        let Some(sealed) = factor.and_then(|factor| factor.totp_sealed) else { return Ok(Judged::Wrong) };
        if let Some(seconds) = self.count_tries(user, &[CODES], origin).await? {
            return Ok(Judged::CodesPaused(seconds));
        }
        let secret = self.key.open(user.as_str(), &sealed)?;
        let step = totp::step_of(&secret, proof.code, Utc::now()).map_err(Error::internal)?;
        Ok(step.map_or(Judged::Wrong, |step| Judged::Good(Evidence::Totp { sealed, step })))
    }

    /// Counts an attempt, before it is judged, so that attempts at the same
    /// time count too; how many seconds to wait if there were too many.
    pub(super) async fn count_tries(
        &self,
        user: &UserId,
        bounds: &[Bound],
        origin: &RequestOrigin,
    ) -> Result<Option<u32>> {
        for bound in bounds {
            match self.attempts.count(*bound, &who(*bound, user, origin)).await {
                Ok(()) => {}
                Err(Error::TooMany { retry_after_seconds, .. }) => return Ok(Some(retry_after_seconds)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(super) async fn take_tries_back(
        &self,
        user: &UserId,
        bounds: &[Bound],
        origin: &RequestOrigin,
    ) -> Result<()> {
        for bound in bounds {
            self.attempts.take_back(*bound, &who(*bound, user, origin)).await?;
        }
        Ok(())
    }

    /// After a proof was used up.
    pub(super) async fn note_use(
        &self,
        user: &UserId,
        shown: &Evidence,
        origin: &RequestOrigin,
    ) -> Result<()> {
        match shown {
            Evidence::Totp { .. } => self.take_tries_back(user, &[SECOND_FACTOR, CODES], origin).await,
            Evidence::Passkey(_) => self.take_tries_back(user, &[SECOND_FACTOR], origin).await,
            Evidence::Recovery { .. } => {
                let event = AccountEvent::new(AccountEventKind::RecoveryCodeUsed, user, origin);
                self.audit.note_account(&event).await;
                // Somebody else's guesses at the app's codes must not shut its owner out.
                self.attempts.forget(CODES, &who(CODES, user, origin)).await?;
                self.take_tries_back(user, &[SECOND_FACTOR], origin).await
            }
        }
    }

    /// Recovery codes as they are shown, and what is kept of them.
    pub(super) fn new_recovery_codes(&self, user: &UserId) -> (RecoveryCodes, Vec<String>) {
        let codes: Vec<_> = (0..recovery_code::COUNT).map(|_| recovery_code::generate()).collect();
        let hashes = codes.iter().map(|code| self.recovery_hash(user, code)).collect();
        (codes.iter().map(|code| Zeroizing::new(recovery_code::display(code))).collect(), hashes)
    }

    fn recovery_hash(&self, user: &UserId, code: &str) -> String {
        self.key.hash(&format!("recovery code of {user}: {code}"))
    }
}

/// Whose attempts are counted together.
fn who(bound: Bound, user: &UserId, origin: &RequestOrigin) -> String {
    match bound.kind == CODES.kind {
        true => user.to_string(),
        false => format!("{user} {}", origin.address.map(source).unwrap_or_default()),
    }
}

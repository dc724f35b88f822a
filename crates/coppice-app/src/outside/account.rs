//! From a person that the provider vouches for to an account.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chrono::Utc;
use coppice_core::audit::RequestOrigin;
use coppice_core::authentication::Methods;
use coppice_core::limits::PERSON_NAME_LENGTH_MAX;
use coppice_core::name::is_unseen;
use coppice_core::sign_up::SignUp;
use coppice_core::{Error, Result, UserId};
use coppice_store::{Holdings, Store, VerifiedUser};

use super::{OutsideAnswer, OutsideAttempt, OutsideError, OutsideIssuer, OutsidePerson, attempt};
use crate::attempts::{ARRIVAL, Attempts, Bound, source};
use crate::audit::Audit;
use crate::secrets::MasterKey;
use crate::{AccountEvent, AccountEventKind, AppConfig};

/// The owner that attempts are sealed for.
const OWNER: &str = "outside sign-in";

/// Answers to one attempt.
const OUTSIDE_ANSWER: Bound = Bound { kind: "outside answer", max: 1, span: attempt::PATIENCE };

/// The way to the provider.
#[derive(Debug)]
pub struct OutsideBeginning {
    /// Where to send the browser.
    pub address: String,
    /// Names the attempt among others of the same browser.
    pub label: String,
    /// What the browser has to bring back with that label, and nobody else
    /// may see; letters, digits, `-` and `_`.
    pub sealed: String,
}

/// Who came back.
#[derive(Clone, Debug)]
pub struct OutsideUser {
    /// Their account.
    pub user: UserId,
    /// Whether the provider asked just now who they are.
    pub was_asked: bool,
    /// How.
    pub methods: Methods,
    /// What let in whoever had made their account without showing that the address is theirs.
    pub taken: Option<Holdings>,
}

/// Why somebody who came back is not let in.
#[derive(Debug, thiserror::Error)]
pub enum OutsideRefusal {
    /// It is not certain who they are.
    #[error(transparent)]
    Provider(#[from] OutsideError),
    /// They have no account and may not get one.
    #[error("there is no account with this address, and none may be made")]
    NoAccount {
        /// The address that the provider vouches for.
        email: String,
        /// Whether it would get one if somebody invited it.
        may_be_invited: bool,
    },
    /// Their account must not be used.
    #[error("the account is disabled")]
    Disabled,
    /// A fault of ours.
    #[error(transparent)]
    Fault(#[from] Error),
}

/// Signing in at somebody else's provider.
#[derive(Clone)]
pub struct Outside {
    store: Store,
    key: Arc<MasterKey>,
    attempts: Attempts,
    audit: Audit,
    /// None when there is no provider.
    issuer: Option<Arc<OutsideIssuer>>,
    /// Who may get an account so.
    sign_up: SignUp,
}

impl Outside {
    pub(crate) fn new((store, key): (Store, Arc<MasterKey>), audit: Audit, config: &AppConfig) -> Self {
        let issuer = config.outside.clone().map(|issuer| {
            let redirect_uri = format!("{}/oauth/outside/callback", config.public_url);
            Arc::new(OutsideIssuer::new(issuer, redirect_uri))
        });
        let attempts = Attempts::new(store.clone(), key.clone());
        Self { store, key, attempts, audit, issuer, sign_up: config.sign_up }
    }

    /// What people know the outside provider as, if there is one.
    pub fn name(&self) -> Option<&str> {
        self.issuer.as_deref().map(OutsideIssuer::name)
    }

    /// Begins to sign somebody in at the outside provider, after which they go
    /// on at `then`, a path of ours. With `anew` it is to ask who they are even
    /// if it knows. None when there is no provider.
    ///
    /// # Errors
    /// When it does not describe itself.
    pub async fn begin(&self, then: &str, anew: bool) -> Result<Option<OutsideBeginning>, OutsideError> {
        let Some(issuer) = &self.issuer else { return Ok(None) };
        let (address, attempt) = issuer.begin(then, anew).await?;
        let label = attempt.own_label().to_owned();
        let text = serde_json::to_string(&attempt).map_err(super::error::broken)?;
        Ok(Some(OutsideBeginning { address, label, sealed: BASE64.encode(self.key.seal(OWNER, &text)) }))
    }

    /// The attempt that a browser brings back; none when it is not of this
    /// installation.
    pub fn attempt(&self, sealed: &str) -> Option<OutsideAttempt> {
        let bytes = BASE64.decode(sealed).ok()?;
        let text = self.key.open(OWNER, &bytes).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Who came back from an attempt. None when there is no provider.
    ///
    /// # Errors
    /// Why they are not let in.
    pub async fn finish(
        &self,
        attempt: &OutsideAttempt,
        answer: &OutsideAnswer,
        origin: &RequestOrigin,
    ) -> Result<Option<OutsideUser>, OutsideRefusal> {
        let Some(issuer) = &self.issuer else { return Ok(None) };
        let from = origin.address.map(source).unwrap_or_default();
        self.count(attempt, &from).await?;
        let person = issuer.complete(attempt, answer).await?;
        self.attempts.take_back(ARRIVAL, &from).await?;
        let (user, taken) = self.account_of(&person, origin).await?;
        let methods = Methods::outside(person.has_second_factor);
        Ok(Some(OutsideUser { user, was_asked: person.was_asked, methods, taken }))
    }

    /// Counts an answer to an attempt, which has one: anybody makes answers up, and the provider would be asked
    /// about each.
    async fn count(&self, attempt: &OutsideAttempt, from: &str) -> Result<(), OutsideRefusal> {
        self.attempts.count(ARRIVAL, from).await?;
        match self.attempts.count(OUTSIDE_ANSWER, &attempt.state).await {
            Err(Error::TooMany { .. }) => {
                Err(OutsideError::Foreign("the attempt was completed".to_owned()).into())
            }
            counted => Ok(counted?),
        }
    }

    /// Whether this address may get an account by showing that it is one's own.
    async fn may_sign_up(&self, email: &str) -> Result<bool> {
        match self.sign_up {
            SignUp::Open => Ok(true),
            SignUp::Off => Ok(false),
            SignUp::Invite => Ok(self.store.is_invited(email).await?),
        }
    }

    async fn account_of(
        &self,
        person: &OutsidePerson,
        origin: &RequestOrigin,
    ) -> Result<(UserId, Option<Holdings>), OutsideRefusal> {
        let new = UserId::generate(Utc::now());
        let name = display_name(&person.name);
        let may_be_made = self.may_sign_up(&person.email).await?;
        let found = self.store.user_by_verified_email(&new, &person.email, &name, may_be_made).await;
        match found.map_err(Error::from)? {
            VerifiedUser::Account(user) => Ok((user, None)),
            VerifiedUser::Made(user) => {
                tracing::info!(%user, "a person whom the outside provider vouches for has an account now");
                self.audit
                    .note_account(&AccountEvent::new(AccountEventKind::AccountMade, &user, origin))
                    .await;
                Ok((user, None))
            }
            VerifiedUser::Reclaimed(user, taken) => {
                tracing::warn!(
                    %user,
                    "an account of an address that nobody had verified is its owner's now: \
                     its password, sessions and keys are gone"
                );
                let event = AccountEvent::new(AccountEventKind::AccountReclaimed, &user, origin);
                self.audit.note_account(&event).await;
                Ok((user, Some(taken)))
            }
            VerifiedUser::Disabled => Err(OutsideRefusal::Disabled),
            VerifiedUser::Absent => Err(OutsideRefusal::NoAccount {
                email: person.email.clone(),
                may_be_invited: self.sign_up != SignUp::Off,
            }),
        }
    }
}

/// A name as accounts may have one.
pub(crate) fn display_name(text: &str) -> String {
    text.trim().chars().filter(|c| !is_unseen(*c)).take(PERSON_NAME_LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_made_to_fit() {
        assert_eq!(display_name(" Ada\n\u{7}Lovelace "), "AdaLovelace");
        assert_eq!(display_name("\u{202e}Ada\u{200b}\u{2066} Lovelace"), "Ada Lovelace");
        assert_eq!(display_name(&"é".repeat(200)).chars().count(), 128);
    }
}

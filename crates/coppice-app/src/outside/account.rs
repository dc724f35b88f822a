//! From a person that the provider vouches for to an account.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chrono::Utc;
use coppice_core::audit::RequestOrigin;
use coppice_core::authentication::Methods;
use coppice_core::limits::PERSON_NAME_LENGTH_MAX;
use coppice_core::name::is_unseen;
use coppice_core::sign_up::SignUp;
use coppice_core::{Error, Result, UserId};
use coppice_store::VerifiedUser;

use super::{OutsideAnswer, OutsideAttempt, OutsideError, OutsidePerson};
use crate::{AccountEvent, AccountEventKind, App};

/// The owner that attempts are sealed for.
const OWNER: &str = "outside sign-in";

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

impl App {
    /// What people know the outside provider as, if there is one.
    pub fn outside_name(&self) -> Option<&str> {
        self.outside.as_deref().map(super::OutsideIssuer::name)
    }

    /// Begins to sign somebody in at the outside provider, after which they go
    /// on at `then`, a path of ours. With `anew` it is to ask who they are even
    /// if it knows. None when there is no provider.
    ///
    /// # Errors
    /// When it does not describe itself.
    pub async fn begin_outside(
        &self,
        then: &str,
        anew: bool,
    ) -> Result<Option<OutsideBeginning>, OutsideError> {
        let Some(issuer) = &self.outside else { return Ok(None) };
        let (address, attempt) = issuer.begin(then, anew).await?;
        let label = attempt.own_label().to_owned();
        let text = serde_json::to_string(&attempt).map_err(super::error::broken)?;
        Ok(Some(OutsideBeginning { address, label, sealed: BASE64.encode(self.key.seal(OWNER, &text)) }))
    }

    /// The attempt that a browser brings back; none when it is not of this
    /// installation.
    pub fn outside_attempt(&self, sealed: &str) -> Option<OutsideAttempt> {
        let bytes = BASE64.decode(sealed).ok()?;
        let text = self.key.open(OWNER, &bytes).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Who came back from an attempt. None when there is no provider.
    ///
    /// # Errors
    /// Why they are not let in.
    pub async fn finish_outside(
        &self,
        attempt: &OutsideAttempt,
        answer: &OutsideAnswer,
        origin: &RequestOrigin,
    ) -> Result<Option<OutsideUser>, OutsideRefusal> {
        let Some(issuer) = &self.outside else { return Ok(None) };
        let person = issuer.complete(attempt, answer).await?;
        let user = self.account_of(&person, origin).await?;
        let methods = Methods::outside(person.has_second_factor);
        Ok(Some(OutsideUser { user, was_asked: person.was_asked, methods }))
    }

    /// Whether a user has a password. Who came from the outside provider has
    /// none at first.
    pub async fn has_password(&self, user: &UserId) -> Result<bool> {
        Ok(self.store.user_has_password(user).await?)
    }

    /// Whether this address may get an account by showing that it is one's own.
    async fn may_sign_up(&self, email: &str) -> Result<bool> {
        match self.config.sign_up {
            SignUp::Open => Ok(true),
            SignUp::Off => Ok(false),
            SignUp::Invite => Ok(self.store.is_invited(email).await?),
        }
    }

    async fn account_of(
        &self,
        person: &OutsidePerson,
        origin: &RequestOrigin,
    ) -> Result<UserId, OutsideRefusal> {
        let new = UserId::generate(Utc::now());
        let name = display_name(&person.name);
        let may_be_made = self.may_sign_up(&person.email).await?;
        let found = self.store.user_by_verified_email(&new, &person.email, &name, may_be_made).await;
        match found.map_err(Error::from)? {
            VerifiedUser::Account(user) => Ok(user),
            VerifiedUser::Made(user) => {
                tracing::info!(%user, "a person whom the outside provider vouches for has an account now");
                self.note_account_event(&AccountEvent::new(AccountEventKind::AccountMade, &user, origin))
                    .await;
                Ok(user)
            }
            VerifiedUser::Reclaimed(user) => {
                tracing::warn!(
                    %user,
                    "an account of an address that nobody had verified is its owner's now: \
                     its password, sessions and keys are gone"
                );
                let event = AccountEvent::new(AccountEventKind::AccountReclaimed, &user, origin);
                self.note_account_event(&event).await;
                Ok(user)
            }
            VerifiedUser::Disabled => Err(OutsideRefusal::Disabled),
            VerifiedUser::Absent => Err(OutsideRefusal::NoAccount {
                email: person.email.clone(),
                may_be_invited: self.config.sign_up != SignUp::Off,
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

//! Passkeys: what browsers are asked, and what people have.

use chrono::{TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::{Error, Result, UserId};
use coppice_oauth::passkey::{NotAccepted, Passkey, Question, Signed, Site};
use coppice_oauth::random;
use coppice_store::{AddedFactor, BrowserSession, PASSKEYS_MAX, PasskeyRemoval, PasskeyRow, Renewed};
use serde_json::Value;
use zeroize::Zeroizing;

use super::Identity;
use super::second_factor::Enrolment;
use crate::{AccountEvent, AccountEventKind};

/// How long a browser may take to answer.
const QUESTION_LIFETIME: TimeDelta = TimeDelta::minutes(10);

/// How an attempt to remove a passkey ended.
pub enum PasskeyRemoved {
    /// Removed. Every other session has ended. What the browser is to keep of this one from now on.
    Done(Zeroizing<String>),
    /// There is none.
    Absent,
    /// It is the only second factor.
    Last,
    /// It is too long ago that the person showed who they are.
    Stale,
}

impl std::fmt::Debug for PasskeyRemoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "Done",
            Self::Absent => "Absent",
            Self::Last => "Last",
            Self::Stale => "Stale",
        })
    }
}

impl Identity {
    /// Whether browsers have passkeys for this installation, which depends on
    /// its public URL.
    pub fn has_passkeys(&self) -> bool {
        self.site.is_some()
    }

    /// A person's passkeys, the first one first.
    pub async fn passkeys(&self, user: &UserId) -> Result<Vec<PasskeyRow>> {
        Ok(self.store.passkey_list(user).await?)
    }

    /// What a browser is to ask a device for another passkey with; none where
    /// there are none, or a person has as many as they may.
    pub async fn ask_for_passkey(&self, session: &BrowserSession) -> Result<Option<Value>> {
        let Some(site) = &self.site else { return Ok(None) };
        let have = self.kept_passkeys(&session.user).await?;
        if have.len() >= PASSKEYS_MAX {
            return Ok(None);
        }
        let asked = site.ask_for_new(session.user.as_str(), &session.email, &have);
        self.ask(&session.id_hash, asked.map_err(Error::internal)?).await.map(Some)
    }

    /// Adds the passkey that a browser answers with, which the person calls
    /// `name`.
    pub async fn add_passkey(
        &self,
        session: &BrowserSession,
        name: &str,
        answer: &str,
        origin: &RequestOrigin,
    ) -> Result<Enrolment> {
        if let Some(refusal) = self.refuse_enrolment(session, origin).await? {
            return Ok(refusal);
        }
        let answered = self.answered(&session.id_hash, |site, kept| site.new_passkey(kept, answer)).await?;
        let Some(passkey) = answered else { return Ok(Enrolment::Wrong) };
        let factor = AddedFactor::Passkey { id: &passkey.id, name, credential: &passkey.credential };
        self.enrol(session, factor, session.methods.clone().and_key(), origin).await
    }

    /// Removes a passkey of a person who has another second factor.
    pub async fn remove_passkey(
        &self,
        session: &BrowserSession,
        id: &str,
        origin: &RequestOrigin,
    ) -> Result<PasskeyRemoved> {
        let user = &session.user;
        if !self.was_just_asked(session) {
            return Ok(PasskeyRemoved::Stale);
        }
        let secret = Zeroizing::new(random::secret());
        let new = self.key.hash(&secret);
        let renewed = Renewed { old: &session.id_hash, new: &new };
        let mut tx = self.store.begin().await?;
        match self.store.passkey_remove_in_tx(&mut tx, user, id, renewed).await? {
            PasskeyRemoval::Done => {}
            PasskeyRemoval::Absent => return Ok(PasskeyRemoved::Absent),
            PasskeyRemoval::Last => return Ok(PasskeyRemoved::Last),
        }
        self.check_lives(&mut tx, user, &new).await?;
        tx.commit().await?;
        let event = AccountEvent::new(AccountEventKind::PasskeyRemoved, user, origin).about(id);
        self.audit.note_account(&event).await;
        Ok(PasskeyRemoved::Done(secret))
    }

    /// What a browser is to ask a device to sign; none where the person has no
    /// passkey. `holder` is the hash of what the browser keeps.
    pub async fn ask_to_sign(&self, user: &UserId, holder: &str) -> Result<Option<Value>> {
        let Some(site) = &self.site else { return Ok(None) };
        let have = self.kept_passkeys(user).await?;
        if have.is_empty() {
            return Ok(None);
        }
        self.ask(holder, site.ask_to_sign(have).map_err(Error::internal)?).await.map(Some)
    }

    /// The passkey that a browser answered with, which was asked as this
    /// holder; none when it is none of those, or was not asked now.
    pub(super) async fn signed(&self, holder: &str, answer: &str) -> Result<Option<Signed>> {
        self.answered(holder, |site, kept| site.signed(kept, answer)).await
    }

    /// Reads the answer to what this holder was asked, once; none when nothing
    /// was asked, or it is no answer to that.
    async fn answered<T>(
        &self,
        holder: &str,
        read: impl FnOnce(&Site, Value) -> Result<T, NotAccepted>,
    ) -> Result<Option<T>> {
        let Some(site) = &self.site else { return Ok(None) };
        let Some(kept) = self.store.passkey_question_take(holder).await? else { return Ok(None) };
        Ok(read(site, kept).inspect_err(|refused| tracing::info!("{refused}")).ok())
    }

    async fn kept_passkeys(&self, user: &UserId) -> Result<Vec<Passkey>> {
        let rows = self.store.passkey_list(user).await?;
        Ok(rows.into_iter().map(|row| Passkey { id: row.id, credential: row.credential }).collect())
    }

    async fn ask(&self, holder: &str, question: Question) -> Result<Value> {
        let end = Utc::now() + QUESTION_LIFETIME;
        self.store.passkey_question_keep(holder, &question.kept, end).await?;
        Ok(question.options)
    }
}

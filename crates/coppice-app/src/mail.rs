//! Sending the letters that were promised.
//!
//! A letter is a row that is written together with what it is about, so it is
//! neither forgotten by a crash nor sent for something that did not happen. It
//! is sent at least once: a crash right after sending sends it again, with the
//! same message id. What it says is put together when it is sent.

use std::sync::Arc;
use std::time::Duration;

use coppice_core::budget::{BudgetCovers, USED_UP};
use coppice_core::id::random_text;
use coppice_core::limits::{INVITATIONS_PER_ADDRESS_AND_DAY_MAX, LETTERS_PER_ADDRESS_AND_DAY_MAX};
use coppice_core::mail::{BudgetNews, MailContent};
use coppice_core::{InvitationId, OrganizationId, Result};
use coppice_failpoint::failpoint;
use coppice_mail::{Letter, MailError, Mailer};
use coppice_store::{DueMail, Store, Tx};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use crate::invitations::links::InvitationLinks;
use crate::turns::by_turns;

/// How long sending one letter may take; then somebody else may try.
const LEASE_SECONDS: u32 = 300;
const _: () = assert!(coppice_mail::SENDING_MAX.as_secs() < LEASE_SECONDS as u64);
/// Letters that are sent at the same time: of all holders, and of one. How long one takes may be up to whom it is for:
/// some servers ask theirs before they take it.
const AT_ONCE: (u32, u32) = (4, 1);
/// How often due letters are looked for.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// Pause after the first failure; it doubles with each one.
const FIRST_PAUSE_SECONDS: u32 = 5;
const PAUSE_SECONDS_MAX: u32 = 3600;
/// About fifteen hours.
const ATTEMPTS_MAX: u32 = 24;

/// Letters.
#[derive(Clone)]
pub struct Mail {
    store: Store,
    /// How they are sent, if they are.
    mailer: Option<Mailer>,
    links: InvitationLinks,
    /// See [`crate::AppConfig::public_url`].
    public_url: String,
    /// Says that there is something to be sent.
    nudge: Arc<Notify>,
}

impl Mail {
    pub(crate) fn new(
        store: Store,
        mailer: Option<Mailer>,
        links: InvitationLinks,
        public_url: String,
    ) -> Self {
        Self { store, mailer, links, public_url, nudge: Arc::default() }
    }

    /// To be notified when a letter was promised.
    pub(crate) fn nudge(&self) -> &Arc<Notify> {
        &self.nudge
    }

    /// Whether there is a mail server.
    pub(crate) fn is_sent(&self) -> bool {
        self.mailer.is_some()
    }

    /// Sends what is due.
    pub(crate) async fn send(&self, task: &'static str) -> Result<()> {
        let Some(mailer) = &self.mailer else { return Ok(()) };
        let claim = |room| self.store.mail_claim(room, LEASE_SECONDS);
        by_turns(task, AT_ONCE, claim, |due| self.send_due(mailer, due)).await
    }

    /// Promises a letter, if letters are sent at all.
    pub(crate) async fn promise_in_tx(&self, tx: &mut Tx, content: &MailContent) -> Result<()> {
        match &self.mailer {
            None => Ok(()),
            Some(_) => Ok(self.store.mail_insert_in_tx(tx, &random_text(), content).await?),
        }
    }

    /// Sends one letter.
    async fn send_due(&self, mailer: &Mailer, due: DueMail) -> Result<()> {
        let letter = match self.letter(&due).await {
            Ok(None) => return Ok(self.store.mail_delete(&due.id).await?),
            Ok(Some(letter)) => match self.must_wait(&due, &letter).await? {
                Some(pause) => return Ok(self.store.mail_put_off(&due.id, pause).await?),
                None => Ok(letter),
            },
            // The right secret.key may be put back meanwhile.
            Err(error) => Err(MailError::Later(format!("it can't be put together: {}", error.for_log()))),
        };
        failpoint!("mail.claimed");
        let (what, attempts) = (&due.content, due.attempts);
        let sent = match letter {
            Ok(letter) => mailer.send(&letter).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => {
                failpoint!("mail.sent");
                self.store.mail_delete(&due.id).await?;
            }
            Err(MailError::Later(why)) if attempts < ATTEMPTS_MAX => {
                let pause = pause_seconds(attempts);
                tracing::warn!("the mail of {what} was not sent, trying again in {pause} s: {why}");
                self.store.mail_postpone(&due.id, pause).await?;
            }
            Err(error) => {
                tracing::warn!("the mail of {what} is given up after {attempts} attempts: {error}");
                self.store.mail_delete(&due.id).await?;
            }
        }
        Ok(())
    }

    /// For how many seconds an address gets no more letters from organizations of one holder, however many those
    /// are. One that goes out is counted, also where its server refuses it.
    async fn must_wait(&self, due: &DueMail, letter: &Letter) -> Result<Option<u32>> {
        if due.attempts > 1 {
            return Ok(None);
        }
        let (organization, max) = match &due.content {
            MailContent::Invitation { organization, .. } => {
                (organization, INVITATIONS_PER_ADDRESS_AND_DAY_MAX)
            }
            MailContent::BudgetReached(news) => (&news.organization, LETTERS_PER_ADDRESS_AND_DAY_MAX),
        };
        let wait = self.store.letter_wait(&letter.to, organization, max).await?;
        if wait.is_none() {
            self.store.letter_note(&letter.to, organization).await?;
        }
        Ok(wait)
    }

    /// What is sent; none when nobody wants it any more.
    async fn letter(&self, due: &DueMail) -> Result<Option<Letter>> {
        match &due.content {
            MailContent::Invitation { organization, invitation } => {
                self.letter_of_invitation(&due.id, organization, invitation).await
            }
            MailContent::BudgetReached(news) => self.letter_of_budget(&due.id, news).await,
        }
    }

    async fn letter_of_invitation(
        &self,
        id: &str,
        organization: &OrganizationId,
        invitation: &InvitationId,
    ) -> Result<Option<Letter>> {
        let record = self.store.invitation_find(organization, invitation).await?;
        let Some(record) = record.filter(|record| record.invitation.is_pending) else { return Ok(None) };
        let Some(name) = self.store.organization_name(organization).await? else { return Ok(None) };
        let ends = record.invitation.expires_at.format("%-d %B %Y, %H:%M UTC");
        Ok(Some(Letter {
            to: record.invitation.email.clone(),
            // Whoever invites says what the organization is called, and whom.
            subject: "Invitation to an organization".to_owned(),
            before: vec![format!(
                "You are invited to the organization “{name}” with the role {}.",
                record.invitation.role.as_str()
            )],
            link: ("Accept the invitation".to_owned(), self.links.mailed(&record)?),
            after: vec![
                format!("The link is for you alone and works until {ends}."),
                "If you did not expect this, ignore it: nothing happens then.".to_owned(),
            ],
            id: id.to_owned(),
        }))
    }

    /// For whoever can still raise the budget.
    async fn letter_of_budget(&self, id: &str, news: &BudgetNews) -> Result<Option<Letter>> {
        let BudgetNews { organization, threshold, limit, unit, month, .. } = news;
        let Some(to) = self.store.member_admin_address(organization, &news.to).await? else {
            return Ok(None);
        };
        let Some(name) = self.store.organization_name(organization).await? else { return Ok(None) };
        let (_, budgets) = self.store.budget_list(organization).await?;
        let named = budgets.into_iter().find(|budget| budget.subject == news.subject);
        let subject = named.and_then(|budget| budget.name).unwrap_or_else(|| news.subject.clone());
        let whose = match news.covers {
            BudgetCovers::Organization => format!("the organization “{name}”"),
            covers => format!("the {} “{subject}” of the organization “{name}”", covers.as_str()),
        };
        let follows = match *threshold {
            USED_UP => {
                "The branches that it covers are put to sleep, and nothing wakes them before there is more. Nothing is \
                 deleted."
            }
            _ => {
                "At 100 % the branches that it covers are put to sleep until there is more. Nothing is deleted."
            }
        };
        let place = format!("{}/console/orgs/{organization}/usage", self.public_url);
        Ok(Some(Letter {
            to,
            // Whoever sets it says what the organization is called.
            subject: format!("{threshold} % of a budget are used up"),
            before: vec![
                format!("{threshold} % of the budget of {whose}, {limit} {unit} for {month}, are used up."),
                follows.to_owned(),
            ],
            link: ("Look at the usage".to_owned(), Zeroizing::new(place)),
            after: vec![
                "There you can raise the budget, or by `coppice budget set`. It begins anew with the next month in UTC."
                    .to_owned(),
                "You get this as somebody who may, once for each part of a budget.".to_owned(),
            ],
            id: id.to_owned(),
        }))
    }
}

fn pause_seconds(attempts: u32) -> u32 {
    let doublings = attempts.saturating_sub(1).min(16);
    FIRST_PAUSE_SECONDS.saturating_mul(1 << doublings).min(PAUSE_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_an_hour() {
        let pauses: Vec<_> = [1, 2, 3, 10, 11, 24, u32::MAX].map(pause_seconds).into();
        assert_eq!(pauses, [5, 10, 20, 2560, 3600, 3600, 3600]);
    }
}

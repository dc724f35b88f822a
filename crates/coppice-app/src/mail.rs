//! Sending the letters that were promised.
//!
//! A letter is a row that is written together with what it is about, so it is
//! neither forgotten by a crash nor sent for something that did not happen. It
//! is sent at least once: a crash right after sending sends it again, with the
//! same message id. What it says is put together when it is sent.

use std::time::Duration;

use coppice_core::Result;
use coppice_failpoint::failpoint;
use coppice_mail::{Letter, MailError, Mailer};
use coppice_store::{DueMail, InvitationRecord};

use crate::App;
use crate::metrics::{task_begun, task_succeeded};

/// How long sending one letter may take; then somebody else may try.
const LEASE_SECONDS: u32 = 300;
/// How often due letters are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// Pause after the first failure; it doubles with each one.
const FIRST_PAUSE_SECONDS: u32 = 5;
const PAUSE_SECONDS_MAX: u32 = 3600;
/// About fifteen hours.
const ATTEMPTS_MAX: u32 = 24;

impl App {
    /// Sends letters for ever, if there is a mail server.
    pub async fn send_mails(&self) {
        let Some(mailer) = self.config.mailer.clone() else { return };
        task_begun("mail", LOOK);
        loop {
            match self.send_due_mail(&mailer).await {
                Ok(true) => task_succeeded("mail"),
                Ok(false) => {
                    task_succeeded("mail");
                    let _ = tokio::time::timeout(LOOK, self.mail_nudge.notified()).await;
                }
                Err(error) => {
                    tracing::warn!("looking for mail to send: {}", error.for_log());
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Sends one letter; false when none is due.
    async fn send_due_mail(&self, mailer: &Mailer) -> Result<bool> {
        let Some(due) = self.store.mail_claim(LEASE_SECONDS).await? else { return Ok(false) };
        if !due.invitation.is_pending {
            self.store.mail_delete(&due.id).await?;
            return Ok(true);
        }
        failpoint!("mail.claimed");
        let (id, attempts) = (&due.invitation.id, due.attempts);
        let sent = match self.letter(&due) {
            Ok(letter) => mailer.send(&letter).await,
            // The right secret.key may be put back meanwhile.
            Err(error) => Err(MailError::Later(format!("it can't be put together: {}", error.for_log()))),
        };
        match sent {
            Ok(()) => {
                failpoint!("mail.sent");
                self.store.mail_delete(&due.id).await?;
            }
            Err(MailError::Later(why)) if attempts < ATTEMPTS_MAX => {
                let pause = pause_seconds(attempts);
                tracing::warn!("the mail of invitation {id} was not sent, trying again in {pause} s: {why}");
                self.store.mail_postpone(&due.id, pause).await?;
            }
            Err(error) => {
                tracing::warn!("the mail of invitation {id} is given up after {attempts} attempts: {error}");
                self.store.mail_delete(&due.id).await?;
            }
        }
        Ok(true)
    }

    fn letter(&self, due: &DueMail) -> Result<Letter> {
        let record =
            InvitationRecord { invitation: due.invitation.clone(), link_sealed: due.link_sealed.clone() };
        let name = &due.organization_name;
        let ends = due.invitation.expires_at.format("%-d %B %Y, %H:%M UTC");
        Ok(Letter {
            to: due.invitation.email.clone(),
            subject: format!("Invitation to {name}"),
            before: vec![format!(
                "You are invited to the organization “{name}” with the role {}.",
                due.invitation.role.as_str()
            )],
            link: ("Accept the invitation".to_owned(), self.mailed_link(&record)?),
            after: vec![
                format!("The link is for you alone and works until {ends}."),
                "If you did not expect this, ignore it: nothing happens then.".to_owned(),
            ],
            id: due.id.clone(),
        })
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

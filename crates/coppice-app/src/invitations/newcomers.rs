//! People who accept an invitation without being signed in: who have no account, and who find that
//! somebody else made one at their address.

use chrono::Utc;
use coppice_core::audit::RequestOrigin;
use coppice_core::organization::Invitation;
use coppice_core::{Error, ErrorCode, Result, UserId};
use coppice_oauth::random;
use coppice_store::{Holdings, NewUser, Owner, Tx};
use zeroize::Zeroizing;

use super::{Accepted, Invitations, link_not_found};
use crate::attempts::{JOINING, SIGN_INS, source};
use crate::identity::Asker;
use crate::{AccountEvent, AccountEventKind};

/// An invitation as the page behind its link shows it.
#[derive(Clone, Debug)]
pub struct OfferedInvitation {
    /// The invitation. It may have expired.
    pub invitation: Invitation,
    /// Name of the organization it is to.
    pub organization_name: String,
    /// What there is under its address.
    pub account: InvitedAccount,
}

/// What there is under the address of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvitedAccount {
    /// No account.
    Absent,
    /// Somebody's account, who has to sign in.
    Verified,
    /// An account whose address nobody has shown to be theirs.
    Unverified {
        /// What lets in whoever made it.
        holdings: Holdings,
        /// Whether the link is the one in the letter, so that whoever has it may take the account.
        may_be_taken: bool,
    },
}

/// Somebody who accepts an invitation and chooses what to sign in with.
pub struct NewPerson {
    /// What they want to be called.
    pub name: String,
    /// What they want to sign in with.
    pub password: Zeroizing<String>,
    /// What only the letter's link has; anything if they came without it.
    pub mailed: String,
}

impl std::fmt::Debug for NewPerson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewPerson")
    }
}

/// Whose account it becomes.
enum Newcomer {
    /// Theirs, who have none yet.
    Made(UserId),
    /// Theirs, which somebody else had made.
    Taken(UserId),
}

impl Newcomer {
    fn user(&self) -> &UserId {
        match self {
            Self::Made(user) | Self::Taken(user) => user,
        }
    }

    fn event(&self) -> AccountEventKind {
        match self {
            Self::Made(_) => AccountEventKind::AccountMade,
            Self::Taken(_) => AccountEventKind::AccountReclaimed,
        }
    }
}

fn account_exists(email: &str) -> Error {
    Error::Conflict {
        code: ErrorCode::AccountExists,
        public: format!("{email} has an account: sign in to accept the invitation"),
    }
}

impl Invitations {
    /// The invitation behind a link, for the page that offers it; `mailed` is what only the
    /// letter's link has.
    ///
    /// # Errors
    /// `invitation_not_found`
    pub async fn find(&self, token: &str, mailed: &str) -> Result<OfferedInvitation> {
        let found = self.store.invitation_find_by_link(&self.links.hash(token)).await?;
        let (invitation, organization_name) = found.ok_or_else(link_not_found)?;
        let account = self.account_of(&invitation.email, self.is_mailed(token, mailed)).await?;
        Ok(OfferedInvitation { invitation, organization_name, account })
    }

    /// Whether a link is the one that its letter alone has.
    fn is_mailed(&self, token: &str, mailed: &str) -> bool {
        random::equal(mailed, &self.links.proof(token))
    }

    async fn account_of(&self, email: &str, is_mailed: bool) -> Result<InvitedAccount> {
        let Some(found) = self.store.user_find_by_email(email).await? else {
            return Ok(InvitedAccount::Absent);
        };
        let may_be_taken = is_mailed && self.may_make_accounts && !found.is_disabled;
        let holdings = self.store.unverified_holdings(&found.user.id).await?;
        Ok(match holdings {
            Some(holdings) => InvitedAccount::Unverified { holdings, may_be_taken },
            None => InvitedAccount::Verified,
        })
    }

    /// Makes an account for the address that was invited, and its user a member, both or nothing.
    /// Who came by the letter also gets an account that somebody else made at their address: what
    /// let that one in is gone.
    ///
    /// # Errors
    /// `sign_up_closed` when accounts are not made this way here;
    /// `invitation_not_found`, `invitation_not_pending`,
    /// `member_limit_reached`; `invalid_field` when the password can't be one;
    /// `account_exists` when the address has an account, whose owner has to sign in instead.
    pub async fn accept_as_new(
        &self,
        token: &str,
        person: NewPerson,
        origin: &RequestOrigin,
    ) -> Result<(UserId, Accepted)> {
        if !self.may_make_accounts {
            return Err(Error::Forbidden {
                code: ErrorCode::SignUpClosed,
                public: "no account is made by an invitation here".to_owned(),
            });
        }
        // Before anything is computed for whoever has no link.
        let found = self.store.invitation_find_by_link(&self.links.hash(token)).await?;
        let (found, _) = found.ok_or_else(link_not_found)?;
        self.check_pending(&found)?;
        let from = origin.address.map(source).unwrap_or_default();
        self.attempts.count(SIGN_INS, &from).await?;
        self.attempts.count(JOINING, &format!("{} {from}", found.id)).await?;
        let newcomer = self.newcomer(&found.email, self.is_mailed(token, &person.mailed)).await?;
        let organization = Some(&found.organization);
        let line =
            self.audit.begin_acceptance(newcomer.user(), organization, Some(&found.id), origin).await?;
        let outcome = self.join_as_new(&newcomer, token, person, origin).await;
        self.audit.end_with(&line, &outcome).await;
        let accepted = outcome?;
        self.audit.note_account(&AccountEvent::new(newcomer.event(), newcomer.user(), origin)).await;
        Ok((newcomer.user().clone(), accepted))
    }

    async fn newcomer(&self, email: &str, is_mailed: bool) -> Result<Newcomer> {
        let Some(found) = self.store.user_find_by_email(email).await? else {
            return Ok(Newcomer::Made(UserId::generate(Utc::now())));
        };
        if found.user.is_email_verified || found.is_disabled || !is_mailed {
            return Err(account_exists(email));
        }
        Ok(Newcomer::Taken(found.user.id))
    }

    async fn join_as_new(
        &self,
        newcomer: &Newcomer,
        token: &str,
        person: NewPerson,
        origin: &RequestOrigin,
    ) -> Result<Accepted> {
        let is_email_verified = self.is_mailed(token, &person.mailed);
        let password = self.passwords.hash(person.password, &Asker::stranger(origin)).await?;
        let (mut tx, invitation) = self.take_invitation(token).await?;
        self.check_pending(&invitation)?;
        let (name, password) = (person.name.as_str(), Some(password.as_str()));
        let email = &invitation.email;
        match newcomer {
            Newcomer::Made(id) => {
                // Where no letter is sent, nobody can show that an address is theirs.
                let guest_of = self.mail.is_sent().then_some(&invitation.organization);
                let new = NewUser { id, email, is_email_verified, name, password, guest_of };
                self.make_in_tx(&mut tx, &new).await?;
            }
            Newcomer::Taken(id) => {
                let owner = Owner { name: Some(name), password };
                let taken = self.store.user_reclaim_in_tx(&mut tx, id, owner).await?;
                taken.ok_or_else(|| account_exists(email))?;
            }
        }
        let role = self.add_in_tx(&mut tx, newcomer.user(), &invitation).await?;
        tx.commit().await?;
        Ok(Accepted { organization: invitation.organization, role })
    }

    async fn make_in_tx(&self, tx: &mut Tx, new: &NewUser<'_>) -> Result<()> {
        match self.store.user_insert_in_tx(tx, new).await {
            Err(error) if error.is_unique_violation("users_email") => Err(account_exists(new.email)),
            inserted => Ok(inserted?),
        }
    }
}

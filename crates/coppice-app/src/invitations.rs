//! Invitations: from a link that is sent to somebody to a member.
//!
//! The secret in the link is found by its keyed hash; it is also kept sealed,
//! because those who may invite are shown the link again. So a link alone does
//! not show that an address is one's own. The one in the letter carries a proof
//! that nobody else sees; an account made with it has a verified address, and one
//! that somebody else had made at that address becomes its owner's by it.

pub(crate) mod links;
mod newcomers;

use std::sync::Arc;

use chrono::Utc;
use coppice_core::access::{CredentialId, Scope, check_fresh};
use coppice_core::audit::RequestOrigin;
use coppice_core::limits::{
    INVITATION_DAYS, INVITATIONS_PER_HOUR_MAX, INVITATIONS_PER_OWNER_AND_HOUR_MAX, OrganizationLimits,
};
use coppice_core::mail::MailContent;
use coppice_core::organization::{Invitation, Role};
use coppice_core::target::OnInvitation;
use coppice_core::{Error, ErrorCode, InvitationId, OrganizationId, Result, UserId};
use coppice_oauth::random;
use coppice_store::{InvitationFilter, InvitationRecord, NewInvitation, OrganizationChange, Store, Tx};
use zeroize::Zeroizing;

use links::InvitationLinks;
pub use newcomers::{InvitedAccount, NewPerson, OfferedInvitation};

use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::idempotency::commit_with_answer;
use crate::identity::Passwords;
use crate::mail::Mail;
use crate::members::{count_change_in_tx, too_many_changes};
use crate::rows::{check_credential_in_tx, lock_in_tx};
use crate::secrets::MasterKey;
use crate::users::check_not_from_vercel;
use crate::{Access, BrowserSession, PersonalAccess};

/// An invitation as a caller may see it.
#[derive(Clone, Debug)]
pub struct VisibleInvitation {
    /// The invitation.
    pub invitation: Invitation,
    /// The link to accept it with; none when it has expired, or when the caller
    /// may not invite anybody to that role, or would be asked to sign in again.
    pub link: Option<Zeroizing<String>>,
}

/// What an accepted invitation led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Where the user is a member now.
    pub organization: OrganizationId,
    /// What they may do there.
    pub role: Role,
}

fn not_found(id: &InvitationId) -> Error {
    Error::NotFound { code: ErrorCode::InvitationNotFound, public: format!("invitation {id} not found") }
}

/// For links; what is in them is not said again.
fn link_not_found() -> Error {
    Error::NotFound { code: ErrorCode::InvitationNotFound, public: "invitation not found".to_owned() }
}

fn not_pending() -> Error {
    Error::invalid(ErrorCode::InvitationNotPending, "invitation is not pending")
}

fn limit_reached(code: ErrorCode, what: &str, max: u32) -> Error {
    Error::invalid(code, format!("{what} limit of {max} reached"))
}

/// Invitations to organizations.
#[derive(Clone)]
pub struct Invitations {
    store: Store,
    key: Arc<MasterKey>,
    links: InvitationLinks,
    mail: Mail,
    audit: Audit,
    passwords: Arc<Passwords>,
    attempts: Attempts,
    limits: OrganizationLimits,
    /// Whether whoever has no account may make one.
    may_make_accounts: bool,
}

impl Invitations {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        (links, mail): (InvitationLinks, Mail),
        audit: Audit,
        passwords: Arc<Passwords>,
        limits: OrganizationLimits,
        may_make_accounts: bool,
    ) -> Self {
        let attempts = Attempts::new(store.clone(), key.clone());
        Self { store, key, links, mail, audit, passwords, attempts, limits, may_make_accounts }
    }

    /// Invites somebody. An expired invitation of the same address is replaced.
    ///
    /// # Errors
    /// `scope_not_grantable`, `invitation_conflict`, `invitation_limit_reached`,
    /// `member_limit_reached`, `rate_limited`
    pub async fn create(&self, access: &Access, email: &str, role: Role) -> Result<VisibleInvitation> {
        access.caller.check_grantable(role)?;
        let organization = &access.organization.id;
        let limits = self.limits;
        let mut tx = self.store.begin().await?;
        let access = &lock_in_tx(&self.store, &mut tx, access).await?;
        if self.store.invitation_conflicts_in_tx(&mut tx, organization, email).await? {
            return Err(Error::Conflict {
                code: ErrorCode::InvitationConflict,
                public: format!("{email} is already invited or a member"),
            });
        }
        self.check_member_limit_in_tx(&mut tx, organization).await?;
        let pending = self.store.invitation_count_pending_in_tx(&mut tx, organization).await?;
        if pending >= limits.invitations_max {
            return Err(limit_reached(
                ErrorCode::InvitationLimitReached,
                "invitation",
                limits.invitations_max,
            ));
        }
        self.count_in_tx(&mut tx, organization).await?;
        let (id, secret) = (InvitationId::generate(Utc::now()), Zeroizing::new(random::secret()));
        let new = NewInvitation {
            id: &id,
            organization,
            email,
            role,
            link_hash: &self.links.hash(&secret),
            link_sealed: &self.key.seal(id.as_str(), &secret),
            days: INVITATION_DAYS,
        };
        let record = self.store.invitation_insert_in_tx(&mut tx, &new).await?;
        self.mail_in_tx(&mut tx, organization, &id).await?;
        commit_with_answer(tx, Some(self.mail.nudge())).await?;
        self.visible(access, record)
    }

    /// Invitations of the organization, the newest first, from the one with
    /// index `offset` on.
    pub async fn list(
        &self,
        access: &Access,
        filter: &InvitationFilter,
        offset: u32,
        count_max: u32,
    ) -> Result<Vec<VisibleInvitation>> {
        let organization = &access.organization.id;
        let found = self.store.invitation_list(organization, filter, offset, count_max).await?;
        found.into_iter().map(|record| self.visible(access, record)).collect()
    }

    /// One invitation of the organization.
    ///
    /// # Errors
    /// `invitation_not_found`
    pub async fn get(&self, access: &Access<OnInvitation>) -> Result<VisibleInvitation> {
        let id = &access.target.invitation;
        let found = self.store.invitation_find(&access.organization.id, id).await?;
        self.visible(access, found.ok_or_else(|| not_found(id))?)
    }

    /// Withdraws an invitation; its link stops working.
    ///
    /// # Errors
    /// `invitation_not_found`
    pub async fn delete(&self, access: &Access<OnInvitation>) -> Result<()> {
        let id = &access.target.invitation;
        match self.store.invitation_delete(&access.organization.id, id).await? {
            true => Ok(()),
            false => Err(not_found(id)),
        }
    }

    /// Gives a pending invitation a new link and its whole time again.
    ///
    /// # Errors
    /// `invitation_not_found`, `invitation_not_pending`, `rate_limited`
    pub async fn resend(&self, access: &Access<OnInvitation>) -> Result<()> {
        let (organization, id) = (&access.organization.id, &access.target.invitation);
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        match self.store.invitation_lock_in_tx(&mut tx, organization, id).await? {
            None => return Err(not_found(id)),
            Some(false) => return Err(not_pending()),
            Some(true) => {}
        }
        self.count_in_tx(&mut tx, organization).await?;
        let secret = Zeroizing::new(random::secret());
        let (hash, sealed) = (self.links.hash(&secret), self.key.seal(id.as_str(), &secret));
        self.store.invitation_renew_in_tx(&mut tx, id, &hash, &sealed, INVITATION_DAYS).await?;
        self.mail_in_tx(&mut tx, organization, id).await?;
        commit_with_answer(tx, Some(self.mail.nudge())).await
    }

    /// Makes the calling user a member. Whoever is one already keeps their role,
    /// and the invitation is used up.
    ///
    /// # Errors
    /// `invitation_not_found`, also when it is for somebody else;
    /// `invitation_not_pending`, `member_limit_reached`
    pub async fn accept(&self, access: &PersonalAccess, token: &str) -> Result<Accepted> {
        self.join(&access.user, &access.caller.credential, token).await
    }

    /// As [`Invitations::accept`], for a user who has signed in to a page,
    /// from where no line of the audit log was begun.
    ///
    /// # Errors
    /// As [`Invitations::accept`].
    pub async fn accept_as(
        &self,
        session: &BrowserSession,
        token: &str,
        origin: &RequestOrigin,
    ) -> Result<Accepted> {
        let found = self.store.invitation_find_by_link(&self.links.hash(token)).await?;
        let found = found.map(|(invitation, _)| invitation);
        // Only the person who was invited writes into the organization's log.
        let is_theirs = |invitation: &&Invitation| invitation.email.eq_ignore_ascii_case(&session.email);
        let organization = found.as_ref().filter(is_theirs).map(|invitation| &invitation.organization);
        let invitation = found.as_ref().map(|invitation| &invitation.id);
        let line = self.audit.begin_acceptance(&session.user, organization, invitation, origin).await?;
        let credential = CredentialId::Browser(session.id_hash.clone());
        let outcome = self.join(&session.user, &credential, token).await;
        self.audit.end_with(&line, &outcome).await;
        outcome
    }

    async fn join(&self, user: &UserId, credential: &CredentialId, token: &str) -> Result<Accepted> {
        let account = self.store.user_find(user).await?.ok_or_else(link_not_found)?;
        let (mut tx, invitation) = self.take_invitation(token).await?;
        if !account.email.eq_ignore_ascii_case(&invitation.email) {
            return Err(link_not_found());
        }
        check_not_from_vercel(&self.store, user).await?;
        // Whoever takes an account that somebody else made ends all that let them in.
        check_credential_in_tx(&self.store, &mut tx, Some(user), credential).await?;
        let role = self.add_in_tx(&mut tx, user, &invitation).await?;
        commit_with_answer(tx, None).await?;
        Ok(Accepted { organization: invitation.organization, role })
    }

    /// Makes a user a member, unless they are one; returns their role.
    async fn add_in_tx(&self, tx: &mut Tx, user: &UserId, invitation: &Invitation) -> Result<Role> {
        let (organization, role) = (&invitation.organization, invitation.role);
        if let Some(present) = self.store.member_role_in_tx(tx, organization, user).await? {
            return Ok(present);
        }
        self.check_pending(invitation)?;
        self.check_member_limit_in_tx(tx, organization).await?;
        self.store.member_insert_in_tx(tx, organization, user, role).await?;
        Ok(role)
    }

    /// Takes the invitation behind a link away, until the transaction is rolled
    /// back. Its organization is locked first, as everywhere.
    async fn take_invitation(&self, token: &str) -> Result<(Tx, Invitation)> {
        let hash = self.links.hash(token);
        let found = self.store.invitation_find_by_link(&hash).await?;
        let (found, _) = found.ok_or_else(link_not_found)?;
        let mut tx = self.store.begin().await?;
        if self.store.organization_lock_in_tx(&mut tx, &found.organization).await?.is_none() {
            return Err(link_not_found());
        }
        // Meanwhile it may have been withdrawn, sent again, or accepted.
        let taken = self.store.invitation_take_in_tx(&mut tx, &hash).await?;
        Ok((tx, taken.ok_or_else(link_not_found)?))
    }

    fn check_pending(&self, invitation: &Invitation) -> Result<()> {
        if invitation.is_pending { Ok(()) } else { Err(not_pending()) }
    }

    async fn check_member_limit_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<()> {
        let max = self.limits.members_max;
        if self.store.member_count_in_tx(tx, organization).await? >= max {
            return Err(limit_reached(ErrorCode::MemberLimitReached, "member", max));
        }
        Ok(())
    }

    async fn count_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<()> {
        let max = INVITATIONS_PER_OWNER_AND_HOUR_MAX;
        if let Some(seconds) = self.store.holder_invitation_in_tx(tx, organization, max).await? {
            return Err(too_many_changes(seconds));
        }
        let change = OrganizationChange::Invitation;
        count_change_in_tx(&self.store, tx, organization, change, INVITATIONS_PER_HOUR_MAX).await
    }

    async fn mail_in_tx(&self, tx: &mut Tx, organization: &OrganizationId, id: &InvitationId) -> Result<()> {
        let (organization, invitation) = (organization.clone(), id.clone());
        self.mail.promise_in_tx(tx, &MailContent::Invitation { organization, invitation }).await
    }

    fn visible<T>(&self, access: &Access<T>, record: InvitationRecord) -> Result<VisibleInvitation> {
        // Whoever has the link can become that member, so it asks what making it asks.
        let may_invite = access.check(Scope::InviteWrite).is_ok()
            && check_fresh(&access.caller).is_ok()
            && access.caller.check_grantable(record.invitation.role).is_ok();
        let link = match may_invite && record.invitation.is_pending {
            true => Some(self.links.link(&record)?),
            false => None,
        };
        Ok(VisibleInvitation { invitation: record.invitation, link })
    }
}

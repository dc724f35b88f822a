//! Organizations.

mod deletions;

use std::sync::Arc;

use chrono::Utc;
use coppice_core::access::{Caller, CredentialId, Principal, check_fresh, check_second_factor};
use coppice_core::limits::{ORGANIZATIONS_OWNED_MAX, OrganizationLimits};
use coppice_core::marketplace::Marketplace;
use coppice_core::organization::{BillingStatus, Holder, Organization, Role};
use coppice_core::payment::NO_CARD;
use coppice_core::{Error, ErrorCode, OrganizationId, Result, UserId};
use coppice_failpoint::failpoint;
use coppice_store::Store;
use tokio::sync::Notify;

use crate::idempotency::commit_with_answer;
use crate::rows::{lock_in_tx, lock_organization_in_tx, lock_user_in_tx};
use crate::stripe::Stripe;
use crate::subscriptions::{Subscriptions, hour_of, used};
use crate::users::check_not_from_vercel;
use crate::{Access, PersonalAccess};

pub(crate) use deletions::Deletions;

/// Organizations of people.
#[derive(Clone)]
pub struct Organizations {
    store: Store,
    stripe: Stripe,
    /// By which they are billed, where there is a marketplace.
    subscriptions: Option<Subscriptions>,
    deletions: Deletions,
    /// Says that Orb is to be told of one that ends.
    orb_nudge: Arc<Notify>,
    limits: OrganizationLimits,
}

impl Organizations {
    pub(crate) fn new(
        store: Store,
        stripe: Stripe,
        subscriptions: Option<Subscriptions>,
        deletions: Deletions,
        orb_nudge: Arc<Notify>,
        limits: OrganizationLimits,
    ) -> Self {
        Self { store, stripe, subscriptions, deletions, orb_nudge, limits }
    }

    /// Who answers for the organization.
    pub async fn holder<T>(&self, access: &Access<T>) -> Result<Holder> {
        Ok(self.store.organization_holder(&access.organization.id).await?)
    }

    /// Organizations the caller belongs to.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<Organization>> {
        Ok(self.store.organization_list(&caller.principal).await?)
    }

    /// Organizations that a person belongs to, with their role in each.
    pub async fn memberships(&self, access: &PersonalAccess) -> Result<Vec<(Organization, Role)>> {
        let organizations = self.store.organization_list(&access.caller.principal).await?;
        let roles = self.store.member_roles(&access.user).await?;
        let role_in = |organization: &Organization| roles.iter().find(|(id, _)| *id == organization.id);
        let found = organizations.into_iter().filter_map(|organization| {
            let (_, role) = role_in(&organization)?;
            Some((organization, *role))
        });
        Ok(found.collect())
    }

    /// Makes an organization that the caller owns. It is disabled until it has
    /// something to pay with, where that is required. What the caller has subscribed to
    /// at a marketplace is of this one, if it is of no other: tells where that is.
    ///
    /// # Errors
    /// `invalid_token`, `organization_limit_reached`; `role_not_allowed` for whoever came from Vercel
    pub async fn create(
        &self,
        access: &PersonalAccess,
        name: &str,
    ) -> Result<(Organization, Option<Marketplace>)> {
        self.make((&access.user, &access.caller.credential), name, None).await
    }

    /// As [`Organizations::create`], by who showed this credential; of what they have subscribed to only this license
    /// counts, if one is named.
    ///
    /// # Errors
    /// As [`Organizations::create`]; `already_registered` when that license pays for another one meanwhile.
    pub(crate) async fn make(
        &self,
        (owner, credential): (&UserId, &CredentialId),
        name: &str,
        license: Option<&str>,
    ) -> Result<(Organization, Option<Marketplace>)> {
        check_not_from_vercel(&self.store, owner).await?;
        let mut tx = self.store.begin().await?;
        lock_user_in_tx(&self.store, &mut tx, owner, credential).await?;
        if self.store.organization_count_owned_in_tx(&mut tx, owner).await? >= ORGANIZATIONS_OWNED_MAX {
            return Err(Error::invalid(
                ErrorCode::OrganizationLimitReached,
                format!("organization limit of {ORGANIZATIONS_OWNED_MAX} reached"),
            ));
        }
        let id = OrganizationId::generate(Utc::now());
        let mut organization = self.store.organization_insert_in_tx(&mut tx, &id, name, Some(owner)).await?;
        if self.stripe.requires_payment_method() {
            let status = BillingStatus::NoPaymentMethod;
            self.store.organization_set_billing_in_tx(&mut tx, &id, status, NO_CARD).await?;
        }
        let marketplace = match &self.subscriptions {
            Some(subscriptions) => {
                let from = hour_of(organization.created_at);
                let is_bound = subscriptions.bill_in_tx(&mut tx, (owner, license), &id, from).await?;
                is_bound.then_some(Marketplace::Aws)
            }
            None => self.store.marketplace_bind_in_tx(&mut tx, owner, &id).await?,
        };
        if license.is_some() && marketplace.is_none() {
            return Err(used());
        }
        organization = lock_organization_in_tx(&self.store, &mut tx, &id).await?;
        commit_with_answer(tx, None).await?;
        Ok((organization, marketplace))
    }

    /// Changes what is given of an organization: its name, and whether it asks
    /// its members for a second factor, which only who has shown one may turn on, and nobody
    /// off who is not asked anew: it lets in who has none.
    ///
    /// # Errors
    /// `second_factor_required`, `fresh_sign_in_required`; `organization_access_denied` when it was deleted
    /// meanwhile.
    pub async fn update(
        &self,
        access: &Access,
        name: Option<&str>,
        requires_second_factor: Option<bool>,
    ) -> Result<Organization> {
        let changes = |current: &Organization| {
            let name = name.filter(|name| *name != current.name);
            (name, requires_second_factor.filter(|requires| *requires != current.requires_second_factor))
        };
        if changes(&access.organization) == (None, None) {
            return Ok(access.organization.clone());
        }
        let mut tx = self.store.begin().await?;
        let access = &lock_in_tx(&self.store, &mut tx, access).await?;
        let current = &access.organization;
        let (name, requires) = changes(current);
        if requires == Some(false) {
            check_fresh(&access.caller)?;
        }
        if requires == Some(true) {
            // Nobody shuts themselves out. A key of the organization is nobody, and would all people.
            let after = Organization { requires_second_factor: true, ..current.clone() };
            let has_shown = access.has_second_factor && matches!(access.caller.principal, Principal::User(_));
            check_second_factor(&after, &access.caller, has_shown, &access.second_factor_place)?;
        }
        let updated = self.store.organization_update_in_tx(&mut tx, &current.id, name, requires).await?;
        tx.commit().await?;
        Ok(updated)
    }

    /// Deletes an organization without projects: its keys and memberships end
    /// at once.
    ///
    /// # Errors
    /// `org_has_projects`
    pub async fn delete(&self, access: &Access) -> Result<()> {
        let id = &access.organization.id;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        if self.store.project_exists_in_tx(&mut tx, id).await? {
            return Err(has_projects());
        }
        self.store.organization_delete_in_tx(&mut tx, id).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Asks for the deletion of an organization without projects. It is
    /// disabled at once, and deleted as soon as nothing is owed: where Orb makes
    /// invoices, that is when the last one is paid; else now.
    ///
    /// # Errors
    /// `org_has_projects`
    pub async fn request_deletion(&self, access: &Access) -> Result<()> {
        let id = &access.organization.id;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        if self.store.project_exists_in_tx(&mut tx, id).await? {
            return Err(has_projects());
        }
        let (status, reason) = (BillingStatus::DeletionRequested, "its owner asked for its deletion");
        self.store.organization_set_billing_in_tx(&mut tx, id, status, reason).await?;
        tx.commit().await?;
        failpoint!("organization.deletion_requested");
        self.orb_nudge.notify_one();
        // What is asked for is done, now or by the next look.
        let _ = self.deletions.do_one(id).await;
        Ok(())
    }

    /// Quotas of an organization.
    pub fn limits(&self) -> OrganizationLimits {
        self.limits
    }
}

fn has_projects() -> Error {
    Error::Conflict {
        code: ErrorCode::OrgHasProjects,
        public: "the organization still has projects".to_owned(),
    }
}

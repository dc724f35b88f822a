//! Organizations.

use chrono::Utc;
use coppice_core::access::{Caller, check_second_factor};
use coppice_core::limits::{ORGANIZATIONS_OWNED_MAX, OrganizationLimits};
use coppice_core::marketplace::Marketplace;
use coppice_core::organization::{BillingStatus, Organization, Role};
use coppice_core::payment::NO_CARD;
use coppice_core::{Error, ErrorCode, OrganizationId, Result, UserId};
use coppice_failpoint::failpoint;
use coppice_store::{StoreError, Tx};

use crate::marketplace::hour_of;
use crate::{Access, App, PersonalAccess};

impl App {
    /// Organizations the caller belongs to.
    pub async fn list_organizations(&self, caller: &Caller) -> Result<Vec<Organization>> {
        Ok(self.store.organization_list(&caller.principal).await?)
    }

    /// Organizations that a person belongs to, with their role in each.
    pub async fn list_memberships(&self, access: &PersonalAccess) -> Result<Vec<(Organization, Role)>> {
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
    /// `organization_limit_reached`; `role_not_allowed` for whoever came from Vercel
    pub async fn create_organization(
        &self,
        access: &PersonalAccess,
        name: &str,
    ) -> Result<(Organization, Option<Marketplace>)> {
        self.make_organization(&access.user, name, None).await
    }

    /// As [`App::create_organization`]; of what its owner has subscribed to only this license counts, if one is named.
    pub(crate) async fn make_organization(
        &self,
        owner: &UserId,
        name: &str,
        license: Option<&str>,
    ) -> Result<(Organization, Option<Marketplace>)> {
        self.check_not_from_vercel(owner).await?;
        let mut tx = self.store.begin().await?;
        self.store.user_lock_in_tx(&mut tx, owner).await?;
        if self.store.organization_count_owned_in_tx(&mut tx, owner).await? >= ORGANIZATIONS_OWNED_MAX {
            return Err(Error::invalid(
                ErrorCode::OrganizationLimitReached,
                format!("organization limit of {ORGANIZATIONS_OWNED_MAX} reached"),
            ));
        }
        let id = OrganizationId::generate(Utc::now());
        let mut organization = self.store.organization_insert_in_tx(&mut tx, &id, name, Some(owner)).await?;
        if self.requires_payment_method() {
            let status = BillingStatus::NoPaymentMethod;
            self.store.organization_set_billing_in_tx(&mut tx, &id, status, NO_CARD).await?;
        }
        let marketplace = match self.has_marketplace() {
            true => {
                let from = hour_of(organization.created_at);
                let is_bound = self.bill_by_subscription_in_tx(&mut tx, (owner, license), &id, from).await?;
                is_bound.then_some(Marketplace::Aws)
            }
            false => self.store.marketplace_bind_in_tx(&mut tx, owner, &id).await?,
        };
        organization = self.lock_organization_in_tx(&mut tx, &id).await?;
        self.commit_with_answer(tx, None).await?;
        Ok((organization, marketplace))
    }

    /// Changes what is given of an organization: its name, and whether it asks
    /// its members for a second factor, which only who has shown one may turn on.
    ///
    /// # Errors
    /// `second_factor_required`; `organization_access_denied` when it was deleted
    /// meanwhile.
    pub async fn update_organization(
        &self,
        access: &Access,
        name: Option<&str>,
        requires_second_factor: Option<bool>,
    ) -> Result<Organization> {
        let current = &access.organization;
        let name = name.filter(|name| *name != current.name);
        let requires = requires_second_factor.filter(|requires| *requires != current.requires_second_factor);
        if name.is_none() && requires.is_none() {
            return Ok(current.clone());
        }
        if requires == Some(true) {
            // Nobody shuts themselves out.
            let after = Organization { requires_second_factor: true, ..current.clone() };
            let place = self.second_factor_place();
            check_second_factor(&after, &access.caller, access.has_second_factor, &place)?;
        }
        let updated = self.store.organization_update(&current.id, name, requires).await?;
        updated.ok_or_else(|| organization_gone(&current.id))
    }

    /// Deletes an organization without projects: its keys and memberships end
    /// at once.
    ///
    /// # Errors
    /// `org_has_projects`
    pub async fn delete_organization(&self, access: &Access) -> Result<()> {
        let id = &access.organization.id;
        let mut tx = self.store.begin().await?;
        self.lock_organization_in_tx(&mut tx, id).await?;
        if self.store.project_exists_in_tx(&mut tx, id).await? {
            return Err(has_projects());
        }
        self.store.organization_delete_in_tx(&mut tx, id).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Asks for the deletion of an organization without projects. It is
    /// disabled at once, and deleted as soon as nothing is owed: where Orb makes
    /// invoices, that is when the last one is paid; else now.
    ///
    /// # Errors
    /// `org_has_projects`
    pub async fn request_organization_deletion(&self, access: &Access) -> Result<()> {
        let id = &access.organization.id;
        let mut tx = self.store.begin().await?;
        self.lock_organization_in_tx(&mut tx, id).await?;
        if self.store.project_exists_in_tx(&mut tx, id).await? {
            return Err(has_projects());
        }
        let (status, reason) = (BillingStatus::DeletionRequested, "its owner asked for its deletion");
        self.store.organization_set_billing_in_tx(&mut tx, id, status, reason).await?;
        tx.commit().await.map_err(StoreError::from)?;
        failpoint!("organization.deletion_requested");
        self.orb_nudge.notify_one();
        // What is asked for is done, now or by the next look.
        let _ = self.delete_as_asked(id).await;
        Ok(())
    }

    /// Deletes organizations whose deletion was asked for; one that can't be
    /// keeps no other from it.
    pub(crate) async fn delete_requested_organizations(&self) -> Result<()> {
        let mut done = Ok(());
        for id in self.store.organization_list_deletable().await? {
            done = self.delete_as_asked(&id).await.and(done);
        }
        done
    }

    pub(crate) async fn delete_as_asked(&self, id: &OrganizationId) -> Result<()> {
        self.delete_requested_organization(id).await.inspect_err(|error| {
            tracing::warn!("deleting organization {id}, as its owner asked: {}", error.for_log());
        })
    }

    /// Deletes an organization if its deletion is still asked for, it has no
    /// projects and owes nothing.
    async fn delete_requested_organization(&self, id: &OrganizationId) -> Result<()> {
        if !self.is_settled_at_orb(id).await? {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        let status = self.store.organization_billing_in_tx(&mut tx, id).await?;
        if status != Some(BillingStatus::DeletionRequested)
            || self.store.project_exists_in_tx(&mut tx, id).await?
        {
            return Ok(());
        }
        self.store.organization_delete_in_tx(&mut tx, id).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Locks an organization until the transaction ends.
    ///
    /// # Errors
    /// `organization_access_denied` when it was deleted meanwhile.
    pub(crate) async fn lock_organization_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
    ) -> Result<Organization> {
        self.store.organization_lock_in_tx(tx, id).await?.ok_or_else(|| organization_gone(id))
    }

    /// As [`App::lock_organization_in_tx`], for what can't be done in a disabled
    /// one: it may have been disabled since the caller was checked.
    ///
    /// # Errors
    /// `organization_access_denied`, `organization_disabled`
    pub(crate) async fn lock_enabled_organization_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
    ) -> Result<()> {
        let organization = self.lock_organization_in_tx(tx, id).await?;
        if organization.is_enabled() { Ok(()) } else { Err(organization_disabled(&organization)) }
    }

    /// Quotas of an organization.
    pub fn organization_limits(&self) -> OrganizationLimits {
        self.config.limits
    }
}

fn has_projects() -> Error {
    Error::Conflict {
        code: ErrorCode::OrgHasProjects,
        public: "the organization still has projects".to_owned(),
    }
}

/// Says why, as the organization's status does.
pub(crate) fn organization_disabled(organization: &Organization) -> Error {
    let Organization { id, disabled_by_admin, admin_reason, billing_reason, .. } = organization;
    let reason = if *disabled_by_admin { admin_reason } else { billing_reason };
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    Error::Forbidden {
        code: ErrorCode::OrganizationDisabled,
        public: format!("organization {id} is disabled{why}"),
    }
}

/// Deleted between the check of the caller and the operation.
fn organization_gone(id: &OrganizationId) -> Error {
    Error::access_denied(
        ErrorCode::OrganizationAccessDenied,
        format_args!("you are not a member of organization {id}"),
    )
}

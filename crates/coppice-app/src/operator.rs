//! What an operator of the machine does to accounts and organizations. Whoever may read the data
//! directory may do all of it, also while no platform runs.

use chrono::Utc;
use coppice_core::organization::{BillingStatus, UsageTier};
use coppice_core::{Error, ErrorCode, OrganizationId, Result, UserId, email};
use coppice_store::{NewUser, Store, StoreError};

fn refused(public: impl Into<String>) -> Error {
    Error::invalid(ErrorCode::InvalidField, public)
}

fn no_such(organization: &OrganizationId) -> Error {
    refused(format!("there is no organization {organization}: see `coppice admin org list`"))
}

/// The address as accounts have it.
///
/// # Errors
/// When it is none.
pub fn address(text: &str) -> Result<String> {
    email::normalised(text).ok_or_else(|| refused(format!("{text} is no email address like ada@example.com")))
}

/// The user with this address.
///
/// # Errors
/// When nobody has it.
pub async fn find_user(store: &Store, email: &str) -> Result<UserId> {
    let found = store.user_find_by_email(email).await?;
    let nobody = || refused(format!("nobody here has the address {email}: see `coppice admin user list`"));
    Ok(found.ok_or_else(nobody)?.user.id)
}

/// Makes an account with an address that the operator vouches for; `password` is the hash of one.
///
/// # Errors
/// When the address has an account already.
pub async fn create_user(store: &Store, email: &str, name: &str, password: Option<&str>) -> Result<UserId> {
    let id = UserId::generate(Utc::now());
    let new = NewUser { id: &id, email, is_email_verified: true, name, password };
    let mut tx = store.begin().await?;
    match store.user_insert_in_tx(&mut tx, &new).await {
        Err(error) if error.is_unique_violation("users_email") => {
            return Err(refused(format!(
                "{email} has an account already: `coppice admin set-password {email}` gives it a new password"
            )));
        }
        inserted => inserted?,
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(id)
}

/// Removes the second factor of somebody, whose sessions all end.
///
/// # Errors
/// When they have none.
pub async fn remove_second_factor(store: &Store, email: &str) -> Result<()> {
    let id = find_user(store, email).await?;
    let mut tx = store.begin().await?;
    if !store.second_factor_remove_in_tx(&mut tx, &id).await? {
        return Err(refused(format!("{email} has no second factor")));
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Disables an organization and puts its branches to sleep, or undoes that; how many branches.
///
/// # Errors
/// When there is no such organization.
pub async fn set_organization_disabled(
    store: &Store,
    organization: &OrganizationId,
    is_disabled: bool,
    reason: &str,
) -> Result<u32> {
    let branches = store.organization_set_disabled(organization, is_disabled, reason).await?;
    branches.ok_or_else(|| no_such(organization))
}

/// Says how much an organization is trusted.
///
/// # Errors
/// When there is no such organization.
pub async fn set_organization_tier(
    store: &Store,
    organization: &OrganizationId,
    tier: UsageTier,
) -> Result<()> {
    match store.organization_set_tier(organization, tier).await? {
        true => Ok(()),
        false => Err(no_such(organization)),
    }
}

/// Takes back a deletion that the owner of an organization asked for.
///
/// # Errors
/// When there is no such organization, or nobody asked for that.
pub async fn cancel_deletion(store: &Store, organization: &OrganizationId) -> Result<()> {
    let mut tx = store.begin().await?;
    match store.organization_billing_in_tx(&mut tx, organization).await? {
        None => return Err(no_such(organization)),
        Some(BillingStatus::DeletionRequested) => {}
        Some(_) => {
            return Err(refused(format!("nobody asked for the deletion of organization {organization}")));
        }
    }
    store.organization_set_billing_in_tx(&mut tx, organization, BillingStatus::Ok, "").await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

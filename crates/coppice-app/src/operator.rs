//! What an operator of the machine does to accounts and organizations. Whoever may read the data
//! directory may do all of it, also while no platform runs.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::organization::{BillingStatus, UsageTier};
use coppice_core::shell::quoted;
use coppice_core::usage::Meter;
use coppice_core::{BranchId, Error, ErrorCode, OrganizationId, Result, UserId, email};
use coppice_store::{Holdings, NewUser, OldPassword, Owner, Store};

use crate::audit::note_reclaimed_by_operator;

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
    let new = NewUser { id: &id, email, is_email_verified: true, name, password, guest_of: None };
    let mut tx = store.begin().await?;
    match store.user_insert_in_tx(&mut tx, &new).await {
        Err(error) if error.is_unique_violation("users_email") => {
            return Err(refused(format!(
                "{email} has an account already: `coppice admin set-password {}` gives it a new password",
                quoted(email)
            )));
        }
        inserted => inserted?,
    }
    tx.commit().await?;
    Ok(id)
}

/// Gives somebody another password, of which `hash` is; their sessions all end. Whoever gets it
/// becomes the owner of an account that nobody had verified: returns what let in whoever had made
/// that, and is gone.
///
/// # Errors
/// When nobody has the address.
pub async fn set_password(store: &Store, email: &str, hash: &str) -> Result<Option<Holdings>> {
    let user = find_user(store, email).await?;
    let mut tx = store.begin().await?;
    let owner = Owner { name: None, password: Some(hash) };
    let taken = store.user_reclaim_in_tx(&mut tx, &user, owner).await?;
    tx.commit().await?;
    if taken.is_some() {
        note_reclaimed_by_operator(store, &user).await;
    } else {
        store.user_set_password(&user, hash, OldPassword::Any, None).await?;
    }
    Ok(taken)
}

/// Lets nothing of somebody in any more, or undoes that.
///
/// # Errors
/// When nobody has the address.
pub async fn set_user_disabled(store: &Store, email: &str, is_disabled: bool) -> Result<()> {
    let user = find_user(store, email).await?;
    Ok(store.user_set_disabled(&user, is_disabled).await?)
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
    tx.commit().await?;
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
    tx.commit().await?;
    Ok(())
}

/// What was metered of a branch, too little by so much.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    /// What was counted wrong.
    pub meter: Meter,
    /// Of which instance type, where instances were counted.
    pub instance_type: &'a str,
    /// Negative where it was too much.
    pub by: i64,
    /// For people.
    pub reason: &'a str,
}

/// Writes a difference beside what was metered of a branch in the hour that this time
/// is in; returns when that hour begins.
///
/// # Errors
/// When the hour is not sealed, or nothing was ever metered of that branch.
pub async fn correct_usage(
    store: &Store,
    branch: &BranchId,
    time: DateTime<Utc>,
    correction: Correction<'_>,
) -> Result<DateTime<Utc>> {
    let Correction { meter, instance_type, by, reason } = correction;
    let hour = time.duration_trunc(TimeDelta::hours(1)).map_err(|error| refused(error.to_string()))?;
    let of = match meter {
        Meter::Awake => instance_type,
        Meter::Asleep | Meter::Storage | Meter::Shared | Meter::Egress => "",
    };
    match store.usage_correct(branch, hour, (meter, of), by, reason).await? {
        true => Ok(hour),
        false => Err(refused(format!(
            "the hour {hour} of branch {branch} is not sealed, or nothing was ever metered of that branch"
        ))),
    }
}

//! Rows that a use case needs to be there, and what whoever asks is told when they are not.

use coppice_core::access::{CredentialId, check_user};
use coppice_core::branch::Branch;
use coppice_core::organization::Organization;
use coppice_core::project::Project;
use coppice_core::target::{InBranch, InProject};
use coppice_core::{BranchId, Error, ErrorCode, OrganizationId, Result, UserId};
use coppice_store::{Store, Tx};

use crate::access::{Access, not_a_member, organization_disabled};

/// Locks the organization in which a caller changes something until the transaction ends, and looks whether the
/// caller still may: who was removed or disabled meanwhile, or has less to say, or lacks a second factor by now, or
/// whose key or session ended, changes nothing, and none of that happens before the transaction is over. Returns what
/// the caller may do by now.
///
/// # Errors
/// `organization_access_denied`, also when it was deleted; `invalid_token`, `second_factor_required`,
/// `role_not_allowed`, `owner_required`, `organization_disabled`
pub(crate) async fn lock_in_tx<T: Clone>(
    store: &Store,
    tx: &mut Tx,
    access: &Access<T>,
) -> Result<Access<T>> {
    let id = &access.organization.id;
    let organization = lock_organization_in_tx(store, tx, id).await?;
    let user = check_user(&access.caller).ok();
    let has_second_factor = check_credential_in_tx(store, tx, user, &access.caller.credential).await?;
    let role = match user {
        Some(user) => {
            let role = store.member_role_in_tx(tx, id, user).await?;
            Some(role.ok_or_else(|| not_a_member(id))?)
        }
        None => None,
    };
    let now = Access { organization, role, has_second_factor, ..access.clone() };
    now.check_member()?;
    now.check_enabled()?;
    Ok(now)
}

/// Locks a person who changes something of their own until the transaction ends, with the key or session by which
/// they do so; see [`lock_in_tx`].
///
/// # Errors
/// `invalid_token`
pub(crate) async fn lock_user_in_tx(
    store: &Store,
    tx: &mut Tx,
    user: &UserId,
    credential: &CredentialId,
) -> Result<()> {
    store.user_lock_in_tx(tx, user).await?;
    check_credential_in_tx(store, tx, Some(user), credential).await?;
    Ok(())
}

/// Makes sure that a key or session did not end since it was shown, and its user, if it is one's, was not disabled, and
/// tells whether it has a second factor. All of that stays so until the transaction ends.
///
/// # Errors
/// `invalid_token`
pub(crate) async fn check_credential_in_tx(
    store: &Store,
    tx: &mut Tx,
    user: Option<&UserId>,
    credential: &CredentialId,
) -> Result<bool> {
    let over = || Error::Unauthenticated { code: ErrorCode::InvalidToken };
    if let Some(user) = user
        && !store.user_hold_in_tx(tx, user).await?
    {
        return Err(over());
    }
    store.credential_hold_in_tx(tx, credential).await?.ok_or_else(over)
}

/// Locks an organization until the transaction ends, for what is done by nobody's right; see [`lock_in_tx`].
///
/// # Errors
/// `organization_access_denied` when it was deleted meanwhile.
pub(crate) async fn lock_organization_in_tx(
    store: &Store,
    tx: &mut Tx,
    id: &OrganizationId,
) -> Result<Organization> {
    store.organization_lock_in_tx(tx, id).await?.ok_or_else(|| organization_gone(id))
}

/// As [`lock_organization_in_tx`], for what can't be done in a disabled one.
///
/// # Errors
/// `organization_access_denied`, `organization_disabled`
pub(crate) async fn lock_enabled_organization_in_tx(
    store: &Store,
    tx: &mut Tx,
    id: &OrganizationId,
) -> Result<()> {
    let organization = lock_organization_in_tx(store, tx, id).await?;
    if organization.is_enabled() { Ok(()) } else { Err(organization_disabled(&organization)) }
}

/// Makes sure that a browser's session did not end since it was looked for: nothing is done by right of it
/// afterwards. If it goes on, it does until the transaction ends.
///
/// # Errors
/// `invalid_token`
pub(crate) async fn check_session_in_tx(
    store: &Store,
    tx: &mut Tx,
    user: &UserId,
    id_hash: &str,
) -> Result<()> {
    match store.browser_session_lives_in_tx(tx, user, id_hash).await? {
        true => Ok(()),
        false => Err(Error::Unauthenticated { code: ErrorCode::InvalidToken }),
    }
}

/// Deleted between the check of the caller and the operation.
pub(crate) fn organization_gone(id: &OrganizationId) -> Error {
    Error::access_denied(
        ErrorCode::OrganizationAccessDenied,
        format_args!("you are not a member of organization {id}"),
    )
}

/// Locks the project the path names; whoever locks its organization as well, does so before.
pub(crate) async fn lock_project_in_tx(store: &Store, tx: &mut Tx, place: &InProject) -> Result<Project> {
    let InProject { organization, project } = place;
    let locked = store.project_lock_in_tx(tx, organization, project).await?;
    locked.ok_or_else(|| Error::project_not_found(project))
}

/// The project at a place.
pub(crate) async fn find_project(store: &Store, place: &InProject) -> Result<Project> {
    let InProject { organization, project } = place;
    let found = store.project_find(organization, project).await?;
    found.ok_or_else(|| Error::project_not_found(project))
}

/// A branch of the project the path names; tells which of both is missing.
pub(crate) async fn find_in_project(store: &Store, place: &InProject, id: &BranchId) -> Result<Branch> {
    let found = store.branch_find_in(&place.organization, &place.project, id).await?;
    match found {
        Some(branch) => Ok(branch),
        None => {
            find_project(store, place).await?;
            Err(Error::branch_not_found(id))
        }
    }
}

/// The branch the path names.
pub(crate) async fn find_branch(store: &Store, access: &Access<InBranch>) -> Result<Branch> {
    find_in_project(store, &access.target.within, &access.target.branch).await
}

/// As [`find_branch`], where [`lock_in_tx`] has locked the organization: a project that got to another one meanwhile is
/// missing, and one that is there stays the organization's until the transaction ends.
pub(crate) async fn find_branch_in_tx(
    store: &Store,
    tx: &mut Tx,
    access: &Access<InBranch>,
) -> Result<Branch> {
    let InBranch { within, branch: id } = &access.target;
    match store.branch_find_in_tx(tx, &within.organization, &within.project, id).await? {
        Some(branch) => Ok(branch),
        None => {
            lock_project_in_tx(store, tx, within).await?;
            Err(Error::branch_not_found(id))
        }
    }
}

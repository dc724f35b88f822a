//! A caller, and what it may do where.

use std::sync::Arc;

use coppice_core::access::{
    Caller, Principal, Scope, check_owner, check_role, check_scope, check_second_factor,
};
use coppice_core::operation::{CallerRule, Operation};
use coppice_core::organization::{Holder, Organization, Role};
use coppice_core::target::{InBranch, InOrganization};
use coppice_core::{BranchId, Error, ErrorCode, OrganizationId, Result, UserId};
use coppice_store::{CredentialMatch, Membership};

/// A caller whose credential is good, and what it is to the organization that
/// the path names.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Who calls.
    pub caller: Caller,
    holder: Holder,
    owner: Option<UserId>,
    pub(crate) membership: Option<Membership>,
}

impl Credential {
    /// Of a user.
    pub(crate) fn new(caller: Caller, holder: Holder, membership: Option<Membership>) -> Self {
        Self { caller, holder, owner: None, membership }
    }

    /// Of a key, which an organization with this owner may have.
    pub(crate) fn of_key(found: CredentialMatch) -> Self {
        let CredentialMatch { caller, holder, owner, membership, .. } = found;
        Self { caller, holder, owner, membership }
    }

    /// Who answers for what the caller does: the person, or who answers for the organization.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Who calls: the person, or who owns the organization. Guests answer together for what they do, and
    /// each of them is one for what is refused to who asks for too much.
    pub fn person(&self) -> Holder {
        Holder::from_trusted(match (&self.caller.principal, &self.owner) {
            (Principal::User(user), _) | (Principal::Organization(_), Some(user)) => user.as_str(),
            (Principal::Organization(organization), None) => organization.as_str(),
        })
    }

    /// Whether the caller belongs to the organization that the path names.
    pub(crate) fn is_member(&self) -> bool {
        self.membership.is_some()
    }
}

/// A caller that may carry out the operation it asked for on what the path
/// names.
#[derive(Clone, Debug)]
pub struct Access<T = InOrganization> {
    /// Who calls.
    pub caller: Caller,
    /// On which organization.
    pub organization: Organization,
    /// The caller's role there; none for a key of the organization.
    pub role: Option<Role>,
    /// See [`Membership::has_second_factor`].
    pub has_second_factor: bool,
    /// Where people add one.
    pub second_factor_place: Arc<str>,
    /// What the path names.
    pub target: T,
    /// What it asked for.
    pub operation: Operation,
}

impl<T> Access<T> {
    /// Checks 8 and 9: whether the caller has the second factor that the organization asks for, and the role that is
    /// needed for what was asked for.
    ///
    /// # Errors
    /// `second_factor_required`, `role_not_allowed`, `owner_required`
    pub(crate) fn check_member(&self) -> Result<()> {
        let Self { caller, organization, role, operation, .. } = self;
        check_second_factor(organization, caller, self.has_second_factor, &self.second_factor_place)?;
        operation.scope.map_or(Ok(()), |scope| check_role(*role, scope))?;
        match operation.caller {
            CallerRule::Owner => check_owner(*role),
            CallerRule::Anybody | CallerRule::User => Ok(()),
        }
    }

    /// Check 11: whether the organization is enabled where it has to be.
    ///
    /// # Errors
    /// `organization_disabled`
    pub(crate) fn check_enabled(&self) -> Result<()> {
        let Self { organization, operation, .. } = self;
        match operation.needs_enabled_organization && !organization.is_enabled() {
            true => Err(organization_disabled(organization)),
            false => Ok(()),
        }
    }

    /// Whether both the caller's credential and their role allow this.
    ///
    /// # Errors
    /// `insufficient_scope`, `role_not_allowed`
    pub fn check(&self, scope: Scope) -> Result<()> {
        check_scope(&self.caller, scope)?;
        check_role(self.role, scope)
    }
}

impl Access<InBranch> {
    /// Whether the credential is also for another branch of the project.
    ///
    /// # Errors
    /// `branch_access_denied`
    pub(crate) fn check_other_branch(&self, other: &BranchId) -> Result<()> {
        let limit = self.caller.grant.branch_limit();
        match limit.is_some_and(|only| !only.iter().any(|id| id == other.as_str())) {
            true => Err(not_for(other)),
            false => Ok(()),
        }
    }

    /// Whether the credential may change what the project has for its branch `root`.
    /// A key for what it makes has to name that branch itself: it is known only of
    /// the branch of the path whether the key made it.
    ///
    /// # Errors
    /// `branch_access_denied`
    pub(crate) fn check_root(&self, root: &BranchId) -> Result<()> {
        self.check_other_branch(root)?;
        match self.caller.grant.own_branches && *root != self.target.branch {
            true => Err(not_for(root)),
            false => Ok(()),
        }
    }
}

/// A person that may carry out an operation on what is their own.
#[derive(Clone, Debug)]
pub struct PersonalAccess {
    /// Who calls.
    pub caller: Caller,
    /// The person.
    pub user: UserId,
}

fn not_for(branch: &BranchId) -> Error {
    let reason = format_args!("this key is not for branch {branch}");
    Error::access_denied(ErrorCode::BranchAccessDenied, reason)
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

/// What whoever is told who does not belong to an organization.
pub(crate) fn not_a_member(organization: &OrganizationId) -> Error {
    Error::access_denied(
        ErrorCode::OrganizationAccessDenied,
        format_args!("you are not a member of organization {organization}"),
    )
}

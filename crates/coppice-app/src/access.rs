//! Who calls, and may they: checks 3 to 11 of the order of checks, in one place.

use chrono::Utc;
use coppice_core::access::{Caller, check_limits, check_role, check_scope};
use coppice_core::api_key::ApiKeySecret;
use coppice_core::operation::{Operation, RawTarget, Target};
use coppice_core::organization::Organization;
use coppice_core::{Error, ProjectId, Result};

use crate::App;

/// A caller that may carry out the operation it asked for.
#[derive(Clone, Debug)]
pub struct Access {
    /// Who calls.
    pub caller: Caller,
    /// On which organization.
    pub organization: Organization,
    /// What the path names.
    pub target: Target,
}

impl Access {
    /// The project the path names.
    ///
    /// # Errors
    /// `internal_error` when the route has no project: a bug.
    pub fn project(&self) -> Result<&ProjectId> {
        self.target.project.as_ref().ok_or_else(|| Error::internal("the route names no project"))
    }

    /// The branch the path names.
    ///
    /// # Errors
    /// `internal_error` when the route has no branch: a bug.
    pub fn branch(&self) -> Result<&coppice_core::BranchId> {
        self.target.branch.as_ref().ok_or_else(|| Error::internal("the route names no branch"))
    }
}

impl App {
    /// Check 3: who calls? `bearer` is the value after `Bearer `.
    ///
    /// # Errors
    /// `missing_token`, `invalid_token`, `expired_token`
    pub async fn authenticate(&self, bearer: Option<&str>) -> Result<Caller> {
        let text = bearer.ok_or(Error::Unauthenticated { code: "missing_token" })?;
        let unknown = Error::Unauthenticated { code: "invalid_token" };
        let Some(secret) = ApiKeySecret::parse(text) else { return Err(unknown) };
        let found = self.store.key_find(&self.key.hash(secret.expose())).await?;
        let Some(found) = found.filter(|found| !found.is_user_disabled) else { return Err(unknown) };
        if found.caller.expiry.is_some_and(|expiry| expiry <= Utc::now()) {
            return Err(Error::Unauthenticated { code: "expired_token" });
        }
        Ok(found.caller)
    }

    /// Checks 5 to 11: may `caller` do this there?
    ///
    /// # Errors
    /// `invalid_path_parameter` and every access error.
    pub async fn authorize(
        &self,
        caller: Caller,
        operation: &Operation,
        raw: RawTarget<'_>,
    ) -> Result<Access> {
        let target = raw.check()?;
        check_scope(&caller, operation.scope)?;
        let membership = self
            .store
            .membership_find(&caller.principal, &target.organization, &caller.grant, target.project.as_ref())
            .await?;
        let Some(membership) = membership else {
            return Err(Error::access_denied(
                "organization_access_denied",
                format_args!("you are not a member of organization {}", target.organization),
            ));
        };
        check_role(membership.role, operation.scope)?;
        check_limits(
            &caller.grant,
            operation.limited_keys,
            target.project.as_ref(),
            target.branch.as_ref(),
            membership.owns_allowed_branch,
        )?;
        if operation.needs_enabled_organization && !membership.organization.is_enabled() {
            return Err(Error::Forbidden {
                code: "organization_disabled",
                public: format!("organization {} is disabled", target.organization),
            });
        }
        Ok(Access { caller, organization: membership.organization, target })
    }
}

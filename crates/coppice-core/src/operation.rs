//! Every operation of the API with what it needs: the one table that access
//! is decided from.

use crate::access::{LimitedKeys, Scope};
use crate::{Error, OrganizationId, ProjectId, Result};

/// What an operation needs before it may look at its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its operationId.
    pub id: &'static str,
    /// The scope the credential must hold.
    pub scope: Scope,
    /// Whether it is refused while the organization is disabled.
    pub needs_enabled_organization: bool,
    /// How it treats keys that are limited to projects or branches.
    pub limited_keys: LimitedKeys,
}

const fn read(id: &'static str, scope: Scope) -> Operation {
    Operation { id, scope, needs_enabled_organization: false, limited_keys: LimitedKeys::Allowed }
}

/// listRegions
pub const LIST_REGIONS: Operation = read("listRegions", Scope::ProjectRead);
/// listInstanceTypes
pub const LIST_INSTANCE_TYPES: Operation = read("listInstanceTypes", Scope::OrgRead);
/// listImages
pub const LIST_IMAGES: Operation = read("listImages", Scope::OrgRead);
/// createProject
pub const CREATE_PROJECT: Operation = Operation {
    id: "createProject",
    scope: Scope::ProjectWrite,
    needs_enabled_organization: true,
    limited_keys: LimitedKeys::Refused,
};
/// listProjects
pub const LIST_PROJECTS: Operation = read("listProjects", Scope::ProjectRead);
/// getProject
pub const GET_PROJECT: Operation = read("getProject", Scope::ProjectRead);
/// deleteProject
pub const DELETE_PROJECT: Operation = Operation {
    id: "deleteProject",
    scope: Scope::ProjectWrite,
    needs_enabled_organization: false,
    limited_keys: LimitedKeys::RefusedWithBranchLimit,
};
/// listBranches
pub const LIST_BRANCHES: Operation = read("listBranches", Scope::BranchRead);
/// createBranch
pub const CREATE_BRANCH: Operation = Operation {
    id: "createBranch",
    scope: Scope::BranchWrite,
    needs_enabled_organization: true,
    limited_keys: LimitedKeys::RefusedWithBranchLimit,
};
/// describeBranch
pub const DESCRIBE_BRANCH: Operation = read("describeBranch", Scope::BranchRead);
/// deleteBranch
pub const DELETE_BRANCH: Operation = read("deleteBranch", Scope::BranchWrite);
/// getBranchCredentials
pub const GET_BRANCH_CREDENTIALS: Operation = read("getBranchCredentials", Scope::CredentialsRead);

/// Path parameters as the client wrote them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawTarget<'a> {
    /// `organizationID`
    pub organization: &'a str,
    /// `projectID`
    pub project: Option<&'a str>,
    /// `branchID`
    pub branch: Option<&'a str>,
}

/// Path parameters after check 5.
#[derive(Clone, Debug)]
pub struct Target {
    /// The organization.
    pub organization: OrganizationId,
    /// The project, where the path names one.
    pub project: Option<ProjectId>,
    /// The branch, where the path names one. Not necessarily of a form that a
    /// branch id can have.
    pub branch: Option<crate::BranchId>,
}

impl RawTarget<'_> {
    /// Check 5 of the order of checks.
    ///
    /// # Errors
    /// `invalid_path_parameter`
    pub fn check(&self) -> Result<Target> {
        let invalid =
            |name: &str| Error::invalid("invalid_path_parameter", format!("invalid path parameter {name}"));
        if !is_organization_id(self.organization) {
            return Err(invalid("organizationID"));
        }
        if self.project.is_some_and(|id| !is_record_id(id)) {
            return Err(invalid("projectID"));
        }
        if self.branch.is_some_and(|id| !is_record_id(id)) {
            return Err(invalid("branchID"));
        }
        Ok(Target {
            organization: OrganizationId::from_trusted(self.organization),
            project: self.project.map(ProjectId::from_trusted),
            branch: self.branch.map(crate::BranchId::from_trusted),
        })
    }
}

/// The documented class `[a-zA-Z0-9_-~:]+` can be read with `_-~` as a range
/// or with a literal hyphen; both readings are accepted.
fn is_organization_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_'..=b'~' | b':' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_record_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_readings_of_the_organization_class_are_accepted() {
        for text in ["org_1", "a-b", "a~b", "a:b", "a|b", "{x}", "`"] {
            assert!(is_organization_id(text), "{text}");
        }
        for text in ["", "a b", "a/b", "é", "a.b", &"x".repeat(129)] {
            assert!(!is_organization_id(text), "{text}");
        }
    }

    #[test]
    fn a_bad_path_parameter_is_named() {
        let target = RawTarget { organization: "org_1", project: Some("a.b"), branch: None };
        let error = target.check().expect_err("is refused");
        assert_eq!(error.to_string(), "invalid path parameter projectID");
    }
}

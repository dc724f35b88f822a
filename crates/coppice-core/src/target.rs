//! What the path of an operation names: check 5 of the order of checks.
//!
//! A [`Target`] is proof that every part of it has the form of an id; what an
//! operation does with a project can't be asked for without one.

mod path;
mod records;

use std::fmt::Debug;

pub use path::{RawTarget, is_record_id};
pub use records::{OnBudget, OnDelivery, OnGithubInstallation, OnInvitation, OnInvoice, OnMember, OnWebhook};

use crate::{BranchId, DeliveryId, InvitationId, OrganizationId, ProjectId, Result, UserId, WebhookId};

/// What a path names, below an organization.
pub trait Target: Clone + Debug + Send + Sync + 'static {
    /// Check 5 of the order of checks.
    ///
    /// # Errors
    /// `invalid_path_parameter`
    fn read(path: &RawTarget<'_>) -> Result<Self>;

    /// The organization.
    fn organization(&self) -> &OrganizationId;

    /// The project, where the path names one.
    fn project(&self) -> Option<&ProjectId> {
        None
    }

    /// The branch, where the path names one.
    fn branch(&self) -> Option<&BranchId> {
        None
    }
}

/// An organization.
#[derive(Clone, Debug)]
pub struct InOrganization {
    /// The organization.
    pub organization: OrganizationId,
}

/// A project of an organization, if it is one.
#[derive(Clone, Debug)]
pub struct InProject {
    /// The organization.
    pub organization: OrganizationId,
    /// The project.
    pub project: ProjectId,
}

/// A branch of a project, if it is one.
#[derive(Clone, Debug)]
pub struct InBranch {
    /// The project.
    pub within: InProject,
    /// The branch. Not necessarily of a form that a branch id can have.
    pub branch: BranchId,
}

/// A branch of a project that was deleted and can be brought back, if it is one.
#[derive(Clone, Debug)]
pub struct InTrash {
    /// The project.
    pub within: InProject,
    /// The branch. Not necessarily of a form that a branch id can have.
    pub branch: BranchId,
}

/// The backup of a branch of a project, if it is one.
#[derive(Clone, Debug)]
pub struct OnBackup {
    /// The project.
    pub within: InProject,
    /// The branch. Not necessarily of a form that a branch id can have.
    pub branch: BranchId,
}

/// Whatever a path names: for what all operations have in common.
#[derive(Clone, Debug)]
pub struct AnyTarget {
    /// The organization.
    pub organization: OrganizationId,
    /// The project, where the path names one.
    pub project: Option<ProjectId>,
    /// The branch, where the path names one or its backup.
    pub branch: Option<BranchId>,
    /// The member, where the path names one.
    pub user: Option<UserId>,
    /// The invitation, where the path names one.
    pub invitation: Option<InvitationId>,
    /// The webhook, where the path names one.
    pub webhook: Option<WebhookId>,
    /// The delivery, where the path names one.
    pub delivery: Option<DeliveryId>,
}

impl Target for InOrganization {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }
}

impl Target for InProject {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()?, project: path.project()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }

    fn project(&self) -> Option<&ProjectId> {
        Some(&self.project)
    }
}

impl Target for InBranch {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { within: InProject::read(path)?, branch: path.branch()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.within.organization
    }

    fn project(&self) -> Option<&ProjectId> {
        Some(&self.within.project)
    }

    fn branch(&self) -> Option<&BranchId> {
        Some(&self.branch)
    }
}

impl Target for InTrash {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        let InBranch { within, branch } = InBranch::read(path)?;
        Ok(Self { within, branch })
    }

    fn organization(&self) -> &OrganizationId {
        &self.within.organization
    }

    fn project(&self) -> Option<&ProjectId> {
        Some(&self.within.project)
    }

    fn branch(&self) -> Option<&BranchId> {
        Some(&self.branch)
    }
}

impl Target for OnBackup {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { within: InProject::read(path)?, branch: path.backup()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.within.organization
    }

    fn project(&self) -> Option<&ProjectId> {
        Some(&self.within.project)
    }

    fn branch(&self) -> Option<&BranchId> {
        Some(&self.branch)
    }
}

impl Target for AnyTarget {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self {
            organization: path.organization()?,
            project: path.project.map(|_| path.project()).transpose()?,
            branch: match path.backup {
                Some(_) => Some(path.backup()?),
                None => path.branch.map(|_| path.branch()).transpose()?,
            },
            user: path.user.map(|_| path.user()).transpose()?,
            invitation: path.invitation.map(|_| path.invitation()).transpose()?,
            webhook: path.webhook.map(|_| path.webhook()).transpose()?,
            delivery: path.delivery.map(|_| path.delivery()).transpose()?,
        })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }

    fn project(&self) -> Option<&ProjectId> {
        self.project.as_ref()
    }

    fn branch(&self) -> Option<&BranchId> {
        self.branch.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_path_parameter_is_named_and_an_absent_one_is_bad() {
        let path = RawTarget { organization: "org_1", project: Some("a.b"), ..RawTarget::default() };
        let said = |outcome: Result<()>| outcome.expect_err("is refused").to_string();
        assert_eq!(said(AnyTarget::read(&path).map(drop)), "invalid path parameter projectID");
        assert_eq!(said(InBranch::read(&path).map(drop)), "invalid path parameter projectID");
        assert_eq!(said(OnMember::read(&path).map(drop)), "invalid path parameter userID");
        assert!(InOrganization::read(&path).is_ok());
    }
}

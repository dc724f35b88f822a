//! What the path of an operation names: check 5 of the order of checks.
//!
//! A [`Target`] is proof that every part of it has the form of an id; what an
//! operation does with a project can't be asked for without one.

use std::fmt::Debug;

use crate::{
    BranchId, DeliveryId, Error, ErrorCode, GithubInstallationId, InvitationId, InvoiceId, OrganizationId,
    ProjectId, Result, UserId, WebhookId,
};

/// Path parameters as the client wrote them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawTarget<'a> {
    /// `organizationID`
    pub organization: &'a str,
    /// `projectID`
    pub project: Option<&'a str>,
    /// `branchID`
    pub branch: Option<&'a str>,
    /// `userID`
    pub user: Option<&'a str>,
    /// `invitationID`
    pub invitation: Option<&'a str>,
    /// `webhookID`
    pub webhook: Option<&'a str>,
    /// `deliveryID`
    pub delivery: Option<&'a str>,
    /// `invoiceID`
    pub invoice: Option<&'a str>,
    /// `subjectID`
    pub subject: Option<&'a str>,
    /// `backupID`
    pub backup: Option<&'a str>,
    /// `githubInstallationID`
    pub github_installation: Option<&'a str>,
}

impl RawTarget<'_> {
    fn organization(&self) -> Result<OrganizationId> {
        checked("organizationID", Some(self.organization), is_organization_id)
            .map(OrganizationId::from_trusted)
    }

    fn project(&self) -> Result<ProjectId> {
        checked("projectID", self.project, is_record_id).map(ProjectId::from_trusted)
    }

    fn branch(&self) -> Result<BranchId> {
        checked("branchID", self.branch, is_record_id).map(BranchId::from_trusted)
    }

    /// Of which branch a backup is: they have the same id.
    fn backup(&self) -> Result<BranchId> {
        checked("backupID", self.backup, is_record_id).map(BranchId::from_trusted)
    }

    fn user(&self) -> Result<UserId> {
        checked("userID", self.user, is_organization_id).map(UserId::from_trusted)
    }

    fn invoice(&self) -> Result<InvoiceId> {
        checked("invoiceID", self.invoice, is_record_id).map(InvoiceId::from_trusted)
    }

    /// Whatever it is of: the wider of the forms that ids have.
    fn subject(&self) -> Result<String> {
        checked("subjectID", self.subject, is_organization_id).map(str::to_owned)
    }

    fn github_installation(&self) -> Result<GithubInstallationId> {
        checked("githubInstallationID", self.github_installation, is_record_id)
            .map(GithubInstallationId::from_trusted)
    }

    fn invitation(&self) -> Result<InvitationId> {
        checked("invitationID", self.invitation, is_record_id).map(InvitationId::from_trusted)
    }

    fn webhook(&self) -> Result<WebhookId> {
        checked("webhookID", self.webhook, is_record_id).map(WebhookId::from_trusted)
    }

    fn delivery(&self) -> Result<DeliveryId> {
        checked("deliveryID", self.delivery, is_record_id).map(DeliveryId::from_trusted)
    }
}

/// One that is not there has no good form either.
fn checked<'a>(name: &str, text: Option<&'a str>, is_id: fn(&str) -> bool) -> Result<&'a str> {
    let invalid =
        || Error::invalid(ErrorCode::InvalidPathParameter, format!("invalid path parameter {name}"));
    text.filter(|text| is_id(text)).ok_or_else(invalid)
}

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

/// A member of an organization, if they are one.
#[derive(Clone, Debug)]
pub struct OnMember {
    /// The organization.
    pub organization: OrganizationId,
    /// The member.
    pub user: UserId,
}

/// An invitation to an organization, if it is one.
#[derive(Clone, Debug)]
pub struct OnInvitation {
    /// The organization.
    pub organization: OrganizationId,
    /// The invitation.
    pub invitation: InvitationId,
}

/// A webhook of an organization, if it is one.
#[derive(Clone, Debug)]
pub struct OnWebhook {
    /// The organization.
    pub within: InOrganization,
    /// The webhook.
    pub webhook: WebhookId,
}

/// A delivery to a webhook, if it is one.
#[derive(Clone, Debug)]
pub struct OnDelivery {
    /// The webhook.
    pub on: OnWebhook,
    /// The delivery.
    pub delivery: DeliveryId,
}

/// An invoice of an organization, if it is one.
#[derive(Clone, Debug)]
pub struct OnInvoice {
    /// The organization.
    pub organization: OrganizationId,
    /// The invoice.
    pub invoice: InvoiceId,
}

/// The budget of an organization, or of a project, branch or key of it, if there is one.
#[derive(Clone, Debug)]
pub struct OnBudget {
    /// The organization.
    pub organization: OrganizationId,
    /// The id of what it is of.
    pub subject: String,
}

/// An installation of the GitHub App that an organization has linked, if it has.
#[derive(Clone, Debug)]
pub struct OnGithubInstallation {
    /// The organization.
    pub organization: OrganizationId,
    /// The record of the link.
    pub installation: GithubInstallationId,
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

impl Target for OnMember {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()?, user: path.user()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }
}

impl Target for OnInvitation {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()?, invitation: path.invitation()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }
}

impl Target for OnWebhook {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { within: InOrganization::read(path)?, webhook: path.webhook()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.within.organization
    }
}

impl Target for OnDelivery {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { on: OnWebhook::read(path)?, delivery: path.delivery()? })
    }

    fn organization(&self) -> &OrganizationId {
        self.on.organization()
    }
}

impl Target for OnInvoice {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()?, invoice: path.invoice()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }
}

impl Target for OnBudget {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()?, subject: path.subject()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
    }
}

impl Target for OnGithubInstallation {
    fn read(path: &RawTarget<'_>) -> Result<Self> {
        Ok(Self { organization: path.organization()?, installation: path.github_installation()? })
    }

    fn organization(&self) -> &OrganizationId {
        &self.organization
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

/// The documented class of ids of organizations and users, `[a-zA-Z0-9_-~:]+`, can be read with `_-~` as a range
/// or with a literal hyphen; both readings are accepted.
fn is_organization_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_'..=b'~' | b':' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(allowed)
}

/// Whether a text has the form that ids of projects, branches and keys have.
pub fn is_record_id(text: &str) -> bool {
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
    fn a_bad_path_parameter_is_named_and_an_absent_one_is_bad() {
        let path = RawTarget { organization: "org_1", project: Some("a.b"), ..RawTarget::default() };
        let said = |outcome: Result<()>| outcome.expect_err("is refused").to_string();
        assert_eq!(said(AnyTarget::read(&path).map(drop)), "invalid path parameter projectID");
        assert_eq!(said(InBranch::read(&path).map(drop)), "invalid path parameter projectID");
        assert_eq!(said(OnMember::read(&path).map(drop)), "invalid path parameter userID");
        assert!(InOrganization::read(&path).is_ok());
    }
}

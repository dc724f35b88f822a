//! The ids in a path, as the client wrote them, and the forms that they may have.

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
    pub(super) fn organization(&self) -> Result<OrganizationId> {
        checked("organizationID", Some(self.organization), is_organization_id)
            .map(OrganizationId::from_trusted)
    }

    pub(super) fn project(&self) -> Result<ProjectId> {
        checked("projectID", self.project, is_record_id).map(ProjectId::from_trusted)
    }

    pub(super) fn branch(&self) -> Result<BranchId> {
        checked("branchID", self.branch, is_record_id).map(BranchId::from_trusted)
    }

    /// Of which branch a backup is: they have the same id.
    pub(super) fn backup(&self) -> Result<BranchId> {
        checked("backupID", self.backup, is_record_id).map(BranchId::from_trusted)
    }

    pub(super) fn user(&self) -> Result<UserId> {
        checked("userID", self.user, is_organization_id).map(UserId::from_trusted)
    }

    pub(super) fn invoice(&self) -> Result<InvoiceId> {
        checked("invoiceID", self.invoice, is_record_id).map(InvoiceId::from_trusted)
    }

    /// The id of an organization, project, branch or key: the widest of their forms.
    pub(super) fn subject(&self) -> Result<String> {
        checked("subjectID", self.subject, is_organization_id).map(str::to_owned)
    }

    pub(super) fn github_installation(&self) -> Result<GithubInstallationId> {
        checked("githubInstallationID", self.github_installation, is_record_id)
            .map(GithubInstallationId::from_trusted)
    }

    pub(super) fn invitation(&self) -> Result<InvitationId> {
        checked("invitationID", self.invitation, is_record_id).map(InvitationId::from_trusted)
    }

    pub(super) fn webhook(&self) -> Result<WebhookId> {
        checked("webhookID", self.webhook, is_record_id).map(WebhookId::from_trusted)
    }

    pub(super) fn delivery(&self) -> Result<DeliveryId> {
        checked("deliveryID", self.delivery, is_record_id).map(DeliveryId::from_trusted)
    }
}

/// Refuses a path parameter that is absent or has another form.
fn checked<'a>(name: &str, text: Option<&'a str>, is_id: fn(&str) -> bool) -> Result<&'a str> {
    let invalid =
        || Error::invalid(ErrorCode::InvalidPathParameter, format!("invalid path parameter {name}"));
    text.filter(|text| is_id(text)).ok_or_else(invalid)
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
}

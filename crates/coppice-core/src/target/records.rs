//! What an organization has beside projects.

use super::{InOrganization, RawTarget, Target};
use crate::{
    DeliveryId, GithubInstallationId, InvitationId, InvoiceId, OrganizationId, Result, UserId, WebhookId,
};

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

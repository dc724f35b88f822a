//! Organizations and the roles of their members.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{InvitationId, OrganizationId, UserId};

/// Whether an organization's databases are paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BillingStatus {
    /// Nothing is owed.
    Ok,
    /// A payment method is needed and missing.
    NoPaymentMethod,
    /// An invoice is overdue.
    InvoiceOverdue,
    /// The provider said something we did not understand.
    Unknown,
    /// The owner asked for deletion.
    DeletionRequested,
}

impl BillingStatus {
    /// The name used in the metastore.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NoPaymentMethod => "no_payment_method",
            Self::InvoiceOverdue => "invoice_overdue",
            Self::Unknown => "unknown",
            Self::DeletionRequested => "deletion_requested",
        }
    }

    /// Reads a name of the metastore; one that is not known is not understood.
    pub fn parse(text: &str) -> Self {
        let all = [Self::Ok, Self::NoPaymentMethod, Self::InvoiceOverdue, Self::DeletionRequested];
        all.into_iter().find(|status| status.as_str() == text).unwrap_or(Self::Unknown)
    }
}

/// How much trust an organization has earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageTier {
    /// New.
    T1,
    /// Has a payment method, or was raised by the operator.
    T2,
}

impl UsageTier {
    /// The name used in the metastore.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::T1 => "t1",
            Self::T2 => "t2",
        }
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Organization {
    /// Its id.
    pub id: OrganizationId,
    /// Not unique.
    pub name: String,
    /// Switched off by the operator.
    pub disabled_by_admin: bool,
    /// See [`BillingStatus`].
    pub billing_status: BillingStatus,
    /// See [`UsageTier`].
    pub usage_tier: UsageTier,
    /// Why the operator switched it off; empty when there is no reason.
    pub admin_reason: String,
    /// Why billing did; empty when there is no reason.
    pub billing_reason: String,
    /// Whether only those members get in who showed a second factor.
    pub requires_second_factor: bool,
    /// When its status last changed.
    pub last_updated: DateTime<Utc>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl Organization {
    /// Whether writes are allowed and branches may run.
    pub fn is_enabled(&self) -> bool {
        !self.disabled_by_admin && self.billing_status == BillingStatus::Ok
    }
}

/// What a member may do in an organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The creator: everything.
    Owner,
    /// Everything but deleting the organization.
    Admin,
    /// Projects, branches and their data.
    Editor,
    /// Looking only.
    Viewer,
}

impl Role {
    /// The name used in the metastore and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Editor => "editor",
            Self::Viewer => "viewer",
        }
    }

    /// Roles that can be given to somebody, the mightiest first.
    pub const ASSIGNABLE: [Self; 3] = [Self::Admin, Self::Editor, Self::Viewer];

    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Owner => "Owner",
            Self::Admin => "Admin",
            Self::Editor => "Editor",
            Self::Viewer => "Viewer",
        }
    }

    /// What it is for, in a sentence.
    pub fn description(self) -> &'static str {
        match self {
            Self::Owner => "Made the organization. May do everything.",
            Self::Admin => "May do everything but delete the organization.",
            Self::Editor => "May work with projects, branches and their credentials.",
            Self::Viewer => "May look at projects, branches, metrics and logs, without credentials.",
        }
    }

    /// Reads a name of the metastore.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Owner, Self::Admin, Self::Editor, Self::Viewer].into_iter().find(|role| role.as_str() == text)
    }
}

/// Who answers for an organization: the user who owns it, else, where it has no owner, the organization itself.
/// One person may own many organizations, so what is shared out among all is shared out among these. People whose
/// address nobody has shown to be theirs are guests of who let them in, and one holder answers for all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(String);

impl Holder {
    /// From what the metastore says.
    pub fn from_trusted(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As the metastore has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A person with an account.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// Their id.
    pub id: UserId,
    /// Unique without regard to case.
    pub email: String,
    /// Whether it is certain that the address is theirs.
    pub is_email_verified: bool,
    /// What they want to be called; empty when unset.
    pub name: String,
    /// When the account was made.
    pub created_at: DateTime<Utc>,
}

/// A person in an organization.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The person's id.
    pub id: UserId,
    /// Their address.
    pub email: String,
    /// What they want to be called; empty when unset.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Since when they belong to it.
    pub joined_at: DateTime<Utc>,
}

/// Somebody is asked to join an organization. The secret in its link is not
/// part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Invitation {
    /// Its id.
    pub id: InvitationId,
    /// Where to.
    pub organization: OrganizationId,
    /// Who, in lower case.
    pub email: String,
    /// Their first name, if it is known.
    pub first_name: Option<String>,
    /// Their last name, if it is known.
    pub last_name: Option<String>,
    /// What they may do when they have accepted.
    pub role: Role,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// From when on it can't be accepted any more.
    pub expires_at: DateTime<Utc>,
    /// Whether it could be accepted when it was read.
    pub is_pending: bool,
    /// Whether there is an account at the address, and nobody has shown that the address is theirs.
    pub has_unverified_account: bool,
}

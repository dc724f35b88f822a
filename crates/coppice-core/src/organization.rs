//! Organizations and the roles of their members.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{OrganizationId, UserId};

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
    /// Reads a name of the metastore; one that is not known is not understood.
    pub fn parse(text: &str) -> Self {
        match text {
            "ok" => Self::Ok,
            "no_payment_method" => Self::NoPaymentMethod,
            "invoice_overdue" => Self::InvoiceOverdue,
            "deletion_requested" => Self::DeletionRequested,
            _ => Self::Unknown,
        }
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

    /// Reads a name of the metastore.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Owner, Self::Admin, Self::Editor, Self::Viewer].into_iter().find(|role| role.as_str() == text)
    }
}

/// A person with an account.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// Their id.
    pub id: UserId,
    /// Unique without regard to case.
    pub email: String,
    /// What they want to be called; empty when unset.
    pub name: String,
    /// When the account was made.
    pub created_at: DateTime<Utc>,
}

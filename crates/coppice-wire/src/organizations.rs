//! Organizations and users.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BillingMarketplace, Timestamp};

/// Whether an organization may make and run branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrganizationState {
    /// It may.
    Enabled,
    /// It may only look and delete.
    Disabled,
}

/// Whether an organization's databases are paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BillingStatus {
    /// Nothing is owed.
    Ok,
    /// A payment method is needed and missing.
    NoPaymentMethod,
    /// An invoice is overdue.
    InvoiceOverdue,
    /// The payment provider's word was not understood.
    Unknown,
    /// The owner asked for deletion.
    DeletionRequested,
}

/// How much trust an organization has earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageTier {
    /// New.
    T1,
    /// Has a payment method, or was raised by the operator.
    T2,
}

/// What an organization may do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrganizationStatus {
    /// Enabled unless the operator or billing says otherwise.
    pub status: OrganizationState,
    /// Whether the operator switched it off.
    pub disabled_by_admin: bool,
    /// Whether it is paid for.
    pub billing_status: BillingStatus,
    /// How much trust it has earned.
    pub usage_tier: UsageTier,
    /// When any of this last changed.
    pub last_updated: Timestamp,
    /// The operator's reason; empty when there is none.
    #[schema(example = "")]
    pub admin_reason: String,
    /// The billing's reason; empty when there is none.
    #[schema(example = "")]
    pub billing_reason: String,
    /// When the organization was made.
    pub created_at: Timestamp,
}

/// An organization: the tenant that owns projects and keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organization {
    /// Its id.
    #[schema(example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[a-zA-Z0-9_~:-]+$", max_length = 128)]
    pub id: String,
    /// Not unique.
    #[schema(example = "Acme", min_length = 1, max_length = 128)]
    pub name: String,
    /// What it may do.
    pub status: OrganizationStatus,
}

/// A new organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeOrganization {
    #[serde(flatten)]
    #[schema(inline)]
    #[expect(missing_docs, reason = "its fields say it all")]
    pub organization: Organization,
    /// The marketplace that it is billed through; absent when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marketplace: Option<BillingMarketplace>,
}

/// An organization with its settings: the answer of getOrganization and updateOrganization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrganizationDetails {
    #[serde(flatten)]
    #[schema(inline)]
    #[expect(missing_docs, reason = "its fields say it all")]
    pub organization: Organization,
    /// Whether only those members get in who signed in with a second factor. Keys of members work when
    /// they were made by who had, keys of the organization in any case.
    pub requires_second_factor: bool,
}

/// Answer of getOrganizationsList.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OrganizationList {
    /// Oldest first.
    pub organizations: Vec<Organization>,
}

/// Body of createOrganization.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateOrganization {
    /// Its name; need not be unique.
    #[schema(example = "Acme", min_length = 1, max_length = 128, format = "name")]
    pub name: String,
}

/// Body of updateOrganization.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UpdateOrganization {
    /// When given, the id in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4", format = "looked-up")]
    pub id: Option<String>,
    /// The new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Acme", min_length = 1, max_length = 128, format = "name")]
    pub name: Option<String>,
    /// Whether members have to sign in with a second factor. Only who has done so may turn it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_second_factor: Option<bool>,
}

/// A person with an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    /// Their id.
    #[schema(example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[a-zA-Z0-9_~:-]+$", max_length = 128)]
    pub id: String,
    /// Their address; unique without regard to case.
    #[schema(example = "ada@example.com", format = "email", max_length = 254)]
    pub email: String,
    /// What they want to be called; empty when unset.
    #[schema(example = "Ada", max_length = 128)]
    pub name: String,
    /// When the account was made.
    pub created_at: Timestamp,
}

/// Body of updateUser.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UpdateUser {
    /// What they want to be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Ada", max_length = 128, format = "name")]
    pub name: Option<String>,
}

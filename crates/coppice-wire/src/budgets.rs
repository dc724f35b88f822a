//! What organizations may use in a month.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Whose use a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetCovers {
    /// Of every branch of the organization.
    Organization,
    /// Of every branch of a project.
    Project,
    /// Of one branch.
    Branch,
    /// Of the branches that were made with a key.
    Key,
}

/// What may be used in a month of UTC before branches are put to sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// What it is of: the organization, or a project, a branch or a key of it.
    #[serde(rename = "subjectID")]
    #[schema(example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub subject_id: String,
    /// Which of those that is.
    pub covers: BudgetCovers,
    /// What that is called; null for a key that is deleted.
    #[schema(required, example = "shop")]
    pub name: Option<String>,
    /// The project of a branch.
    #[serde(rename = "projectID")]
    #[schema(required, example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub project_id: Option<String>,
    /// How much there is in a month.
    #[schema(example = "20.00")]
    pub limit: String,
    /// Of what: a currency by ISO 4217, or `instance-hours`.
    #[schema(example = "EUR")]
    pub unit: String,
    /// How much of it is used this month; null when that can't be told, as the platform has no prices in that currency.
    #[schema(required, example = "12.500000")]
    pub used: Option<String>,
    /// The greatest of 50, 80 and 100 percent that is reached; 0 before.
    #[schema(example = 50)]
    pub reached: u32,
    /// When it begins anew.
    pub renews_at: Timestamp,
    /// When it was last set.
    pub updated_at: Timestamp,
}

/// Answer of listBudgets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BudgetList {
    /// That of the organization first, then by what they are of.
    pub budgets: Vec<Budget>,
}

/// Body of setBudget.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SetBudget {
    /// How much there is in a month: a decimal, greater than zero.
    #[schema(
        example = "20.00",
        max_length = 16,
        pattern = "^([1-9][0-9]{0,8}(\\.[0-9]{1,6})?|0\\.0{0,5}[1-9][0-9]{0,5})$",
        format = "limit"
    )]
    pub limit: String,
    /// Of what: the currency of the price list, or `instance-hours`. Without it the currency, where there is a price
    /// list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "EUR", max_length = 14, format = "looked-up")]
    pub unit: Option<String>,
}

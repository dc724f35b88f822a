//! What the schemas of two branches differ in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of diffBranches.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchDiff {
    /// The branch it was compared with, which `sql` is for.
    pub against: ComparedBranch,
    /// The branch that it becomes like by that.
    pub branch: ComparedBranch,
    /// Where on both.
    #[schema(example = "app")]
    pub database: String,
    /// Objects that are not the same; none if there is no difference.
    pub objects: Vec<ObjectDifference>,
    /// What makes `against` what `branch` is, in this order.
    pub statements: Vec<DiffStatement>,
    /// The statements as a script for `psql`, to be run as `app`.
    pub sql: String,
    /// Kinds of objects that were found and not looked at.
    pub not_compared: Vec<NotCompared>,
}

/// A branch that was compared.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ComparedBranch {
    /// Its id.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub id: String,
    /// Its name.
    #[schema(example = "main")]
    pub name: String,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DifferenceKind {
    /// It is on the branch only.
    Added,
    /// It is not the same.
    Changed,
    /// It is on the other branch only.
    Removed,
}

/// An object that is not the same on both.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectDifference {
    /// For example table, constraint, index, view, function, trigger, policy or type.
    #[schema(example = "table")]
    pub kind: String,
    /// Its name, as SQL has it.
    #[schema(example = "public.orders")]
    pub name: String,
    /// What happened to it.
    pub change: DifferenceKind,
    /// What makes it as it is on `against`; none where it isn't there.
    pub before: Option<String>,
    /// What makes it as it is on `branch`; none where it isn't there.
    pub after: Option<String>,
}

/// A step from one schema to the other.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffStatement {
    /// One statement; a comment where a person has to do it.
    #[schema(example = "ALTER TABLE public.orders ADD COLUMN paid boolean DEFAULT false NOT NULL")]
    pub sql: String,
    /// Whether data is gone by it, or is converted.
    pub loses_data: bool,
    /// Whether a person has to do it, as it says.
    pub manual: bool,
    /// Whether it comes before the transaction that all others are in.
    pub before_transaction: bool,
}

/// Objects of a kind that is not compared.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NotCompared {
    /// For example aggregate, event trigger or foreign table.
    #[schema(example = "aggregate")]
    pub kind: String,
    /// How many there are on `against`.
    pub against: u64,
    /// How many there are on `branch`.
    pub branch: u64,
}

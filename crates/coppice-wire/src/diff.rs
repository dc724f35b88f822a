//! What the schemas of two branches differ in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

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
    /// What the branch has written, or been given, that `against` has not; none unless it
    /// was asked for.
    pub changed_bytes: Option<ChangedBytes>,
}

/// What tables of a branch have on the disk that those of another one have not.
///
/// Blocks are compared by where they are on the disk, not by what is in them: after a
/// branch was made from another, a block differs once either of them has written it, also
/// when it says the same as before, as for example after VACUUM. What a server has not
/// written to its files yet does not count: a checkpoint does that.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBytes {
    /// Why it can't be told; none where it can. The numbers are 0 then.
    #[schema(example = "branches are plain copies here, which share no blocks")]
    pub unknown: Option<String>,
    /// When the last checkpoint of the branch began: what was changed before is counted.
    pub checkpointed_at: Option<Timestamp>,
    /// Bytes of all relations of the database.
    pub total_bytes: u64,
    /// Of these, bytes that `against` has not.
    pub changed_bytes: u64,
    /// Relations with such bytes, those with the most first; at most 1000.
    pub relations: Vec<RelationBytes>,
    /// How many more there are.
    pub left_off: u64,
}

/// What a relation takes on the disk.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelationBytes {
    /// For example table, materialized view, sequence, or catalog, which stands for all of
    /// `pg_catalog`.
    #[schema(example = "table")]
    pub kind: String,
    /// Its name, as SQL has it.
    #[schema(example = "public.orders")]
    pub name: String,
    /// Bytes of its files, those of its indexes and of values kept apart included.
    pub bytes: u64,
    /// Of these, bytes that `against` has not.
    pub changed_bytes: u64,
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

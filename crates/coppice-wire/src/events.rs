//! What happened in an organization.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BudgetCovers, Timestamp};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum EventType {
    /// A branch was made; it is not ready yet.
    #[serde(rename = "branch.created")]
    BranchCreated,
    /// A branch accepts connections: for the first time, after it had failed, or after it was brought back.
    #[serde(rename = "branch.ready")]
    BranchReady,
    /// A branch sleeps.
    #[serde(rename = "branch.hibernated")]
    BranchHibernated,
    /// A branch that slept accepts connections.
    #[serde(rename = "branch.woken")]
    BranchWoken,
    /// A branch can't be brought up; that is still being tried.
    #[serde(rename = "branch.failed")]
    BranchFailed,
    /// The time of a branch is over within a day.
    #[serde(rename = "branch.expiring")]
    BranchExpiring,
    /// A branch was deleted, into the trash or for good.
    #[serde(rename = "branch.deleted")]
    BranchDeleted,
    /// The password of a branch's managed role was replaced.
    #[serde(rename = "credentials.rotated")]
    CredentialsRotated,
    /// Somebody became a member.
    #[serde(rename = "member.added")]
    MemberAdded,
    /// Somebody is no member any more.
    #[serde(rename = "member.removed")]
    MemberRemoved,
    /// A key of the organization was made.
    #[serde(rename = "key.created")]
    KeyCreated,
    /// A key of the organization was deleted.
    #[serde(rename = "key.deleted")]
    KeyDeleted,
    /// Half, four fifths or all of a budget is used up.
    #[serde(rename = "budget.reached")]
    BudgetReached,
    /// A full copy of a branch is in the store.
    #[serde(rename = "backup.completed")]
    BackupCompleted,
    /// A full copy of a branch could not be made; that is still being tried.
    #[serde(rename = "backup.failed")]
    BackupFailed,
    /// A full copy of a branch was restored for proof, and is sound.
    #[serde(rename = "restore.verified")]
    RestoreVerified,
    /// A full copy of a branch was restored for proof, and is not.
    #[serde(rename = "restore.failed")]
    RestoreFailed,
}

/// What an event is about. Which fields there are depends on its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventData {
    /// The organization.
    #[schema(example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub organization_id: String,
    /// The project of the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub project_id: Option<String>,
    /// The branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub branch_id: Option<String>,
    /// What the branch was called then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "main")]
    pub name: Option<String>,
    /// Of `branch.failed`: why, if that is known; the branch shows the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "its server does not start")]
    pub reason: Option<String>,
    /// Of `branch.expiring`: when it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Timestamp>,
    /// Of `branch.deleted`: until when it can be brought back; absent when it can't be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub purge_at: Option<Timestamp>,
    /// The member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub user_id: Option<String>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "key_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub key_id: Option<String>,
    /// Of `budget.reached`: whose use the budget counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub covers: Option<BudgetCovers>,
    /// Of `budget.reached`: the part that is reached, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 80)]
    pub threshold: Option<u32>,
    /// Of `budget.reached`: how much there is in a month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "20.00")]
    pub limit: Option<String>,
    /// Of `budget.reached`: of what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "EUR")]
    pub unit: Option<String>,
    /// Of `budget.reached`: the month in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "2026-01")]
    pub month: Option<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its id.
    #[schema(example = "evt_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// What happened.
    pub r#type: EventType,
    /// When.
    pub timestamp: Timestamp,
    /// To what.
    pub data: EventData,
}

/// Answer of listEvents.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The oldest first.
    pub events: Vec<Event>,
    /// As `after`, goes on behind these.
    #[schema(example = "17")]
    pub cursor: String,
}

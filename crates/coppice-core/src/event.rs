//! What happens in an organization, for those who want to hear of it.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// A branch was made; it is not ready yet.
    BranchCreated,
    /// A branch accepts connections: for the first time, after it had failed,
    /// or after it was brought back from the trash.
    BranchReady,
    /// A branch sleeps.
    BranchHibernated,
    /// A branch that slept accepts connections.
    BranchWoken,
    /// A branch can't be brought up; that is still being tried.
    BranchFailed,
    /// The time of a branch is over soon.
    BranchExpiring,
    /// A branch was deleted, into the trash or for good.
    BranchDeleted,
    /// The managed role of a branch has another password.
    CredentialsRotated,
    /// Somebody became a member.
    MemberAdded,
    /// Somebody is no member any more.
    MemberRemoved,
    /// A key of the organization was made.
    KeyCreated,
    /// A key of the organization was deleted.
    KeyDeleted,
    /// Half, four fifths or all of a budget is used up.
    BudgetReached,
    /// A base of a branch is in the store.
    BackupCompleted,
    /// A base of a branch could not be made; that is still being tried.
    BackupFailed,
    /// A base of a branch was restored for proof, and is sound.
    RestoreVerified,
    /// A base of a branch was restored for proof, and is not.
    RestoreFailed,
}

names!(EventType {
    BranchCreated = "branch.created",
    BranchReady = "branch.ready",
    BranchHibernated = "branch.hibernated",
    BranchWoken = "branch.woken",
    BranchFailed = "branch.failed",
    BranchExpiring = "branch.expiring",
    BranchDeleted = "branch.deleted",
    CredentialsRotated = "credentials.rotated",
    MemberAdded = "member.added",
    MemberRemoved = "member.removed",
    KeyCreated = "key.created",
    KeyDeleted = "key.deleted",
    BudgetReached = "budget.reached",
    BackupCompleted = "backup.completed",
    BackupFailed = "backup.failed",
    RestoreVerified = "restore.verified",
    RestoreFailed = "restore.failed",
});

impl EventType {
    /// Their names, as the metastore keeps them.
    pub fn names(types: &[Self]) -> Vec<String> {
        types.iter().map(|kind| kind.as_str().to_owned()).collect()
    }
}

/// Hours before its end that it is told of a branch.
pub const EXPIRY_NOTICE_HOURS: u32 = 24;

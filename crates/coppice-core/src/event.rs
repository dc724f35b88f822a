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
});

/// Hours before its end that it is told of a branch.
pub const EXPIRY_NOTICE_HOURS: u32 = 24;

//! Scopes, and which of them a role carries.

use crate::organization::Role;

/// Every scope an operation may need, by its API name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the API name beside each variant says it all")]
pub enum Scope {
    OrgRead,
    OrgWrite,
    KeysRead,
    KeysWrite,
    ProjectRead,
    ProjectWrite,
    BranchRead,
    BranchWrite,
    MetricsRead,
    LogsRead,
    DataRead,
    CredentialsRead,
    CredentialsWrite,
    InviteRead,
    InviteWrite,
    MarketplaceWrite,
    AuditRead,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 17] = [
        Self::OrgRead,
        Self::OrgWrite,
        Self::KeysRead,
        Self::KeysWrite,
        Self::ProjectRead,
        Self::ProjectWrite,
        Self::BranchRead,
        Self::BranchWrite,
        Self::MetricsRead,
        Self::LogsRead,
        Self::DataRead,
        Self::CredentialsRead,
        Self::CredentialsWrite,
        Self::InviteRead,
        Self::InviteWrite,
        Self::MarketplaceWrite,
        Self::AuditRead,
    ];

    /// What agents are told to ask for: to look, and at nothing that is secret.
    pub const OF_AGENTS: [Self; 5] =
        [Self::OrgRead, Self::ProjectRead, Self::BranchRead, Self::MetricsRead, Self::LogsRead];

    /// Whether it is needed to change something, not only to look.
    pub const fn allows_changes(self) -> bool {
        match self {
            Self::OrgRead
            | Self::KeysRead
            | Self::ProjectRead
            | Self::BranchRead
            | Self::MetricsRead
            | Self::LogsRead
            | Self::DataRead
            | Self::CredentialsRead
            | Self::InviteRead
            | Self::AuditRead => false,
            Self::OrgWrite
            | Self::KeysWrite
            | Self::ProjectWrite
            | Self::BranchWrite
            | Self::CredentialsWrite
            | Self::InviteWrite
            | Self::MarketplaceWrite => true,
        }
    }

    /// The scope with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }

    /// The name in tokens and keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrgRead => "org:read",
            Self::OrgWrite => "org:write",
            Self::KeysRead => "keys:read",
            Self::KeysWrite => "keys:write",
            Self::ProjectRead => "project:read",
            Self::ProjectWrite => "project:write",
            Self::BranchRead => "branch:read",
            Self::BranchWrite => "branch:write",
            Self::MetricsRead => "metrics:read",
            Self::LogsRead => "logs:read",
            Self::DataRead => "data:read",
            Self::CredentialsRead => "credentials:read",
            Self::CredentialsWrite => "credentials:write",
            Self::InviteRead => "invite:read",
            Self::InviteWrite => "invite:write",
            Self::MarketplaceWrite => "marketplace:write",
            Self::AuditRead => "audit:read",
        }
    }
}

impl Role {
    /// Whether whoever has this role may do all that another one may.
    pub fn carries_all_of(self, other: Self) -> bool {
        Scope::ALL.into_iter().all(|scope| self.carries(scope) || !other.carries(scope))
    }

    /// Whether a member with this role may use `scope` in the organization.
    pub fn carries(self, scope: Scope) -> bool {
        use Scope::*;
        match self {
            Self::Owner | Self::Admin => true,
            Self::Editor => match scope {
                OrgRead | InviteRead | KeysRead | ProjectRead | ProjectWrite | BranchRead | BranchWrite
                | CredentialsRead | CredentialsWrite | DataRead | MetricsRead | LogsRead => true,
                OrgWrite | KeysWrite | InviteWrite | MarketplaceWrite | AuditRead => false,
            },
            Self::Viewer => match scope {
                OrgRead | ProjectRead | BranchRead | MetricsRead | LogsRead => true,
                OrgWrite | KeysRead | KeysWrite | ProjectWrite | BranchWrite | DataRead | CredentialsRead
                | CredentialsWrite | InviteRead | InviteWrite | MarketplaceWrite | AuditRead => false,
            },
        }
    }
}

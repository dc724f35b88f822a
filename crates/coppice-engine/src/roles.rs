//! What roles need to prove, and what is known of that without their server.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Longest name of a role in bytes: `NAMEDATALEN - 1` (PostgreSQL manual,
/// section 4.1.1). A server cuts longer ones, so nobody has one.
pub const ROLE_LENGTH_MAX: usize = 63;
/// Longest verifier in bytes that is taken from a server, which is PostgreSQL's
/// own limit from 18 on; before, a role's owner could choose any length.
pub const VERIFIER_LENGTH_MAX: usize = 512;

/// What a role needs to prove to sign in.
#[derive(Clone, PartialEq, Eq)]
pub enum RoleVerifier {
    /// A SCRAM-SHA-256 verifier as in `pg_authid.rolpassword`.
    Scram(String),
    /// The role exists and has an MD5 hash.
    Md5,
    /// The role exists and has no password, or none that is taken.
    NoPassword,
}

impl std::fmt::Debug for RoleVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scram(_) => "Scram",
            Self::Md5 => "Md5",
            Self::NoPassword => "NoPassword",
        })
    }
}

/// What is known of a role without asking its server.
#[derive(Clone, PartialEq, Eq)]
pub enum KeptRole {
    /// Nothing: only the server can tell.
    Unknown,
    /// There is no such role, or it has nothing to sign in with.
    Nothing,
    /// Its SCRAM-SHA-256 verifier.
    Verifier(String),
}

impl std::fmt::Debug for KeptRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "Unknown",
            Self::Nothing => "Nothing",
            Self::Verifier(_) => "Verifier",
        })
    }
}

/// What authenticates the clients of a stopped server.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SleepingRoles {
    /// SCRAM-SHA-256 verifiers by role; roles that can't sign in are left out,
    /// and so are those beyond [`SleepingRoles::ROLES_MAX`].
    pub verifiers: BTreeMap<String, String>,
}

impl SleepingRoles {
    /// Most roles that are kept of a server: the managed one, those that may
    /// log in, the oldest first.
    pub const ROLES_MAX: usize = 1000;

    /// Whether this is no more than an engine would say.
    pub fn is_within_bounds(&self) -> bool {
        let is_short = |(role, verifier): (&String, &String)| {
            role.len() <= ROLE_LENGTH_MAX && verifier.len() <= VERIFIER_LENGTH_MAX
        };
        self.verifiers.len() <= Self::ROLES_MAX && self.verifiers.iter().all(is_short)
    }
}

impl std::fmt::Debug for SleepingRoles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SleepingRoles({})", self.verifiers.len())
    }
}

//! Logins of keys: roles of their own on a branch, which end with the key.
//!
//! A login is named as its key, so `\du`, `pg_stat_activity` and logs say whose it
//! is. A role of such a name signs in by what the platform keeps of the key and
//! by nothing that is in the catalogue of a server, which its owner can change and
//! which a copy inherits.

use std::fmt;

use crate::{ApiKeyId, VercelLoginId};

/// What a login may do on its branch. Each may do what those before it may.
///
/// None of them is the managed role, or one of its members: who can act as the
/// owner of a table once can have the server act so later, by the expression of
/// an index that autovacuum evaluates for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatabaseRole {
    /// Reads every table.
    Reader,
    /// Adds, changes and removes rows, too.
    Writer,
    /// Has a schema of its own, too, and owns what it makes there.
    Owner,
}

names! {
    DatabaseRole {
        Reader = "reader",
        Writer = "writer",
        Owner = "owner",
    }
}

impl DatabaseRole {
    /// All of them, the smallest first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Writer, Self::Owner];
}

/// A login as it is made on a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Whose it is, and what it is called.
    pub key: ApiKeyId,
    /// What it may do.
    pub database_role: DatabaseRole,
    /// Its password as a SCRAM-SHA-256 verifier.
    pub verifier: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({} {})", self.key, self.database_role.as_str())
    }
}

/// The key whose login has this name; none for names that no login has.
pub fn key_of_login(role: &str) -> Option<ApiKeyId> {
    ApiKeyId::parse(role)
}

/// Whether a role of this name is let in by what the platform keeps, and by nothing
/// that is in the catalogue of a server: it ends when the platform says so.
pub fn is_login(role: &str) -> bool {
    key_of_login(role).is_some() || VercelLoginId::parse(role).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_a_key_is_the_name_of_a_login() {
        let key = ApiKeyId::generate(chrono::Utc::now());
        assert_eq!(key_of_login(key.as_str()), Some(key.clone()));
        let shouted = key.as_str().to_uppercase();
        for other in ["app", "key_", "key_manager", &format!("{key}0"), &key.as_str()[..29], &shouted] {
            assert_eq!(key_of_login(other), None, "{other}");
            assert!(!is_login(other), "{other}");
        }
        let told = VercelLoginId::generate(chrono::Utc::now());
        assert!(is_login(key.as_str()) && is_login(told.as_str()) && key_of_login(told.as_str()).is_none());
    }

    #[test]
    fn roles_go_from_the_smallest_to_the_largest() {
        assert!(DatabaseRole::ALL.is_sorted());
        for role in DatabaseRole::ALL {
            assert_eq!(DatabaseRole::parse(role.as_str()), Some(role));
        }
    }
}

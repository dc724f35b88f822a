//! Scopes, roles and the limits of a key: may this caller do this?

mod grant;
mod scope;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::organization::{Organization, Role};
use crate::{ApiKeyId, Error, ErrorCode, OrganizationId, Result, SessionId, UserId, VercelInstallationId};

pub use grant::Grant;
pub use scope::Scope;

/// On whose behalf a request acts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A person, through a token or a user key.
    User(UserId),
    /// An organization, through one of its keys; acts as an admin.
    Organization(OrganizationId),
}

/// What a caller showed; rates and uses are counted per credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CredentialId {
    /// An API key.
    Key(ApiKeyId),
    /// An access token of this session.
    Session(SessionId),
    /// The cookie of a browser session, which is known by this hash of it.
    Browser(String),
    /// A token that Vercel made for this installation.
    Vercel(VercelInstallationId),
}

/// Characters of a hash that tell browser sessions apart for people.
const HASH_SHOWN: usize = 26;

impl CredentialId {
    /// The key, if it was one.
    pub fn key(&self) -> Option<&ApiKeyId> {
        match self {
            Self::Key(key) => Some(key),
            Self::Session(_) | Self::Browser(_) | Self::Vercel(_) => None,
        }
    }

    /// The session, if it was an access token.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Key(_) | Self::Browser(_) | Self::Vercel(_) => None,
            Self::Session(session) => Some(session),
        }
    }

    /// The hash of the cookie, if it was a browser's.
    pub fn browser(&self) -> Option<&str> {
        match self {
            Self::Key(_) | Self::Session(_) | Self::Vercel(_) => None,
            Self::Browser(hash) => Some(hash),
        }
    }

    /// Its name for people and logs; lets nobody in.
    pub fn name(&self) -> String {
        match self {
            Self::Key(key) => key.to_string(),
            Self::Session(session) => session.to_string(),
            Self::Browser(hash) => format!("brs_{}", hash.get(..HASH_SHOWN).unwrap_or(hash)),
            Self::Vercel(installation) => installation.to_string(),
        }
    }
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// On whose behalf.
    pub principal: Principal,
    /// What it showed.
    pub credential: CredentialId,
    /// What that allows.
    pub grant: Grant,
    /// When it ends, and with it whatever it makes: the expiry of a key, or the
    /// end of a session that was given some scopes only. None for a session
    /// with every scope, which stands for the person.
    pub expiry: Option<DateTime<Utc>>,
    /// Whether it is a browser whose person showed too long ago who they are for what
    /// can't be undone, or a token of a client that such a browser let in. Keys are
    /// never: those that may do it are made by nobody who is.
    pub is_stale: bool,
}

impl Caller {
    /// When a key that the caller makes ends; none is never.
    ///
    /// # Errors
    /// `scope_not_grantable` when it would outlive the caller's credential.
    pub fn expiry_of_key(&self, asked: AskedExpiry) -> Result<Option<DateTime<Utc>>> {
        let asked = match (asked, self.expiry) {
            (AskedExpiry::Unsaid, own) => return Ok(own),
            (AskedExpiry::Never, None) => return Ok(None),
            (AskedExpiry::At(time), None) => return Ok(Some(time)),
            (AskedExpiry::At(time), Some(own)) if time <= own => return Ok(Some(time)),
            (AskedExpiry::At(time), Some(_)) => time.to_rfc3339_opts(SecondsFormat::Millis, true),
            (AskedExpiry::Never, Some(_)) => "never".to_owned(),
        };
        let own = self.expiry.map(|own| own.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default();
        Err(Error::Forbidden {
            code: ErrorCode::ScopeNotGrantable,
            public: format!(
                "cannot grant expiry {asked}: the credential that makes the key ends at {own}, and the key must \
                 not outlive it; ask for an expiry until then or for none, or use a credential that lasts longer"
            ),
        })
    }
}

impl Caller {
    /// Whether the caller may make somebody a member with a role: a member
    /// stays, and may do all that the role carries.
    ///
    /// # Errors
    /// `scope_not_grantable` when a member would outlive the caller's
    /// credential, or could do what that may not.
    pub fn check_grantable(&self, role: Role) -> Result<()> {
        let refused = |why: String| Error::Forbidden {
            code: ErrorCode::ScopeNotGrantable,
            public: format!("cannot grant role {}: {why}", role.as_str()),
        };
        if let Some(own) = self.expiry {
            let own = own.to_rfc3339_opts(SecondsFormat::Millis, true);
            return Err(refused(format!(
                "a member stays, and this credential ends at {own}; use one that does not end"
            )));
        }
        let lacking =
            Scope::ALL.into_iter().find(|scope| role.carries(*scope) && !self.grant.has_scope(*scope));
        match lacking {
            Some(scope) => Err(refused(format!("this credential lacks the scope {}", scope.as_str()))),
            None => Ok(()),
        }
    }
}

/// What is asked for as the end of a key or a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskedExpiry {
    /// Nothing: a new key ends with the credential that makes it, and a branch when it would.
    #[default]
    Unsaid,
    /// Never, until somebody deletes it.
    Never,
    /// At this time.
    At(DateTime<Utc>),
}

/// How an operation treats a key that is limited to projects or branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedKeys {
    /// Allowed; lists are filtered, ids in the path are checked.
    Allowed,
    /// A key limited to branches may not; one that is for what it makes may, for
    /// this is how it makes them.
    MakesBranches,
    /// A key limited to branches may not.
    RefusedWithBranchLimit,
    /// A key with a login of its own may not: others would get the managed role's password by it.
    RefusedWithLogin,
    /// No limited key may.
    Refused,
}

/// Check 6, for what no scope is about, such as changing one's own account:
/// only a credential for everything is enough.
///
/// # Errors
/// `insufficient_scope`
pub fn check_every_scope(caller: &Caller) -> Result<()> {
    if caller.grant.has_every_scope() {
        return Ok(());
    }
    Err(Error::InsufficientScope { needed: "*" })
}

/// Check 6 of the order of checks: the credential's scope.
///
/// # Errors
/// `insufficient_scope`
pub fn check_scope(caller: &Caller, scope: Scope) -> Result<()> {
    if caller.grant.has_scope(scope) {
        return Ok(());
    }
    Err(Error::InsufficientScope { needed: scope.as_str() })
}

/// Check 7: people only, where the operation says so; returns who it is.
///
/// # Errors
/// `user_required`
pub fn check_user(caller: &Caller) -> Result<&UserId> {
    match &caller.principal {
        Principal::User(user) => Ok(user),
        Principal::Organization(_) => {
            Err(Error::access_denied(ErrorCode::UserRequired, "this operation needs a user's credential"))
        }
    }
}

/// Last of all: whether who calls showed just now who they are. Whoever finds a browser
/// signed in must not be able to do with it what can't be undone, or to stay.
///
/// # Errors
/// `fresh_sign_in_required`
pub fn check_fresh(caller: &Caller) -> Result<()> {
    if !caller.is_stale {
        return Ok(());
    }
    Err(Error::Forbidden {
        code: ErrorCode::FreshSignInRequired,
        public: "this can't be undone or lets somebody in: sign in again, then ask once more".to_owned(),
    })
}

/// Check 8, after that the caller is a member: whether it showed a second
/// factor, where the organization asks for one. `place` is where people add one.
///
/// # Errors
/// `second_factor_required`
pub fn check_second_factor(
    organization: &Organization,
    caller: &Caller,
    has_second_factor: bool,
    place: &str,
) -> Result<()> {
    if has_second_factor || !organization.requires_second_factor {
        return Ok(());
    }
    let what_next = match caller.credential {
        CredentialId::Session(_) | CredentialId::Browser(_) => {
            "add one at {place} if you have none, then sign in again"
        }
        CredentialId::Key(_) | CredentialId::Vercel(_) => {
            "this key was made without one: add one at {place} if you have none, sign in with it, and make a new key"
        }
    };
    Err(Error::access_denied(
        ErrorCode::SecondFactorRequired,
        format_args!(
            "organization {} asks for a second factor: {}",
            organization.id,
            what_next.replace("{place}", place)
        ),
    ))
}

/// Check 9, for operations that only the owner may carry out.
///
/// # Errors
/// `owner_required`
pub fn check_owner(role: Option<Role>) -> Result<()> {
    if role == Some(Role::Owner) {
        return Ok(());
    }
    Err(Error::Forbidden { code: ErrorCode::OwnerRequired, public: "only the owner can do this".to_owned() })
}

/// Check 9: the member's role. `role` is none for an organization's own key.
///
/// # Errors
/// `role_not_allowed`
pub fn check_role(role: Option<Role>, scope: Scope) -> Result<()> {
    match role {
        Some(role) if !role.carries(scope) => Err(Error::access_denied(
            ErrorCode::RoleNotAllowed,
            format_args!("the role {} does not allow {}", role.as_str(), scope.as_str()),
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<()>) -> &'static str {
        result.map_or_else(|error| error.code().as_str(), |()| "ok")
    }

    #[test]
    fn a_viewer_looks_and_does_not_touch() {
        assert_eq!(code(check_role(Some(Role::Viewer), Scope::BranchRead)), "ok");
        assert_eq!(code(check_role(Some(Role::Viewer), Scope::BranchWrite)), "role_not_allowed");
        assert_eq!(code(check_role(Some(Role::Viewer), Scope::CredentialsRead)), "role_not_allowed");
    }

    #[test]
    fn a_credential_makes_no_member_who_outlives_it_or_may_do_more() {
        let caller = |scopes: &[&str], expiry| Caller {
            principal: Principal::User(UserId::from_trusted("usr_1")),
            credential: CredentialId::Key(ApiKeyId::from_trusted("key_1")),
            grant: Grant {
                scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
                ..Grant::everything()
            },
            expiry,
            is_stale: false,
        };
        let looking =
            ["org:read", "project:read", "branch:read", "metrics:read", "logs:read", "invite:write"];
        for (caller, role, expected) in [
            (caller(&["*"], None), Role::Admin, "ok"),
            (caller(&["*"], Some(Utc::now())), Role::Viewer, "scope_not_grantable"),
            (caller(&["invite:write"], None), Role::Viewer, "scope_not_grantable"),
            (caller(&looking, None), Role::Viewer, "ok"),
            (caller(&looking, None), Role::Editor, "scope_not_grantable"),
            (caller(&looking, None), Role::Admin, "scope_not_grantable"),
        ] {
            assert_eq!(code(caller.check_grantable(role)), expected, "{role:?} by {:?}", caller.grant);
        }
    }

    #[test]
    fn a_key_does_not_outlive_the_credential_that_makes_it() {
        let now = Utc::now();
        let caller = |expiry| Caller {
            principal: Principal::User(UserId::from_trusted("usr_1")),
            credential: CredentialId::Key(ApiKeyId::from_trusted("key_1")),
            grant: Grant::everything(),
            expiry,
            is_stale: false,
        };
        let (early, own, late) = (now, now + chrono::TimeDelta::seconds(4), now + chrono::TimeDelta::days(1));
        let ending = caller(Some(own));
        assert_eq!(ending.expiry_of_key(AskedExpiry::Unsaid).expect("its own"), Some(own));
        assert_eq!(ending.expiry_of_key(AskedExpiry::At(early)).expect("earlier"), Some(early));
        assert_eq!(ending.expiry_of_key(AskedExpiry::At(own)).expect("as late"), Some(own));
        for beyond in [AskedExpiry::Never, AskedExpiry::At(late)] {
            let refused = ending.expiry_of_key(beyond).expect_err("beyond");
            assert_eq!(refused.code(), ErrorCode::ScopeNotGrantable);
        }
        let endless = caller(None);
        assert_eq!(endless.expiry_of_key(AskedExpiry::Never).expect("never"), None);
        assert_eq!(endless.expiry_of_key(AskedExpiry::At(late)).expect("late"), Some(late));
    }
}

//! Scopes, roles and the limits of a key: may this caller do this?

use chrono::{DateTime, Utc};

use crate::organization::Role;
use crate::{ApiKeyId, BranchId, Error, OrganizationId, ProjectId, Result, SessionId, UserId};

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
    CredentialsRead,
    CredentialsWrite,
    InviteRead,
    InviteWrite,
    MarketplaceWrite,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 15] = [
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
        Self::CredentialsRead,
        Self::CredentialsWrite,
        Self::InviteRead,
        Self::InviteWrite,
        Self::MarketplaceWrite,
    ];

    /// Whether it is needed to change something, not only to look.
    pub const fn allows_changes(self) -> bool {
        match self {
            Self::OrgRead
            | Self::KeysRead
            | Self::ProjectRead
            | Self::BranchRead
            | Self::MetricsRead
            | Self::LogsRead
            | Self::CredentialsRead
            | Self::InviteRead => false,
            Self::OrgWrite
            | Self::KeysWrite
            | Self::ProjectWrite
            | Self::BranchWrite
            | Self::CredentialsWrite
            | Self::InviteWrite
            | Self::MarketplaceWrite => true,
        }
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
            Self::CredentialsRead => "credentials:read",
            Self::CredentialsWrite => "credentials:write",
            Self::InviteRead => "invite:read",
            Self::InviteWrite => "invite:write",
            Self::MarketplaceWrite => "marketplace:write",
        }
    }
}

impl Role {
    /// Whether a member with this role may use `scope` in the organization.
    pub fn carries(self, scope: Scope) -> bool {
        use Scope::*;
        match self {
            Self::Owner | Self::Admin => true,
            Self::Editor => match scope {
                OrgRead | InviteRead | KeysRead | ProjectRead | ProjectWrite | BranchRead | BranchWrite
                | CredentialsRead | CredentialsWrite | MetricsRead | LogsRead => true,
                OrgWrite | KeysWrite | InviteWrite | MarketplaceWrite => false,
            },
            Self::Viewer => match scope {
                OrgRead | ProjectRead | BranchRead | MetricsRead | LogsRead => true,
                OrgWrite | KeysRead | KeysWrite | ProjectWrite | BranchWrite | CredentialsRead
                | CredentialsWrite | InviteRead | InviteWrite | MarketplaceWrite => false,
            },
        }
    }
}

/// On whose behalf a request acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A person, through a token or a user key.
    User(UserId),
    /// An organization, through one of its keys; acts as an admin.
    Organization(OrganizationId),
}

/// Scopes and limits a credential was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Scope names, or empty or `["*"]` for all of them.
    pub scopes: Vec<String>,
    /// Ids of projects, or empty or `["*"]` for no limit.
    pub projects: Vec<String>,
    /// Ids of branches, or empty or `["*"]` for no limit.
    pub branches: Vec<String>,
}

fn limit(list: &[String]) -> Option<&[String]> {
    if list.is_empty() || list.iter().any(|item| item == "*") { None } else { Some(list) }
}

fn normalised(list: Vec<String>) -> Vec<String> {
    if list.iter().any(|item| item == "*") {
        return vec!["*".to_owned()];
    }
    let mut kept: Vec<String> = Vec::with_capacity(list.len());
    for item in list {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

impl Grant {
    /// Everything, without limits.
    pub fn everything() -> Self {
        Self { scopes: vec!["*".to_owned()], projects: vec![], branches: vec![] }
    }

    /// Whether the credential was given this scope; a list without any scope is no limit.
    pub fn has_scope(&self, scope: Scope) -> bool {
        limit(&self.scopes).is_none_or(|scopes| scopes.iter().any(|held| held == scope.as_str()))
    }

    /// What a new key gets that was asked for with these lists.
    ///
    /// Lists are normalised: duplicates go, and `*` among others stands alone.
    /// An empty list means no limit beyond those of `self`, the creator.
    ///
    /// # Errors
    /// `scope_not_grantable` when more is asked for than the creator has.
    pub fn narrowed_to(&self, asked: Grant) -> Result<Grant> {
        let narrow = |what: &str, asked: Vec<String>, own: &[String]| {
            let asked = normalised(asked);
            let Some(own) = limit(own) else { return Ok(asked) };
            if asked.is_empty() {
                return Ok(own.to_vec());
            }
            match asked.iter().find(|item| !own.contains(item)) {
                None => Ok(asked),
                Some(item) => Err(Error::Forbidden {
                    code: "scope_not_grantable",
                    public: format!("cannot grant {what} {item}"),
                }),
            }
        };
        Ok(Grant {
            scopes: narrow("scope", asked.scopes, &self.scopes)?,
            projects: narrow("project", asked.projects, &self.projects)?,
            branches: narrow("branch", asked.branches, &self.branches)?,
        })
    }

    /// The projects it is limited to, if it is.
    pub fn project_limit(&self) -> Option<&[String]> {
        limit(&self.projects)
    }

    /// The branches it is limited to, if it is.
    pub fn branch_limit(&self) -> Option<&[String]> {
        limit(&self.branches)
    }
}

/// What a caller showed; rates and uses are counted per credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CredentialId {
    /// An API key.
    Key(ApiKeyId),
    /// An access token of this session.
    Session(SessionId),
}

impl CredentialId {
    /// The key, if it was one.
    pub fn key(&self) -> Option<&ApiKeyId> {
        match self {
            Self::Key(key) => Some(key),
            Self::Session(_) => None,
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
    /// When the credential ends, if it does.
    pub expiry: Option<DateTime<Utc>>,
}

/// How an operation treats a key that is limited to projects or branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedKeys {
    /// Allowed; lists are filtered, ids in the path are checked.
    Allowed,
    /// A key limited to branches may not.
    RefusedWithBranchLimit,
    /// No limited key may.
    Refused,
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
            Err(Error::access_denied("user_required", "this operation needs a user's credential"))
        }
    }
}

/// Check 9, for operations that only the owner may carry out.
///
/// # Errors
/// `owner_required`
pub fn check_owner(role: Option<Role>) -> Result<()> {
    if role == Some(Role::Owner) {
        return Ok(());
    }
    Err(Error::Forbidden { code: "owner_required", public: "only the owner can do this".to_owned() })
}

/// Check 9, for what only those who run the organization may see. `role` is
/// none for an organization's own key, which acts as an admin.
///
/// # Errors
/// `role_not_allowed`
pub fn check_admin(role: Option<Role>) -> Result<()> {
    match role {
        Some(Role::Owner | Role::Admin) | None => Ok(()),
        Some(Role::Editor | Role::Viewer) => Err(Error::access_denied(
            "role_not_allowed",
            "only owner and admins of the organization may do this",
        )),
    }
}

/// Check 9: the member's role. `role` is none for an organization's own key.
///
/// # Errors
/// `role_not_allowed`
pub fn check_role(role: Option<Role>, scope: Scope) -> Result<()> {
    match role {
        Some(role) if !role.carries(scope) => Err(Error::access_denied(
            "role_not_allowed",
            format_args!("the role {} does not allow {}", role.as_str(), scope.as_str()),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Check 10: project and branch limits of the key.
///
/// `owns_allowed_branch` tells, for a key limited to branches, whether the
/// project owns at least one of them.
///
/// # Errors
/// `restricted_key`, `project_access_denied`, `branch_access_denied`
pub fn check_limits(
    grant: &Grant,
    rule: LimitedKeys,
    project: Option<&ProjectId>,
    branch: Option<&BranchId>,
    owns_allowed_branch: bool,
) -> Result<()> {
    let refused = match rule {
        LimitedKeys::Allowed => false,
        LimitedKeys::RefusedWithBranchLimit => grant.branch_limit().is_some(),
        LimitedKeys::Refused => grant.branch_limit().is_some() || grant.project_limit().is_some(),
    };
    if let Some(project) = project {
        let outside = grant.project_limit().is_some_and(|ids| !ids.iter().any(|id| id == project.as_str()));
        let foreign = grant.branch_limit().is_some() && !owns_allowed_branch;
        if outside || foreign {
            return Err(Error::access_denied(
                "project_access_denied",
                format_args!("this key is limited to other projects than {project}"),
            ));
        }
    }
    if let Some(branch) = branch
        && grant.branch_limit().is_some_and(|ids| !ids.iter().any(|id| id == branch.as_str()))
    {
        return Err(Error::access_denied(
            "branch_access_denied",
            format_args!("this key is limited to other branches than {branch}"),
        ));
    }
    if refused {
        return Err(Error::access_denied(
            "restricted_key",
            "this operation is closed to keys that are limited to projects or branches",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(projects: &[&str], branches: &[&str]) -> Grant {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        Grant { scopes: owned(&["*"]), projects: owned(projects), branches: owned(branches) }
    }

    fn code(result: Result<()>) -> &'static str {
        result.map_or_else(|error| error.code(), |()| "ok")
    }

    #[test]
    fn a_viewer_looks_and_does_not_touch() {
        assert_eq!(code(check_role(Some(Role::Viewer), Scope::BranchRead)), "ok");
        assert_eq!(code(check_role(Some(Role::Viewer), Scope::BranchWrite)), "role_not_allowed");
        assert_eq!(code(check_role(Some(Role::Viewer), Scope::CredentialsRead)), "role_not_allowed");
    }

    #[test]
    fn a_key_limited_to_projects_reaches_those_only() {
        let p1 = ProjectId::from_trusted("prj_1");
        let p2 = ProjectId::from_trusted("prj_2");
        let grant = grant(&["prj_1"], &[]);
        assert_eq!(code(check_limits(&grant, LimitedKeys::Allowed, Some(&p1), None, false)), "ok");
        assert_eq!(
            code(check_limits(&grant, LimitedKeys::Allowed, Some(&p2), None, false)),
            "project_access_denied"
        );
        assert_eq!(code(check_limits(&grant, LimitedKeys::Refused, None, None, false)), "restricted_key");
    }

    #[test]
    fn a_key_limited_to_branches_reaches_those_only() {
        let project = ProjectId::from_trusted("prj_1");
        let mine = BranchId::from_trusted("a1");
        let other = BranchId::from_trusted("a2");
        let grant = grant(&[], &["a1"]);
        let check =
            |branch, owns| check_limits(&grant, LimitedKeys::Allowed, Some(&project), Some(branch), owns);
        assert_eq!(code(check(&mine, true)), "ok");
        assert_eq!(code(check(&other, true)), "branch_access_denied");
        assert_eq!(code(check(&mine, false)), "project_access_denied");
        assert_eq!(
            code(check_limits(&grant, LimitedKeys::RefusedWithBranchLimit, Some(&project), None, true)),
            "restricted_key"
        );
    }

    #[test]
    fn a_key_grants_no_more_than_its_creator_has() {
        let creator = grant(&["prj_1"], &[]);
        let asked = |projects: &[&str]| creator.narrowed_to(Grant { scopes: vec![], ..grant(projects, &[]) });
        assert_eq!(asked(&["prj_1", "prj_1"]).expect("within").projects, ["prj_1"]);
        assert_eq!(asked(&[]).expect("copied").projects, ["prj_1"], "no list means the creator's");
        for beyond in [&["prj_2"][..], &["*"][..]] {
            assert_eq!(asked(beyond).expect_err("beyond").code(), "scope_not_grantable");
        }
    }

    #[test]
    fn lists_of_a_key_are_normalised() {
        let given = grant(&["b", "a", "b"], &["x", "*"]);
        let kept = Grant::everything().narrowed_to(given).expect("everything may be granted");
        assert_eq!(
            (kept.projects, kept.branches),
            (vec!["b".to_owned(), "a".to_owned()], vec!["*".to_owned()])
        );
    }

    #[test]
    fn a_star_is_no_limit() {
        let grant = grant(&["*"], &["*", "a1"]);
        assert_eq!(grant.project_limit(), None);
        assert_eq!(grant.branch_limit(), None);
    }
}

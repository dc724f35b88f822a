//! What a credential was given: scopes and limits.

use super::scope::Scope;
use crate::error::excerpt;
use crate::login::DatabaseRole;
use crate::{Error, ErrorCode, Result};

/// Scopes and limits a credential was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Scope names, or empty or `["*"]` for all of them.
    pub scopes: Vec<String>,
    /// Ids of projects, or empty or `["*"]` for no limit.
    pub projects: Vec<String>,
    /// Ids of branches, or empty or `["*"]` for no limit.
    pub branches: Vec<String>,
    /// Whether it changes nothing but branches that it made, and is shown the
    /// credentials of no others.
    pub own_branches: bool,
    /// How many branches that it made may exist at once, if that is limited.
    pub branches_max: Option<u32>,
    /// What it may do by SQL, as a login of its own on each branch, in place of
    /// the managed role; none is the managed role.
    pub database_role: Option<DatabaseRole>,
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

/// The role of a new key: without one that is asked for, its creator's.
fn narrowed_role(asked: Option<DatabaseRole>, own: Option<DatabaseRole>) -> Result<Option<DatabaseRole>> {
    match (asked, own) {
        (Some(asked), Some(own)) if asked > own => Err(Error::Forbidden {
            code: ErrorCode::ScopeNotGrantable,
            public: format!("cannot grant database_role {}: this key has {}", asked.as_str(), own.as_str()),
        }),
        (asked, own) => Ok(asked.or(own)),
    }
}

impl Grant {
    /// Everything, without limits.
    pub fn everything() -> Self {
        Self {
            scopes: vec!["*".to_owned()],
            projects: vec![],
            branches: vec![],
            own_branches: false,
            branches_max: None,
            database_role: None,
        }
    }

    /// Whether every scope was given, also those that are not thought of yet.
    pub fn has_every_scope(&self) -> bool {
        limit(&self.scopes).is_none()
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
    /// `scope_not_grantable` when more is asked for than the creator has, and
    /// when the creator may have only so many branches: with each key it could
    /// have as many again.
    pub fn narrowed_to(&self, asked: Grant) -> Result<Grant> {
        if let Some(max) = self.branches_max {
            return Err(Error::Forbidden {
                code: ErrorCode::ScopeNotGrantable,
                public: format!("a key that may have {max} branches at once makes no keys"),
            });
        }
        let database_role = narrowed_role(asked.database_role, self.database_role)?;
        let narrow = |what: &str, asked: Vec<String>, own: &[String]| {
            let asked = normalised(asked);
            let Some(own) = limit(own) else { return Ok(asked) };
            if asked.is_empty() {
                return Ok(own.to_vec());
            }
            match asked.iter().find(|item| !own.contains(item)) {
                None => Ok(asked),
                Some(item) => Err(Error::Forbidden {
                    code: ErrorCode::ScopeNotGrantable,
                    public: format!("cannot grant {what} {}", excerpt(item)),
                }),
            }
        };
        Ok(Grant {
            scopes: narrow("scope", asked.scopes, &self.scopes)?,
            projects: narrow("project", asked.projects, &self.projects)?,
            branches: narrow("branch", asked.branches, &self.branches)?,
            own_branches: asked.own_branches || self.own_branches,
            branches_max: asked.branches_max,
            database_role,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(projects: &[&str], branches: &[&str]) -> Grant {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        Grant { projects: owned(projects), branches: owned(branches), ..Grant::everything() }
    }

    #[test]
    fn a_key_that_may_have_so_many_branches_makes_no_keys() {
        let asked = Grant { branches_max: Some(3), ..Grant::everything() };
        let limited = Grant::everything().narrowed_to(asked.clone()).expect("less than everything");
        assert_eq!(limited.branches_max, Some(3));
        let more = limited.narrowed_to(asked).expect_err("as many again");
        assert_eq!(more.code(), ErrorCode::ScopeNotGrantable);
    }

    #[test]
    fn a_key_with_a_login_grants_no_larger_one() {
        let with = |role| Grant { database_role: role, ..Grant::everything() };
        let made = |own, asked| with(own).narrowed_to(with(asked)).map(|grant| grant.database_role);
        let (reader, writer) = (Some(DatabaseRole::Reader), Some(DatabaseRole::Writer));
        assert_eq!(made(None, reader).expect("smaller"), reader);
        assert_eq!(made(writer, reader).expect("smaller"), reader);
        assert_eq!(made(reader, None).expect("its own"), reader, "never the managed role");
        let refused = made(reader, writer).expect_err("larger");
        assert_eq!(refused.code(), ErrorCode::ScopeNotGrantable);
    }

    #[test]
    fn a_key_grants_no_more_than_its_creator_has() {
        let creator = grant(&["prj_1"], &[]);
        let asked = |projects: &[&str]| creator.narrowed_to(Grant { scopes: vec![], ..grant(projects, &[]) });
        assert_eq!(asked(&["prj_1", "prj_1"]).expect("within").projects, ["prj_1"]);
        assert_eq!(asked(&[]).expect("copied").projects, ["prj_1"], "no list means the creator's");
        for beyond in [&["prj_2"][..], &["*"][..]] {
            assert_eq!(asked(beyond).expect_err("beyond").code(), ErrorCode::ScopeNotGrantable);
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

//! How far a key with limits reaches: check 10 of the order of checks.

use crate::access::{Grant, LimitedKeys};
use crate::operation::Operation;
use crate::{BranchId, Error, ErrorCode, ProjectId, Result};

/// What is known of a key and what the path names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// For a key limited to branches: whether the project owns one of them.
    pub owns_allowed_branch: bool,
    /// Whether the key made the branch.
    pub made_branch: bool,
}

/// Check 10: project and branch limits of the key.
///
/// # Errors
/// `restricted_key`, `project_access_denied`, `branch_access_denied`
pub fn check_limits(
    grant: &Grant,
    operation: &Operation,
    project: Option<&ProjectId>,
    branch: Option<&BranchId>,
    standing: Standing,
) -> Result<()> {
    if let Some(project) = project {
        let outside = grant.project_limit().is_some_and(|ids| !ids.iter().any(|id| id == project.as_str()));
        let foreign = grant.branch_limit().is_some() && !standing.owns_allowed_branch;
        if outside || foreign {
            return Err(Error::access_denied(
                ErrorCode::ProjectAccessDenied,
                format_args!("this key is limited to other projects than {project}"),
            ));
        }
    }
    if let Some(branch) = branch {
        let outside = grant.branch_limit().is_some_and(|ids| !ids.iter().any(|id| id == branch.as_str()));
        // It makes a branch of its own out of one that is not.
        let makes_one = operation.limited_keys == LimitedKeys::MakesBranches;
        let foreign = grant.own_branches && !standing.made_branch && operation.is_for_makers() && !makes_one;
        if outside || foreign {
            let limit = if outside {
                "limited to other branches than"
            } else {
                "for branches that it made, and not for"
            };
            return Err(Error::access_denied(
                ErrorCode::BranchAccessDenied,
                format_args!("this key is {limit} {branch}"),
            ));
        }
    }
    let (has_branches, has_projects) = (grant.branch_limit().is_some(), grant.project_limit().is_some());
    // A change that is no branch's.
    let is_beyond = grant.own_branches && branch.is_none() && operation.is_for_makers();
    let refused = match operation.limited_keys {
        LimitedKeys::Allowed => false,
        LimitedKeys::MakesBranches => has_branches,
        LimitedKeys::RefusedWithBranchLimit => has_branches || is_beyond,
        LimitedKeys::RefusedWithLogin => grant.database_role.is_some(),
        LimitedKeys::Refused => {
            has_branches || has_projects || grant.own_branches || grant.database_role.is_some()
        }
    };
    if refused {
        return Err(Error::access_denied(
            ErrorCode::RestrictedKey,
            "this operation is closed to keys that are limited to projects, branches or a login of their own",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::DatabaseRole;
    use crate::operation::{
        CREATE_BRANCH, CREATE_GITHUB_REPOSITORY, CREATE_ORGANIZATION_INVITATION, CREATE_PROJECT,
        DELETE_BRANCH, DELETE_PROJECT, DESCRIBE_BRANCH, EMPTY_TRASH, GET_BRANCH_CREDENTIALS, LIST_BRANCHES,
        LIST_TRASH, RESTORE_FROM_BACKUP, UNDELETE_BRANCH, UPDATE_BRANCH, UPDATE_GITHUB_REPOSITORY,
        UPDATE_ORGANIZATION, UPDATE_PROJECT,
    };

    fn grant(projects: &[&str], branches: &[&str]) -> Grant {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        Grant { projects: owned(projects), branches: owned(branches), ..Grant::everything() }
    }

    fn code(result: Result<()>) -> &'static str {
        result.map_or_else(|error| error.code().as_str(), |()| "ok")
    }

    #[test]
    fn a_key_limited_to_projects_reaches_those_only() {
        let p1 = ProjectId::from_trusted("prj_1");
        let p2 = ProjectId::from_trusted("prj_2");
        let grant = grant(&["prj_1"], &[]);
        assert_eq!(code(check_limits(&grant, &LIST_BRANCHES, Some(&p1), None, Standing::default())), "ok");
        assert_eq!(
            code(check_limits(&grant, &LIST_BRANCHES, Some(&p2), None, Standing::default())),
            "project_access_denied"
        );
        assert_eq!(
            code(check_limits(&grant, &CREATE_PROJECT, None, None, Standing::default())),
            "restricted_key"
        );
    }

    #[test]
    fn a_key_limited_to_branches_reaches_those_only() {
        let project = ProjectId::from_trusted("prj_1");
        let mine = BranchId::from_trusted("a1");
        let other = BranchId::from_trusted("a2");
        let grant = grant(&[], &["a1"]);
        let check = |branch, owns_allowed_branch| {
            let standing = Standing { owns_allowed_branch, made_branch: false };
            check_limits(&grant, &DESCRIBE_BRANCH, Some(&project), Some(branch), standing)
        };
        let owner = Standing { owns_allowed_branch: true, made_branch: false };
        assert_eq!(code(check(&mine, true)), "ok");
        assert_eq!(code(check(&other, true)), "branch_access_denied");
        assert_eq!(code(check(&mine, false)), "project_access_denied");
        assert_eq!(
            code(check_limits(&grant, &UPDATE_PROJECT, Some(&project), None, owner)),
            "restricted_key"
        );
    }

    #[test]
    fn a_key_with_a_login_makes_nobody_who_gets_more() {
        let grant = Grant { database_role: Some(DatabaseRole::Owner), ..Grant::everything() };
        let (project, branch) = (ProjectId::from_trusted("prj_1"), BranchId::from_trusted("a1"));
        let check = |operation| {
            code(check_limits(&grant, operation, Some(&project), Some(&branch), Standing::default()))
        };
        for operation in
            [&CREATE_ORGANIZATION_INVITATION, &CREATE_GITHUB_REPOSITORY, &UPDATE_GITHUB_REPOSITORY]
        {
            assert_eq!(check(operation), "restricted_key", "{}", operation.id);
        }
        for operation in [&CREATE_BRANCH, &GET_BRANCH_CREDENTIALS, &UPDATE_PROJECT] {
            assert_eq!(check(operation), "ok", "{}", operation.id);
        }
    }

    #[test]
    fn a_key_for_what_it_makes_looks_at_the_rest_and_touches_nothing_of_it() {
        let grant = Grant { own_branches: true, ..Grant::everything() };
        let (project, branch) = (ProjectId::from_trusted("prj_1"), BranchId::from_trusted("a1"));
        let check = |operation, branch, made_branch| {
            let standing = Standing { owns_allowed_branch: false, made_branch };
            code(check_limits(&grant, operation, Some(&project), branch, standing))
        };
        for operation in [&UPDATE_BRANCH, &DELETE_BRANCH, &UNDELETE_BRANCH, &GET_BRANCH_CREDENTIALS] {
            assert_eq!(check(operation, Some(&branch), false), "branch_access_denied", "{}", operation.id);
            assert_eq!(check(operation, Some(&branch), true), "ok", "{}", operation.id);
        }
        assert_eq!(check(&DESCRIBE_BRANCH, Some(&branch), false), "ok");
        assert_eq!(check(&RESTORE_FROM_BACKUP, Some(&branch), false), "ok", "that makes another one");
        for operation in [&LIST_BRANCHES, &LIST_TRASH, &CREATE_BRANCH] {
            assert_eq!(check(operation, None, false), "ok", "{}", operation.id);
        }
        for operation in [&UPDATE_PROJECT, &DELETE_PROJECT, &EMPTY_TRASH, &UPDATE_ORGANIZATION] {
            assert_eq!(check(operation, None, false), "restricted_key", "{}", operation.id);
        }
        let made = grant.narrowed_to(Grant::everything()).expect("no more than it has");
        assert!(made.own_branches, "a key that it makes is one, too");
    }
}

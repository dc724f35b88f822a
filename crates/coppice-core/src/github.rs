//! Repositories on GitHub whose pull requests get branches: what is linked to
//! what, and which pull request shall have a branch.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{BranchId, GithubInstallationId, GithubRepositoryId, OrganizationId, ProjectId};

/// How long a preview branch outlives the last look at its open pull request:
/// it goes by itself should nobody hear that the pull request was closed.
pub const PREVIEW_LIFETIME: Duration = Duration::from_secs(14 * 86_400);
/// How often it is asked which pull requests are open.
pub const RECONCILE: Duration = Duration::from_secs(3600);
/// Days that ids of deliveries are remembered.
pub const DELIVERY_DAYS: u32 = 7;

/// An installation of the GitHub App that an organization has linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubInstallation {
    /// The record of the link.
    pub id: GithubInstallationId,
    /// Its number at GitHub.
    pub installation: i64,
    /// Whose.
    pub organization: OrganizationId,
    /// Repositories of it, by their numbers at GitHub, that who linked it administered then: these can be mapped.
    pub administered: Vec<i64>,
    /// When it was linked.
    pub created_at: DateTime<Utc>,
    /// When that was last changed.
    pub updated_at: DateTime<Utc>,
}

/// A repository on GitHub that a project is mapped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubRepository {
    /// The record of the mapping.
    pub id: GithubRepositoryId,
    /// Its number at GitHub.
    pub repository: i64,
    /// The project.
    pub project: ProjectId,
    /// What branches for pull requests are copies of.
    pub root: BranchId,
    /// Whether pull requests get branches.
    pub has_previews: bool,
    /// Whether those from forks do, too.
    pub takes_forks: bool,
    /// Whether jobs get keys that read the credentials of their branches: whoever mapped it
    /// may read them.
    pub has_job_keys: bool,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

/// A pull request, as GitHub says it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Its number in its repository.
    pub number: i64,
    /// Whether it is neither merged nor closed.
    pub is_open: bool,
    /// The last commit of it.
    pub commit: String,
    /// Whether it comes from another repository.
    pub is_fork: bool,
}

impl GithubRepository {
    /// Whether a pull request shall have a branch.
    pub fn wants_branch(&self, pull: &Pull) -> bool {
        self.has_previews && pull.is_open && (self.takes_forks || !pull.is_fork)
    }
}

/// The name of the branch of a pull request.
pub fn preview_name(number: i64) -> String {
    format!("pr-{number}")
}

/// The environment among GitHub's that leads to it.
pub fn environment_name(number: i64) -> String {
    format!("preview/{}", preview_name(number))
}

/// The pull request that a job of GitHub's runs for, by the reference that it checks out.
pub fn pull_of_reference(reference: &str) -> Option<i64> {
    let number = reference.strip_prefix("refs/pull/")?.strip_suffix("/merge")?;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
    number.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(has_previews: bool, takes_forks: bool) -> GithubRepository {
        GithubRepository {
            id: GithubRepositoryId::from_trusted("ghr_1"),
            repository: 1,
            project: ProjectId::from_trusted("prj_1"),
            root: BranchId::from_trusted("root"),
            has_previews,
            takes_forks,
            has_job_keys: true,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_open_pull_request_has_a_branch_and_one_of_a_fork_only_where_that_is_wished() {
        let pull = |is_open, is_fork| Pull { number: 7, is_open, is_fork, commit: String::new() };
        assert!(mapping(true, false).wants_branch(&pull(true, false)));
        assert!(!mapping(true, false).wants_branch(&pull(true, true)));
        assert!(mapping(true, true).wants_branch(&pull(true, true)));
        assert!(!mapping(true, true).wants_branch(&pull(false, false)));
        assert!(!mapping(false, true).wants_branch(&pull(true, false)));
        assert_eq!(preview_name(7), "pr-7");
    }

    #[test]
    fn a_reference_names_a_pull_request_in_one_way() {
        assert_eq!(pull_of_reference("refs/pull/7/merge"), Some(7));
        for other in [
            "refs/pull/07/merge",
            "refs/pull/+7/merge",
            "refs/pull/0/merge",
            "refs/pull//merge",
            "refs/pull/7/head",
            "refs/pull/7/merge/",
            "refs/heads/refs/pull/7/merge",
            "refs/pull/99999999999999999999/merge",
        ] {
            assert_eq!(pull_of_reference(other), None, "{other}");
        }
    }
}

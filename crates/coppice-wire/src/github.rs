//! The GitHub App: installations that are linked, and the repositories of projects.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// An installation of the GitHub App that an organization has linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GithubInstallation {
    /// The link.
    #[schema(example = "ghi_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// The installation's number at GitHub.
    #[schema(example = 12345, minimum = 1)]
    pub installation_id: i64,
    /// Whose.
    pub organization: String,
    /// When it was linked.
    pub created_at: Timestamp,
    /// When that was last changed.
    pub updated_at: Timestamp,
}

/// Answer of listGithubAppInstallations.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GithubInstallationList {
    /// Oldest first.
    pub installations: Vec<GithubInstallation>,
}

/// Body of createGithubAppInstallation and updateGithubAppInstallation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkGithubInstallation {
    /// The installation's number at GitHub.
    #[schema(example = 12345, minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub installation_id: i64,
    /// What GitHub gave the person who installed the App, who is shown it at the end; without it nothing proves
    /// that the installation is theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "4f9d8a1c2b3e", min_length = 1, max_length = 200)]
    pub code: Option<String>,
}

/// A repository on GitHub that a project is mapped to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GithubRepository {
    /// The mapping.
    #[schema(example = "ghr_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// The repository's number at GitHub.
    #[serde(rename = "githubRepositoryID")]
    #[schema(example = 1296269, minimum = 1)]
    pub github_repository_id: i64,
    /// The project.
    pub project: String,
    /// What branches for pull requests are copies of.
    pub root_branch_id: String,
    /// Whether pull requests get branches.
    pub previews: bool,
    /// Whether those from forks do, too.
    pub forks: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// Answer of getGithubRepository.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct GithubMapping {
    /// The project's; null when it has none.
    #[schema(required)]
    pub mapping: Option<GithubRepository>,
}

/// Body of createGithubRepository and updateGithubRepository.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MapGithubRepository {
    /// The repository's number at GitHub.
    #[serde(rename = "githubRepositoryID")]
    #[schema(example = 1296269, minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub github_repository_id: i64,
    /// Whether pull requests get branches; at first they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previews: Option<bool>,
    /// Whether those from forks do, too, whoever opens them; at first they don't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks: Option<bool>,
}

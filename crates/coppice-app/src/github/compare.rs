//! What is linked, compared with what is at GitHub: nothing depends on every delivery having come.

use coppice_core::github::{PREVIEW_LIFETIME, Pull};
use coppice_core::{OrganizationId, Result};
use coppice_store::ReachedRepository;
use futures_util::future::join;
use reqwest::Method;
use serde::Deserialize;

use super::Github;
use super::api::{Asked, GithubApi, GithubError, RepositoryToken};
use crate::turns::by_turns;

/// What is asked about at the same time: of all holders, and of one.
const AT_ONCE: (u32, u32) = (4, 1);
/// Pull requests of an answer. Each may bring long texts.
const PAGE: usize = 50;
/// Most pages that are read of what is open.
const PAGES_MAX: usize = 100;

/// A pull request as GitHub describes it.
#[derive(Deserialize)]
struct PullTold {
    number: i64,
    state: String,
    head: Head,
    base: Base,
}

#[derive(Deserialize)]
struct Head {
    sha: String,
    /// None when the fork was deleted.
    repo: Option<Numbered>,
}

#[derive(Deserialize)]
struct Base {
    repo: Numbered,
}

#[derive(Deserialize)]
struct Numbered {
    id: i64,
}

impl From<PullTold> for Pull {
    fn from(told: PullTold) -> Self {
        Self {
            number: told.number,
            is_open: told.state == "open",
            is_fork: told.head.repo.is_none_or(|repo| repo.id != told.base.repo.id),
            commit: told.head.sha,
        }
    }
}

impl GithubApi {
    /// A pull request as it is now, none when there is no such one any more; and a token for its repository.
    pub(super) async fn pull(
        &self,
        reached: &ReachedRepository,
        number: i64,
    ) -> Asked<(RepositoryToken, Option<Pull>)> {
        let (installation, repository) = (reached.installation, reached.mapping.repository);
        let token = self.token_for(&reached.organization, installation, repository).await?;
        let path = format!("/repos/{}/pulls/{number}", token.full_name);
        match self.ask((Method::GET, &path), token.asker(), None, "a pull request").await {
            Ok(answer) => Ok((token, Some(answer.json::<PullTold>()?.into()))),
            Err(GithubError::Refused { status, .. }) if status.as_u16() == 404 => Ok((token, None)),
            Err(refused @ GithubError::Refused { .. }) => {
                // It may have been taken back, or the repository renamed: the next one knows.
                self.forget_token(installation, repository);
                Err(refused)
            }
            Err(error) => Err(error),
        }
    }

    /// The pull requests of a repository that are open. One may be missing that others were closed before while
    /// this was read.
    async fn open_pulls(&self, token: &RepositoryToken) -> Asked<Vec<Pull>> {
        let mut found = vec![];
        for page in 1..=PAGES_MAX {
            let path = format!(
                "/repos/{}/pulls?state=open&sort=created&direction=asc&per_page={PAGE}&page={page}",
                token.full_name
            );
            let asked = self.ask((Method::GET, &path), token.asker(), None, "open pull requests");
            let told: Vec<PullTold> = asked.await?.json()?;
            let is_last = told.len() < PAGE;
            found.extend(told.into_iter().map(Pull::from));
            if is_last {
                break;
            }
        }
        Ok(found)
    }
}

impl Github {
    /// Has everything compared that a process compared before this one began: deliveries may have
    /// been missed since.
    pub(crate) async fn compare_anew(&self) -> Result<()> {
        Ok(self.store.github_look_again().await?)
    }

    /// Asks GitHub about what nobody asked about for an hour, or since a delivery said that it may
    /// be otherwise.
    pub(crate) async fn compare(&self, task: &'static str) -> Result<()> {
        let github = self.api()?;
        let installations = by_turns(
            task,
            AT_ONCE,
            |room| self.store.github_installations_due(room),
            |(organization, installation)| self.compare_installation(github, organization, installation),
        );
        let repositories = by_turns(
            task,
            AT_ONCE,
            |room| self.store.github_repositories_due(room),
            |reached| self.compare_or_put_off(github, reached),
        );
        let (installations, repositories) = join(installations, repositories).await;
        installations.and(repositories)
    }

    async fn compare_installation(
        &self,
        github: &GithubApi,
        organization: OrganizationId,
        installation: i64,
    ) -> Result<()> {
        match github.has_installation(&organization, installation).await {
            Ok(true) => {}
            Ok(false) => self.forget_installation(installation).await?,
            // Asked again with the repositories that are reached by it.
            Err(error) => tracing::warn!("asking about installation {installation}: {error}"),
        }
        Ok(())
    }

    async fn compare_or_put_off(&self, github: &GithubApi, reached: ReachedRepository) -> Result<()> {
        let mapping = &reached.mapping;
        if let Err(error) = self.compare_repository(github, &reached).await {
            tracing::warn!("asking about repository {}: {error}", mapping.repository);
            self.store.github_repository_look_again(&mapping.id, error.pause()).await?;
        }
        Ok(())
    }

    async fn compare_repository(&self, github: &GithubApi, reached: &ReachedRepository) -> Asked<()> {
        let ReachedRepository { mapping, organization, installation } = reached;
        let failed = |error: coppice_store::StoreError| GithubError::Away(format!("metastore: {error}"));
        // What is kept says nothing of what is in reach now.
        let token = match github.new_token_for(organization, *installation, mapping.repository).await {
            Ok(token) => token,
            Err(refused) if refused.is_gone() => {
                github.forget_token(*installation, mapping.repository);
                if github.has_installation(organization, *installation).await? {
                    tracing::info!("repository {} is out of reach: its mapping ends", mapping.repository);
                    return self.store.github_repository_forget(&mapping.id).await.map_err(failed);
                }
                return self
                    .forget_installation(*installation)
                    .await
                    .map_err(|error| GithubError::Away(error.for_log()));
            }
            Err(error) => return Err(error),
        };
        let mut wanted = github.open_pulls(&token).await?;
        wanted.retain(|pull| mapping.wants_branch(pull));
        let lifetime = PREVIEW_LIFETIME.as_secs_f64();
        self.store.github_pulls_compare(&mapping.id, &wanted, lifetime).await.map_err(failed)
    }

    async fn forget_installation(&self, installation: i64) -> Result<()> {
        tracing::info!("installation {installation} is gone or suspended: what was linked to it ends");
        Ok(self.store.github_installation_forget(installation).await?)
    }

    /// Forgets deliveries that nobody sends again, and what jobs had.
    pub(crate) async fn forget_past(&self) -> Result<()> {
        self.store.github_job_purge().await?;
        Ok(self.store.github_delivery_purge().await?)
    }
}

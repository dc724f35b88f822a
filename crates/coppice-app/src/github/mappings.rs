//! Which repository belongs to which project.

use chrono::Utc;
use coppice_core::access::Scope;
use coppice_core::github::GithubRepository;
use coppice_core::target::InBranch;
use coppice_core::{Error, ErrorCode, GithubInstallationId, GithubRepositoryId, Result};
use coppice_store::{MappingNote, StoreError, Tx};

use super::Github;
use crate::Access;
use crate::rows::{find_branch, find_branch_in_tx, lock_in_tx};

/// A repository that a project is to be mapped to.
#[derive(Clone, Copy, Debug)]
pub struct MappingRequest {
    /// Its number at GitHub.
    pub repository: i64,
    /// See [`GithubRepository::has_previews`]; none leaves it, or is true.
    pub has_previews: Option<bool>,
    /// See [`GithubRepository::takes_forks`]; none leaves it, or is false.
    pub takes_forks: Option<bool>,
}

impl Github {
    /// The mapping of the project, whichever branch the path names.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn mapping(&self, access: &Access<InBranch>) -> Result<Option<GithubRepository>> {
        find_branch(&self.store, access).await?;
        let place = &access.target.within;
        Ok(self.store.github_repository_of(&place.organization, &place.project).await?)
    }

    /// Maps the project to a repository; its pull requests get copies of the branch of the path.
    ///
    /// # Errors
    /// `github_not_configured`, `project_not_found`, `branch_not_found`, `invalid_field`,
    /// `mapping_exists`, `repository_taken`
    pub async fn create_mapping(
        &self,
        access: &Access<InBranch>,
        asked: &MappingRequest,
    ) -> Result<GithubRepository> {
        find_branch(&self.store, access).await?;
        let project = &access.target.within.project;
        if self.store.github_repository_of(&access.organization.id, project).await?.is_some() {
            return Err(exists());
        }
        let installation = self.installation_of(access, asked.repository).await?;
        let id = GithubRepositoryId::generate(Utc::now());
        let mut tx = self.store.begin().await?;
        let access = &lock_in_tx(&self.store, &mut tx, access).await?;
        // GitHub took its time.
        let root = find_branch_in_tx(&self.store, &mut tx, access).await?.id;
        let note = note(access, asked, &installation, &root);
        let made = self.store.github_repository_insert_in_tx(&mut tx, &id, project, &note).await;
        let made = made.map_err(|error| refused(error, asked.repository))?;
        tx.commit().await?;
        Ok(made)
    }

    /// Changes the mapping of the project: its repository, and the branch of the path as its root.
    ///
    /// # Errors
    /// As [`Github::create_mapping`], `mapping_not_found`, and `branch_access_denied` where a key is not for
    /// the root that there is.
    pub async fn update_mapping(
        &self,
        access: &Access<InBranch>,
        asked: &MappingRequest,
    ) -> Result<GithubRepository> {
        find_branch(&self.store, access).await?;
        let place = &access.target.within;
        let found = self.store.github_repository_of(&place.organization, &place.project).await?;
        check_mapping(access, found.as_ref())?;
        let installation = self.installation_of(access, asked.repository).await?;
        let mut tx = self.store.begin().await?;
        let access = &lock_in_tx(&self.store, &mut tx, access).await?;
        // GitHub took its time.
        let root = find_branch_in_tx(&self.store, &mut tx, access).await?.id;
        self.check_mapping_in_tx(&mut tx, access).await?;
        let note = note(access, asked, &installation, &root);
        let changed = self.store.github_repository_update_in_tx(&mut tx, &place.project, &note).await;
        let changed = changed.map_err(|error| refused(error, asked.repository))?.ok_or_else(not_found)?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Ends the mapping of the project. Branches that were made for pull requests stay until their time is over.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `mapping_not_found`, `branch_access_denied`
    pub async fn delete_mapping(&self, access: &Access<InBranch>) -> Result<()> {
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        find_branch_in_tx(&self.store, &mut tx, access).await?;
        self.check_mapping_in_tx(&mut tx, access).await?;
        if !self.store.github_repository_delete_in_tx(&mut tx, &access.target.within.project).await? {
            return Err(not_found());
        }
        tx.commit().await?;
        Ok(())
    }

    /// As [`check_mapping`], of the mapping that there is while the organization is locked.
    async fn check_mapping_in_tx(&self, tx: &mut Tx, access: &Access<InBranch>) -> Result<()> {
        let place = &access.target.within;
        let found = self.store.github_repository_of_in_tx(tx, &place.organization, &place.project).await?;
        check_mapping(access, found.as_ref())
    }

    /// The link of the organization through which a repository is reached: what nobody has linked who
    /// administers it is mapped by nobody.
    ///
    /// # Errors
    /// `github_not_configured`, `invalid_field`; `rate_limited` when GitHub was asked too often for the holder.
    async fn installation_of(
        &self,
        access: &Access<InBranch>,
        repository: i64,
    ) -> Result<GithubInstallationId> {
        let github = self.api()?;
        let linked = self.store.github_installations(&access.organization.id).await?;
        for linked in linked.into_iter().filter(|linked| linked.administered.contains(&repository)) {
            match github.token_for(&access.organization.id, linked.installation, repository).await {
                Ok(_) => return Ok(linked.id),
                Err(refused) if refused.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::invalid_field(
            "githubRepositoryID",
            format_args!(
                "no installation that the organization has linked reaches repository {repository}, or who linked \
                 it does not administer that: install the GitHub App for it and link that, anew if it is linked"
            ),
        ))
    }
}

/// Whether there is a mapping that the credential may change: it is about the whole project, and says itself of which
/// branch.
///
/// # Errors
/// `mapping_not_found`, `branch_access_denied`
fn check_mapping(access: &Access<InBranch>, found: Option<&GithubRepository>) -> Result<()> {
    access.check_root(&found.ok_or_else(not_found)?.root)
}

fn note<'a>(
    access: &Access<InBranch>,
    asked: &MappingRequest,
    installation: &'a GithubInstallationId,
    root: &'a coppice_core::BranchId,
) -> MappingNote<'a> {
    MappingNote {
        installation,
        repository: asked.repository,
        root,
        has_previews: asked.has_previews,
        takes_forks: asked.takes_forks,
        // Or a repository would give its jobs what whoever maps it may not read.
        has_job_keys: access.check(Scope::CredentialsRead).is_ok(),
    }
}

fn exists() -> Error {
    let public = "project already has a repository".to_owned();
    Error::Conflict { code: ErrorCode::MappingExists, public }
}

fn not_found() -> Error {
    let public = "repository mapping not found".to_owned();
    Error::NotFound { code: ErrorCode::MappingNotFound, public }
}

fn refused(error: StoreError, repository: i64) -> Error {
    if error.is_unique_violation("github_repositories_project") {
        return exists();
    }
    match error.is_unique_violation("github_repositories_repository") {
        true => Error::Conflict {
            code: ErrorCode::RepositoryTaken,
            public: format!("repository {repository} is mapped to another project"),
        },
        false => error.into(),
    }
}

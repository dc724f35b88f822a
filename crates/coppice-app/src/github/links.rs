//! Which installations of the App belong to whom, and which of their repositories.

use chrono::Utc;
use coppice_core::github::GithubInstallation;
use coppice_core::target::OnGithubInstallation;
use coppice_core::{Error, ErrorCode, GithubInstallationId, OrganizationId, Result};
use coppice_store::StoreError;
use form_urlencoded::Serializer;
use reqwest::Method;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::Github;
use super::api::{Asked, Asker, GithubApi, GithubError};
use crate::Access;
use crate::attempts::LINKING;
use crate::rows::lock_in_tx;

/// Repositories of an answer, the most that GitHub gives.
const PAGE: usize = 100;
/// Most pages that are read of what a person administers.
const PAGES_MAX: usize = 50;

/// An installation to be linked, with the proof that it is the caller's.
#[derive(Clone, Debug)]
pub struct LinkRequest {
    /// Its number at GitHub.
    pub installation: i64,
    /// What GitHub gave the person who installed the App, to be shown once.
    pub code: Option<Zeroizing<String>>,
}

/// What GitHub answers to a code.
#[derive(Deserialize)]
struct Exchanged {
    access_token: Option<Zeroizing<String>>,
}

#[derive(Deserialize)]
struct Page {
    repositories: Vec<Reached>,
}

#[derive(Deserialize)]
struct Reached {
    id: i64,
    permissions: Permissions,
}

#[derive(Deserialize)]
struct Permissions {
    admin: bool,
}

impl GithubApi {
    /// Repositories of an installation that the person administers whom GitHub gave this code. Others are
    /// shown the installation as well: all who can read one of them.
    async fn administered(&self, installation: i64, code: &str) -> Asked<Vec<i64>> {
        let Some(token) = self.token_of(code).await? else { return Ok(vec![]) };
        let mut found = vec![];
        for page in 1..=PAGES_MAX {
            let path = format!("/user/installations/{installation}/repositories?per_page={PAGE}&page={page}");
            let asked =
                self.ask((Method::GET, &path), Asker::person(&token), None, "the repositories of a person");
            let Page { repositories } = match asked.await {
                Ok(answer) => answer.json()?,
                Err(GithubError::Refused { .. }) => return Ok(vec![]),
                Err(error) => return Err(error),
            };
            let is_last = repositories.len() < PAGE;
            found.extend(repositories.iter().filter(|one| one.permissions.admin).map(|one| one.id));
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// What a person is asked for with; none where GitHub gave nobody this code.
    async fn token_of(&self, code: &str) -> Asked<Option<Zeroizing<String>>> {
        let form = Serializer::new(String::new())
            .append_pair("client_id", &self.config.client_id)
            .append_pair("client_secret", &self.config.client_secret)
            .append_pair("code", code)
            .finish();
        match self.post_form("/login/oauth/access_token", form, "a token for a code").await {
            Ok(answer) => Ok(answer.json::<Exchanged>()?.access_token),
            Err(GithubError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Github {
    /// Installations that the organization has linked.
    pub async fn installations(&self, access: &Access) -> Result<Vec<GithubInstallation>> {
        Ok(self.store.github_installations(&access.organization.id).await?)
    }

    /// Links an installation, for the repositories of it that whoever shows a code for it administers.
    ///
    /// # Errors
    /// `github_not_configured`, `installation_not_yours`, `installation_taken`; `rate_limited` after many codes that
    /// GitHub gave nobody.
    pub async fn link(&self, access: &Access, asked: &LinkRequest) -> Result<GithubInstallation> {
        let (id, organization) = (GithubInstallationId::generate(Utc::now()), &access.organization.id);
        let theirs = self.administered(organization, asked).await?;
        let (number, mut tx) = (asked.installation, self.store.begin().await?);
        lock_in_tx(&self.store, &mut tx, access).await?;
        let linked =
            self.store.github_installation_insert_in_tx(&mut tx, &id, organization, number, &theirs).await;
        let linked = linked.map_err(|error| taken(error, number))?;
        tx.commit().await?;
        Ok(linked)
    }

    /// Has a link lead to another installation, of whoever shows a code for that.
    ///
    /// # Errors
    /// As [`Github::link`], and `installation_not_found`.
    pub async fn relink(
        &self,
        access: &Access<OnGithubInstallation>,
        asked: &LinkRequest,
    ) -> Result<GithubInstallation> {
        let OnGithubInstallation { organization, installation: id } = &access.target;
        let known = self.store.github_installations(organization).await?;
        let missing = || Error::NotFound {
            code: ErrorCode::InstallationNotFound,
            public: format!("installation {id} not found"),
        };
        if !known.iter().any(|one| one.id == *id) {
            return Err(missing());
        }
        let theirs = self.administered(organization, asked).await?;
        let (number, mut tx) = (asked.installation, self.store.begin().await?);
        lock_in_tx(&self.store, &mut tx, access).await?;
        let changed =
            self.store.github_installation_update_in_tx(&mut tx, id, organization, number, &theirs).await;
        let changed = changed.map_err(|error| taken(error, number))?.ok_or_else(missing)?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Repositories of the installation that are the caller's to map; at least one.
    async fn administered(&self, organization: &OrganizationId, asked: &LinkRequest) -> Result<Vec<i64>> {
        let github = self.api()?;
        let theirs = match &asked.code {
            Some(code) => {
                let holder = self.store.organization_holder(organization).await?;
                self.attempts.count(LINKING, holder.as_str()).await?;
                let theirs = github.administered(asked.installation, code).await?;
                if !theirs.is_empty() {
                    self.attempts.take_back(LINKING, holder.as_str()).await?;
                }
                theirs
            }
            None => vec![],
        };
        match theirs.is_empty() {
            false => Ok(theirs),
            true => Err(Error::access_denied(
                ErrorCode::InstallationNotYours,
                format_args!(
                    "GitHub does not say that installation {} is yours: install the App again, for a repository \
                     that you administer, and use the code that you are shown then, which is good once and for \
                     ten minutes",
                    asked.installation
                ),
            )),
        }
    }
}

fn taken(error: StoreError, installation: i64) -> Error {
    match error.is_unique_violation("github_installations_once") {
        true => Error::Conflict {
            code: ErrorCode::InstallationTaken,
            public: format!("installation {installation} already exists"),
        },
        false => error.into(),
    }
}

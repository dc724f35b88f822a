//! Which installations of the App belong to whom.

use chrono::Utc;
use coppice_core::github::GithubInstallation;
use coppice_core::target::OnGithubInstallation;
use coppice_core::{Error, ErrorCode, GithubInstallationId, Result};
use coppice_store::StoreError;
use form_urlencoded::Serializer;
use reqwest::Method;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::api::{Asked, Github, GithubError};
use crate::{Access, App};

/// Installations of an answer, the most that GitHub gives.
const PAGE: usize = 100;
/// Most pages that are read of what a person has to do with.
const PAGES_MAX: usize = 20;

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
    installations: Vec<Installed>,
}

#[derive(Deserialize)]
struct Installed {
    id: i64,
}

impl Github {
    /// Whether the person whom GitHub gave this code has to do with an installation of the App.
    async fn is_theirs(&self, installation: i64, code: &str) -> Asked<bool> {
        let form = Serializer::new(String::new())
            .append_pair("client_id", &self.config.client_id)
            .append_pair("client_secret", &self.config.client_secret)
            .append_pair("code", code)
            .finish();
        let exchanged = match self.post_form("/login/oauth/access_token", form, "a token for a code").await {
            Ok(answer) => answer.json::<Exchanged>()?,
            Err(GithubError::Refused { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(token) = exchanged.access_token else { return Ok(false) };
        for page in 1..=PAGES_MAX {
            let path = format!("/user/installations?per_page={PAGE}&page={page}");
            let asked = self.ask((Method::GET, &path), &token, None, "the installations of a person");
            let Page { installations } = asked.await?.json()?;
            if installations.iter().any(|one| one.id == installation) {
                return Ok(true);
            }
            if installations.len() < PAGE {
                break;
            }
        }
        Ok(false)
    }
}

impl App {
    /// Installations that the organization has linked.
    pub async fn list_github_installations(&self, access: &Access) -> Result<Vec<GithubInstallation>> {
        Ok(self.store.github_installations(&access.organization.id).await?)
    }

    /// Links an installation of whoever shows a code for it.
    ///
    /// # Errors
    /// `github_not_configured`, `installation_not_yours`, `installation_taken`
    pub async fn link_github_installation(
        &self,
        access: &Access,
        asked: &LinkRequest,
    ) -> Result<GithubInstallation> {
        self.check_theirs(asked).await?;
        let (id, organization) = (GithubInstallationId::generate(Utc::now()), &access.organization.id);
        let linked = self.store.github_installation_insert(&id, organization, asked.installation).await;
        linked.map_err(|error| taken(error, asked.installation))
    }

    /// Has a link lead to another installation, of whoever shows a code for that.
    ///
    /// # Errors
    /// As [`App::link_github_installation`], and `installation_not_found`.
    pub async fn relink_github_installation(
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
        self.check_theirs(asked).await?;
        let changed = self.store.github_installation_update(id, organization, asked.installation).await;
        changed.map_err(|error| taken(error, asked.installation))?.ok_or_else(missing)
    }

    async fn check_theirs(&self, asked: &LinkRequest) -> Result<()> {
        let github = self.github()?;
        let is_theirs = match &asked.code {
            Some(code) => github.is_theirs(asked.installation, code).await?,
            None => false,
        };
        match is_theirs {
            true => Ok(()),
            false => Err(Error::access_denied(
                ErrorCode::InstallationNotYours,
                format_args!(
                    "GitHub does not say that installation {} is yours: install the App again and use the code \
                     that you are shown then, which is good once and for ten minutes",
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

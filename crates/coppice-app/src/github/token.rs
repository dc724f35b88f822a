//! Tokens with which the App acts on one repository, and nothing else.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::OrganizationId;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::api::{Asked, Asker, GithubApi, GithubError, RepositoryToken};

/// A token is not used any more when it is this near to its end.
const SPARE: TimeDelta = TimeDelta::minutes(5);

#[derive(Deserialize)]
struct Made {
    token: Zeroizing<String>,
    expires_at: DateTime<Utc>,
    #[serde(default)]
    repositories: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    id: i64,
    full_name: String,
}

#[derive(Deserialize)]
struct AppItself {
    html_url: String,
}

#[derive(Deserialize)]
struct Seen {
    suspended_at: Option<DateTime<Utc>>,
}

impl GithubApi {
    /// A token for a repository that an installation reaches, for an organization that has linked it.
    ///
    /// # Errors
    /// As [`GithubApi::new_token_for`]; one that is kept may be of a repository that is out of reach by now.
    pub(super) async fn token_for(
        &self,
        organization: &OrganizationId,
        installation: i64,
        repository: i64,
    ) -> Asked<RepositoryToken> {
        let kept = self.tokens.lock().get(&(installation, repository)).cloned();
        match kept.filter(|kept| kept.expires_at > Utc::now() + SPARE) {
            Some(kept) => Ok(kept),
            None => self.new_token_for(organization, installation, repository).await,
        }
    }

    /// The same, and never one that was kept.
    ///
    /// # Errors
    /// [`GithubError::Refused`] when the installation does not reach it.
    pub(super) async fn new_token_for(
        &self,
        organization: &OrganizationId,
        installation: i64,
        repository: i64,
    ) -> Asked<RepositoryToken> {
        let (place, now) = ((installation, repository), Utc::now());
        let path = format!("/app/installations/{installation}/access_tokens");
        let app = self.app_token().map_err(|error| GithubError::Away(error.for_log()))?;
        let body = json!({ "repository_ids": [repository] });
        let by = Asker::app_for(&app, organization);
        let answer = self.ask((Method::POST, &path), by, Some(&body), "a token for a repository").await?;
        let made: Made = answer.json()?;
        let named = made.repositories.into_iter().find(|named| named.id == repository);
        let Some(named) = named.filter(|named| is_full_name(&named.full_name)) else {
            return Err(GithubError::Away("a token for another repository".to_owned()));
        };
        let token = RepositoryToken {
            secret: made.token,
            installation,
            full_name: named.full_name,
            expires_at: made.expires_at,
        };
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, kept| kept.expires_at > now + SPARE);
        tokens.insert(place, token.clone());
        Ok(token)
    }

    /// Forgets a token that was refused: it may have been taken back, or its repository renamed.
    pub(super) fn forget_token(&self, installation: i64, repository: i64) {
        self.tokens.lock().remove(&(installation, repository));
    }

    /// Where people install the App: GitHub knows what it is called at present. It is asked for everybody at once,
    /// as it counts all that the App asks together.
    pub(super) async fn install_page(&self) -> Asked<String> {
        let page = self.install_page.get(|_| true, || self.ask_for_install_page()).await?;
        Ok(page.as_ref().clone())
    }

    async fn ask_for_install_page(&self) -> Asked<String> {
        let app = self.app_token().map_err(|error| GithubError::Away(error.for_log()))?;
        let answer = self.ask((Method::GET, "/app"), Asker::app(&app), None, "the App itself").await?;
        let page = install_page(&self.config.site, &answer.json::<AppItself>()?.html_url);
        page.ok_or_else(|| GithubError::Away("the App's page is on another web site".to_owned()))
    }

    /// Whether an installation is there and not suspended, for an organization that has linked it.
    pub(super) async fn has_installation(
        &self,
        organization: &OrganizationId,
        installation: i64,
    ) -> Asked<bool> {
        let path = format!("/app/installations/{installation}");
        let app = self.app_token().map_err(|error| GithubError::Away(error.for_log()))?;
        let by = Asker::app_for(&app, organization);
        match self.ask((Method::GET, &path), by, None, "an installation").await {
            Ok(answer) => Ok(answer.json::<Seen>()?.suspended_at.is_none()),
            Err(refused) if refused.is_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Where an App is installed, below its own page, which has to be on the web site that people know.
fn install_page(site: &Url, page: &str) -> Option<String> {
    let place = Url::parse(page).ok().filter(|place| place.origin() == site.origin())?;
    Some(format!("{}/installations/new", place.as_str().trim_end_matches('/')))
}

/// Whether a text can be an owner and a name, and so a part of a path.
fn is_full_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(allowed)
    };
    text.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_led_to_the_app_on_the_web_site_of_github_and_nowhere_else() {
        let site: Url = "https://github.example".parse().expect("an address");
        let page = install_page(&site, "https://github.example/github-apps/coppice/");
        assert_eq!(page.as_deref(), Some("https://github.example/github-apps/coppice/installations/new"));
        for bad in ["https://evil.example/apps/coppice", "javascript:alert(1)", "/apps/coppice", ""] {
            assert_eq!(install_page(&site, bad), None, "{bad}");
        }
    }

    #[test]
    fn only_what_can_be_an_owner_and_a_name_becomes_part_of_a_path() {
        assert!(is_full_name("octocat/hello.world-2_x"));
        for bad in ["octocat", "a/../b", "a/..", "/b", "a/", "a/b/c", "a/b?c", "a/b c"] {
            assert!(!is_full_name(bad), "{bad}");
        }
    }
}

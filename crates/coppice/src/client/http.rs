//! Calling the API.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, bail};
use coppice_wire::{BranchList, ListedBranch, OrganizationList, Project, ProjectList};
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::profiles::{Profile, ProfileFile};
use super::refusal::{Refused, refused};
use super::transport::{answered, http_client};
use super::{BranchTarget, ClientOptions, output, tokens};

/// What requests are sent with.
enum Credential {
    /// An API key, or a token that is good for now.
    Bearer(String),
    /// The person who signed in, by the name of the profile.
    Profile(String, Box<Profile>),
}

/// A connection to the API.
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    credential: Credential,
    /// By id or name, as it was chosen.
    organization: Option<String>,
}

/// The settings a server leaves for commands on its machine.
fn admin_file(data_dir: &Path) -> HashMap<String, String> {
    let text = std::fs::read_to_string(data_dir.join("admin.env")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

impl Client {
    /// Finds out where to connect, and the id of an organization that was
    /// chosen by name.
    pub(super) async fn connect(options: &ClientOptions) -> anyhow::Result<Self> {
        let mut client = match Self::signed_in(options)? {
            Some(client) => client,
            None => Self::with_key(options)?,
        };
        if let Some(named) = client.organization.clone().filter(|named| !named.starts_with("org_")) {
            client.organization = Some(client.organization_named(&named).await?.id);
        }
        Ok(client)
    }

    /// Whoever names a key or a data directory means that; whoever signed in
    /// means to use it; else there is the file of this machine's server.
    fn signed_in(options: &ClientOptions) -> anyhow::Result<Option<Self>> {
        let is_named = options.profile.is_some();
        if !is_named && (options.api_key.is_some() || options.url.is_some() || options.data_dir.is_given()) {
            return Ok(None);
        }
        let profiles = ProfileFile::locate().and_then(|file| file.read());
        // Whoever has no home directory has no profiles.
        let profiles = if is_named { profiles? } else { profiles.unwrap_or_default() };
        let Some((name, profile)) = profiles.find(options.profile.as_deref())? else { return Ok(None) };
        Ok(Some(Self {
            http: http_client()?,
            url: profile.url.clone(),
            organization: options.organization.clone().or_else(|| profile.organization.clone()),
            credential: Credential::Profile(name.to_owned(), Box::new(profile.clone())),
        }))
    }

    fn with_key(options: &ClientOptions) -> anyhow::Result<Self> {
        let data_dir = options.data_dir.path();
        let mut file = admin_file(&data_dir);
        let mut setting = |given: &Option<String>, name: &str| {
            given.clone().or_else(|| file.remove(name)).with_context(|| {
                format!(
                    "no {name}: sign in with `coppice login URL`, or start the platform with `coppice serve`, \
                     name its --data-dir (looked in {}), or set {name}",
                    data_dir.display()
                )
            })
        };
        Ok(Self {
            url: setting(&options.url, "COPPICE_URL")?.trim_end_matches('/').to_owned(),
            credential: Credential::Bearer(setting(&options.api_key, "COPPICE_API_KEY")?),
            organization: Some(setting(&options.organization, "COPPICE_ORGANIZATION")?),
            http: http_client()?,
        })
    }

    /// Acts by a token, in no organization.
    pub(super) fn with_token(http: &reqwest::Client, url: &str, token: &str) -> Self {
        let (http, credential) = (http.clone(), Credential::Bearer(token.to_owned()));
        Self { http, url: url.to_owned(), credential, organization: None }
    }

    /// Base URL of the API.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// By what requests are allowed, in words.
    pub(super) fn credential(&self) -> String {
        match &self.credential {
            Credential::Bearer(_) => "an API key".to_owned(),
            Credential::Profile(name, _) => format!("the sign-in of the profile {name}"),
        }
    }

    /// Whether nobody stands behind the credential.
    pub(super) fn has_key_of_organization(&self) -> bool {
        matches!(&self.credential, Credential::Bearer(key) if key.starts_with("pko_"))
    }

    /// Whether commands are about this organization.
    pub(super) fn is_about(&self, organization: &str) -> bool {
        self.organization.as_deref() == Some(organization)
    }

    /// Whether commands are about an organization at all.
    pub(super) fn has_organization(&self) -> bool {
        self.organization.is_some()
    }

    async fn bearer(&self) -> anyhow::Result<String> {
        match &self.credential {
            Credential::Bearer(text) => Ok(text.clone()),
            Credential::Profile(name, profile) => tokens::access_token(&self.http, name, profile).await,
        }
    }

    /// A path below the organization.
    pub(super) fn here(&self, path: &str) -> String {
        format!("/organizations/{}{path}", self.organization.as_deref().unwrap_or_default())
    }

    /// Sends a request. A POST carries a key by which the server knows a
    /// repetition, so a lost answer is asked for again and nothing is made twice.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<Response> {
        let key = (method == Method::POST).then(coppice_core::id::random_text);
        self.send_with(method, path, body, key.as_deref()).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        idempotency_key: Option<&str>,
    ) -> anyhow::Result<Response> {
        let bearer = self.bearer().await?;
        let attempt = async || {
            let mut request = self.http.request(method.clone(), format!("{}{path}", self.url));
            request = request.bearer_auth(&bearer);
            if let Some(key) = idempotency_key {
                request = request.header("idempotency-key", key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            output::patiently("waiting for the server", request.send()).await
        };
        let is_passing = |response: &reqwest::Result<Response>| match response {
            Ok(response) => matches!(response.status().as_u16(), 502..=504),
            // Somebody has waited long enough.
            Err(error) => !error.is_connect() && !error.is_timeout(),
        };
        let mut response = attempt().await;
        // A repeated DELETE would not find what it deleted; a repeated PATCH might undo another's change.
        let can_repeat = [Method::GET, Method::POST, Method::PUT].contains(&method);
        if can_repeat && is_passing(&response) {
            response = attempt().await;
        }
        let response = answered(&self.url, response)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let is_signed_in = matches!(self.credential, Credential::Profile(..));
        Err(refused(response, is_signed_in).await.into())
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> anyhow::Result<T> {
        match response.json().await {
            Err(error) if !error.is_timeout() => Err(error).context("understanding the answer"),
            read => answered(&self.url, read),
        }
    }

    /// Sends a GET request.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let response = self.send(Method::GET, path, None::<&()>).await?;
        self.read(response).await
    }

    /// Sends a request with a body and an answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let response = self.send(method, path, Some(body)).await?;
        self.read(response).await
    }

    /// Sends a POST request.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.call(Method::POST, path, body).await
    }

    /// Sends a POST request that is answered by nothing.
    pub(super) async fn post_for_nothing(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(Method::POST, path, Some(body)).await.map(drop)
    }

    /// Sends a POST request that changes nothing: the server need not remember
    /// its answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let response = self.send_with(Method::POST, path, Some(body), None).await?;
        self.read(response).await
    }

    /// Sends a PATCH request.
    pub(super) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.call(Method::PATCH, path, body).await
    }

    /// Sends a request whose answer has no body.
    pub(super) async fn send_only(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<()> {
        self.send(method, path, body).await.map(drop)
    }

    /// Sends a DELETE request.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, None::<&()>).await.map(drop)
    }

    /// Sends a DELETE request with a body.
    pub(super) async fn delete_these(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, Some(body)).await.map(drop)
    }

    /// An organization by name or id.
    pub(super) async fn organization_named(&self, named: &str) -> anyhow::Result<coppice_wire::Organization> {
        let list: OrganizationList = self.get("/organizations").await?;
        choose(list.organizations, "org", named, |organization| (&organization.id, &organization.name))
    }

    /// The project with this name or id; without one, the only project.
    pub(super) async fn project(&self, named: Option<&str>) -> anyhow::Result<Project> {
        let list: ProjectList = self.get(&self.here("/projects")).await?;
        match named {
            Some(named) => choose(list.projects, "project", named, |project| (&project.id, &project.name)),
            None => {
                let mut projects = list.projects;
                match (projects.pop(), projects.is_empty()) {
                    (Some(only), true) => Ok(only),
                    (Some(_), false) => bail!("there are several projects: name one with --project"),
                    (None, _) => bail!("there is no project: make one with `coppice project create NAME`"),
                }
            }
        }
    }

    /// A branch by name or id, with its project.
    pub(super) async fn branch(&self, target: &BranchTarget) -> anyhow::Result<(Project, ListedBranch)> {
        let (project, branches) = self.branches(target.project.as_deref()).await?;
        Ok((project, choose_branch(branches, &target.branch)?))
    }

    /// The path of the branch with this name or id; without one, of the only
    /// branch of the project.
    pub(super) async fn branch_or_only(
        &self,
        named: Option<&str>,
        project: Option<&str>,
    ) -> anyhow::Result<String> {
        let (project, mut branches) = self.branches(project).await?;
        let branch = match named {
            Some(named) => choose_branch(branches, named)?,
            None => match (branches.pop(), branches.is_empty()) {
                (Some(only), true) => only,
                (Some(_), false) => {
                    bail!("there are several branches: name one (`coppice branch list` shows them)")
                }
                (None, _) => bail!("there is no branch: make one with `coppice branch create NAME`"),
            },
        };
        Ok(self.here(&format!("/projects/{}/branches/{}", project.id, branch.id)))
    }

    async fn branches(&self, project: Option<&str>) -> anyhow::Result<(Project, Vec<ListedBranch>)> {
        let project = self.project(project).await?;
        let list: BranchList = self.get(&self.here(&format!("/projects/{}/branches", project.id))).await?;
        Ok((project, list.branches))
    }
}

fn choose_branch(branches: Vec<ListedBranch>, named: &str) -> anyhow::Result<ListedBranch> {
    choose(branches, "branch", named, |branch| (&branch.id, &branch.name))
}

/// The one item with this id or, if there is only one such, this name.
pub(super) fn choose<T>(
    items: Vec<T>,
    kind: &str,
    named: &str,
    keys: impl Fn(&T) -> (&String, &String),
) -> anyhow::Result<T> {
    let mut matching: Vec<T> = items
        .into_iter()
        .filter(|item| {
            let (id, name) = keys(item);
            id == named || name == named
        })
        .collect();
    if matching.len() > 1 {
        let ids: Vec<_> = matching.iter().map(|item| keys(item).0.as_str()).collect();
        bail!("several are named {named}; use an id instead: {}", ids.join(", "));
    }
    let found = matching.pop();
    let missing = || Refused::not_found(format!("no {kind} is named {named}: see `coppice {kind} list`"));
    found.ok_or_else(|| missing().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<(String, String)> {
        [("1", "a"), ("2", "b"), ("3", "b")].map(|(id, name)| (id.to_owned(), name.to_owned())).into()
    }

    #[test]
    fn an_ambiguous_name_asks_for_an_id() {
        let error = choose(items(), "project", "b", |item| (&item.0, &item.1)).expect_err("ambiguous");
        assert_eq!(error.to_string(), "several are named b; use an id instead: 2, 3");
    }

    #[test]
    fn names_and_ids_are_found() {
        for named in ["1", "a"] {
            let found = choose(items(), "project", named, |item| (&item.0, &item.1)).expect("found");
            assert_eq!(found.0, "1");
        }
    }
}

//! Calling the API.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, bail};
use coppice_wire::{BranchList, ErrorBody, ListedBranch, Project, ProjectList};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BranchTarget, ClientOptions};

/// The API said that something does not exist, or a name matched nothing.
#[derive(Debug)]
pub(super) struct NotFound(pub(super) String);

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFound {}

/// A connection to the API.
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
    organization: String,
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
    /// Finds out where to connect; nothing is sent yet.
    pub(super) fn connect(options: &ClientOptions) -> anyhow::Result<Self> {
        let data_dir = options.data_dir.path();
        let mut file = admin_file(&data_dir);
        let mut setting = |given: &Option<String>, name: &str| {
            given.clone().or_else(|| file.remove(name)).with_context(|| {
                format!(
                    "no {name}: start the platform with `coppice serve`, name its --data-dir (looked in {}), \
                     or set {name}",
                    data_dir.display()
                )
            })
        };
        Ok(Self {
            url: setting(&options.url, "COPPICE_URL")?.trim_end_matches('/').to_owned(),
            key: setting(&options.api_key, "COPPICE_API_KEY")?,
            organization: setting(&options.organization, "COPPICE_ORGANIZATION")?,
            http: reqwest::Client::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}/organizations/{}{path}", self.url, self.organization);
        let mut request = self.http.request(method, url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request
            .send()
            .await
            .with_context(|| format!("calling {}: is the platform running? (`coppice serve`)", self.url))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let error: Option<ErrorBody> = response.json().await.ok();
        let message = error.map_or_else(|| status.to_string(), |body| body.message);
        match status {
            StatusCode::NOT_FOUND => Err(NotFound(message).into()),
            StatusCode::UNAUTHORIZED => bail!("{message}: check COPPICE_API_KEY"),
            _ => bail!("{message}"),
        }
    }

    /// Sends a GET request to a path of the organization.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let response = self.send(Method::GET, path, None::<&()>).await?;
        response.json().await.context("understanding the answer")
    }

    /// Sends a POST request.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let response = self.send(Method::POST, path, Some(body)).await?;
        response.json().await.context("understanding the answer")
    }

    /// Sends a DELETE request.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, None::<&()>).await.map(drop)
    }

    /// The project with this name or id; without one, the only project.
    pub(super) async fn project(&self, named: Option<&str>) -> anyhow::Result<Project> {
        let list: ProjectList = self.get("/projects").await?;
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
        let project = self.project(target.project.as_deref()).await?;
        let list: BranchList = self.get(&format!("/projects/{}/branches", project.id)).await?;
        let branch = choose(list.branches, "branch", &target.branch, |branch| (&branch.id, &branch.name))?;
        Ok((project, branch))
    }
}

/// The one item with this id or, if there is only one such, this name.
fn choose<T>(
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
    found.ok_or_else(|| NotFound(format!("no {kind} is named {named}: see `coppice {kind} list`")).into())
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

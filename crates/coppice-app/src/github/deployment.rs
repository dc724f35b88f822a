//! A pull request's branch among the deployments of its repository: an environment of its own that leads to it.

use coppice_core::github::environment_name;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::api::Asked;
use super::look::Look;

/// Tells ours from those of others in an environment.
const TASK: &str = "coppice";
/// Deployments of an answer. There is one of each pull request, and another while its commit changes.
const PAGE: usize = 100;

#[derive(Deserialize)]
struct Deployment {
    id: i64,
    sha: String,
}

impl Look<'_> {
    /// Has the environment of the pull request lead to `place`, for this commit alone. GitHub's words for `state`
    /// are in docs.github.com, "REST API endpoints for deployment statuses".
    pub(super) async fn deploy(&self, commit: &str, state: &str, place: &str) -> Asked<()> {
        let (ours, former): (Vec<_>, Vec<_>) =
            self.deployments().await?.into_iter().partition(|one| one.sha == commit);
        let id = match ours.first() {
            Some(known) => known.id,
            None => self.new_deployment(commit).await?.id,
        };
        self.set_deployment(id, state, place).await?;
        for one in former {
            self.set_deployment(one.id, "inactive", "").await?;
            // Only those that are not active can be deleted.
            self.ask(Method::DELETE, &self.deployments_path(&format!("/{}", one.id)), None, "a deployment")
                .await?;
        }
        Ok(())
    }

    /// Has the environment of the pull request lead nowhere.
    pub(super) async fn end_deployment(&self) -> Asked<()> {
        for one in self.deployments().await? {
            self.set_deployment(one.id, "inactive", "").await?;
        }
        Ok(())
    }

    async fn deployments(&self) -> Asked<Vec<Deployment>> {
        let environment = environment_name(self.claimed.key.number).replace('/', "%2F");
        let path = self.deployments_path(&format!("?environment={environment}&task={TASK}&per_page={PAGE}"));
        self.ask(Method::GET, &path, None, "deployments").await?.json()
    }

    async fn new_deployment(&self, commit: &str) -> Asked<Deployment> {
        let body = json!({
            "ref": commit,
            "task": TASK,
            "environment": environment_name(self.claimed.key.number),
            "description": "The database of this pull request",
            "transient_environment": true,
            "production_environment": false,
            // It does not wait for the checks of the commit: they may need it.
            "required_contexts": [],
            "auto_merge": false,
        });
        let path = self.deployments_path("");
        self.ask(Method::POST, &path, Some(&body), "a deployment").await?.json()
    }

    async fn set_deployment(&self, id: i64, state: &str, place: &str) -> Asked<()> {
        let body = json!({ "state": state, "environment_url": place, "auto_inactive": false });
        let path = self.deployments_path(&format!("/{id}/statuses"));
        self.ask(Method::POST, &path, Some(&body), "a deployment's status").await.map(drop)
    }

    fn deployments_path(&self, rest: &str) -> String {
        format!("/repos/{}/deployments{rest}", self.token.full_name)
    }
}

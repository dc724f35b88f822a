//! What happens to a pull request: a look at it as GitHub says it is now, and what that needs. Any part of it can be
//! the last before a crash, and is found done or done again by the next look.

use std::time::Duration;

use chrono::Utc;
use coppice_core::access::AskedExpiry;
use coppice_core::backup::BackupChange;
use coppice_core::branch::{Branch, BranchState};
use coppice_core::github::{PREVIEW_LIFETIME, Pull, preview_name};
use coppice_core::target::{InBranch, InProject};
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_failpoint::failpoint;
use coppice_store::{AfterLook, ClaimedPull, ReachedRepository, Told};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Github;
use super::api::{Asked, GithubApi, GithubError, RepositoryToken};
use super::words::{News, Words};
use crate::Access;
use crate::branches::{BranchOrigin, MadeFor, NewBranchRequest, SpecChange};
use crate::rows::find_in_project;
use crate::turns::by_turns;

/// Pull requests that are looked at at the same time: of all holders, and of one.
const AT_ONCE: (u32, u32) = (8, 4);
/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(100);
/// After so many seconds somebody else may look.
const LEASE_SECONDS: u32 = 120;
/// Seconds until it is looked again whether a branch is ready.
const SOON: u32 = 2;
/// Seconds until it is tried again what the organization's limits refuse.
const LATER: u32 = 300;
/// Longest pause between two looks, in seconds.
const PAUSE_MAX: u32 = 3600;
/// What the check is called.
const CHECK: &str = "Coppice";
/// Checks of an answer.
const PAGE: usize = 100;
/// Comments of an answer, and most pages of them that are looked through. Anybody may write them: so many are
/// shorter than the longest answer that is read, whatever of their 65,536 characters each is escaped.
const COMMENTS_PAGE: usize = 20;
const PAGES_MAX: usize = 15;

/// Why a look came to no end.
struct Failed {
    why: String,
    pause: u32,
    /// Whether it is certain how long the pause is.
    is_said: bool,
}

impl Failed {
    fn new(why: String, pause: u32) -> Self {
        Self { why, pause, is_said: false }
    }
}

impl From<GithubError> for Failed {
    fn from(error: GithubError) -> Self {
        let is_said = matches!(error, GithubError::Limited(_) | GithubError::TooOften(_));
        Self { pause: error.pause(), why: error.to_string(), is_said }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::new(error.for_log(), SOON)
    }
}

impl From<coppice_store::StoreError> for Failed {
    fn from(error: coppice_store::StoreError) -> Self {
        Error::from(error).into()
    }
}

/// A pull request with what is needed to do something about it.
pub(super) struct Look<'a> {
    github: &'a GithubApi,
    pub(super) token: RepositoryToken,
    reached: &'a ReachedRepository,
    pub(super) claimed: &'a ClaimedPull,
}

#[derive(Deserialize)]
struct Comment {
    id: i64,
    body: Option<String>,
    user: Option<Author>,
    performed_via_github_app: Option<AuthorApp>,
}

#[derive(Deserialize)]
struct Author {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct AuthorApp {
    id: i64,
    client_id: Option<String>,
}

impl Comment {
    /// Whether an App, named by either of its ids, wrote it, and with this line at its beginning: people see that
    /// line, and may write it as well.
    fn is_of(&self, app: &str, marker: &str) -> bool {
        let is_app = |by: &AuthorApp| by.id.to_string() == app || by.client_id.as_deref() == Some(app);
        self.body.as_deref().is_some_and(|text| text.starts_with(marker))
            && self.user.as_ref().is_some_and(|author| author.kind == "Bot")
            && self.performed_via_github_app.as_ref().is_none_or(is_app)
    }
}

#[derive(Deserialize)]
struct Runs {
    check_runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    id: i64,
    external_id: Option<String>,
}

impl Github {
    /// Has those pull requests looked at that a process began to look at which is gone.
    pub(crate) async fn take_over_looks(&self) -> Result<()> {
        Ok(self.store.github_pulls_hasten().await?)
    }

    /// Looks at pull requests until none is due.
    pub(crate) async fn look_at_pulls(&self, task: &'static str) -> Result<()> {
        let claim = |room| self.store.github_pulls_claim(room, LEASE_SECONDS);
        by_turns(task, AT_ONCE, claim, |claimed| self.look_at_pull(claimed)).await
    }

    async fn look_at_pull(&self, claimed: ClaimedPull) -> Result<()> {
        failpoint!("github.claimed");
        let mut told = claimed.told.clone();
        let outcome = tokio::time::timeout(PATIENCE, self.do_what_is_needed(&claimed, &mut told)).await;
        let late = || Failed::new("it takes too long".to_owned(), LATER);
        let next =
            outcome.unwrap_or_else(|_| Err(late())).unwrap_or_else(|Failed { why, pause, is_said }| {
                let (number, mapping) = (claimed.key.number, &claimed.key.mapping);
                if is_said {
                    tracing::debug!("pull request {number} of mapping {mapping}: {why}");
                    return AfterLook::Again(pause);
                }
                tracing::warn!("pull request {number} of mapping {mapping}: {why}");
                AfterLook::Again(longer(pause, claimed.attempts))
            });
        failpoint!("github.looked");
        Ok(self.store.github_pull_end(&claimed, &told, next).await?)
    }

    /// `told` is what GitHub was told, also when something fails afterwards.
    async fn do_what_is_needed(&self, claimed: &ClaimedPull, told: &mut Told) -> Result<AfterLook, Failed> {
        let github = self.api()?;
        let reached = self.store.github_reached(&claimed.key.mapping).await?;
        let Some(reached) = reached else { return Ok(AfterLook::Forget) };
        let (token, pull) = github.pull(&reached, claimed.key.number).await?;
        let look = Look { github, token, reached: &reached, claimed };
        match pull.filter(|pull| reached.mapping.wants_branch(pull)) {
            Some(pull) => self.have_branch(&look, &pull, told).await,
            None => self.have_none(&look, told).await,
        }
    }

    async fn have_branch(&self, look: &Look<'_>, pull: &Pull, told: &mut Told) -> Result<AfterLook, Failed> {
        let (news, next, id) = match self.preview(look.reached, look.claimed).await {
            Ok(branch) => match branch.state {
                BranchState::Failed => (News::Failed, AfterLook::Again(LATER), Some(branch.id)),
                BranchState::Creating => return Ok(AfterLook::Again(SOON)),
                _ => (News::Ready, AfterLook::Rest, Some(branch.id)),
            },
            // That the organization's own limits say so, whoever reads the repository may hear.
            Err(
                refused @ (Error::Invalid { .. }
                | Error::Forbidden { .. }
                | Error::InsufficientScope { .. }
                | Error::NotReady { .. }
                | Error::TooMany { .. }),
            ) => {
                let pause = refused.retry_after_seconds().unwrap_or(LATER).max(LATER);
                (News::Refused(refused.code()), AfterLook::Again(pause.min(PAUSE_MAX)), None)
            }
            Err(error) => return Err(error.into()),
        };
        failpoint!("github.made");
        let place = self.place_of(look.reached, id.as_ref());
        look.tell(&news, Some(&pull.commit), &place, told).await?;
        Ok(next)
    }

    /// The branch of a pull request, made if it is not there. One of its name that somebody made is theirs, and
    /// never deleted for a pull request.
    async fn preview(&self, reached: &ReachedRepository, claimed: &ClaimedPull) -> Result<Branch> {
        let place = InProject {
            organization: reached.organization.clone(),
            project: reached.mapping.project.clone(),
        };
        if let Some(id) = &claimed.branch {
            match find_in_project(&self.store, &place, id).await {
                Ok(branch) => {
                    self.store.github_pull_touch(id, PREVIEW_LIFETIME.as_secs_f64()).await?;
                    return Ok(branch);
                }
                Err(Error::NotFound { code: ErrorCode::BranchNotFound, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let name = preview_name(claimed.key.number);
        let branches = self.store.branch_list(&place.organization, &place.project, None).await?;
        if let Some(there) = branches.into_iter().find(|branch| branch.name == name) {
            return Ok(there);
        }
        let parent = reached.mapping.root.clone();
        let new = NewBranchRequest {
            name,
            description: String::new(),
            labels: Default::default(),
            scale_to_zero: Default::default(),
            expiry: AskedExpiry::At(Utc::now() + PREVIEW_LIFETIME),
            backups: BackupChange::default(),
            origin: BranchOrigin::Inherit {
                parent,
                change: SpecChange::default(),
                version: None,
                moment: None,
            },
        };
        self.branches.make(&place, None::<&Access>, &new, Some(MadeFor::Pull(&claimed.key))).await
    }

    async fn have_none(&self, look: &Look<'_>, told: &mut Told) -> Result<AfterLook, Failed> {
        let Look { reached, claimed, .. } = look;
        let Some(branch) = &claimed.branch else { return Ok(AfterLook::Forget) };
        let within = InProject {
            organization: reached.organization.clone(),
            project: reached.mapping.project.clone(),
        };
        let place = InBranch { within, branch: branch.clone() };
        self.branches.put_away(&place, None, false, |branch| Ok(!branch.is_protected)).await?;
        failpoint!("github.deleted");
        let InProject { organization, project } = &place.within;
        let is_kept = self.store.branch_find_in(organization, project, branch).await?.is_some();
        if !is_kept {
            look.tell(&News::Deleted, None, "", told).await?;
        }
        Ok(AfterLook::Forget)
    }

    /// Where people look at a branch, or else at the project's.
    fn place_of(&self, reached: &ReachedRepository, branch: Option<&BranchId>) -> String {
        let (site, organization) = (&self.public_url, &reached.organization);
        let project = &reached.mapping.project;
        let branches = format!("{site}/console/orgs/{organization}/projects/{project}/branches");
        match branch {
            Some(branch) => format!("{branches}/{branch}/overview"),
            None => branches,
        }
    }
}

impl Look<'_> {
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        what: &'static str,
    ) -> Asked<super::api::Answer> {
        self.github.ask((method, path), self.token.asker(), body, what).await
    }

    /// Has GitHub show what is new, by a check and a deployment of the commit and a comment, unless that was told.
    async fn tell(&self, news: &News, commit: Option<&String>, place: &str, told: &mut Told) -> Asked<()> {
        let (mark, words) = (news.mark(), news.words(self.claimed.key.number, place));
        let is_told = told.what.as_deref() == Some(mark.as_str());
        if let Some(commit) = commit.filter(|commit| !is_told || told.commit.as_ref() != Some(commit)) {
            may_be_refused(self.check(&words, commit, place).await)?;
            if let Some(state) = news.deployment() {
                may_be_refused(self.deploy(commit, state, place).await)?;
            }
            told.commit = Some(commit.clone());
        }
        if !is_told && *news == News::Deleted {
            may_be_refused(self.end_deployment().await)?;
        }
        if !is_told || told.comment.is_none() {
            told.comment = may_be_refused(self.comment(&words, told.comment).await)?;
            told.what = Some(mark);
        }
        Ok(())
    }

    async fn check(&self, words: &Words, commit: &str, place: &str) -> Asked<()> {
        let (name, id) = (&self.token.full_name, self.claimed.key.mapping.as_str());
        let path = format!("/repos/{name}/commits/{commit}/check-runs?check_name={CHECK}&per_page={PAGE}");
        let known: Runs = self.ask(Method::GET, &path, None, "checks of a commit").await?.json()?;
        let known = known.check_runs.into_iter().find(|run| run.external_id.as_deref() == Some(id));
        let mut body = json!({
            "name": CHECK, "status": "completed", "conclusion": words.conclusion,
            "external_id": id, "details_url": place,
            "output": { "title": words.title, "summary": words.text },
        });
        let (method, path) = match known {
            Some(run) => (Method::PATCH, format!("/repos/{name}/check-runs/{}", run.id)),
            None => {
                body["head_sha"] = json!(commit);
                (Method::POST, format!("/repos/{name}/check-runs"))
            }
        };
        self.ask(method, &path, Some(&body), "a check").await.map(drop)
    }

    /// The one comment of ours, found by its first line and its author where its number is not known; its number.
    async fn comment(&self, words: &Words, known: Option<i64>) -> Asked<Option<i64>> {
        let (name, number) = (&self.token.full_name, self.claimed.key.number);
        let marker = format!("<!-- coppice:{} -->", self.claimed.key.mapping);
        let body = json!({ "body": format!("{marker}\n{}", words.text) });
        let edit = async |id: i64| {
            let path = format!("/repos/{name}/issues/comments/{id}");
            self.ask(Method::PATCH, &path, Some(&body), "a comment").await
        };
        if let Some(id) = known {
            match edit(id).await {
                Ok(_) => return Ok(Some(id)),
                // Somebody deleted it.
                Err(refused) if refused.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        for page in 1..=PAGES_MAX {
            let path = format!("/repos/{name}/issues/{number}/comments?per_page={COMMENTS_PAGE}&page={page}");
            let asked = self.ask(Method::GET, &path, None, "comments of a pull request");
            let comments: Vec<Comment> = asked.await?.json()?;
            let app = self.github.app_id();
            if let Some(found) = comments.iter().find(|one| one.is_of(app, &marker)) {
                return edit(found.id).await.map(|_| Some(found.id));
            }
            if comments.len() < COMMENTS_PAGE {
                break;
            }
        }
        let path = format!("/repos/{name}/issues/{number}/comments");
        let made: Comment = self.ask(Method::POST, &path, Some(&body), "a comment").await?.json()?;
        Ok(Some(made.id))
    }
}

/// Whoever installed the App need not have let it write everything: the branch is there all the same.
fn may_be_refused<T: Default>(told: Asked<T>) -> Asked<T> {
    match told {
        Err(GithubError::Refused { status, what }) => {
            tracing::warn!("GitHub does not take {what}: {status}; may the App write it?");
            Ok(T::default())
        }
        told => told,
    }
}

/// A pause that grows with every attempt.
fn longer(pause: u32, attempts: u32) -> u32 {
    pause.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(PAUSE_MAX.max(pause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_an_hour() {
        assert_eq!([1, 2, 5, 60].map(|attempts| longer(SOON, attempts)), [2, 4, 32, 2048]);
        assert_eq!(longer(30, 60), PAUSE_MAX);
        assert_eq!(longer(u32::MAX, 2), u32::MAX);
    }

    #[test]
    fn a_comment_is_ours_if_the_app_wrote_it() {
        let comment = |body: &str, kind: &str, via: serde_json::Value| -> Comment {
            let user = json!({ "type": kind });
            let told = json!({ "id": 1, "body": body, "user": user, "performed_via_github_app": via });
            serde_json::from_value(told).expect("a comment")
        };
        let (ours, none) = ("<!-- coppice:1 -->\ntext", serde_json::Value::Null);
        let via = |id: i64| json!({ "id": id, "client_id": format!("Iv1.{id}") });
        let is_ours = |app: &str, one: Comment| one.is_of(app, "<!-- coppice:1 -->");
        assert!(is_ours("7", comment(ours, "Bot", via(7))) && is_ours("Iv1.7", comment(ours, "Bot", via(7))));
        assert!(is_ours("7", comment(ours, "Bot", none.clone())));
        assert!(!is_ours("7", comment(ours, "User", none)), "somebody copied its first line");
        assert!(!is_ours("7", comment(ours, "Bot", via(8))) && !is_ours("7", comment("text", "Bot", via(7))));
    }
}

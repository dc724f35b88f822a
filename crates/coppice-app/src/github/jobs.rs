//! Jobs of GitHub Actions: what proves that one runs for a pull request becomes a key for its branch (RFC 8693).
//!
//! What the token says of the pull request is its number. Whether that is open, where it comes from, and so whether
//! it has a branch, GitHub is asked, as for every look.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::access::{Grant, Principal, Scope};
use coppice_core::api_key::{ApiKeyKind, ApiKeySecret};
use coppice_core::audit::{AuditActor, AuditOutcome, RequestOrigin};
use coppice_core::github::pull_of_reference;
use coppice_core::login::DatabaseRole;
use coppice_core::operation::CREATE_ORGANIZATION_API_KEY;
use coppice_core::{ApiKeyId, BranchId, Error, ErrorKind};
use coppice_oauth::metadata::TOKEN_EXCHANGE;
use coppice_oauth::params::Params;
use coppice_oauth::{OAuthError, OAuthErrorCode};
use coppice_store::{AuditEnd, NewApiKey, NewAuditLine, PullKey, ReachedRepository};
use serde::{Deserialize, Serialize};

use super::Github;
use super::api::GithubApi;
use crate::identity::{IdentityError, IdentityResult};
use crate::outside::Unproven;
use crate::rows::lock_enabled_organization_in_tx;

/// What the token is that it shows.
const SHOWN: [&str; 2] =
    ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];
/// What it gets.
const GIVEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// How long that is good.
const LIFETIME: TimeDelta = TimeDelta::hours(1);
/// What it is good for, on one branch.
const SCOPES: [Scope; 2] = [Scope::BranchRead, Scope::CredentialsRead];
/// Keys that jobs of one pull request hold: whoever may push to it takes no other's.
const KEYS_OF_PULL_MAX: u32 = 100;
/// Longest id of a token, in bytes.
const TOKEN_ID_MAX: usize = 200;

/// What a job gets.
#[derive(Serialize)]
pub struct JobKey {
    access_token: String,
    issued_token_type: &'static str,
    token_type: &'static str,
    expires_in: i64,
    scope: String,
    organization: String,
    project: String,
    branch: String,
}

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobKey({})", self.branch)
    }
}

/// What GitHub says of a job (docs.github.com, "OpenID Connect reference").
#[derive(Clone, Debug, Deserialize)]
struct Claims {
    jti: String,
    exp: i64,
    repository_id: String,
    event_name: String,
    r#ref: String,
}

/// A job of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    /// Its token's id, and when that ends.
    token: (String, DateTime<Utc>),
    /// The repository's number at GitHub: another one may have its name by now.
    repository: i64,
    /// The pull request's.
    pull: i64,
}

/// The branch that a job is for.
struct Preview {
    of: ReachedRepository,
    branch: BranchId,
}

fn denied(why: impl Into<String>) -> OAuthError {
    OAuthError::new(OAuthErrorCode::AccessDenied, why)
}

/// The token that a request shows, if it is one that can be answered.
fn shown(params: &Params, public_url: &str) -> Result<String, OAuthError> {
    if params.repeats_any() {
        return Err(OAuthError::invalid_request("a parameter comes more than once"));
    }
    if params.get("actor_token").is_some() {
        return Err(OAuthError::invalid_request("a job acts for nobody else: send no actor_token"));
    }
    if params.get("requested_token_type").is_some_and(|kind| kind != GIVEN) {
        return Err(OAuthError::invalid_request(format!("requested_token_type is {GIVEN}, or none")));
    }
    let mut targets = ["audience", "resource"].into_iter().filter_map(|name| params.get(name));
    if targets.any(|target| target != public_url) {
        let description = format!("keys are for {public_url} and nothing else");
        return Err(OAuthError::new(OAuthErrorCode::InvalidTarget, description));
    }
    if !params.get("subject_token_type").is_some_and(|kind| SHOWN.contains(&kind)) {
        return Err(OAuthError::invalid_request(format!("subject_token_type is {}", SHOWN[0])));
    }
    let token = params.get("subject_token");
    token.map(str::to_owned).ok_or_else(|| OAuthError::invalid_request("subject_token is missing"))
}

/// The database user that a request wants for its key alone; without one the key reads the login of the branch, which
/// outlives it.
fn wanted_role(params: &Params) -> Result<Option<DatabaseRole>, OAuthError> {
    let unknown = || OAuthError::invalid_request("database_role is reader, writer or owner");
    params.get("database_role").map(|name| DatabaseRole::parse(name).ok_or_else(unknown)).transpose()
}

impl Job {
    /// What runs with these claims, if it runs for a pull request.
    fn of(claims: Claims) -> Option<Self> {
        // With `pull_request_target` runs what the root says, for whoever asks: GitHub names no pull request then.
        let pull = pull_of_reference(&claims.r#ref).filter(|_| claims.event_name == "pull_request")?;
        let is_id = (1..=TOKEN_ID_MAX).contains(&claims.jti.len())
            && claims.jti.bytes().all(|byte| byte.is_ascii_graphic());
        let ends_at = DateTime::from_timestamp(claims.exp, 0).filter(|_| is_id)?;
        Some(Self { token: (claims.jti, ends_at), repository: claims.repository_id.parse().ok()?, pull })
    }
}

impl Github {
    /// Whether a request for a token is one of a job.
    pub fn is_of_job(params: &Params) -> bool {
        params.get("grant_type") == Some(TOKEN_EXCHANGE)
    }

    /// Gives a job of a pull request a key for its branch.
    ///
    /// # Errors
    /// `invalid_request` for a token that proves nothing, `access_denied` for a job that gets no key,
    /// `authorization_pending` while there is no branch.
    pub async fn exchange_job_token(
        &self,
        params: &Params,
        origin: &RequestOrigin,
    ) -> IdentityResult<JobKey> {
        let Some(github) = self.api.as_deref() else {
            let description = "this platform has no GitHub App";
            return Err(OAuthError::new(OAuthErrorCode::UnsupportedGrantType, description).into());
        };
        let token = shown(params, &self.public_url)?;
        let role = wanted_role(params)?;
        let claims: Claims =
            github.jobs.claims(&token, &self.public_url).await.map_err(|unproven| match unproven {
                Unproven::Token(why) => IdentityError::from(OAuthError::invalid_request(format!(
                    "subject_token proves nothing to {}: {why}",
                    self.public_url
                ))),
                Unproven::Issuer(error) => Error::unavailable(error).into(),
            })?;
        let job = Job::of(claims).ok_or_else(|| denied("the job does not run for the event pull_request"))?;
        let preview = self.preview_of_job(github, &job).await?;
        self.audited_key(&job, &preview, role, origin).await
    }

    async fn preview_of_job(&self, github: &GithubApi, job: &Job) -> IdentityResult<Preview> {
        let Some(of) = self.store.github_reached_repository(job.repository).await? else {
            return Err(denied(format!("no project is mapped to repository {}", job.repository)).into());
        };
        if !of.mapping.has_job_keys {
            let why = "was mapped by somebody who may not read credentials: map it anew as one who may";
            return Err(denied(format!("repository {} {why}", job.repository)).into());
        }
        let (_, pull) = github.pull(&of, job.pull).await.map_err(Error::from)?;
        if !pull.is_some_and(|pull| of.mapping.wants_branch(&pull)) {
            let why = "is closed, or comes from a fork, or has no branch by the mapping of its repository";
            return Err(denied(format!("pull request {} {why}", job.pull)).into());
        }
        let key = PullKey { mapping: of.mapping.id.clone(), number: job.pull };
        match self.store.github_preview(&key).await? {
            Some(branch) => Ok(Preview { of, branch }),
            None => {
                let description = format!("pull request {} has no branch that was made for it yet", job.pull);
                Err(OAuthError::new(OAuthErrorCode::AuthorizationPending, description).into())
            }
        }
    }

    async fn audited_key(
        &self,
        job: &Job,
        preview: &Preview,
        role: Option<DatabaseRole>,
        origin: &RequestOrigin,
    ) -> IdentityResult<JobKey> {
        let ReachedRepository { mapping, organization, .. } = &preview.of;
        let actor = AuditActor::Organization(organization.clone());
        let line = NewAuditLine {
            organization: Some(organization.as_str()),
            project: Some(mapping.project.as_str()),
            branch: Some(preview.branch.as_str()),
            targets: &[mapping.id.to_string()],
            ..NewAuditLine::new(&actor, CREATE_ORGANIZATION_API_KEY.id, origin)
        };
        let id = self.audit.begin_line(&line).await?;
        let made = self.key_of_job(job, preview, role).await;
        let end = match &made {
            Ok((key, _)) => {
                AuditEnd { created: Some(key.to_string()), ..AuditEnd::new(AuditOutcome::Succeeded) }
            }
            Err(IdentityError::Refused(refused)) => AuditEnd {
                error: Some(refused.code.as_str().to_owned()),
                ..AuditEnd::new(AuditOutcome::Failed(ErrorKind::Invalid))
            },
            Err(IdentityError::Failed(error)) => AuditEnd::failed(error),
        };
        self.audit.end(&id, &end).await;
        let (_, secret) = made?;
        Ok(JobKey {
            access_token: secret.expose().to_owned(),
            issued_token_type: GIVEN,
            token_type: "Bearer",
            expires_in: LIFETIME.num_seconds(),
            scope: SCOPES.map(Scope::as_str).join(" "),
            organization: organization.to_string(),
            project: mapping.project.to_string(),
            branch: preview.branch.to_string(),
        })
    }

    async fn key_of_job(
        &self,
        job: &Job,
        preview: &Preview,
        role: Option<DatabaseRole>,
    ) -> IdentityResult<(ApiKeyId, ApiKeySecret)> {
        let (now, organization) = (Utc::now(), &preview.of.organization);
        let (id, secret) = (ApiKeyId::generate(now), ApiKeySecret::generate(ApiKeyKind::Organization));
        let grant = Grant {
            scopes: SCOPES.map(|scope| scope.as_str().to_owned()).to_vec(),
            branches: vec![preview.branch.to_string()],
            database_role: role,
            ..Grant::everything()
        };
        let row = NewApiKey {
            id: &id,
            principal: &Principal::Organization(organization.clone()),
            name: &format!("a job of pull request {} at GitHub", job.pull),
            preview: &secret.preview(),
            hash: &self.key.hash(secret.expose()),
            grant: &grant,
            expiry: Some(now + LIFETIME),
            created_by: None,
            made_with: None,
        };
        let mut tx = self.store.begin().await?;
        let enabled = lock_enabled_organization_in_tx(&self.store, &mut tx, organization).await;
        enabled.map_err(|error| match error {
            // Why is for the organization alone.
            Error::Forbidden { .. } => IdentityError::from(denied("the organization is disabled")),
            _ => error.into(),
        })?;
        let max = self.job_keys_max;
        let (all, of_branch) =
            self.store.github_job_keys_in_tx(&mut tx, organization, &preview.branch).await?;
        if all >= max {
            return Err(denied(format!("jobs of this organization hold {max} keys already")).into());
        }
        if of_branch >= KEYS_OF_PULL_MAX {
            let why = format!("jobs of pull request {} hold {KEYS_OF_PULL_MAX} keys already", job.pull);
            return Err(denied(why).into());
        }
        self.store.key_insert_in_tx(&mut tx, &row).await?;
        let (token, ends_at) = &job.token;
        if !self.store.github_job_insert_in_tx(&mut tx, (token, *ends_at), &id).await? {
            return Err(OAuthError::invalid_request("subject_token was used before: ask for another").into());
        }
        tx.commit().await?;
        Ok((id, secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: &str = "https://db.example.com";

    fn job(event: &str, reference: &str, repository: &str, jti: &str) -> Option<Job> {
        Job::of(Claims {
            jti: jti.to_owned(),
            exp: 1_000,
            repository_id: repository.to_owned(),
            event_name: event.to_owned(),
            r#ref: reference.to_owned(),
        })
    }

    #[test]
    fn a_job_runs_for_a_pull_request_where_github_says_so_and_nowhere_else() {
        let found = job("pull_request", "refs/pull/7/merge", "5", "t").expect("a job");
        assert_eq!((found.repository, found.pull), (5, 7));
        assert_eq!(found.token, ("t".to_owned(), DateTime::from_timestamp(1_000, 0).expect("a time")));
        for (event, reference, repository, jti) in [
            // It names the branch that is to be merged into, and may name anything.
            ("pull_request_target", "refs/heads/main", "5", "t"),
            ("pull_request_target", "refs/pull/7/merge", "5", "t"),
            ("push", "refs/pull/7/merge", "5", "t"),
            ("pull_request", "refs/heads/main", "5", "t"),
            ("pull_request", "refs/heads/refs/pull/7/merge", "5", "t"),
            ("pull_request", "refs/pull/7/merge", "octocat/shop", "t"),
            ("pull_request", "refs/pull/7/merge", "", "t"),
            ("pull_request", "refs/pull/7/merge", "5", ""),
            ("pull_request", "refs/pull/7/merge", "5", "a b"),
        ] {
            assert_eq!(
                job(event, reference, repository, jti),
                None,
                "{event} {reference} {repository} {jti}"
            );
        }
    }

    #[test]
    fn a_request_shows_one_token_and_wants_a_key_for_this_platform() {
        let read = |more: &str| {
            let text =
                format!("subject_token=x&subject_token_type=urn:ietf:params:oauth:token-type:jwt{more}");
            shown(&Params::parse(text.as_bytes()).expect("parameters"), US).map_err(|error| error.code)
        };
        assert_eq!(read("").as_deref(), Ok("x"));
        let target = format!("&audience={US}&resource={US}&requested_token_type={GIVEN}");
        assert_eq!(read(&target).as_deref(), Ok("x"));
        assert_eq!(read("&audience=https://other.example"), Err(OAuthErrorCode::InvalidTarget));
        for bad in ["&subject_token=y", "&actor_token=z", "&requested_token_type=refresh"] {
            assert_eq!(read(bad), Err(OAuthErrorCode::InvalidRequest), "{bad}");
        }
        let other = Params::parse(b"subject_token=x&subject_token_type=saml").expect("parameters");
        assert!(shown(&other, US).is_err());
        let role = |text: &str| wanted_role(&Params::parse(text.as_bytes()).expect("parameters"));
        assert_eq!(role("").ok(), Some(None));
        assert_eq!(role("database_role=writer").ok(), Some(Some(DatabaseRole::Writer)));
        assert!(role("database_role=superuser").is_err());
    }
}

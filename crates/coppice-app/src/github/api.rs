//! Asking GitHub.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use coppice_core::error::{UNAVAILABLE_SECONDS, chain};
use coppice_core::organization::Holder;
use coppice_core::{Error, ErrorCode, OrganizationId, Result};
use coppice_store::Store;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, HeaderMap, LINK, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use super::config::GithubConfig;
use crate::asking::{self, Reply};
use crate::attempts::{AS_APP, Attempts};
use crate::cached::Cached;
use crate::outside::TokenSigner;

/// How long GitHub may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read: a page of pull requests with long texts.
const ANSWER_LIMIT_BYTES: usize = 16 << 20;
/// Longest pause that GitHub can ask for, in seconds.
const PAUSE_MAX: u32 = 3600;
/// The pause where it does not say how long.
const PAUSE_UNSAID: i64 = 60;

/// Why something asked of GitHub did not come.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum GithubError {
    /// It does not answer, not in time, or not as it should.
    #[error("GitHub: {0}")]
    Away(String),
    /// It wants to be asked less.
    #[error("GitHub wants to be asked again in {0} seconds")]
    Limited(u32),
    /// It is not asked: the App did that too often for one holder.
    #[error("GitHub was asked too often for organizations of this owner: try again in {0} seconds")]
    TooOften(u32),
    /// It knows nothing of this, or not for us.
    #[error("GitHub refuses {what} with {status}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// What was asked.
        what: &'static str,
    },
}

impl GithubError {
    /// Whether it says that there is no such thing, or none in our reach.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if matches!(status.as_u16(), 404 | 410 | 422))
    }

    /// When to ask again, at the earliest, in seconds.
    pub(super) fn pause(&self) -> u32 {
        match self {
            Self::Limited(seconds) | Self::TooOften(seconds) => *seconds,
            Self::Away(_) | Self::Refused { .. } => UNAVAILABLE_SECONDS,
        }
    }
}

impl From<GithubError> for Error {
    fn from(error: GithubError) -> Self {
        match error {
            GithubError::TooOften(retry_after_seconds) => {
                Self::TooMany { code: ErrorCode::RateLimited, public: error.to_string(), retry_after_seconds }
            }
            _ => Self::unavailable(error),
        }
    }
}

/// What was asked of GitHub, or why it did not come.
pub(super) type Asked<T> = std::result::Result<T, GithubError>;

/// Whose requests GitHub counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CountedFor {
    App,
    /// GitHub's number of it.
    Installation(i64),
    /// Each with a token of their own, which is used once.
    Person,
}

/// What a request shows, and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) token: &'a str,
    pub(super) counted_for: CountedFor,
    /// Whose [`AS_APP`] it is.
    organization: Option<&'a OrganizationId>,
}

impl<'a> Asker<'a> {
    /// The App, for the platform.
    pub(super) fn app(token: &'a str) -> Self {
        Self { token, counted_for: CountedFor::App, organization: None }
    }

    /// The App, for an organization.
    pub(super) fn app_for(token: &'a str, organization: &'a OrganizationId) -> Self {
        Self { organization: Some(organization), ..Self::app(token) }
    }

    pub(super) fn person(token: &'a str) -> Self {
        Self { token, counted_for: CountedFor::Person, organization: None }
    }
}

/// A token for one repository.
#[derive(Clone)]
pub(crate) struct RepositoryToken {
    /// What is shown.
    pub(super) secret: Zeroizing<String>,
    /// The installation, by GitHub's number.
    pub(super) installation: i64,
    /// What the repository is called now: owner and name.
    pub(super) full_name: String,
    pub(super) expires_at: DateTime<Utc>,
}

impl RepositoryToken {
    pub(super) fn asker(&self) -> Asker<'_> {
        let counted_for = CountedFor::Installation(self.installation);
        Asker { token: &self.secret, counted_for, organization: None }
    }
}

impl std::fmt::Debug for RepositoryToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RepositoryToken({})", self.full_name)
    }
}

/// GitHub, as the App sees it.
pub(crate) struct GithubApi {
    pub(super) config: GithubConfig,
    store: Store,
    attempts: Attempts,
    client: OnceCell<Client>,
    /// The issuer of the tokens of jobs.
    pub(super) jobs: TokenSigner,
    /// By installation and repository, both GitHub's numbers.
    pub(super) tokens: Mutex<BTreeMap<(i64, i64), RepositoryToken>>,
    /// Where people install the App.
    pub(super) install_page: Cached<String, GithubError>,
    /// Until when GitHub wants to be left alone by whom.
    pauses: Mutex<BTreeMap<CountedFor, Instant>>,
}

/// An answer of a good status.
#[derive(Debug)]
pub(super) struct Answer {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// What its body says.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Asked<T> {
        serde_json::from_slice(&self.body).map_err(|error| GithubError::Away(format!("its answer: {error}")))
    }

    /// Where the next part of a list begins, if there is one (docs.github.com, "Using pagination in the REST API").
    pub(super) fn next_cursor(&self) -> Option<String> {
        next_cursor(self.headers.get(LINK)?.to_str().ok()?)
    }
}

impl GithubApi {
    /// It is not asked before something is to be known of it.
    pub(crate) fn new(config: GithubConfig, store: Store, attempts: Attempts) -> Self {
        let jobs = TokenSigner::new(config.jobs_issuer.clone());
        Self {
            config,
            store,
            attempts,
            client: OnceCell::new(),
            jobs,
            tokens: Mutex::default(),
            install_page: Cached::default(),
            pauses: Mutex::default(),
        }
    }

    async fn client(&self) -> Asked<&Client> {
        let make = async || {
            let made = asking::client(CONNECT_PATIENCE, PATIENCE);
            made.map_err(|error| GithubError::Away(chain(&error)))
        };
        self.client.get_or_try_init(make).await
    }

    /// Asks the API something; nothing while it wants to be left alone, which it takes ill otherwise
    /// (docs.github.com, "Best practices for using the REST API"), and nothing that exceeds [`AS_APP`].
    pub(super) async fn ask(
        &self,
        request: (Method, &str),
        by: Asker<'_>,
        body: Option<&Value>,
        what: &'static str,
    ) -> Asked<Answer> {
        if let Some(seconds) = self.pause_of(by.counted_for, Instant::now()) {
            return Err(GithubError::Limited(seconds));
        }
        let holder = match by.organization {
            Some(organization) => Some(self.count(organization).await.map_err(unasked)?),
            None => None,
        };
        let asked = self.ask_now(request, by.token, body, what).await;
        // Else whoever has much would wait on when GitHub is back.
        if let (Some(holder), Err(GithubError::Away(_))) = (&holder, &asked) {
            self.attempts.take_back(AS_APP, holder.as_str()).await.map_err(unasked)?;
        }
        if let Err(GithubError::Limited(seconds)) = &asked
            && by.counted_for != CountedFor::Person
        {
            tracing::warn!("GitHub wants to be asked again in {seconds} seconds, not to be asked for {what}");
            let until = Instant::now() + Duration::from_secs((*seconds).into());
            self.pauses.lock().insert(by.counted_for, until);
        }
        asked
    }

    /// Counts what the App asks for an organization; for whom.
    async fn count(&self, organization: &OrganizationId) -> Result<Holder> {
        let holder = self.store.organization_holder(organization).await?;
        self.attempts.count(AS_APP, holder.as_str()).await?;
        Ok(holder)
    }

    /// Seconds that are left of a pause, at least one.
    fn pause_of(&self, counted_for: CountedFor, now: Instant) -> Option<u32> {
        let mut pauses = self.pauses.lock();
        pauses.retain(|_, until| *until > now);
        let left = pauses.get(&counted_for)?.duration_since(now).as_secs_f64().ceil();
        Some(left as u32)
    }

    async fn ask_now(
        &self,
        (method, path): (Method, &str),
        token: &str,
        body: Option<&Value>,
        what: &'static str,
    ) -> Asked<Answer> {
        let place = at(&self.config.api, path)?;
        let request = self.client().await?.request(method, place).bearer_auth(token);
        let request = request
            .header(ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28");
        self.send(
            match body {
                Some(body) => request.json(body),
                None => request,
            },
            what,
        )
        .await
    }

    /// Sends a form to GitHub's web site.
    pub(super) async fn post_form(&self, path: &str, form: String, what: &'static str) -> Asked<Answer> {
        let request = self.client().await?.post(at(&self.config.site, path)?);
        let request = request
            .header(ACCEPT, "application/json")
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(form), what).await
    }

    async fn send(&self, request: RequestBuilder, what: &'static str) -> Asked<Answer> {
        let Reply { status, headers, body } = asking::ask(request, ANSWER_LIMIT_BYTES)
            .await
            .map_err(|lost| GithubError::Away(format!("{what}: {lost}")))?;
        if let Some(seconds) = pause(status, &headers, &body, Utc::now()) {
            return Err(GithubError::Limited(seconds));
        }
        if status.is_server_error() {
            return Err(GithubError::Away(format!("{what}: {status}")));
        }
        match status.is_success() {
            true => Ok(Answer { headers, body }),
            false => Err(GithubError::Refused { status, what }),
        }
    }

    /// See [`GithubConfig::app_id`](super::GithubConfig::app_id).
    pub(super) fn app_id(&self) -> &str {
        &self.config.app_id
    }

    /// What the App says who it is with.
    pub(super) fn app_token(&self) -> Result<Zeroizing<String>> {
        self.config.key.token(&self.config.app_id, Utc::now().timestamp())
    }
}

/// Why something is not asked that could not be counted, or not any more.
fn unasked(error: Error) -> GithubError {
    match error {
        Error::TooMany { retry_after_seconds, .. } => GithubError::TooOften(retry_after_seconds),
        error => GithubError::Away(error.for_log()),
    }
}

fn next_cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    let place = Url::parse(rest.split_once('>')?.0).ok()?;
    let (_, cursor) = place.query_pairs().find(|(name, _)| name == "cursor")?;
    let is_one = (1..=200).contains(&cursor.len())
        && cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'='));
    is_one.then(|| cursor.into_owned())
}

fn at(base: &Url, path: &str) -> Asked<Url> {
    let text = format!("{}{path}", base.as_str().trim_end_matches('/'));
    Url::parse(&text).map_err(|error| GithubError::Away(format!("its address: {error}")))
}

/// How long GitHub wants to be left alone, in seconds, if it does
/// (docs.github.com, "Rate limits for the REST API"). Only the message tells some limits from what is forbidden.
fn pause(status: StatusCode, headers: &HeaderMap, body: &[u8], now: DateTime<Utc>) -> Option<u32> {
    if !matches!(status.as_u16(), 403 | 429) {
        return None;
    }
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<i64>().ok();
    let is_used_up = number("x-ratelimit-remaining") == Some(0);
    let asked = number(RETRY_AFTER.as_str())
        .or_else(|| number("x-ratelimit-reset").filter(|_| is_used_up).map(|reset| reset - now.timestamp()));
    let is_limit = || {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        status == StatusCode::TOO_MANY_REQUESTS
            || body["message"].as_str().is_some_and(|message| message.contains("rate limit"))
    };
    let asked = asked.or_else(|| is_limit().then_some(PAUSE_UNSAID))?;
    Some(u32::try_from(asked.max(1)).unwrap_or(PAUSE_MAX).min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn a_list_goes_on_where_github_says_and_never_at_another_place() {
        let link = |place: &str| {
            format!("<https://api.github.com/x?cursor=first>; rel=\"first\", <{place}>; rel=\"next\"")
        };
        let next = |place: &str| next_cursor(&link(place));
        assert_eq!(
            next("https://api.github.com/app/hook/deliveries?per_page=1&cursor=v1_12-3").as_deref(),
            Some("v1_12-3")
        );
        for bad in [
            "https://api.github.com/x",
            "https://api.github.com/x?cursor=",
            "https://e.example/?cursor=a%26b%2F",
            "x",
        ] {
            assert_eq!(next(bad), None, "{bad}");
        }
        assert_eq!(next_cursor("<https://api.github.com/x?cursor=a>; rel=\"prev\""), None);
    }

    #[test]
    fn github_is_left_alone_for_as_long_as_it_wishes_and_no_longer_than_an_hour() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value)))
                .collect::<HeaderMap>()
        };
        let now = DateTime::from_timestamp(1_000, 0).expect("a time");
        let told = |status, pairs: &[_]| pause(status, &headers(pairs), b"{}", now);
        assert_eq!(told(StatusCode::FORBIDDEN, &[("retry-after", "7")]), Some(7));
        assert_eq!(
            told(StatusCode::FORBIDDEN, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1090")]),
            Some(90)
        );
        assert_eq!(
            told(StatusCode::FORBIDDEN, &[("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "1090")]),
            None
        );
        assert_eq!(told(StatusCode::TOO_MANY_REQUESTS, &[]), Some(60));
        assert_eq!(told(StatusCode::TOO_MANY_REQUESTS, &[("retry-after", "99999999")]), Some(3600));
        assert_eq!(told(StatusCode::OK, &[("retry-after", "7")]), None);
        let said = |message: &str| pause(StatusCode::FORBIDDEN, &headers(&[]), message.as_bytes(), now);
        assert_eq!(said(r#"{"message":"You have exceeded a secondary rate limit. Please wait."}"#), Some(60));
        assert_eq!(said(r#"{"message":"Resource not accessible by integration"}"#), None);
        assert_eq!(said("not JSON"), None);
    }
}

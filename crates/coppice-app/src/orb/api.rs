//! Asking Orb.

use std::time::Duration;

use coppice_core::Error;
use coppice_core::error::{chain, excerpt};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::config::OrbConfig;
use crate::asking::{self, Reply};

/// How long Orb may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// Longest answer that is read: a hundred invoices with their lines.
const ANSWER_LIMIT_BYTES: usize = 8 << 20;

/// Why something asked of Orb did not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrbError {
    /// It does not answer, not in time, or not as it should.
    #[error("Orb: {0}")]
    Away(String),
    /// It does not do it.
    #[error("Orb refuses {what} with {status}: {why}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// What it says is wrong.
        why: String,
        /// What it says against single events.
        events: Vec<RefusedEvent>,
        /// What was asked.
        what: &'static str,
    },
}

/// Usage that Orb does not take.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RefusedEvent {
    pub(super) idempotency_key: String,
    #[serde(default)]
    pub(super) validation_errors: Vec<String>,
}

impl OrbError {
    /// The status of a refusal.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Away(_) => None,
        }
    }
}

impl From<OrbError> for Error {
    fn from(error: OrbError) -> Self {
        Self::ProviderFailed { provider: "Orb", private: error.to_string() }
    }
}

/// What was asked of Orb, or why it did not come.
pub(super) type Asked<T> = std::result::Result<T, OrbError>;

/// Names and values of a query.
pub(super) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A part of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<T> {
    pub(super) data: Vec<T>,
    pub(super) pagination_metadata: Pagination,
}

/// Whether a list goes on.
#[derive(Debug, Deserialize)]
pub(super) struct Pagination {
    pub(super) has_more: bool,
    pub(super) next_cursor: Option<String>,
}

/// Orb, as we ask it.
#[derive(Debug)]
pub(crate) struct OrbApi {
    pub(super) config: OrbConfig,
    client: OnceCell<Client>,
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    title: Option<String>,
    detail: Option<String>,
    #[serde(default)]
    validation_errors: Vec<String>,
    #[serde(default)]
    validation_failed: Vec<RefusedEvent>,
}

impl OrbApi {
    /// It is not asked before something is to be known of it.
    pub(crate) fn new(config: OrbConfig) -> Self {
        Self { config, client: OnceCell::new() }
    }

    async fn client(&self) -> Asked<&Client> {
        let make = async || {
            let made = asking::client(CONNECT_PATIENCE, PATIENCE);
            made.map_err(|error| OrbError::Away(chain(&error)))
        };
        self.client.get_or_try_init(make).await
    }

    /// Asks how something is.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Pairs<'_>,
        what: &'static str,
    ) -> Asked<T> {
        self.send(self.client().await?.get(self.place(path, query)), what).await
    }

    /// The same of something that may not be there.
    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Pairs<'_>,
        what: &'static str,
    ) -> Asked<Option<T>> {
        match self.get(path, query, what).await {
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Asks it to do something, once for each key.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        key: &str,
        (path, query): (&[&str], Pairs<'_>),
        body: &impl Serialize,
        what: &'static str,
    ) -> Asked<T> {
        let request = self.client().await?.post(self.place(path, query));
        self.send(request.header("idempotency-key", key).json(body), what).await
    }

    /// Asks it to have something be so.
    pub(super) async fn put<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        what: &'static str,
    ) -> Asked<T> {
        self.send(self.client().await?.put(self.place(path, &[])).json(body), what).await
    }

    /// Ids are parts of paths, whatever they consist of.
    fn place(&self, path: &[&str], query: Pairs<'_>) -> Url {
        let mut place = self.config.api.clone();
        if let Ok(mut segments) = place.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            place.query_pairs_mut().extend_pairs(query);
        }
        place
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder, what: &'static str) -> Asked<T> {
        let away = |error: String| OrbError::Away(format!("{what}: {error}"));
        let request = request.bearer_auth(&*self.config.api_key);
        let asked = asking::ask(request, ANSWER_LIMIT_BYTES).await;
        let Reply { status, body, .. } = asked.map_err(|lost| away(lost.to_string()))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| away(format!("its answer: {error}")));
        }
        Err(refusal(status, &body, &self.config.api_key, what))
    }
}

/// Reads an error of the provider. It may echo our secret, which is cut out.
fn refusal(status: StatusCode, body: &[u8], api_key: &str, what: &'static str) -> OrbError {
    let told: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let said = told.detail.or(told.title).into_iter().chain(told.validation_errors);
    let without_key = |text: &str| excerpt(&text.replace(api_key, "…")).into_owned();
    let why = without_key(&said.collect::<Vec<_>>().join("; "));
    let mut events = told.validation_failed;
    for error in events.iter_mut().flat_map(|event| &mut event.validation_errors) {
        *error = without_key(error);
    }
    OrbError::Refused { status, why, events, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why_without_the_key() {
        let told = |body: &str| refusal(StatusCode::BAD_REQUEST, body.as_bytes(), "planted_key", "usage");
        let body = r#"{"status":400,"title":"bad","detail":"planted_key is no key","validation_errors":["x"],
            "validation_failed":[{"idempotency_key":"k","validation_errors":["planted_key too old"]}]}"#;
        let error = told(body);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("… is no key; x") && shown.contains("… too old"), "{shown}");
        assert!(!shown.contains("planted"), "{shown}");
        for other in ["", "<html>", "[]", "{}"] {
            assert_eq!(told(other).status(), Some(StatusCode::BAD_REQUEST), "{other}");
        }
    }
}

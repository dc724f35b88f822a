//! Asking Stripe.

use std::time::Duration;

use coppice_core::Error;
use coppice_core::error::{chain, excerpt};
use form_urlencoded::Serializer;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::config::StripeConfig;
use crate::asking::{self, Reply};

/// How long Stripe may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// Longest answer that is read.
const ANSWER_LIMIT_BYTES: usize = 1 << 20;
/// The version of its API whose fields are read here (docs.stripe.com, "Versioning").
const VERSION: &str = "2025-03-31.basil";
/// How often a request is made that Stripe is still at, and the pause between two.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(300);

/// Why something asked of Stripe did not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum StripeError {
    /// It does not answer, not in time, or not as it should.
    #[error("Stripe: {0}")]
    Away(String),
    /// It does not do it.
    #[error("Stripe refuses {what} with {status}: {why}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// What it says is wrong.
        why: String,
        /// Whether it says that there is no such thing.
        is_missing: bool,
        /// What was asked.
        what: &'static str,
    },
}

impl StripeError {
    /// Whether it says that there is no such thing.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { is_missing: true, .. })
    }

    /// Whether the same request is being carried out at this moment.
    fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::CONFLICT, .. })
    }
}

impl From<StripeError> for Error {
    fn from(error: StripeError) -> Self {
        Self::ProviderFailed { provider: "Stripe", private: error.to_string() }
    }
}

/// What was asked of Stripe, or why it did not come.
pub(super) type Asked<T> = std::result::Result<T, StripeError>;

/// Names and values of a form.
pub(super) type Form<'a> = &'a [(&'a str, &'a str)];

/// Stripe, as we ask it.
#[derive(Debug)]
pub(crate) struct StripeApi {
    pub(super) config: StripeConfig,
    client: OnceCell<Client>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: Told,
}

#[derive(Deserialize)]
struct Told {
    code: Option<String>,
    message: Option<String>,
}

impl StripeApi {
    /// It is not asked before something is to be known of it.
    pub(crate) fn new(config: StripeConfig) -> Self {
        Self { config, client: OnceCell::new() }
    }

    async fn client(&self) -> Asked<&Client> {
        let make = async || {
            let made = asking::client(CONNECT_PATIENCE, PATIENCE);
            made.map_err(|error| StripeError::Away(chain(&error)))
        };
        self.client.get_or_try_init(make).await
    }

    /// Asks how something is.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Form<'_>,
        what: &'static str,
    ) -> Asked<T> {
        let mut place = self.place(path);
        place.query_pairs_mut().extend_pairs(query);
        self.send(self.client().await?.get(place), what).await
    }

    /// Asks it to do something.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        form: Form<'_>,
        what: &'static str,
    ) -> Asked<T> {
        self.send(self.posting(path, form).await?, what).await
    }

    /// The same; whatever is asked with the same `key`, is done once.
    pub(super) async fn post_once<T: DeserializeOwned>(
        &self,
        key: &str,
        path: &[&str],
        form: Form<'_>,
        what: &'static str,
    ) -> Asked<T> {
        let mut tries = 1;
        loop {
            let request = self.posting(path, form).await?.header("idempotency-key", key);
            match self.send(request, what).await {
                Err(error) if error.is_busy() && tries < TRIES => tries += 1,
                done => return done,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn posting(&self, path: &[&str], form: Form<'_>) -> Asked<RequestBuilder> {
        let body = Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.client().await?.post(self.place(path));
        let kind = "application/x-www-form-urlencoded";
        Ok(request.header(reqwest::header::CONTENT_TYPE, kind).body(body))
    }

    /// Ids are parts of paths, whatever they consist of.
    fn place(&self, path: &[&str]) -> Url {
        let mut place = self.config.api.clone();
        if let Ok(mut segments) = place.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        place
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder, what: &'static str) -> Asked<T> {
        let away = |error: String| StripeError::Away(format!("{what}: {error}"));
        let request = request.bearer_auth(&*self.config.secret_key).header("stripe-version", VERSION);
        let asked = asking::ask(request, ANSWER_LIMIT_BYTES).await;
        let Reply { status, body, .. } = asked.map_err(|lost| away(lost.to_string()))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| away(format!("its answer: {error}")));
        }
        Err(refusal(status, &body, &self.config.secret_key, what))
    }
}

/// Reads an error of the provider. It may echo our secret, which is cut out.
fn refusal(status: StatusCode, body: &[u8], secret_key: &str, what: &'static str) -> StripeError {
    let told = serde_json::from_slice::<ErrorBody>(body).ok().map(|refusal| refusal.error);
    let is_missing = told.as_ref().is_some_and(|told| told.code.as_deref() == Some("resource_missing"));
    let why = told.and_then(|told| told.message).unwrap_or_default();
    let why = excerpt(&why.replace(secret_key, "…")).into_owned();
    StripeError::Refused { status, why, is_missing, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why_without_the_key_and_only_one_of_stripe_means_that_a_thing_is_gone() {
        let told = |status, body: &str| refusal(status, body.as_bytes(), "sk_test_planted", "a customer");
        let body = r#"{"error":{"message":"Invalid API Key provided: sk_test_planted"}}"#;
        let error = told(StatusCode::UNAUTHORIZED, body);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("Invalid API Key provided: …") && !shown.contains("planted"), "{shown}");
        let missing = r#"{"error":{"code":"resource_missing","message":"No such customer"}}"#;
        assert!(told(StatusCode::NOT_FOUND, missing).is_missing());
        for other in ["", "<html>", "{}", r#"{"error":{"message":"Unrecognized request URL"}}"#] {
            assert!(!told(StatusCode::NOT_FOUND, other).is_missing(), "{other}");
        }
    }
}

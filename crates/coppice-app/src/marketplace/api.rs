//! Asking AWS: one way for all of its services that speak JSON.

use std::time::Duration;

use coppice_archive::BoundedConnector;
use coppice_core::Error;
use coppice_core::error::{chain, excerpt};
use http::header::CONTENT_TYPE;
use object_store::StaticCredentialProvider;
use object_store::aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::{Client, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::config::{AwsIdentity, AwsMarketplaceConfig};
use crate::asking::{self, Reply};

/// How long AWS may take to answer. The queue is asked to wait for five seconds for something to come.
const PATIENCE: Duration = Duration::from_secs(15);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// Longest answer that is read: ten messages of the queue, of 256 KiB each, with what JSON makes of them.
const ANSWER_LIMIT_BYTES: usize = 8 << 20;

/// Why something asked of AWS did not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum AwsError {
    /// It does not answer, not in time, or not as it should.
    #[error("AWS: {0}")]
    Away(String),
    /// It does not do it.
    #[error("AWS refuses {what} with {status}: {kind}: {why}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// The name that it has for what is wrong.
        kind: String,
        /// What it says of that.
        why: String,
        /// What was asked.
        what: &'static str,
    },
}

impl AwsError {
    /// The name of what is wrong with the request; none where another try may do.
    pub(super) fn wrong(&self) -> Option<&str> {
        match self {
            Self::Refused { status, kind, .. }
                if status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS =>
            {
                Some(kind).filter(|kind| !kind.contains("Throttl")).map(String::as_str)
            }
            Self::Refused { .. } | Self::Away(_) => None,
        }
    }
}

impl From<AwsError> for Error {
    fn from(error: AwsError) -> Self {
        Self::ProviderFailed { provider: "AWS", private: error.to_string() }
    }
}

/// What was asked of AWS, or why it did not come.
pub(super) type Asked<T> = std::result::Result<T, AwsError>;

/// A service of AWS.
#[derive(Clone, Copy, Debug)]
struct Service {
    /// As signatures name it.
    name: &'static str,
    /// What names of operations begin with.
    target: &'static str,
    /// How its bodies are written.
    kind: &'static str,
}

const METERING: Service =
    Service { name: "aws-marketplace", target: "AWSMPMeteringService", kind: "application/x-amz-json-1.1" };
const QUEUE: Service = Service { name: "sqs", target: "AmazonSQS", kind: "application/x-amz-json-1.0" };

/// AWS Marketplace, as we ask it.
pub(crate) struct AwsApi {
    pub(super) config: AwsMarketplaceConfig,
    client: OnceCell<(Client, AwsCredentialProvider)>,
}

impl std::fmt::Debug for AwsApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.config.fmt(f)
    }
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(rename = "__type", default)]
    kind: String,
    #[serde(alias = "Message", default)]
    message: String,
}

impl AwsApi {
    /// It is not asked before something is to be known of it.
    pub(crate) fn new(config: AwsMarketplaceConfig) -> Self {
        Self { config, client: OnceCell::new() }
    }

    /// Asks what has to do with metering.
    pub(super) async fn metering<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        body: &impl Serialize,
    ) -> Asked<T> {
        let AwsMarketplaceConfig { metering, region, .. } = &self.config;
        self.ask((METERING, operation), (metering, region), body).await
    }

    /// Asks the queue.
    pub(super) async fn queue<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        body: &impl Serialize,
    ) -> Asked<T> {
        let AwsMarketplaceConfig { queue, queue_region, .. } = &self.config;
        let mut place = queue.clone();
        place.set_path("/");
        self.ask((QUEUE, operation), (&place, queue_region), body).await
    }

    async fn client(&self) -> Asked<&(Client, AwsCredentialProvider)> {
        let make = async || {
            let client = asking::client(CONNECT_PATIENCE, PATIENCE);
            let client = client.map_err(|error| AwsError::Away(chain(&error)))?;
            Ok((client, credentials(&self.config)?))
        };
        self.client.get_or_try_init(make).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        (service, operation): (Service, &'static str),
        (place, region): (&Url, &str),
        body: &impl Serialize,
    ) -> Asked<T> {
        let away = |error: String| AwsError::Away(format!("{operation}: {error}"));
        let (client, credentials) = self.client().await?;
        let credential = timeout(PATIENCE, credentials.get_credential()).await;
        let credential = credential.map_err(|_| away("it takes too long to know who asks".to_owned()))?;
        let credential = credential.map_err(|error| away(chain(&error)))?;
        let body = serde_json::to_vec(body).map_err(|error| away(error.to_string()))?;
        let request = http::Request::post(place.as_str())
            .header(CONTENT_TYPE, service.kind)
            .header("x-amz-target", format!("{}.{operation}", service.target))
            .body(HttpRequestBody::from(body.clone()));
        let mut request: HttpRequest = request.map_err(|error| away(error.to_string()))?;
        let signer = AwsAuthorizer::new(&credential, service.name, region);
        signer.try_authorize(&mut request, None).map_err(|error| away(chain(&error)))?;
        let request = client.post(place.clone()).headers(request.into_parts().0.headers).body(body);
        let asked = asking::ask(request, ANSWER_LIMIT_BYTES).await;
        let Reply { status, body, .. } = asked.map_err(|lost| away(lost.to_string()))?;
        if !status.is_success() {
            return Err(refusal(status, &body, &credential, operation));
        }
        // One that says nothing may have no body.
        let body = if body.is_empty() { b"{}" } else { body.as_slice() };
        serde_json::from_slice(body).map_err(|error| away(format!("its answer: {error}")))
    }
}

/// Who asks. That of a machine is asked for anew before it ends.
fn credentials(config: &AwsMarketplaceConfig) -> Asked<AwsCredentialProvider> {
    match &config.identity {
        AwsIdentity::Key { id, secret } => {
            let (key_id, secret_key) = (id.clone(), secret.to_string());
            let credential = AwsCredential { key_id, secret_key, token: None };
            Ok(std::sync::Arc::new(StaticCredentialProvider::new(credential)))
        }
        AwsIdentity::Machine => {
            // No bucket is used: it is what knows all places where credentials are.
            let builder = AmazonS3Builder::from_env().with_bucket_name("none").with_region(&config.region);
            let built = builder
                .with_http_connector(BoundedConnector::WITHOUT_OBJECTS)
                .build()
                .map_err(|error| AwsError::Away(chain(&error)))?;
            Ok(built.credentials().clone())
        }
    }
}

/// Reads an error of the provider. It may echo our secret, which is cut out.
fn refusal(status: StatusCode, body: &[u8], credential: &AwsCredential, what: &'static str) -> AwsError {
    let told: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let kind = told.kind.rsplit('#').next().unwrap_or_default();
    let kind = excerpt(kind.split(':').next().unwrap_or_default()).into_owned();
    let why = told.message.replace(&credential.secret_key, "…").replace(&credential.key_id, "…");
    AwsError::Refused { status, kind, why: excerpt(&why).into_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_name_and_says_nothing_of_the_key() {
        let credential = AwsCredential {
            key_id: "AKIAPLANTED".to_owned(),
            secret_key: "planted_secret".to_owned(),
            token: None,
        };
        let told = |status, body: &str| refusal(status, body.as_bytes(), &credential, "BatchMeterUsage");
        let bad = StatusCode::BAD_REQUEST;
        for kind in [
            "InvalidTokenException",
            "com.amazonaws.x#InvalidTokenException",
            "InvalidTokenException:http://internal.amazon.com/",
        ] {
            let body = format!(r#"{{"__type":"{kind}","message":"AKIAPLANTED planted_secret is bad"}}"#);
            let error = told(bad, &body);
            assert_eq!(error.wrong(), Some("InvalidTokenException"), "{kind}");
            assert!(error.to_string().contains("… … is bad"), "{error}");
            assert!(!format!("{error:?}").to_lowercase().contains("planted"), "{error:?}");
        }
        let throttled = told(bad, r#"{"__type":"ThrottlingException","Message":"slower"}"#);
        assert_eq!(throttled.wrong(), None, "{throttled}");
        assert_eq!(told(StatusCode::SERVICE_UNAVAILABLE, "<html>").wrong(), None);
        assert_eq!(told(bad, "<html>").wrong(), Some(""));
    }
}

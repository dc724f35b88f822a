//! Asking the provider.

use std::time::Duration;

use coppice_core::error::chain;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::error::{OutsideError, Result, broken};

/// How long it may take to answer; it is asked up to four times while one person waits.
const PATIENCE: Duration = Duration::from_secs(6);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// Longest answer that is read.
const ANSWER_LIMIT_BYTES: usize = 1 << 20;

/// A client that goes where it is told and nowhere else.
pub(super) fn client() -> Result<Client> {
    Client::builder()
        .redirect(Policy::none())
        .timeout(PATIENCE)
        .connect_timeout(CONNECT_PATIENCE)
        .user_agent(concat!("coppice/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(broken)
}

/// What it answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The body of a good answer.
    pub(super) fn json<T: DeserializeOwned>(&self, what: &str) -> Result<T> {
        if self.status.is_server_error() {
            return Err(OutsideError::Unreachable(format!("{what}: {}", self.status)));
        }
        if self.status != StatusCode::OK {
            return Err(broken(format!("{what}: {}", self.status)));
        }
        serde_json::from_slice(&self.body).map_err(|error| broken(format!("{what}: {error}")))
    }
}

/// Sends a request and reads the answer.
pub(super) async fn send(request: RequestBuilder) -> Result<Answer> {
    // The address may hold nothing secret, but its query says nothing to who reads the log.
    let unreachable = |error: reqwest::Error| OutsideError::Unreachable(chain(&error.without_url()));
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > ANSWER_LIMIT_BYTES {
            return Err(broken("an answer of more than 1 MiB"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body })
}

/// An address that may be asked: `https`, or `http` on this machine.
pub(super) fn address(text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|error| broken(format!("`{text}` is no address: {error}")))?;
    let is_here = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        _ => Err(broken(format!("`{text}` is not https"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_asked_without_tls() {
        for good in
            ["https://id.example.com/x", "http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost/"]
        {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in ["http://id.example.com/", "http://127.0.0.1.example.com/", "file:///etc/passwd", "x", ""]
        {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}

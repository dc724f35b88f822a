//! Asking the provider.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::error::{OutsideError, Result, broken};
use crate::asking::{self, NoReply, Reply};

/// How long it may take to answer; it is asked up to four times while one person waits.
const PATIENCE: Duration = Duration::from_secs(6);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// Longest answer that is read.
const ANSWER_LIMIT_BYTES: usize = 1 << 20;

/// What providers are asked with.
pub(crate) fn client() -> Result<Client> {
    asking::client(CONNECT_PATIENCE, PATIENCE).map_err(broken)
}

/// What it answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body of a good answer.
    pub(crate) fn json<T: DeserializeOwned>(&self, what: &str) -> Result<T> {
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
pub(crate) async fn send(request: RequestBuilder) -> Result<Answer> {
    match asking::ask(request, ANSWER_LIMIT_BYTES).await {
        Ok(Reply { status, body, .. }) => Ok(Answer { status, body }),
        Err(lost @ NoReply::Lost(_)) => Err(OutsideError::Unreachable(lost.to_string())),
        Err(too_long @ NoReply::TooLong(_)) => Err(broken(too_long)),
    }
}

/// An address that may be asked: `https`, or `http` on this machine.
pub(crate) fn address(text: &str) -> Result<Url> {
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

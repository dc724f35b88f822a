//! Asking services of others over HTTP: an identity provider, GitHub, Stripe.
//!
//! Where they are, the operator said, so no address is refused; but nothing is
//! followed elsewhere, and no answer is waited for or read without an end.

use std::fmt;
use std::time::Duration;

use coppice_core::error::chain;
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode};

/// Longest id of anything of theirs.
const ID_LENGTH_MAX: usize = 255;

/// What a service answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoReply {
    /// It did not come, or not to its end.
    Lost(reqwest::Error),
    /// It is longer than this many bytes.
    TooLong(usize),
}

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(error) => f.write_str(&chain(error)),
            Self::TooLong(limit) => write!(f, "an answer of more than {} MiB", limit >> 20),
        }
    }
}

/// A client that goes where it is told and nowhere else, and waits for so long: for
/// a connection, and for the whole answer.
///
/// # Errors
/// When this machine trusts no authority.
pub(crate) fn client(connect_patience: Duration, patience: Duration) -> reqwest::Result<Client> {
    Client::builder()
        .redirect(Policy::none())
        .connect_timeout(connect_patience)
        .timeout(patience)
        .user_agent(concat!("coppice/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Sends a request and reads the answer, as far as so many bytes.
pub(crate) async fn ask(request: RequestBuilder, limit_bytes: usize) -> Result<Reply, NoReply> {
    // An address may have a secret in its query.
    let lost = |error: reqwest::Error| NoReply::Lost(error.without_url());
    let mut response = request.send().await.map_err(lost)?;
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(lost)? {
        if body.len() + piece.len() > limit_bytes {
            return Err(NoReply::TooLong(limit_bytes));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Reply { status, headers, body })
}

/// Whether a browser can be led there: to a page, and never to a script.
pub(crate) fn is_page(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// Whether it is written as ids of services are: a text with a zero byte could not be kept.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=ID_LENGTH_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

//! Asking Vercel, as an installation of ours may.

use std::time::Duration;

use coppice_core::error::chain;
use coppice_core::{Error, Result, VercelInstallationId};
use reqwest::{Method, RequestBuilder, Url};
use serde_json::Value;
use zeroize::Zeroizing;

use super::Vercel;
use super::VercelConfig;
use crate::asking::{self, Reply};

/// How long Vercel may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const ANSWER_LIMIT_BYTES: usize = 1 << 20;

impl Vercel {
    /// Asks Vercel about an installation, at a path below it. None when the installation is not known, or there is
    /// no integration any more.
    ///
    /// # Errors
    /// `unavailable` while Vercel does not answer. What it refuses is an answer.
    pub(super) async fn ask(
        &self,
        installation: &VercelInstallationId,
        (method, below): (Method, &str),
        body: Option<&Value>,
    ) -> Result<Option<Reply>> {
        let (Some(vercel), Some(sealed)) =
            (&self.api, self.store.vercel_installation_token(installation).await?)
        else {
            return Ok(None);
        };
        let token: Zeroizing<String> = self.key.open(installation.as_str(), &sealed)?;
        let place = format!("v1/installations/{installation}/{below}");
        ask(&vercel.config, (method, &place), |request| {
            let request = request.bearer_auth(token.as_str());
            body.iter().fold(request, |request, body| request.json(body))
        })
        .await
        .map(Some)
    }
}

/// Asks Vercel, at a path of its API.
///
/// # Errors
/// `unavailable` while it does not answer.
pub(super) async fn ask(
    config: &VercelConfig,
    (method, path): (Method, &str),
    with: impl FnOnce(RequestBuilder) -> RequestBuilder,
) -> Result<Reply> {
    let away = |why: String| Error::unavailable(format!("Vercel: {why}"));
    let base = config.api.as_str().trim_end_matches('/');
    let place = Url::parse(&format!("{base}/{path}")).map_err(Error::internal)?;
    let client = asking::client(CONNECT_PATIENCE, PATIENCE).map_err(|error| away(chain(&error)))?;
    let asked = asking::ask(with(client.request(method, place)), ANSWER_LIMIT_BYTES).await;
    let reply = asked.map_err(|lost| away(lost.to_string()))?;
    if reply.status.is_server_error() || reply.status.as_u16() == 429 {
        return Err(away(format!("{path}: {}", reply.status)));
    }
    Ok(reply)
}

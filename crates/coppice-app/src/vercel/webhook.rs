//! What Vercel sends by itself, and what it is told at the end of an installation.

use std::time::Duration;

use aws_lc_rs::hmac;
use chrono::DateTime;
use coppice_core::error::chain;
use coppice_core::vercel::VercelInstallation;
use coppice_core::{Error, ErrorCode, Result, VercelInstallationId};
use coppice_failpoint::failpoint;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::App;
use crate::asking::{self, Reply};

/// How long Vercel may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const ANSWER_LIMIT_BYTES: usize = 1 << 20;

/// A delivery as it came.
#[derive(Clone, Copy, Debug)]
pub struct VercelDelivery<'a> {
    /// `x-vercel-signature`
    pub signature: Option<&'a str>,
    /// All of its bytes.
    pub body: &'a [u8],
}

#[derive(Deserialize)]
struct Told {
    #[serde(rename = "type")]
    kind: String,
    /// Milliseconds since 1970.
    #[serde(rename = "createdAt")]
    created_at: Option<i64>,
    #[serde(default)]
    payload: Value,
}

impl App {
    /// Takes a delivery of Vercel's. Of all that it tells, the end of an
    /// installation matters here: it is noted when this returns, and finished in
    /// the background. One that is older than the installation says nothing of it.
    ///
    /// # Errors
    /// `invalid_signature`, `invalid_json`
    pub async fn take_vercel_delivery(&self, delivery: &VercelDelivery<'_>) -> Result<()> {
        let secrets = self.vercel.as_deref().map(|vercel| vercel.config.client_secrets.as_slice());
        if !is_signed(delivery, secrets.unwrap_or_default()) {
            return Err(Error::invalid(ErrorCode::InvalidSignature, "invalid signature"));
        }
        let unreadable =
            |_| Error::invalid(ErrorCode::InvalidJson, "the body is not the JSON that Vercel sends");
        let told: Told = serde_json::from_slice(delivery.body).map_err(unreadable)?;
        let id = told.payload["configuration"]["id"].as_str().and_then(VercelInstallationId::parse);
        let when = told.created_at.and_then(DateTime::from_timestamp_millis);
        if let ("integration-configuration.removed", Some(id), Some(when)) = (told.kind.as_str(), id, when) {
            tracing::info!(installation = %id, "Vercel says that an installation was removed");
            self.store.vercel_installation_removed(&id, when).await?;
            failpoint!("vercel.removed");
        }
        Ok(())
    }

    /// Tells Vercel that nothing will be asked for an installation any more: else it keeps that open for a day.
    ///
    /// # Errors
    /// `unavailable` while it does not answer; what it refuses is over for us, too.
    pub(super) async fn finalize_at_vercel(&self, ending: &VercelInstallation) -> Result<()> {
        let (Some(vercel), Some(sealed)) =
            (&self.vercel, self.store.vercel_installation_token(&ending.id).await?)
        else {
            return Ok(());
        };
        let token: Zeroizing<String> = self.key.open(ending.id.as_str(), &sealed)?;
        let base = vercel.config.api.as_str().trim_end_matches('/');
        let place = format!("{base}/v1/installations/{}/billing/finalize", ending.id);
        let place = Url::parse(&place).map_err(Error::internal)?;
        let away = |why: String| Error::unavailable(format!("Vercel: {why}"));
        let client = asking::client(CONNECT_PATIENCE, PATIENCE).map_err(|error| away(chain(&error)))?;
        let asked = asking::ask(client.post(place).bearer_auth(token.as_str()), ANSWER_LIMIT_BYTES).await;
        let Reply { status, .. } = asked.map_err(|lost| away(lost.to_string()))?;
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(away(format!("finalizing an installation: {status}")));
        }
        if !status.is_success() {
            tracing::warn!(installation = %ending.id, "Vercel does not finalize an installation: {status}");
        }
        Ok(())
    }
}

/// Whether one of the secrets signed it, by HMAC-SHA-1 in hexadecimal as Vercel does.
fn is_signed(delivery: &VercelDelivery<'_>, secrets: &[Zeroizing<String>]) -> bool {
    let Some(tag) = delivery.signature.and_then(|text| hex::decode(text).ok()) else { return false };
    secrets.iter().any(|secret| {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        // Compared in constant time.
        hmac::verify(&key, delivery.body, &tag).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_taken_that_a_secret_signed_and_no_other() {
        let secrets = |texts: &[&str]| -> Vec<_> {
            texts.iter().map(|text| Zeroizing::new((*text).to_owned())).collect()
        };
        let is_taken = |signature: Option<&str>, body: &[u8], texts: &[&str]| {
            is_signed(&VercelDelivery { signature, body }, &secrets(texts))
        };
        // RFC 2202, test case 2.
        let (body, tag) =
            (b"what do ya want for nothing?".as_slice(), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert!(is_taken(Some(tag), body, &["Jefe"]) && is_taken(Some(tag), body, &["next", "Jefe"]));
        for (tag, body, texts) in [
            (Some(tag), b"what do ya want for nothing!".as_slice(), ["Jefe"].as_slice()),
            (Some(tag), body, &["other"]),
            (Some(tag), body, &[]),
            (Some(&tag[..38]), body, &["Jefe"]),
            (Some(""), body, &["Jefe"]),
            (None, body, &["Jefe"]),
        ] {
            assert!(!is_taken(tag, body, texts), "{tag:?} {texts:?}");
        }
    }
}

//! What Vercel sends by itself, and what it is told at the end of an installation.

use aws_lc_rs::hmac;
use chrono::DateTime;
use coppice_core::vercel::VercelInstallation;
use coppice_core::{Error, ErrorCode, Result, VercelInstallationId};
use coppice_failpoint::failpoint;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Vercel;
use crate::asking::Reply;

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

impl Vercel {
    /// Takes a delivery of Vercel's. Of all that it tells, the end of an
    /// installation matters here: it is noted when this returns, and finished in
    /// the background. One that is older than the installation says nothing of it.
    ///
    /// # Errors
    /// `invalid_signature`, `invalid_json`
    pub async fn take_delivery(&self, delivery: &VercelDelivery<'_>) -> Result<()> {
        let secrets = self.api.as_deref().map(|vercel| vercel.config.client_secrets.as_slice());
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
    /// `unavailable` while it does not answer, for a day; what it refuses is over for us, too.
    pub(super) async fn finalize(&self, ending: &VercelInstallation) -> Result<()> {
        let finalize = (Method::POST, "billing/finalize");
        let asked = self.ask(&ending.id, finalize, None).await;
        let reply = match asked {
            Err(error) if ending.is_overdue => {
                tracing::warn!(installation = %ending.id, "it ends without Vercel, which had a day: {}", error.for_log());
                return Ok(());
            }
            reply => reply?,
        };
        if let Some(Reply { status, .. }) = reply.filter(|reply| !reply.status.is_success()) {
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

//! What Orb sends: checked, and written down as whom to look at.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use coppice_core::{Error, ErrorCode, OrganizationId, Result};
use coppice_failpoint::failpoint;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::Orb;
use crate::asking::is_id;
use crate::signed::is_signed_by;

/// How old a signature may be, or our clock behind.
const TOLERANCE: TimeDelta = TimeDelta::seconds(300);

/// A delivery as it came.
#[derive(Clone, Copy, Debug)]
pub struct OrbDelivery<'a> {
    /// `X-Orb-Timestamp`
    pub timestamp: Option<&'a str>,
    /// `X-Orb-Signature`
    pub signature: Option<&'a str>,
    /// All of its bytes.
    pub body: &'a [u8],
}

#[derive(Deserialize)]
struct Event {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    customer: Option<Customer>,
    invoice: Option<About>,
    subscription: Option<About>,
}

#[derive(Deserialize)]
struct About {
    customer: Option<Customer>,
}

#[derive(Deserialize)]
struct Customer {
    external_customer_id: Option<String>,
}

impl Orb {
    /// Takes a delivery of Orb's: what follows from it is written down when this returns, and done later. One that
    /// came before changes nothing.
    ///
    /// # Errors
    /// `invalid_signature`, `invalid_json`
    pub async fn take_delivery(&self, delivery: &OrbDelivery<'_>) -> Result<()> {
        let secrets = self.api.as_deref().map(|orb| orb.config.webhook_secrets.as_slice());
        if !is_signed(delivery, secrets.unwrap_or_default(), Utc::now()) {
            return Err(Error::invalid(ErrorCode::InvalidSignature, "invalid signature"));
        }
        let not_theirs = || Error::invalid(ErrorCode::InvalidJson, "the body is not the JSON that Orb sends");
        let event: Event = serde_json::from_slice(delivery.body).map_err(|_| not_theirs())?;
        if !is_id(&event.id) {
            return Err(not_theirs());
        }
        let Some(organization) = concerned(&event) else { return Ok(()) };
        failpoint!("orb.delivery");
        self.store.orb_delivery(&event.id, &organization).await?;
        failpoint!("orb.stored");
        self.nudge.notify_one();
        Ok(())
    }
}

/// Whether one of the secrets signed it not long before or after `now` (docs.withorb.com, "Webhooks"; the published
/// client checks the same).
fn is_signed(delivery: &OrbDelivery<'_>, secrets: &[Zeroizing<String>], now: DateTime<Utc>) -> bool {
    let (Some(time), Some(signatures)) = (delivery.timestamp, delivery.signature) else { return false };
    let is_recent = moment(time).is_some_and(|at| (now - at).abs() <= TOLERANCE);
    if !is_recent {
        return false;
    }
    let signed = [b"v1:", time.as_bytes(), b":", delivery.body].concat();
    let tags = signatures.split(' ').filter_map(|part| part.strip_prefix("v1="));
    is_signed_by(secrets, &signed, tags)
}

/// A time of ISO 8601, in UTC where it says no zone.
fn moment(text: &str) -> Option<DateTime<Utc>> {
    let without_zone = || text.parse::<NaiveDateTime>().ok().map(|time| time.and_utc());
    text.parse::<DateTime<Utc>>().ok().or_else(without_zone)
}

/// Whose invoices, credits or subscription may be otherwise after an event.
fn concerned(event: &Event) -> Option<OrganizationId> {
    let (area, _) = event.kind.split_once('.')?;
    let of = |about: &Option<About>| about.as_ref()?.customer.as_ref()?.external_customer_id.clone();
    let id = match area {
        "invoice" => of(&event.invoice),
        "subscription" => of(&event.subscription),
        "customer" => event.customer.as_ref()?.external_customer_id.clone(),
        _ => None,
    };
    id.filter(|id| is_id(id)).map(OrganizationId::from_trusted)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;
    use serde_json::{Value, json};

    use super::*;

    const BODY: &[u8] = br#"{"id":"evt_1"}"#;

    fn now() -> DateTime<Utc> {
        "2026-11-23T10:00:00Z".parse().expect("a time")
    }

    fn tag(secret: &str, time: &str, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&key, &[b"v1:", time.as_bytes(), b":", body].concat());
        format!("v1={}", hex::encode(tag))
    }

    fn is_taken(time: &str, signature: &str, body: &[u8], secrets: &[&str]) -> bool {
        let secrets: Vec<_> = secrets.iter().map(|text| Zeroizing::new((*text).to_owned())).collect();
        let delivery = OrbDelivery { timestamp: Some(time), signature: Some(signature), body };
        is_signed(&delivery, &secrets, now())
    }

    #[test]
    fn a_delivery_is_taken_that_any_of_the_secrets_signed_not_long_ago_and_no_other() {
        let signed = |time: &str| is_taken(time, &tag("one", time, BODY), BODY, &["one"]);
        for time in [
            "2026-11-23T10:00:00.123456",
            "2026-11-23T10:00:00",
            "2026-11-23T10:05:00",
            "2026-11-23T09:55:00Z",
            "2026-11-23T11:00:00+01:00",
        ] {
            assert!(signed(time), "{time}");
        }
        for time in
            ["2026-11-23T10:05:01", "2026-11-23T09:54:59", "2025-11-23T10:00:00", "", "now", "1795428000"]
        {
            assert!(!signed(time), "{time}");
        }
        let time = "2026-11-23T10:00:00";
        let good = tag("one", time, BODY);
        assert!(is_taken(time, &format!("{} {good} v2=00", tag("other", time, BODY)), BODY, &["one"]));
        assert!(is_taken(time, &good, BODY, &["next", "one"]));
        assert!(!is_taken(time, &good, BODY, &[]), "without a secret nothing is");
        assert!(!is_taken(time, &good, BODY, &["other"]));
        assert!(!is_taken(time, &good, br#"{"id":"evt_2"}"#, &["one"]));
        assert!(!is_taken("2026-11-23T10:00:01", &good, BODY, &["one"]), "the time is signed, too");
        for bad in [
            "",
            "v1=",
            &good[3..],
            &good[..40],
            &good.replace("v1", "v0"),
            &format!("v1={}", "00".repeat(32)),
        ] {
            assert!(!is_taken(time, bad, BODY, &["one"]), "{bad}");
        }
    }

    #[test]
    fn an_event_says_who_is_to_be_looked_at_and_nothing_else() {
        let told = |event: Value| concerned(&serde_json::from_value(event).expect("an event"));
        let customer = json!({ "id": "c", "external_customer_id": "org_1" });
        let of = |kind: &str| json!({ "id": "e", "type": kind, "customer": customer, "properties": null });
        let about =
            |kind: &str, what: &str| json!({ "id": "e", "type": kind, what: { "customer": customer } });
        let expected = Some(OrganizationId::from_trusted("org_1"));
        for kind in
            ["invoice.payment_failed", "invoice.past_due", "invoice.payment_succeeded", "invoice.of_tomorrow"]
        {
            assert_eq!(told(about(kind, "invoice")), expected, "{kind}");
        }
        assert_eq!(told(about("subscription.ended", "subscription")), expected);
        assert_eq!(told(of("customer.credit_balance_depleted")), expected);
        for other in [of("resource_event.test"), of("invoice"), about("plan.created", "invoice")] {
            assert_eq!(told(other.clone()), None, "{other}");
        }
        for no_id in [json!(null), json!(""), json!("org_\0"), json!("org_1".repeat(64))] {
            let customer = json!({ "external_customer_id": no_id });
            let nobody = json!({ "id": "e", "type": "customer.created", "customer": customer });
            assert_eq!(told(nobody), None);
        }
    }
}

//! What Stripe sends: checked, and written down as what may be otherwise now.

use chrono::Utc;
use coppice_core::{Error, ErrorCode, Result};
use coppice_failpoint::failpoint;
use coppice_store::StripeNews;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Stripe;
use crate::asking::is_id;
use crate::signed::is_signed_by;

/// Seconds that a signature may be old, or our clock behind.
const TOLERANCE: i64 = 300;

/// A delivery as it came.
#[derive(Clone, Copy, Debug)]
pub struct StripeDelivery<'a> {
    /// `Stripe-Signature`
    pub signature: Option<&'a str>,
    /// All of its bytes.
    pub body: &'a [u8],
}

#[derive(Deserialize)]
struct Event {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    object: Value,
    #[serde(default)]
    previous_attributes: Value,
}

impl Stripe {
    /// Takes a delivery of Stripe's: what follows from it is written down when this returns, and done later. One
    /// that came before changes nothing.
    ///
    /// # Errors
    /// `invalid_signature`, `invalid_json`
    pub async fn take_delivery(&self, delivery: &StripeDelivery<'_>) -> Result<()> {
        let secrets = self.api.as_deref().map(|stripe| stripe.config.webhook_secrets.as_slice());
        if !is_signed(delivery, secrets.unwrap_or_default(), Utc::now().timestamp()) {
            return Err(Error::invalid(ErrorCode::InvalidSignature, "invalid signature"));
        }
        let not_theirs =
            || Error::invalid(ErrorCode::InvalidJson, "the body is not the JSON that Stripe sends");
        let event: Event = serde_json::from_slice(delivery.body).map_err(|_| not_theirs())?;
        if !is_id(&event.id) {
            return Err(not_theirs());
        }
        let Some(news) = news(&event) else { return Ok(()) };
        failpoint!("stripe.delivery");
        self.store.stripe_delivery(&event.id, &news).await?;
        failpoint!("stripe.stored");
        self.nudge.notify_one();
        Ok(())
    }
}

/// Whether one of the secrets signed it not long before `now` (docs.stripe.com,
/// "Verify webhook signatures manually").
fn is_signed(delivery: &StripeDelivery<'_>, secrets: &[Zeroizing<String>], now: i64) -> bool {
    let parts =
        delivery.signature.unwrap_or_default().split(',').filter_map(|part| part.trim().split_once('='));
    let values =
        |wanted: &'static str| parts.clone().filter(move |(name, _)| *name == wanted).map(|(_, value)| value);
    let Some(time) = values("t").next() else { return false };
    let is_recent = time.parse::<i64>().is_ok_and(|at| at.abs_diff(now) <= TOLERANCE.unsigned_abs());
    if !is_recent {
        return false;
    }
    let signed = [time.as_bytes(), b".", delivery.body].concat();
    is_signed_by(secrets, &signed, values("v1"))
}

/// What may be otherwise after an event; nothing after most.
fn news(event: &Event) -> Option<StripeNews> {
    let text = |value: &Value| {
        let id = value.as_str().or_else(|| value["id"].as_str());
        id.filter(|id| is_id(id)).map(str::to_owned)
    };
    let Data { object, previous_attributes } = &event.data;
    let news = match event.kind.as_str() {
        "checkout.session.completed" | "setup_intent.succeeded" | "payment_method.attached" => {
            StripeNews { customers: text(&object["customer"]).into_iter().collect(), card: None }
        }
        // The card is not the customer's any more, so it may not name them.
        "payment_method.detached" | "payment_method.updated" | "payment_method.automatically_updated" => {
            let customers = [&object["customer"], &previous_attributes["customer"]];
            StripeNews { customers: customers.into_iter().filter_map(text).collect(), card: text(object) }
        }
        "customer.updated" | "customer.deleted" => {
            StripeNews { customers: text(object).into_iter().collect(), card: None }
        }
        _ => return None,
    };
    Some(news)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const BODY: &[u8] = br#"{"id":"evt_1"}"#;

    fn tag(secret: &str, time: &str, body: &[u8]) -> String {
        let signed = [time.as_bytes(), b".", body].concat();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        hex::encode(hmac::sign(&key, &signed))
    }

    fn is_taken(signature: &str, body: &[u8], secrets: &[&str], now: i64) -> bool {
        let secrets: Vec<_> = secrets.iter().map(|text| Zeroizing::new((*text).to_owned())).collect();
        is_signed(&StripeDelivery { signature: Some(signature), body }, &secrets, now)
    }

    #[test]
    fn a_delivery_is_taken_that_any_of_the_secrets_signed_not_long_ago_and_no_other() {
        let time = NOW.to_string();
        let good = tag("whsec_one", &time, BODY);
        let header = format!("t={time},v1={good}");
        assert!(is_taken(&header, BODY, &["whsec_one"], NOW));
        assert!(is_taken(&header, BODY, &["whsec_next", "whsec_one"], NOW + 300));
        let several = format!("t={time},v1={},v1={good},v0=x", tag("whsec_other", &time, BODY));
        assert!(is_taken(&several, BODY, &["whsec_one"], NOW - 300));

        assert!(!is_taken(&header, BODY, &[], NOW), "without a secret nothing is");
        assert!(!is_taken(&header, BODY, &["whsec_other"], NOW));
        assert!(!is_taken(&header, br#"{"id":"evt_2"}"#, &["whsec_one"], NOW));
        assert!(
            !is_taken(&header, BODY, &["whsec_one"], NOW + 301),
            "an old one is sent again by a stranger"
        );
        assert!(!is_taken(&header, BODY, &["whsec_one"], NOW - 301));
        let moved = format!("t={},v1={good}", NOW + 1);
        assert!(!is_taken(&moved, BODY, &["whsec_one"], NOW), "the time is signed, too");
        for bad in [
            "",
            "v1=",
            "t=,v1=",
            &format!("t={time}"),
            &format!("t={time},v0={good}"),
            &format!("t={time},v1={}", &good[..40]),
            &format!("v1={good}"),
            &format!("t=0,t={time},v1={good}"),
            &format!("t=-9223372036854775808,v1={good}"),
        ] {
            assert!(!is_taken(bad, BODY, &["whsec_one"], NOW), "{bad}");
        }
    }

    #[test]
    fn an_event_says_whose_card_may_be_another_and_nothing_else() {
        let told = |kind: &str, data: Value| {
            let event = json!({ "id": "evt_1", "type": kind, "created": 1, "data": data });
            news(&serde_json::from_value(event).expect("an event"))
        };
        let of = |customers: &[&str], card: Option<&str>| {
            let customers = customers.iter().map(|id| (*id).to_owned()).collect();
            Some(StripeNews { customers, card: card.map(str::to_owned) })
        };
        for kind in ["checkout.session.completed", "setup_intent.succeeded", "payment_method.attached"] {
            let object = json!({ "object": { "id": "x", "customer": "cus_1" } });
            assert_eq!(told(kind, object), of(&["cus_1"], None), "{kind}");
        }
        let detached = json!({
            "object": { "id": "pm_1", "customer": null }, "previous_attributes": { "customer": "cus_1" }
        });
        assert_eq!(told("payment_method.detached", detached), of(&["cus_1"], Some("pm_1")));
        let expanded = json!({ "object": { "id": "pm_1", "customer": { "id": "cus_1" } } });
        assert_eq!(told("payment_method.updated", expanded), of(&["cus_1"], Some("pm_1")));
        assert_eq!(told("customer.deleted", json!({ "object": { "id": "cus_1" } })), of(&["cus_1"], None));
        assert_eq!(told("invoice.paid", json!({ "object": { "id": "in_1", "customer": "cus_1" } })), None);
        for no_id in
            [json!(null), json!(""), json!("cus_\0"), json!("cus_1".repeat(64)), json!({ "id": "é" })]
        {
            let object = json!({ "object": { "customer": &no_id } });
            assert_eq!(told("setup_intent.succeeded", object), of(&[], None), "{no_id}");
        }
    }
}

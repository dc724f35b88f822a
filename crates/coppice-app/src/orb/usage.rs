//! Sending sealed usage to Orb: an event for each branch, hour and meter. What was sent and not noted as sent is sent
//! again with the same key, and counts once.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use coppice_core::amount::rounded;
use coppice_core::{Error, Result};
use coppice_failpoint::failpoint;
use coppice_store::OrbUsage;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::Orb;
use super::api::{Asked, OrbApi, OrbError, RefusedEvent};

/// Most events of one request.
const EVENTS_MAX: u32 = 500;
/// Decimals of a quantity. An hour's is rounded once, to a part in a thousand million.
const DECIMALS: u32 = 9;
/// Seconds until it is tried again what Orb did not take.
const REFUSED_PAUSE: u32 = 3600;
/// Longest time of one backfill; Orb takes 31 days.
const BACKFILL_DAYS: i64 = 28;
/// How long a backfill is open that nobody closes: only then another one may take its place.
const BACKFILL_HOURS: i64 = 1;

#[derive(Serialize)]
struct Event<'a> {
    idempotency_key: String,
    external_customer_id: &'a str,
    event_name: &'static str,
    timestamp: String,
    properties: Properties<'a>,
}

#[derive(Serialize)]
struct Properties<'a> {
    /// A number with all its decimals.
    quantity: Box<RawValue>,
    unit: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instance_type: &'a str,
    branch_id: &'a str,
    project_id: &'a str,
    is_correction: bool,
}

#[derive(Serialize)]
struct Batch<'a> {
    events: Vec<Event<'a>>,
}

#[derive(Deserialize)]
struct Taken {
    validation_failed: Vec<RefusedEvent>,
}

#[derive(Deserialize)]
struct Backfill {
    id: String,
}

impl Orb {
    /// Sends what is sealed and not sent yet.
    pub(crate) async fn send_usage(&self) -> Result<()> {
        let Some(orb) = self.api.as_deref() else { return Ok(()) };
        let grace = TimeDelta::from_std(orb.config.grace).unwrap_or_default();
        // An event is in the middle of its hour, and the request takes a while.
        let bound = Utc::now() - grace;
        for is_old in [false, true] {
            loop {
                let mut due = self.store.orb_usage_due(bound, is_old, EVENTS_MAX).await?;
                let is_last = due.len() < EVENTS_MAX as usize;
                let Some(first) = due.first().map(|one| one.hour) else { break };
                if is_old {
                    due.retain(|one| one.hour - first < TimeDelta::days(BACKFILL_DAYS));
                }
                self.send(orb, &due, is_old).await?;
                if is_last && !is_old {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn send(&self, orb: &OrbApi, due: &[OrbUsage], is_old: bool) -> Result<()> {
        let sent = if is_old { orb.send_backfill(due).await } else { orb.ingest(due, None).await };
        let refused = match sent {
            Ok(()) => vec![],
            Err(OrbError::Refused { events, .. }) if !events.is_empty() => events,
            Err(error) => return Err(error.into()),
        };
        failpoint!("orb.sent");
        if refused.is_empty() {
            return Ok(self.store.orb_usage_sent(due).await?);
        }
        // Orb takes no event of a request with a bad one: the good ones are sent again without it.
        let mut is_known = false;
        for event in refused {
            let Some(one) = due.iter().find(|one| key(one) == event.idempotency_key) else { continue };
            is_known = true;
            // A text with a zero byte could not be kept.
            let why = event.validation_errors.join("; ").replace('\0', " ");
            tracing::warn!("Orb does not take the usage {}: {why}", event.idempotency_key);
            self.store.orb_usage_refused(one, &why, REFUSED_PAUSE).await?;
        }
        match is_known {
            true => Ok(()),
            false => Err(Error::internal("Orb refuses events that it was not sent")),
        }
    }
}

impl OrbApi {
    /// Sends events; nothing fails after it has taken all of them.
    async fn ingest(&self, due: &[OrbUsage], backfill: Option<&str>) -> Asked<()> {
        let what = "usage";
        let events = due.iter().map(event).collect::<Option<Vec<_>>>();
        let batch =
            Batch { events: events.ok_or_else(|| OrbError::Away("usage that is no number".to_owned()))? };
        let query: Vec<_> = backfill.map(|id| ("backfill_id", id)).into_iter().collect();
        // The same events are the same request; each has a key of its own besides.
        let request = format!("coppice-usage-{}", coppice_core::id::random_text());
        let taken: Taken = self.post(&request, (&["ingest"], &query), &batch, what).await?;
        match taken.validation_failed.is_empty() {
            true => Ok(()),
            false => Err(OrbError::Refused {
                status: reqwest::StatusCode::OK,
                why: String::new(),
                events: taken.validation_failed,
                what,
            }),
        }
    }

    /// Sends events that are older than Orb takes them otherwise: it counts them when the backfill is closed.
    async fn send_backfill(&self, due: &[OrbUsage]) -> Asked<()> {
        let (Some(first), Some(last)) = (due.first(), due.last()) else { return Ok(()) };
        let (from, to) = (time(first.hour), time(last.hour + TimeDelta::hours(1)));
        let body = json!({
            "timeframe_start": from,
            "timeframe_end": to,
            "close_time": time(Utc::now() + TimeDelta::hours(BACKFILL_HOURS)),
            "replace_existing_events": false,
        });
        let key = format!("coppice-backfill-{}", coppice_core::id::random_text());
        let backfill: Backfill =
            self.post(&key, (&["events", "backfills"], &[]), &body, "a backfill").await?;
        failpoint!("orb.backfill");
        let sent = self.ingest(due, Some(&backfill.id)).await;
        // A backfill that brought nothing is closed, too: only then can there be another one.
        let path = ["events", "backfills", backfill.id.as_str(), "close"];
        let key = format!("coppice-close-{}", backfill.id);
        let closed: Asked<Backfill> =
            self.post(&key, (&path, &[]), &json!({}), "the end of a backfill").await;
        sent.and(closed.map(drop))
    }
}

fn event(usage: &OrbUsage) -> Option<Event<'_>> {
    let quantity = usage.quantity.parse().ok()?;
    let quantity = rounded(&quantity, &usage.meter.per_unit(), DECIMALS).to_plain_string();
    Some(Event {
        idempotency_key: key(usage),
        external_customer_id: usage.organization.as_str(),
        event_name: usage.meter.as_str(),
        timestamp: time(usage.hour + TimeDelta::minutes(30)),
        properties: Properties {
            quantity: RawValue::from_string(quantity).ok()?,
            unit: usage.meter.unit(),
            instance_type: &usage.instance_type,
            branch_id: usage.branch.as_str(),
            project_id: usage.project.as_str(),
            is_correction: usage.correction > 0,
        },
    })
}

/// What tells an event apart from every other one.
fn key(usage: &OrbUsage) -> String {
    let OrbUsage { branch, meter, instance_type, hour, correction, .. } = usage;
    let meter = match instance_type.is_empty() {
        true => meter.as_str().to_owned(),
        false => format!("{}:{instance_type}", meter.as_str()),
    };
    let correction = if *correction > 0 { format!("/{correction}") } else { String::new() };
    format!("{branch}/{meter}/{}{correction}", time(*hour))
}

fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use coppice_core::usage::Meter;
    use coppice_core::{BranchId, OrganizationId, ProjectId};

    use super::*;

    fn usage(meter: Meter, instance_type: &str, correction: i32, quantity: &str) -> OrbUsage {
        OrbUsage {
            branch: BranchId::from_trusted("br_1"),
            hour: "2026-11-23T10:00:00Z".parse().expect("a time"),
            meter,
            instance_type: instance_type.to_owned(),
            correction,
            quantity: quantity.to_owned(),
            organization: OrganizationId::from_trusted("org_1"),
            project: ProjectId::from_trusted("prj_1"),
        }
    }

    #[test]
    fn each_hour_of_a_meter_is_an_event_with_its_own_key_and_an_exact_number() {
        let shown = |usage: &OrbUsage| serde_json::to_string(&event(usage).expect("an event")).expect("JSON");
        let awake = shown(&usage(Meter::Awake, "micro", 0, "1200000000"));
        assert_eq!(
            awake,
            r#"{"idempotency_key":"br_1/awake:micro/2026-11-23T10:00:00Z","external_customer_id":"org_1","event_name":"awake","timestamp":"2026-11-23T10:30:00Z","properties":{"quantity":0.333333333,"unit":"instance-hours","instance_type":"micro","branch_id":"br_1","project_id":"prj_1","is_correction":false}}"#
        );
        let corrected = shown(&usage(Meter::Storage, "", 2, "-38654705664000000000"));
        assert!(corrected.contains(r#""br_1/storage/2026-11-23T10:00:00Z/2""#), "{corrected}");
        assert!(corrected.contains(r#""quantity":-10.000000000,"#), "{corrected}");
        assert!(event(&usage(Meter::Egress, "", 0, "much")).is_none());
    }
}

//! A double of Orb: it knows customers, subscriptions, usage, credits and invoices, and refuses what Orb refuses of that.
//! It was written from Orb's documents and the types of its client; Orb itself does not answer here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use chrono::{DateTime, TimeDelta, Utc};
use coppice_app::OrbConfig;
use parking_lot::Mutex;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::double::serve;

/// What proves to it who asks.
pub(crate) const KEY: &str = "planted_key_of_the_platform_at_orb";
/// What deliveries are signed with; the first is being replaced.
pub(crate) const SECRETS: [&str; 2] = ["planted_secret_of_before", "planted_secret_of_now"];
/// How old usage may be.
const GRACE: TimeDelta = TimeDelta::hours(12);

/// How it fails, if it does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// With a status.
    Status(StatusCode),
    /// With an answer that does not end.
    Endless,
    /// With no answer.
    Silence,
    /// By sending away to another address.
    Elsewhere(String),
    /// With JSON that is of something else.
    Nonsense,
}

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Value,
    pub(crate) answer: Value,
}

/// Usage of a time that counts when it is closed.
struct Backfill {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    events: Vec<Value>,
}

#[derive(Default)]
struct Known {
    customers: BTreeMap<String, Value>,
    subscriptions: Vec<Value>,
    /// By their keys, with what has been counted.
    events: BTreeMap<String, Value>,
    /// That are open.
    backfills: BTreeMap<String, Backfill>,
    credits: BTreeMap<String, Vec<Value>>,
    invoices: BTreeMap<String, Vec<Value>>,
    /// What it answered to requests with a key.
    answers: BTreeMap<String, Value>,
    asked: Vec<Asked>,
    failure: Option<Failure>,
    made: usize,
    /// Events whose keys have this text are refused.
    refused: Option<String>,
}

/// Orb.
#[derive(Clone)]
pub(crate) struct Double {
    known: Arc<Mutex<Known>>,
    url: String,
}

type Answered = Result<Value, (StatusCode, Value)>;

fn refused(status: StatusCode, detail: &str) -> (StatusCode, Value) {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({ "status": status.as_u16(), "type": "https://docs.withorb.com/reference/error-responses",
                       "title": title, "detail": detail, "validation_errors": [] });
    (status, body)
}

impl Double {
    pub(crate) fn start() -> Self {
        let known = Arc::<Mutex<Known>>::default();
        let router = Router::new().fallback(answer).with_state(known.clone());
        let url = format!("{}/v1", serve(router));
        Self { known, url }
    }

    /// As the platform knows it.
    pub(crate) fn config(&self) -> OrbConfig {
        OrbConfig {
            api_key: Zeroizing::new(KEY.to_owned()),
            webhook_secrets: SECRETS.map(|secret| Zeroizing::new(secret.to_owned())).to_vec(),
            api: self.url.parse().expect("an address"),
            plan: "standard".to_owned(),
            grace: Duration::from_secs(12 * 3600),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The customer of an organization.
    pub(crate) fn customer(&self, organization: &str) -> Option<Value> {
        self.known.lock().customers.get(organization).cloned()
    }

    /// The states of its subscriptions.
    pub(crate) fn subscriptions(&self, organization: &str) -> Vec<String> {
        let known = self.known.lock();
        let of = |one: &&Value| one["customer"]["external_customer_id"] == organization;
        known.subscriptions.iter().filter(of).map(|one| text(&one["status"])).collect()
    }

    /// The usage of an organization that counts, by its key.
    pub(crate) fn events(&self, organization: &str) -> BTreeMap<String, Value> {
        let known = self.known.lock();
        let of = |(_, event): &(&String, &Value)| event["external_customer_id"] == organization;
        known.events.iter().filter(of).map(|(key, event)| (key.clone(), event.clone())).collect()
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.known.lock().asked.clone()
    }

    /// Fails at everything, or no more.
    pub(crate) fn fail(&self, failure: Option<Failure>) {
        self.known.lock().failure = failure;
    }

    /// Refuses events whose keys have a text, or no more.
    pub(crate) fn refuse(&self, part: Option<&str>) {
        self.known.lock().refused = part.map(str::to_owned);
    }

    /// Gives a credit, or says what is left of it.
    pub(crate) fn credit(&self, organization: &str, id: &str, balance: f64) {
        let mut known = self.known.lock();
        let credits = known.credits.entry(organization.to_owned()).or_default();
        credits.retain(|one| one["id"] != id);
        credits.push(json!({
            "id": id, "balance": balance, "maximum_initial_balance": 50.0, "status": "active",
            "effective_date": "2026-01-01T00:00:00+00:00", "expiry_date": "2999-01-01T00:00:00+00:00",
            "credit_block_source": "manual", "filters": [], "metadata": {}, "per_unit_cost_basis": null
        }));
    }

    /// Issues an invoice, or says what became of it.
    pub(crate) fn invoice(&self, organization: &str, id: &str, status: &str, (amount, failed): (&str, bool)) {
        let mut known = self.known.lock();
        let customer = known.customers.get(organization).map(|one| one["id"].clone());
        let invoices = known.invoices.entry(organization.to_owned()).or_default();
        invoices.retain(|one| one["id"] != id);
        invoices.push(json!({
            "id": id, "invoice_number": format!("N-{id}"), "amount_due": amount, "total": amount, "currency": "USD",
            "invoice_date": "2026-11-01T00:00:00+00:00", "due_date": "2999-01-01T00:00:00+00:00",
            "status": status, "invoice_pdf": format!("https://assets.withorb.example/{id}.pdf"),
            "payment_failed_at": failed.then_some("2026-11-02T00:00:00+00:00"),
            "customer": { "id": customer, "external_customer_id": organization }
        }));
    }

    /// Says of an invoice that it is somebody else's.
    pub(crate) fn give_away(&self, organization: &str, id: &str) {
        let mut known = self.known.lock();
        let invoices = known.invoices.get_mut(organization).expect("invoices");
        let invoice = invoices.iter_mut().find(|one| one["id"] == id).expect("an invoice");
        invoice["customer"]["external_customer_id"] = json!("org_of_another");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn answer(State(known): State<Arc<Mutex<Known>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 8 << 20).await.expect("a body");
    let failure = known.lock().failure.clone();
    let shown = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if shown != format!("Bearer {KEY}") {
        let (status, told) = refused(StatusCode::UNAUTHORIZED, "no such key");
        return (status, Json(told)).into_response();
    }
    match failure {
        None => {}
        Some(Failure::Status(status)) => {
            let (status, told) = refused(status, &format!("it fails for {shown}"));
            return (status, Json(told)).into_response();
        }
        Some(Failure::Endless) => return "[".repeat(9 << 20).into_response(),
        Some(Failure::Silence) => return std::future::pending().await,
        Some(Failure::Elsewhere(place)) => {
            return (StatusCode::TEMPORARY_REDIRECT, [("location", place)]).into_response();
        }
        Some(Failure::Nonsense) => return Json(json!({ "data": 7, "id": [] })).into_response(),
    }
    let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).expect("names and values");
    let path: Vec<String> = parts.uri.path().split('/').skip(2).map(str::to_owned).collect();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let key = parts.headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let mut known = known.lock();
    let again = key.and_then(|key| known.answers.get(key).cloned());
    let answered = again.map_or_else(|| known.carry_out(&parts.method, &path, &query, &body), Ok);
    let (status, told) = match answered {
        Ok(value) => {
            known.answers.extend(key.map(|key| (key.to_owned(), value.clone())));
            (StatusCode::OK, value)
        }
        Err(refused) => refused,
    };
    known.asked.push(Asked {
        method: parts.method.to_string(),
        path: path.join("/"),
        query,
        body,
        answer: told.clone(),
    });
    (status, Json(told)).into_response()
}

impl Known {
    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}_{}", self.made)
    }

    fn carry_out(
        &mut self,
        method: &Method,
        path: &[String],
        query: &[(String, String)],
        body: &Value,
    ) -> Answered {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let of = |name: &'static str| {
            query.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.clone())
        };
        match (method.as_str(), path.as_slice()) {
            ("POST", ["customers"]) => self.new_customer(body),
            ("GET", ["customers", "external_customer_id", id]) => self.found(id).map(|one| one.clone()),
            ("PUT", ["customers", "external_customer_id", id]) => {
                let customer = self.found(id)?;
                for (name, value) in body.as_object().expect("an object") {
                    customer[name] = value.clone();
                }
                Ok(customer.clone())
            }
            ("GET", ["customers", "external_customer_id", id, "credits"]) => {
                self.found(id)?;
                Ok(page(self.credits.get(*id).cloned().unwrap_or_default()))
            }
            ("POST", ["subscriptions"]) => self.new_subscription(body),
            ("GET", ["subscriptions"]) => {
                let id = of("external_customer_id[]").next().expect("whose");
                let of = |one: &&Value| one["customer"]["external_customer_id"] == id;
                Ok(page(self.subscriptions.iter().filter(of).cloned().collect()))
            }
            ("POST", ["subscriptions", id, "cancel"]) => {
                assert_eq!(body["cancel_option"], "immediate");
                let found =
                    self.subscriptions.iter_mut().find(|one| one["id"] == *id && one["status"] == "active");
                let found = found.ok_or_else(|| refused(StatusCode::NOT_FOUND, "no such subscription"))?;
                found["status"] = json!("ended");
                Ok(found.clone())
            }
            ("POST", ["ingest"]) => self.ingest(body, of("backfill_id").next().as_deref()),
            ("POST", ["events", "backfills"]) => self.new_backfill(body),
            ("POST", ["events", "backfills", id, "close"]) => {
                let found = self.backfills.remove(*id);
                let found = found.ok_or_else(|| refused(StatusCode::NOT_FOUND, "no such backfill"))?;
                self.count(found.events);
                Ok(json!({ "id": id, "status": "reflected" }))
            }
            ("GET", ["invoices"]) => {
                if of("cursor").next().is_some_and(|cursor| cursor != "next") {
                    return Err(refused(StatusCode::BAD_REQUEST, "no such cursor"));
                }
                let statuses: Vec<_> = of("status[]").collect();
                let all = of("external_customer_id").next().and_then(|id| self.invoices.get(&id).cloned());
                let all = all.unwrap_or_default().into_iter();
                Ok(page(
                    all.filter(|one| statuses.is_empty() || statuses.contains(&text(&one["status"])))
                        .collect(),
                ))
            }
            ("GET", ["invoices", "upcoming"]) => {
                let id = of("subscription_id").next().expect("of which");
                let found = self.subscriptions.iter().find(|one| one["id"] == id.as_str());
                let found = found.ok_or_else(|| refused(StatusCode::NOT_FOUND, "no such subscription"))?;
                Ok(json!({
                    "id": "u", "created_at": "2026-11-01T00:00:00+00:00", "target_date": "2026-12-01T00:00:00+00:00",
                    "amount_due": "12.30", "subtotal": "10.00", "total": "12.30", "currency": "USD",
                    "hosted_invoice_url": null, "customer": found["customer"]
                }))
            }
            _ => Err(refused(StatusCode::NOT_FOUND, "no such endpoint")),
        }
    }

    fn found(&mut self, id: &str) -> Result<&mut Value, (StatusCode, Value)> {
        self.customers.get_mut(id).ok_or_else(|| refused(StatusCode::NOT_FOUND, "no such customer"))
    }

    fn new_customer(&mut self, body: &Value) -> Answered {
        let external = text(&body["external_customer_id"]);
        if self.customers.contains_key(&external) {
            return Err(refused(StatusCode::CONFLICT, "external_customer_id is taken"));
        }
        if text(&body["email"]).is_empty() || text(&body["name"]).is_empty() {
            return Err(refused(StatusCode::BAD_REQUEST, "a name and an email are needed"));
        }
        let mut customer = json!({
            "id": self.id("c"), "email_delivery": true, "balance": "0.00", "currency": "USD", "metadata": {},
            "payment_provider": null, "payment_provider_id": null, "created_at": "2026-11-01T00:00:00+00:00"
        });
        for (name, value) in body.as_object().expect("an object") {
            customer[name] = value.clone();
        }
        self.customers.insert(external, customer.clone());
        Ok(customer)
    }

    fn new_subscription(&mut self, body: &Value) -> Answered {
        let external = text(&body["external_customer_id"]);
        let customer = self.found(&external)?["id"].clone();
        if body["external_plan_id"] != "standard" {
            return Err(refused(StatusCode::NOT_FOUND, "no such plan"));
        }
        let subscription = json!({
            "id": self.id("s"), "status": "active", "start_date": body["start_date"], "end_date": null,
            "customer": { "id": customer, "external_customer_id": external }
        });
        self.subscriptions.push(subscription.clone());
        Ok(subscription)
    }

    /// All of the events, or none.
    fn ingest(&mut self, body: &Value, backfill: Option<&str>) -> Answered {
        let events = body["events"].as_array().expect("events");
        let bounds = match backfill {
            None => (Utc::now() - GRACE, Utc::now() + TimeDelta::minutes(5)),
            Some(id) => match self.backfills.get(id) {
                Some(backfill) => (backfill.from, backfill.to),
                None => return Err(refused(StatusCode::BAD_REQUEST, "no such backfill")),
            },
        };
        let problem = |event: &&Value| {
            let at: Option<DateTime<Utc>> = text(&event["timestamp"]).parse().ok();
            let is_in_time = at.is_some_and(|at| bounds.0 <= at && at < bounds.1);
            let key = text(&event["idempotency_key"]);
            let is_refused = self.refused.as_ref().is_some_and(|part| key.contains(part));
            !is_in_time || is_refused || key.is_empty() || !event["properties"].is_object()
        };
        let failed = events.iter().filter(problem).map(|event| {
            json!({ "idempotency_key": event["idempotency_key"], "validation_errors": ["out of the grace period"] })
        });
        let failed: Vec<Value> = failed.collect();
        if !failed.is_empty() {
            let (status, mut told) = refused(StatusCode::BAD_REQUEST, "events are not valid");
            told["validation_failed"] = json!(failed);
            return Err((status, told));
        }
        match backfill.and_then(|id| self.backfills.get_mut(id)) {
            Some(backfill) => backfill.events.extend(events.iter().cloned()),
            None => self.count(events.clone()),
        }
        Ok(json!({ "validation_failed": [] }))
    }

    /// Each key once.
    fn count(&mut self, events: Vec<Value>) {
        for event in events {
            self.events.entry(text(&event["idempotency_key"])).or_insert(event);
        }
    }

    fn new_backfill(&mut self, body: &Value) -> Answered {
        let time = |name: &str| text(&body[name]).parse::<DateTime<Utc>>();
        let (Ok(from), Ok(to)) = (time("timeframe_start"), time("timeframe_end")) else {
            return Err(refused(StatusCode::BAD_REQUEST, "no times"));
        };
        let overlaps = self.backfills.values().any(|one| from < one.to && one.from < to);
        if overlaps || to <= from || to - from > TimeDelta::days(31) {
            return Err(refused(StatusCode::BAD_REQUEST, "its time is that of another, or too long"));
        }
        let id = self.id("b");
        self.backfills.insert(id.clone(), Backfill { from, to, events: vec![] });
        Ok(json!({ "id": id, "status": "pending", "timeframe_start": body["timeframe_start"] }))
    }
}

fn page(data: Vec<Value>) -> Value {
    json!({ "data": data, "pagination_metadata": { "has_more": false, "next_cursor": null } })
}

//! A double of Stripe: it knows customers, their cards and two kinds of pages, and refuses what Stripe refuses of that.
//! It was written from Stripe's documents; Stripe itself does not answer here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use coppice_app::StripeConfig;
use parking_lot::Mutex;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::double::serve;

/// What proves to it who asks.
pub(crate) const KEY: &str = "sk_test_planted_key_of_the_platform";
/// What deliveries are signed with; the first is being replaced.
pub(crate) const SECRETS: [&str; 2] = ["whsec_planted_of_before", "whsec_planted_of_now"];

type Form = BTreeMap<String, String>;

#[derive(Default)]
struct Customer {
    told: Form,
    /// The newest last.
    cards: Vec<(String, i64)>,
    chosen: Option<String>,
    is_deleted: bool,
}

#[derive(Default)]
struct Known {
    customers: BTreeMap<String, Customer>,
    /// What was answered to whom asks with the same key again.
    answers: HashMap<String, Value>,
    /// What it fails with, if it does.
    failure: Option<StatusCode>,
    cards: i64,
    pages: Vec<(String, Form)>,
}

/// Stripe.
#[derive(Clone)]
pub(crate) struct Double {
    known: Arc<Mutex<Known>>,
    url: String,
}

impl Double {
    pub(crate) fn start() -> Self {
        let known = Arc::<Mutex<Known>>::default();
        let router = Router::new().fallback(answer).with_state(known.clone());
        let url = serve(router);
        Self { known, url }
    }

    /// As the platform knows it.
    pub(crate) fn config(&self) -> StripeConfig {
        StripeConfig {
            secret_key: Zeroizing::new(KEY.to_owned()),
            webhook_secrets: SECRETS.map(|secret| Zeroizing::new(secret.to_owned())).to_vec(),
            api: self.url.parse().expect("an address"),
            is_required: true,
        }
    }

    /// The customer of an organization, if there is one, and how many were made for it.
    pub(crate) fn customer_of(&self, organization: &str) -> (Option<String>, usize) {
        let known = self.known.lock();
        let is_of = |customer: &&Customer| {
            customer.told.get("metadata[organization]").is_some_and(|text| text == organization)
        };
        let made = known.customers.values().filter(is_of).count();
        let living = known.customers.iter().find(|(_, one)| is_of(one) && !one.is_deleted);
        (living.map(|(id, _)| id.clone()), made)
    }

    /// What it was told of a customer last.
    pub(crate) fn told(&self, customer: &str, name: &str) -> Option<String> {
        self.known.lock().customers[customer].told.get(name).cloned()
    }

    /// The card that it charges.
    pub(crate) fn chosen(&self, customer: &str) -> Option<String> {
        self.known.lock().customers[customer].chosen.clone()
    }

    /// Puts a card on file, as who is led to a page does.
    pub(crate) fn attach(&self, customer: &str) -> String {
        let mut known = self.known.lock();
        known.cards += 1;
        let (id, created) = (format!("pm_{}", known.cards), 1_800_000_000 + known.cards);
        known.customers.get_mut(customer).expect("a customer").cards.push((id.clone(), created));
        id
    }

    /// Takes one away.
    pub(crate) fn detach(&self, customer: &str, card: &str) {
        let mut known = self.known.lock();
        let customer = known.customers.get_mut(customer).expect("a customer");
        customer.cards.retain(|(id, _)| id != card);
        customer.chosen = customer.chosen.take().filter(|id| id != card);
    }

    /// Chooses one, as who is led to the portal does.
    pub(crate) fn choose(&self, customer: &str, card: &str) {
        self.known.lock().customers.get_mut(customer).expect("a customer").chosen = Some(card.to_owned());
    }

    /// Deletes a customer, as the operator does at Stripe.
    pub(crate) fn delete(&self, customer: &str) {
        self.known.lock().customers.get_mut(customer).expect("a customer").is_deleted = true;
    }

    /// Fails at everything, or no more.
    pub(crate) fn fail(&self, failure: Option<StatusCode>) {
        self.known.lock().failure = failure;
    }

    /// Does work while it answers nobody.
    pub(crate) fn while_silent<T>(&self, work: impl FnOnce() -> T) -> T {
        let _known = self.known.lock();
        work()
    }

    /// What the last page of a customer was asked for with.
    pub(crate) fn last_page(&self, customer: &str) -> (String, Form) {
        let known = self.known.lock();
        let theirs = known.pages.iter().rev().find(|(_, form)| form["customer"] == customer);
        theirs.expect("a page").clone()
    }
}

type Answered = Result<Value, (StatusCode, Value)>;

fn refused(status: StatusCode, code: &str, message: &str) -> (StatusCode, Value) {
    (status, json!({ "error": { "type": "invalid_request_error", "code": code, "message": message } }))
}

async fn answer(State(known): State<Arc<Mutex<Known>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    // A form is what a query is.
    let text = format!("/?{}", String::from_utf8_lossy(&bytes));
    let place = if parts.method == Method::GET { parts.uri.clone() } else { text.parse().expect("a form") };
    let Query(form) = Query::<Form>::try_from_uri(&place).expect("names and values");
    let path: Vec<_> = parts.uri.path().split('/').skip(1).collect();
    let mut known = known.lock();
    let admitted = admit(&parts.headers, &parts.method, known.failure);
    match admitted.and_then(|()| known.carry_out(&parts.method, &path, form, &parts.headers)) {
        Ok(value) => Json(value).into_response(),
        Err((status, told)) => (status, Json(told)).into_response(),
    }
}

fn admit(
    headers: &HeaderMap,
    method: &Method,
    failure: Option<StatusCode>,
) -> Result<(), (StatusCode, Value)> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let shown = header("authorization");
    if shown != format!("Bearer {KEY}") {
        return Err(refused(StatusCode::UNAUTHORIZED, "api_key", "Invalid API Key provided"));
    }
    if let Some(status) = failure {
        return Err(refused(status, "api_error", &format!("it fails for {shown}")));
    }
    let is_form = header("content-type") == "application/x-www-form-urlencoded";
    if header("stripe-version").is_empty() || (method == Method::POST && !is_form) {
        return Err(refused(StatusCode::BAD_REQUEST, "malformed", "a version and a form are needed"));
    }
    Ok(())
}

impl Known {
    fn carry_out(&mut self, method: &Method, path: &[&str], form: Form, headers: &HeaderMap) -> Answered {
        match (method.as_str(), path) {
            ("POST", ["v1", "customers"]) => {
                let key = headers["idempotency-key"].to_str().expect("text").to_owned();
                if let Some(answer) = self.answers.get(&key) {
                    return Ok(answer.clone());
                }
                let id = format!("cus_{}", self.customers.len() + 1);
                self.customers.insert(id.clone(), Customer { told: form, ..Customer::default() });
                let answer = json!({ "id": id, "object": "customer" });
                self.answers.insert(key, answer.clone());
                Ok(answer)
            }
            ("POST", ["v1", "customers", id]) => {
                let customer = self.living(id)?;
                if let Some(card) = form.get("invoice_settings[default_payment_method]") {
                    if !customer.cards.iter().any(|(id, _)| id == card) {
                        return Err(refused(
                            StatusCode::NOT_FOUND,
                            "resource_missing",
                            "No such PaymentMethod",
                        ));
                    }
                    customer.chosen = Some(card.clone());
                }
                customer.told.extend(form);
                self.shown(id)
            }
            ("GET", ["v1", "customers", id]) => self.shown(id),
            ("GET", ["v1", "payment_methods"]) => {
                assert_eq!(form.get("type").map(String::as_str), Some("card"));
                let card = |(id, created): &(String, i64)| {
                    let card = json!({ "brand": "visa", "last4": format!("{created:04}")[6..],
                                       "exp_month": 7, "exp_year": 2031, "funding": "credit" });
                    json!({ "id": id, "object": "payment_method", "type": "card", "created": created, "card": card })
                };
                let cards: Vec<Value> =
                    self.living(&form["customer"])?.cards.iter().rev().map(card).collect();
                Ok(json!({ "object": "list", "data": cards, "has_more": false }))
            }
            ("POST", ["v1", kind @ ("checkout" | "billing_portal"), "sessions"]) => self.page(kind, form),
            _ => Err(refused(StatusCode::NOT_FOUND, "unknown", "Unrecognized request URL")),
        }
    }

    /// Stripe refuses what it does not know.
    fn page(&mut self, kind: &str, form: Form) -> Answered {
        let known = match kind {
            "checkout" => {
                ["mode", "customer", "payment_method_types[0]", "success_url", "cancel_url"].as_slice()
            }
            _ => ["customer", "return_url"].as_slice(),
        };
        if let Some(name) = form.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(refused(StatusCode::BAD_REQUEST, "parameter_unknown", name));
        }
        self.living(&form["customer"])?;
        self.pages.push((kind.to_owned(), form));
        let url = format!("https://{kind}.stripe.example/c/{}", self.pages.len());
        Ok(json!({ "id": "x", "object": "session", "url": url }))
    }

    fn living(&mut self, id: &str) -> Result<&mut Customer, (StatusCode, Value)> {
        let found = self.customers.get_mut(id).filter(|customer| !customer.is_deleted);
        found.ok_or_else(|| refused(StatusCode::NOT_FOUND, "resource_missing", "No such customer"))
    }

    fn shown(&self, id: &str) -> Answered {
        match self.customers.get(id) {
            None => Err(refused(StatusCode::NOT_FOUND, "resource_missing", "No such customer")),
            Some(customer) if customer.is_deleted => {
                Ok(json!({ "id": id, "object": "customer", "deleted": true }))
            }
            Some(customer) => Ok(json!({
                "id": id, "object": "customer", "email": customer.told.get("email"),
                "invoice_settings": { "default_payment_method": customer.chosen, "footer": null }
            })),
        }
    }
}

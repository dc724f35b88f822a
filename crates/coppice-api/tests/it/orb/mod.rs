//! Invoices of Orb's: deliveries that Orb's own client has signed, and a double of Orb that is asked, which that client
//! understands.

mod client;
mod double;
mod types;

use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use chrono::{TimeDelta, Utc};
use coppice_test_support::{Answer, text_of, wait_for};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Http;
use crate::http::{EMAIL, Paying};
use crate::stripe::double::Double as Stripe;
use client::signed;
use double::{Double, Failure, KEY, SECRETS};

const PATIENCE: Duration = Duration::from_secs(120);

/// A platform whose organizations need a card or a credit, with Stripe and Orb.
struct Billed {
    http: Http,
    stripe: Stripe,
    orb: Double,
}

static SHARED: Mutex<Weak<Billed>> = Mutex::new(Weak::new());

fn billed() -> Arc<Billed> {
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let billed = Arc::new(Billed::start());
        *shared = Arc::downgrade(&billed);
        billed
    })
}

/// As Orb writes times: without a zone.
fn time(ahead: i64) -> String {
    (Utc::now() + TimeDelta::seconds(ahead)).format("%Y-%m-%dT%H:%M:%S%.6f").to_string()
}

fn good(tier: &str) -> Value {
    json!(["enabled", "ok", tier])
}

impl Billed {
    fn start() -> Self {
        let (stripe, orb) = (Stripe::start(), Double::start());
        let paying = Paying { stripe: Some(stripe.config()), orb: Some(orb.config()), ..Paying::default() };
        Self { http: Http::start(paying), stripe, orb }
    }

    fn deliver(&self, body: &str, timestamp: &str, signature: &str) -> Answer {
        let headers = [("x-orb-timestamp", timestamp), ("x-orb-signature", signature)];
        self.http.send_text("POST", "/webhooks/orb", &headers, body)
    }

    /// A delivery about an organization; signed by hand, as Orb's client does.
    fn tell(&self, id: &str, kind: &str, organization: &str) -> Answer {
        let customer = json!({ "id": "c", "external_customer_id": organization });
        let about = if kind.starts_with("invoice.") { json!({ "customer": customer }) } else { customer };
        let (area, _) = kind.split_once('.').expect("an area");
        let body = json!({ "id": id, "type": kind, "created_at": time(0), "properties": null, area: about });
        let (body, time) = (body.to_string(), time(0));
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRETS[1].as_bytes());
        let tag = aws_lc_rs::hmac::sign(&key, format!("v1:{time}:{body}").as_bytes());
        let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        self.deliver(&body, &time, &format!("v1={tag}"))
    }

    /// Makes an organization, and waits until Orb knows it and its subscription.
    fn new_customer(&self, name: &str) -> String {
        let organization = self.http.new_organization(name);
        wait_for("Orb knows it", PATIENCE, || {
            (self.orb.subscriptions(&organization) == ["active"]).then_some(())
        });
        organization
    }

    /// Puts a card on file.
    fn add_card(&self, organization: &str) {
        self.http
            .call("POST", &format!("/organizations/{organization}/billing/checkout-session"))
            .expect(200);
        let customer = self.stripe.customer_of(organization).0.expect("a customer");
        self.stripe.attach(&customer);
        self.http.metastore("update stripe_customers set due_at = now()");
        self.http.wait_standing(organization, &good("t2"));
    }

    fn billing(&self, organization: &str, what: &str) -> Answer {
        self.http.get(&format!("/organizations/{organization}/billing/{what}"))
    }

    /// Seals usage of a branch of an organization, so many hours ago.
    fn seal(&self, organization: &str, branch: &str, hours_ago: i64) {
        self.http.metastore(&format!(
            "insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
                 values ('{branch}', 'main', 'prj_1', 'p', '{organization}') on conflict do nothing;
             insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
                 select '{branch}', date_trunc('hour', now(), 'UTC') - interval '{hours_ago} hours', m, t, c, q, r
                 from (values ('awake', 'micro', 0, 1200000000, ''), ('awake', 'micro', 1, -600000000, 'it stood still'),
                              ('storage', '', 0, 38654705664000000000, '')) as u (m, t, c, q, r)",
        ));
    }
}

#[test]
fn an_organization_is_known_at_orb_as_it_is_here_and_charged_by_what_is_on_file_at_stripe() {
    let billed = billed();
    let (http, orb) = (&billed.http, &billed.orb);
    let organization = billed.new_customer("Trees & Sons");
    assert_eq!(billed.http.standing(&organization), json!(["disabled", "no_payment_method", "t1"]));
    let refused = http.post(&format!("/organizations/{organization}/projects"), &json!({ "name": "p" }));
    let told = refused.expect_error(403, "organization_disabled");
    assert!(told.contains("coppice billing add-card"), "it says why: {told}");
    let known = orb.customer(&organization).expect("a customer");
    assert_eq!(json!([known["name"], known["email"]]), json!(["Trees & Sons", EMAIL]));
    assert_eq!(known["payment_provider_id"], Value::Null);

    billed.add_card(&organization);
    let stripe = billed.stripe.customer_of(&organization).0.expect("a customer");
    let is = |name: &'static str, value: Value| {
        wait_for(&format!("{name} is {value}"), PATIENCE, || {
            (orb.customer(&organization).expect("a customer")[name] == value).then_some(())
        });
    };
    is("payment_provider", json!("stripe_charge"));
    is("payment_provider_id", json!(stripe));
    let path = format!("/organizations/{organization}");
    http.with("PUT", &path, &json!({ "name": "Wood" })).expect(200);
    http.with("PATCH", &format!("{path}/billing/customer"), &json!({ "billing_email": "b@example.com" }))
        .expect(200);
    is("name", json!("Wood"));
    is("email", json!("b@example.com"));
    assert_eq!(orb.subscriptions(&organization), ["active"], "one, however often it is looked at");
    let shown = billed.billing(&organization, "customer").expect(200);
    assert_eq!(
        json!([shown["collection_method"], shown["can_collect_payment"]]),
        json!(["stripe_payment_method", true])
    );
}

#[test]
fn every_sealed_hour_is_counted_once_at_orb_whatever_fails_on_the_way() {
    let billed = Billed::start();
    let (http, orb) = (&billed.http, &billed.orb);
    let organization = billed.new_customer("used");
    let is_sent = || {
        !http.asks(&format!("select exists (select from orb_usage where organization_id = '{organization}')"))
    };
    let wait_sent = || wait_for("everything is sent", PATIENCE, || is_sent().then_some(()));
    orb.fail(Some(Failure::Status(StatusCode::INTERNAL_SERVER_ERROR)));
    billed.seal(&organization, "br_new", 2);
    assert!(!is_sent() && orb.events(&organization).is_empty());
    orb.fail(None);
    wait_sent();
    let events = orb.events(&organization);
    let keys: Vec<_> =
        events.keys().map(|key| key.split('/').take(2).collect::<Vec<_>>().join("/")).collect();
    assert_eq!(keys, ["br_new/awake:micro", "br_new/awake:micro", "br_new/storage"], "{events:?}");
    let mut quantities: Vec<_> =
        events.values().map(|event| event["properties"]["quantity"].to_string()).collect();
    quantities.sort();
    assert_eq!(quantities, ["-0.166666667", "0.333333333", "10.0"]);

    // As after a crash between its answer and the note that it came.
    http.metastore(
        "insert into orb_usage (branch_id, hour, meter, instance_type, correction, quantity, organization_id, project_id)
             select h.branch_id, h.hour, h.meter, h.instance_type, h.correction, h.quantity, u.organization_id, u.project_id
             from usage_hours h join usage_branches u using (branch_id)",
    );
    wait_sent();
    assert_eq!(orb.events(&organization), events, "the same keys count once");

    // What is older than Orb takes comes as a backfill; what it takes at no time keeps nothing else from it.
    billed.seal(&organization, "br_old", 30);
    orb.refuse(Some("br_bad/storage"));
    billed.seal(&organization, "br_bad", 3);
    let waits =
        "select count(*) = 1 and coalesce(bool_and(refused like '%grace period%'), false) from orb_usage";
    wait_for("all but one is sent, which says why it waits", PATIENCE, || http.asks(waits).then_some(()));
    assert_eq!(orb.events(&organization).len(), 8);
    orb.refuse(None);
    http.metastore("update orb_usage set due_at = now()");
    wait_sent();
    assert_eq!(orb.events(&organization).len(), 9);
}

#[test]
fn orb_is_asked_so_often_for_the_organizations_of_one_owner() {
    let billed = Billed::start();
    let organization = billed.new_customer("asks");
    let paths = ["invoices", "invoices/upcoming"];
    for at in 0..100 {
        billed.billing(&organization, paths[at % 2]).expect(200);
    }
    for path in paths {
        billed.billing(&organization, path).expect_error(429, "rate_limited");
    }
}

#[test]
fn invoices_and_what_comes_are_as_orb_has_them_and_never_somebody_elses() {
    let billed = billed();
    let (http, orb) = (&billed.http, &billed.orb);
    let organization = billed.new_customer("asked");
    let empty = json!({ "data": [], "pagination_metadata": { "has_more": false, "next_cursor": null } });
    assert_eq!(billed.billing(&organization, "invoices").expect(200), empty);
    orb.invoice(&organization, "in_1", "paid", ("14.88", false));
    orb.invoice(&organization, "in_2", "void", ("-0.10", false));
    let list = billed.billing(&organization, "invoices?limit=2").expect(200);
    assert_eq!(
        list["data"][0],
        json!({
            "id": "in_1", "invoice_number": "N-in_1", "amount_due": 14.88, "currency": "USD", "status": "paid",
            "invoice_date": "2026-11-01T00:00:00.000Z", "invoice_pdf": "https://assets.withorb.example/in_1.pdf"
        })
    );
    assert_eq!(json!([list["data"][1]["amount_due"], list["data"][1]["status"]]), json!([-0.1, "void"]));
    billed.billing(&organization, "invoices?cursor=next").expect(200);
    billed.billing(&organization, "invoices?cursor=made-up").expect_error(400, "invalid_cursor");
    billed.billing(&organization, "invoices/in_1").expect_error(404, "invoice_not_found");
    let upcoming = billed.billing(&organization, "invoices/upcoming").expect(200);
    let amounts =
        json!([upcoming["amount_due"], upcoming["subtotal"], upcoming["total"], upcoming["currency"]]);
    assert_eq!(amounts, json!([12.3, 10.0, 12.3, "USD"]));
    let ours = |query: &[(String, String)]| {
        query.contains(&("external_customer_id".to_owned(), organization.clone()))
    };
    let asked = orb.asked();
    let mut lists = asked.iter().filter(|asked| asked.path == "invoices" && ours(&asked.query));
    assert!(lists.all(|asked| asked.query.iter().any(|(name, _)| name == "limit")));

    orb.give_away(&organization, "in_1");
    billed.billing(&organization, "invoices").expect_error(502, "provider_failed");
    orb.invoice(&organization, "in_1", "paid", ("14.88 or so", false));
    billed.billing(&organization, "invoices").expect_error(502, "provider_failed");
    orb.invoice(&organization, "in_1", "of tomorrow", ("14.88", false));
    billed.billing(&organization, "invoices").expect_error(502, "provider_failed");

    let foreign = http.new_token("/organizations/{org}/api-keys", json!({}));
    let path = format!("/organizations/{organization}/billing/invoices");
    http.as_key(&foreign, "GET", &path, None).expect_error(403, "organization_access_denied");
}

#[test]
fn what_is_owed_disables_and_what_is_paid_enables_however_deliveries_come() {
    let billed = billed();
    let orb = &billed.orb;
    let organization = billed.new_customer("owing");
    billed.add_card(&organization);
    let overdue = json!(["disabled", "invoice_overdue", "t2"]);
    orb.invoice(&organization, "in_a", "issued", ("5.00", true));
    for _ in 0..2 {
        billed.tell("evt_owing_1", "invoice.payment_failed", &organization).expect(200);
    }
    billed.http.wait_standing(&organization, &overdue);
    let shown = billed.http.get(&format!("/organizations/{organization}")).expect(200);
    assert!(text_of(&shown["status"]["billing_reason"]).contains("overdue"), "{shown}");

    // One is paid, another is not: the message of the first says nothing of the second.
    orb.invoice(&organization, "in_b", "issued", ("7.00", true));
    orb.invoice(&organization, "in_a", "paid", ("5.00", true));
    let looks = || {
        orb.asked()
            .iter()
            .filter(|asked| {
                asked.path == "invoices" && asked.query.iter().any(|(_, value)| *value == organization)
            })
            .count()
    };
    let before = looks();
    billed.tell("evt_owing_2", "invoice.payment_succeeded", &organization).expect(200);
    wait_for("it was looked at", PATIENCE, || (looks() > before).then_some(()));
    assert_eq!(billed.http.standing(&organization), overdue);
    orb.invoice(&organization, "in_b", "paid", ("7.00", true));
    billed.tell("evt_owing_3", "invoice.payment_succeeded", &organization).expect(200);
    billed.http.wait_standing(&organization, &good("t2"));
    // A late word of what is settled, and one that came before, change nothing.
    let before = looks();
    billed.tell("evt_owing_4", "invoice.past_due", &organization).expect(200);
    billed.tell("evt_owing_1", "invoice.payment_failed", &organization).expect(200);
    wait_for("it was looked at", PATIENCE, || (looks() > before).then_some(()));
    assert_eq!(billed.http.standing(&organization), good("t2"));
}

#[test]
fn credit_is_as_good_as_a_card_until_it_is_used_up() {
    let billed = billed();
    let orb = &billed.orb;
    let organization = billed.new_customer("prepaid");
    orb.credit(&organization, "cr_1", 40.5);
    billed.tell("evt_prepaid_1", "customer.credit_balance_recovered", &organization).expect(200);
    billed.http.wait_standing(&organization, &good("t2"));
    let shown = billed.billing(&organization, "customer").expect(200);
    assert_eq!(
        shown["credits"],
        json!([{
            "id": "cr_1", "balance": 40.5, "effective_date": "2026-01-01T00:00:00.000Z",
            "expiry_date": "2999-01-01T00:00:00.000Z", "maximum_initial_balance": 50.0, "status": "active"
        }])
    );
    let details = &shown["credit_details"];
    assert_eq!(
        json!([details["total_lifetime_credits"], details["total_active_credits"]]),
        json!([50.0, 40.5])
    );
    orb.credit(&organization, "cr_1", 0.0);
    billed.tell("evt_prepaid_2", "customer.credit_balance_depleted", &organization).expect(200);
    billed.http.wait_standing(&organization, &json!(["disabled", "no_payment_method", "t1"]));
    assert_eq!(billed.billing(&organization, "customer").expect(200)["credits"], json!([]));
    billed.add_card(&organization);
}

#[test]
fn an_organization_ends_when_its_last_invoice_is_paid() {
    let billed = billed();
    let (http, orb) = (&billed.http, &billed.orb);
    let organization = billed.new_customer("leaving");
    billed.add_card(&organization);
    // Something that was used and is not sealed yet.
    http.metastore(&format!(
        "insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
             values ('br_leaving', 'main', 'prj_1', 'p', '{organization}');
         insert into usage_egress (branch_id, hour, bytes)
             select 'br_leaving', greatest(sealed_until, date_trunc('hour', now(), 'UTC')), 1 from usage_meter",
    ));
    http.call("POST", &format!("/organizations/{organization}/deletion-request")).expect(202);
    assert_eq!(billed.http.standing(&organization)[1], "deletion_requested");
    let look = || http.metastore(&format!("select ask_orb('{organization}')"));
    let is_seen = || {
        http.asks(&format!("select asked > 0 and attempts = 0 and due_at > now() from orb_customers where organization_id = '{organization}'"))
    };
    wait_for("it was looked at", PATIENCE, || is_seen().then_some(()));
    assert_eq!(orb.subscriptions(&organization), ["active"], "the last of it is not sent yet");

    orb.invoice(&organization, "in_last", "draft", ("3.21", false));
    http.metastore("delete from usage_egress where branch_id = 'br_leaving'");
    look();
    wait_for("the subscription is over", PATIENCE, || {
        (orb.subscriptions(&organization) == ["ended"]).then_some(())
    });
    orb.invoice(&organization, "in_last", "issued", ("3.21", false));
    look();
    wait_for("it was looked at", PATIENCE, || is_seen().then_some(()));
    assert_eq!(billed.http.standing(&organization)[1], "deletion_requested", "something is owed");
    orb.invoice(&organization, "in_last", "paid", ("3.21", false));
    billed.tell("evt_leaving", "invoice.payment_succeeded", &organization).expect(200);
    wait_for("it is deleted", PATIENCE, || {
        (http.get(&format!("/organizations/{organization}")).status == 403).then_some(())
    });
    assert_eq!(orb.subscriptions(&organization), ["ended"]);
}

#[test]
fn an_orb_that_fails_in_any_way_changes_nothing_and_its_key_is_told_to_nobody() {
    // Its own, for everything fails there.
    let billed = Billed::start();
    let organization = billed.new_customer("unlucky");
    billed.add_card(&organization);
    billed.orb.invoice(&organization, "in_1", "issued", ("5.00", true));
    let inside = TcpListener::bind("127.0.0.1:0").expect("a port");
    inside.set_nonblocking(true).expect("it does not wait");
    let place = format!("http://{}/latest/meta-data", inside.local_addr().expect("an address"));
    for failure in [
        Failure::Status(StatusCode::INTERNAL_SERVER_ERROR),
        Failure::Status(StatusCode::UNAUTHORIZED),
        Failure::Endless,
        Failure::Elsewhere(place),
        Failure::Nonsense,
        Failure::Silence,
    ] {
        billed.orb.fail(Some(failure.clone()));
        let refused = billed.billing(&organization, "invoices");
        let told = refused.expect_error(502, "provider_failed");
        assert!(
            told.starts_with("Orb request failed") && !refused.text().contains(KEY),
            "{failure:?}: {told}"
        );
        billed.billing(&organization, "invoices/upcoming").expect_error(502, "provider_failed");
        let attempts =
            format!("select attempts > 0 from orb_customers where organization_id = '{organization}'");
        billed.http.metastore(&format!("select ask_orb('{organization}')"));
        wait_for("it was tried", PATIENCE, || billed.http.asks(&attempts).then_some(()));
        assert_eq!(billed.http.standing(&organization), good("t2"), "{failure:?}");
        assert_eq!(billed.billing(&organization, "customer").expect(200)["has_payment_method"], true);
    }
    assert!(inside.accept().is_err(), "nobody went where Orb sent them");

    // What it told of meanwhile is kept until it answers.
    billed.tell("evt_unlucky", "invoice.payment_failed", &organization).expect(200);
    billed.orb.fail(None);
    billed.http.metastore("update orb_customers set due_at = now()");
    billed.http.wait_standing(&organization, &json!(["disabled", "invoice_overdue", "t2"]));
}

#[test]
fn what_orb_did_not_sign_just_now_is_refused_before_it_is_read() {
    let billed = billed();
    let body =
        json!({ "id": "evt_signed", "type": "resource_event.test", "created_at": time(0) }).to_string();
    let now = time(0);
    for secret in SECRETS {
        let signature = signed(&body, secret, &now, false);
        assert_eq!(billed.deliver(&body, &now, &signature).expect(200), json!({}));
        let several = format!("v1={} {signature}", "0".repeat(64));
        billed.deliver(&body, &now, &several).expect(200);
    }
    let good = signed(&body, SECRETS[1], &now, false);
    let (late, ahead) = (time(-301), time(400));
    for (time, signature) in [
        ("", good.clone()),
        (now.as_str(), String::new()),
        (&late, signed(&body, SECRETS[1], &late, true)),
        (&ahead, signed(&body, SECRETS[1], &ahead, true)),
        (&now, signed(&body, "secret_of_a_stranger", &now, true)),
        (&time(1), good.clone()),
    ] {
        billed.deliver(&body, time, &signature).expect_error(400, "invalid_signature");
    }
    billed.deliver("not JSON", &now, &good).expect_error(400, "invalid_signature");
    for body in ["not JSON", "{}", r#"{"id":"","type":"invoice.issued"}"#] {
        billed.deliver(body, &now, &signed(body, SECRETS[1], &now, false)).expect_error(400, "invalid_json");
    }
    billed.deliver(&" ".repeat((5 << 20) + 1), "", "").expect_error(413, "body_too_large");
    billed.http.anonymous("GET", "/webhooks/orb", &[]).expect_error(405, "method_not_allowed");
    let headers = [("x-orb-timestamp", now.as_str()), ("x-orb-signature", good.as_str())];
    let refused = crate::shared().send_text("POST", "/webhooks/orb", &headers, &body);
    refused.expect_error(400, "invalid_signature");
    // Of what is not set up, nothing is read.
    let large = " ".repeat((25 << 20) + 1);
    let refused = billed.http.send_text("POST", "/webhooks/github", &[], &large);
    refused.expect_error(400, "invalid_signature");
}

//! Organizations that are billed through AWS Marketplace, with a double of AWS.

mod browser;
mod double;
mod model;
mod usage;

use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_app::Payable;
use coppice_core::audit::RequestOrigin;
use coppice_test_support::{text_of, wait_for};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Http;
use crate::http::Paying;
use crate::stripe::double::Double as Stripe;
use browser::{Browser, field};
use double::{Double, PRODUCT};

const PATIENCE: Duration = Duration::from_secs(120);
const HOST: (&str, &str) = ("host", "127.0.0.1:7070");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const PLACE: &str = "/marketplace/aws";
const REDEEM: &str = "/marketplace/aws/organization";

/// A platform whose organizations need a card or a subscription.
struct Sold {
    http: Http,
    aws: Double,
}

static SHARED: Mutex<Weak<Sold>> = Mutex::new(Weak::new());

fn sold() -> Arc<Sold> {
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let sold = Arc::new(Sold::start());
        *shared = Arc::downgrade(&sold);
        sold
    })
}

impl Sold {
    fn start() -> Self {
        let aws = Double::start();
        let stripe = Some(Stripe::start().config());
        let paying = Paying { stripe, marketplace: Some(aws.config()), ..Paying::default() };
        Self { http: Http::start(paying), aws }
    }

    fn billing(&self, organization: &str) -> Value {
        let path = format!("/organizations/{organization}/billing/customer");
        let shown = self.http.get(&path).expect(200);
        json!([shown["marketplace"], shown["collection_method"]])
    }
}

fn event(kind: &str, license: &str, time: DateTime<Utc>, change: impl FnOnce(&mut Value)) -> String {
    let mut event = json!({
        "version": "0", "id": "12345678-1234-1234-1234-123456789012", "detail-type": kind,
        "source": "aws.agreement-marketplace", "account": "294406891311", "time": time.to_rfc3339(),
        "region": "us-east-1", "resources": ["arn:aws:aws-marketplace::aws:agreement:agmt-1"],
        "detail": {
            "requestId": "1", "catalog": "AWSMarketplace", "agreement": { "id": "agmt-1" },
            "product": { "code": PRODUCT, "id": "prod-1" },
            "license": { "arn": format!("aws:license-manager:us-east-1:294406891311:{license}") },
            "acceptor": { "accountId": "123456789012" }, "proposer": { "accountId": "294406891311" },
        },
    });
    change(&mut event);
    event.to_string()
}

const ENDED: &str = "License Deprovisioned - Manufacturer";
const UPDATED: &str = "License Updated - Manufacturer";

#[test]
fn nobody_buys_anything_by_right_of_a_session_that_has_ended() {
    let sold = sold();
    sold.aws.buy("token-late", "l-late", "111122224444");
    let mut browser = Browser::default();
    assert_eq!(sold.arrive(&mut browser, "token-late").status, 303);
    sold.sign_in(&mut browser);
    let kept = |name: &str| {
        let found = browser.0.iter().find_map(|cookie| cookie.strip_prefix(name)?.strip_prefix('='));
        found.expect("a cookie").to_owned()
    };
    let (kept, session) = (kept("coppice-marketplace"), kept("coppice-session"));
    let redeemed = sold.http.in_app(async |app| {
        let origin = RequestOrigin::default();
        let session = app.identity.browser_session(&session).await.expect("it answers").expect("signed in");
        app.identity.sign_out(&session, &origin).await.expect("it answers");
        let payable = Payable::New("Late".to_owned());
        app.marketplace.redeem(&session, &kept, &payable, &origin).await
    });
    redeemed.expect_err("the session has ended");
    assert!(
        sold.http.asks("select user_id is null from marketplace_subscriptions where license_id = 'l-late'")
    );
}

#[test]
fn who_comes_from_aws_makes_an_organization_that_aws_pays_for_once() {
    let sold = sold();
    sold.aws.buy("token-buyer", "l-buyer", "111122223333");
    let mut browser = Browser::default();
    let led = sold.arrive(&mut browser, "token-buyer");
    assert_eq!((led.status, led.header("location")), (303, PLACE), "{}", led.text());
    let cookie = led.header("set-cookie");
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && !cookie.contains("token-buyer")
    );
    let page = sold.get(&mut browser, PLACE).text();
    assert!(
        page.contains("111122223333") && page.contains("An invitation makes one") && !page.contains("csrf"),
        "{page}"
    );

    sold.sign_in(&mut browser);
    let page = sold.get(&mut browser, PLACE);
    let policy = page.header("content-security-policy").to_owned();
    assert!(policy.contains("form-action 'self'") && policy.contains("default-src 'none'"), "{policy}");
    let csrf = field(&page.text(), "csrf");
    let redeem = |browser: &mut Browser, csrf: &str, name: &str| {
        sold.post(browser, REDEEM, &format!("csrf={csrf}&organization=&name={name}"))
    };
    assert_eq!(redeem(&mut browser, "made-up", "Buyer").status, 400, "another site can't");
    for bad in ["", "a%0Ab", &"a".repeat(129)] {
        let again = redeem(&mut browser, &csrf, bad);
        assert!(again.status == 400 && again.text().contains("1 to 128"), "{}", again.text());
    }
    let arrived = browser.clone();
    // Whoever presses twice makes one organization.
    let redeemed: Vec<_> = std::thread::scope(|scope| {
        let presses = [(); 6].map(|()| scope.spawn(|| redeem(&mut arrived.clone(), &csrf, "Buyer").status));
        presses.into_iter().map(|press| press.join().expect("an answer")).collect()
    });
    assert_eq!(redeemed.iter().filter(|status| **status == 200).count(), 1, "{redeemed:?}");
    assert_eq!(redeemed.iter().filter(|status| **status == 409).count(), 5, "{redeemed:?}");
    let all = sold.http.get("/organizations").expect(200);
    let buyers: Vec<_> = all["organizations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["name"] == "Buyer")
        .collect();
    assert_eq!(buyers.len(), 1, "{all}");
    let organization = text_of(&buyers[0]["id"]);
    assert_eq!(sold.http.standing(&organization), json!(["enabled", "ok", "t2"]), "it needs no card");
    assert_eq!(sold.billing(&organization), json!(["aws", "marketplace"]));
    let page = format!("/organizations/{organization}/billing/checkout-session");
    let told = sold.http.call("POST", &page);
    assert!(told.expect_error(400, "billing_not_configured").contains("AWS Marketplace"));

    // Whatever is sent again, it pays for nothing else.
    let mut again = arrived.clone();
    assert_eq!(redeem(&mut again, &csrf, "Second").status, 409);
    assert_eq!(sold.arrive(&mut again, "token-buyer").status, 303, "a token is good for hours");
    let page = sold.get(&mut again, PLACE);
    assert!(page.status == 409 && page.text().contains("an organization of yours"), "{}", page.text());
    let first = sold.http.organization().to_owned();
    assert_eq!(sold.post(&mut again, REDEEM, &format!("csrf={csrf}&organization={first}")).status, 409);
    assert_eq!(sold.billing(&first), json!([null, "bank_transfer"]));
    let other = sold.http.new_organization("without a subscription");
    assert_eq!(sold.billing(&other), json!([null, "bank_transfer"]));
}

#[test]
fn what_aws_does_not_know_leads_nowhere_and_its_token_is_told_to_nobody() {
    let sold = Sold::start();
    for token in ["planted-expired", "planted-other"] {
        sold.aws.buy(token, &format!("l-{token}"), "1");
    }
    sold.aws.expire("planted-expired");
    sold.aws.be_other("planted-other");
    let long = "x".repeat(17 << 10);
    for (token, status) in
        [("planted-forged", 400), ("planted-expired", 400), ("planted-other", 400), ("", 400), (&long, 400)]
    {
        let mut browser = Browser::default();
        let told = sold.arrive(&mut browser, token);
        assert_eq!(told.status, status, "{}", told.text());
        assert!(!told.text().contains("planted") && browser.0.is_empty(), "{}", told.text());
        assert!(told.text().contains("Go back to AWS Marketplace"), "{}", told.text());
    }
    sold.aws.go_down(true);
    let told = sold.arrive(&mut Browser::default(), "planted-forged");
    assert!(told.status == 502 && !told.text().contains("planted"), "{}", told.text());
    sold.aws.go_down(false);
    assert!(sold.http.asks("select not exists (select from marketplace_subscriptions)"));

    // Without a cookie of ours, or with one that was made up, there is nothing.
    for cookie in ["", "coppice-marketplace=x", &format!("coppice-marketplace={}", "a".repeat(43))] {
        let page = sold.http.anonymous("GET", PLACE, &[HOST, ("cookie", cookie)]);
        assert_eq!(page.status, 410, "{}", page.text());
    }
    // Another name of this machine, or a frame of another site.
    let evil = sold.http.send_text("POST", PLACE, &[("host", "evil.example"), FORM], "");
    assert_eq!(evil.status, 421);
    let framed = [
        HOST,
        FORM,
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "iframe"),
    ];
    assert_eq!(sold.http.send_text("POST", PLACE, &framed, "").status, 403);
    let elsewhere = crate::shared();
    assert_eq!(elsewhere.anonymous("GET", PLACE, &[HOST]).status, 404, "where there is no product");
}

#[test]
fn who_is_demoted_in_the_last_moment_says_nothing_any_more() {
    let sold = Sold::start();
    let mut browser = Browser::default();
    sold.sign_in(&mut browser);
    sold.aws.buy("token-late", "l-late", "123456789012");
    sold.arrive(&mut browser, "token-late");
    let csrf = field(&sold.get(&mut browser, PLACE).text(), "csrf");
    let organization = sold.http.new_organization("demoted");
    let body = format!("csrf={csrf}&organization={organization}");
    let demoted = format!(
        "select from organizations where id = '{organization}' for update;
         update members set role = 'viewer' where organization_id = '{organization}'"
    );
    let told = std::thread::scope(|scope| {
        let pressed = sold.http.while_locked(&demoted, async |http| {
            let pressed = scope.spawn(|| sold.post(&mut browser, REDEEM, &body));
            http.locks_waited_for(1).await;
            pressed
        });
        pressed.join().expect("an answer")
    });
    assert!(told.status == 400 && told.text().contains("own or administer"), "{}", told.text());
    assert!(
        sold.http.asks(
            "select organization_id is null from marketplace_subscriptions where license_id = 'l-late'"
        )
    );
}

#[test]
fn a_subscription_is_whose_it_was_first_and_pays_for_what_they_may_choose() {
    let sold = sold();
    let mut browser = Browser::default();
    sold.sign_in(&mut browser);
    sold.aws.buy("token-taken", "l-taken", "123456789012");
    sold.arrive(&mut browser, "token-taken");
    let csrf = field(&sold.get(&mut browser, PLACE).text(), "csrf");
    let taken_by = |user: &str| {
        sold.http.metastore(&format!(
            "update marketplace_subscriptions set user_id = {user} where license_id = 'l-taken'"
        ));
    };
    sold.http.metastore(
        "insert into users (id, email) values ('usr_other', 'other@example.com') on conflict do nothing",
    );
    taken_by("'usr_other'");
    let page = sold.get(&mut browser, PLACE);
    assert!(page.status == 409 && page.text().contains("Somebody else"), "{}", page.text());
    let form = |organization: &str| format!("csrf={csrf}&organization={organization}&name=Thief");
    assert_eq!(sold.post(&mut browser, REDEEM, &form("")).status, 409);
    taken_by("null");

    // What somebody reads is what they agree to, also when another site leads their browser here meanwhile.
    sold.aws.buy("token-planted", "l-planted", "666666666666");
    sold.arrive(&mut browser, "token-planted");
    let first = sold.http.organization().to_owned();
    assert_eq!(sold.post(&mut browser, REDEEM, &form(&first)).status, 400);
    assert_eq!(sold.billing(&first), json!([null, "bank_transfer"]));
    sold.arrive(&mut browser, "token-taken");

    // Not one of somebody else's, and not one in which they only look.
    sold.http.metastore(
        "insert into organizations (id, name) values ('org_foreign', 'foreign'), ('org_viewed', 'viewed') on conflict do nothing;
         insert into members (organization_id, user_id, role)
             select 'org_viewed', user_id, 'viewer' from members where organization_id = '{org}' on conflict do nothing",
    );
    let page = sold.get(&mut browser, PLACE).text();
    assert!(page.contains(sold.http.organization()) && !page.contains("org_viewed"), "{page}");
    for id in ["org_foreign", "org_viewed", "made_up"] {
        let told = sold.post(&mut browser, REDEEM, &form(id));
        assert!(told.status == 400 && told.text().contains("own or administer"), "{id}: {}", told.text());
    }
    let own = sold.http.new_organization("waits for a card");
    assert_eq!(sold.http.standing(&own), json!(["disabled", "no_payment_method", "t1"]));
    assert_eq!(sold.post(&mut browser, REDEEM, &form(&own)).status, 200);
    assert_eq!(sold.http.standing(&own), json!(["enabled", "ok", "t2"]));
    assert_eq!(sold.billing(&own), json!(["aws", "marketplace"]));
    let from_next_hour =
        "select billed_from > now() from marketplace_subscriptions where license_id = 'l-taken'";
    assert!(sold.http.asks(from_next_hour), "this hour was begun without it");
    let body = |account: &str| {
        let aws = json!({ "customer_id": "-", "product_id": PRODUCT, "account_id": account });
        json!({ "marketplace": "aws", "company_name": "Acme", "aws": aws })
    };
    let register = |account: &str| sold.http.post("/marketplace/register", &body(account));
    assert!(register("999999999999").expect_error(400, "invalid_field").contains("Set up your account"));
    register("123456789012").expect_error(409, "already_registered");
}

#[test]
fn the_end_of_a_subscription_is_charged_and_disables_however_messages_come() {
    let sold = Sold::start();
    let organization = sold.new_customer("leaving");
    let told = |body: String| sold.aws.tell(&body);
    let now = Utc::now();
    // Nobody ends what is not theirs.
    told("not JSON".to_owned());
    told(event(ENDED, "l-leaving", now, |event| event["source"] = json!("somebody")));
    told(event(ENDED, "l-leaving", now, |event| event["detail"]["product"]["code"] = json!("aw0other")));
    told(event(ENDED, "l-leaving", now, |event| {
        event["detail"]["acceptor"]["accountId"] = json!("999999999999")
    }));
    told(event(ENDED, "l-leaving", now + TimeDelta::days(1), |_| {}));
    told(event(ENDED, "l-other", now, |_| {}));
    told(event("Purchase Agreement Ended - Proposer", "l-leaving", now, |_| {}));
    wait_for("all of it was read", PATIENCE, || (sold.aws.waiting() == 0).then_some(()));
    assert_eq!(sold.http.standing(&organization), json!(["enabled", "ok", "t2"]));

    // An hour is not sealed yet, and AWS does not wait for that.
    let ended = now - TimeDelta::minutes(4);
    let last = ended.duration_trunc(TimeDelta::hours(1)).expect("an hour");
    sold.begin_earlier("l-leaving", 2);
    sold.http.metastore(&format!(
        "insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
             values ('br_last', 'main', 'prj_1', 'p', '{organization}');
         update usage_meter set sealed_until = '{last}';
         alter table usage_hours disable trigger usage_hours_for_billers;
         insert into usage_hours (branch_id, hour, meter, instance_type, quantity)
             values ('br_last', '{last}', 'awake', 'micro', 1800000000);
         alter table usage_hours enable trigger usage_hours_for_billers",
    ));
    for _ in 0..2 {
        told(event(ENDED, "l-leaving", ended, |_| {}));
    }
    told(event(UPDATED, "l-leaving", ended - TimeDelta::minutes(1), |_| {}));
    let over = json!(["disabled", "no_payment_method", "t1"]);
    sold.http.wait_standing(&organization, &over);
    let shown = sold.http.get(&format!("/organizations/{organization}")).expect(200);
    assert!(text_of(&shown["status"]["billing_reason"]).contains("AWS Marketplace is over"), "{shown}");
    assert_eq!(sold.billing(&organization), json!([null, "bank_transfer"]));
    let closed = "select closed_at is not null from marketplace_subscriptions where license_id = 'l-leaving'";
    wait_for("it is summed up", PATIENCE, || sold.http.asks(closed).then_some(()));
    wait_for("all of it was read", PATIENCE, || (sold.aws.waiting() == 0).then_some(()));
    sold.http.lift_payment_requirement();
    assert_eq!(
        sold.http.standing(&organization),
        over,
        "an older word changes nothing, and nothing lifts it"
    );
    let charged = |license: &str| {
        sold.aws
            .charged(license)
            .iter()
            .map(|(name, _, quantity)| format!("{name} {quantity}"))
            .collect::<Vec<_>>()
    };
    wait_for("the last hour is charged", PATIENCE, || {
        (charged("l-leaving") == ["micro_hours 0.500000"]).then_some(())
    });

    // It is let go on when AWS says so later, and another subscription may pay for it.
    told(event(UPDATED, "l-leaving", ended + TimeDelta::minutes(1), |_| {}));
    sold.http.wait_standing(&organization, &json!(["enabled", "ok", "t2"]));
    told(event(ENDED, "l-leaving", ended + TimeDelta::minutes(2), |_| {}));
    sold.http.wait_standing(&organization, &over);
    sold.aws.buy("token-back", "l-back", "123456789012");
    let mut browser = Browser::default();
    sold.sign_in(&mut browser);
    sold.arrive(&mut browser, "token-back");
    let csrf = field(&sold.get(&mut browser, PLACE).text(), "csrf");
    let back = sold.post(&mut browser, REDEEM, &format!("csrf={csrf}&organization={organization}"));
    assert_eq!(back.status, 200, "{}", back.text());
    assert_eq!(sold.http.standing(&organization), json!(["enabled", "ok", "t2"]));
    assert_eq!(sold.billing(&organization), json!(["aws", "marketplace"]));
}

#[test]
fn a_subscription_that_ended_before_its_buyer_came_pays_for_nothing() {
    let sold = sold();
    sold.aws.tell(&event(ENDED, "l-early", Utc::now(), |_| {}));
    wait_for("it was read", PATIENCE, || (sold.aws.waiting() == 0).then_some(()));
    sold.aws.buy("token-early", "l-early", "123456789012");
    let mut browser = Browser::default();
    sold.sign_in(&mut browser);
    sold.arrive(&mut browser, "token-early");
    let page = sold.get(&mut browser, PLACE);
    assert!(page.status == 409 && page.text().contains("It is over"), "{}", page.text());
}

#[test]
fn a_license_of_which_aws_says_for_a_day_that_nobody_pays_by_it_is_over() {
    let sold = Sold::start();
    let organization = sold.new_customer("unsaid");
    sold.begin_earlier("l-unsaid", 30);
    sold.aws.end("l-unsaid");
    sold.seal(&organization, "br_u", 1);
    wait_for("AWS says so", PATIENCE, || sold.is_refused("l-unsaid", "CustomerNotSubscribed").then_some(()));
    assert_eq!(sold.http.standing(&organization)[0], "enabled", "once may be a mistake");
    sold.http.metastore(
        "update marketplace_records set hour = hour - interval '26 hours', due_at = now() where license_id = 'l-unsaid'",
    );
    sold.http.wait_standing(&organization, &json!(["disabled", "no_payment_method", "t1"]));
}

#[test]
fn what_fails_of_a_message_keeps_no_other_message_back() {
    let sold = Sold::start();
    let organization = sold.new_customer("behind");
    sold.new_customer("failing");
    sold.http.metastore(
        "alter table marketplace_subscriptions add constraint never
             check (license_id <> 'l-failing' or told_at is null)",
    );
    let now = Utc::now();
    sold.aws.tell(&event(ENDED, "l-failing", now, |_| {}));
    sold.aws.tell(&event(ENDED, "l-behind", now, |_| {}));
    sold.http.wait_standing(&organization, &json!(["disabled", "no_payment_method", "t1"]));
    wait_for("it is removed", PATIENCE, || (sold.aws.waiting() == 1).then_some(()));
    sold.http.metastore("alter table marketplace_subscriptions drop constraint never");
    wait_for("the other one is taken later", PATIENCE, || (sold.aws.waiting() == 0).then_some(()));
}

#[test]
fn aws_is_asked_so_often_for_whoever_comes_from_one_address() {
    let sold = Sold::start();
    let came = |token: &str| sold.arrive(&mut Browser::default(), token).status;
    let answers: Vec<_> = (0..31).map(|_| came("forged")).collect();
    assert!(answers.iter().take(30).all(|status| *status == 400), "{answers:?}");
    assert_eq!(answers.last(), Some(&429));
    let asked = sold.aws.asked().iter().filter(|asked| asked.target.ends_with("ResolveCustomer")).count();
    assert_eq!(asked, 30);
}

//! Organizations that are billed through AWS Marketplace, with a double of AWS.

mod double;
mod model;

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_test_support::{Answer, text_of, wait_for};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Http;
use crate::http::Paying;
use crate::stripe::double::Double as Stripe;
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

/// Cookies of a browser, in the order of their making.
#[derive(Clone, Default)]
struct Browser(Vec<String>);

impl Browser {
    fn keep(&mut self, answer: &Answer) {
        let all = answer.headers.iter().filter(|(name, _)| *name == "set-cookie");
        for (_, cookie) in all {
            let pair = cookie.split(';').next().expect("a cookie").to_owned();
            let name = pair.split('=').next().expect("a name").to_owned();
            self.0.retain(|known| known.split('=').next() != Some(&name));
            self.0.push(pair);
        }
    }
}

const THIRD: (&str, &str, i32, &str) = ("awake", "micro", 0, "1200000000");

/// What seals usage of a branch.
fn sealed(
    organization: &str,
    branch: &str,
    hours_ago: i64,
    (meter, kind, correction, quantity): (&str, &str, i32, &str),
) -> String {
    format!(
        "insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
             values ('{branch}', 'main', 'prj_1', 'p', '{organization}') on conflict do nothing;
         insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
             values ('{branch}', '{hour}', '{meter}', '{kind}',
                     {correction}, {quantity}, case when {correction} > 0 then 'it stood still' else '' end);",
        hour = hour(hours_ago),
    )
}

/// The value of the field with this name.
fn field(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
    rest.split('"').next().expect("an end").to_owned()
}

/// An hour that began so many before this one; the same for all of a process, although another begins meanwhile.
fn hour(ago: i64) -> DateTime<Utc> {
    static THIS: LazyLock<DateTime<Utc>> =
        LazyLock::new(|| Utc::now().duration_trunc(TimeDelta::hours(1)).expect("an hour"));
    *THIS - TimeDelta::hours(ago)
}

impl Sold {
    fn start() -> Self {
        let aws = Double::start();
        let stripe = Some(Stripe::start().config());
        let paying = Paying { stripe, marketplace: Some(aws.config()), ..Paying::default() };
        Self { http: Http::start(paying), aws }
    }

    fn get(&self, browser: &mut Browser, path: &str) -> Answer {
        let cookies = browser.0.join("; ");
        let answer = self.http.anonymous("GET", path, &[HOST, ("cookie", &cookies)]);
        browser.keep(&answer);
        answer
    }

    fn post(&self, browser: &mut Browser, path: &str, form: &str) -> Answer {
        let cookies = browser.0.join("; ");
        let answer = self.http.send_text("POST", path, &[HOST, FORM, ("cookie", &cookies)], form);
        browser.keep(&answer);
        answer
    }

    /// As AWS leads a browser here.
    fn arrive(&self, browser: &mut Browser, token: &str) -> Answer {
        self.post(browser, PLACE, &format!("x-amzn-marketplace-token={token}&x-amzn-marketplace-offer-type="))
    }

    /// Signs the first user in.
    fn sign_in(&self, browser: &mut Browser) {
        let secret = self.http.new_sign_in_link();
        let page = self.get(browser, &coppice_api::sign_in_link("", &secret));
        let csrf = field(&page.text(), "csrf");
        let done = self.post(browser, "/oauth/link", &format!("csrf={csrf}&token={secret}"));
        assert_eq!(done.status, 303, "{}", done.text());
    }

    /// Has somebody buy it and make an organization by it; returns that.
    fn new_customer(&self, name: &str) -> String {
        let (token, license) = (format!("token-{name}"), format!("l-{name}"));
        self.aws.buy(&token, &license, "123456789012");
        let mut browser = Browser::default();
        self.sign_in(&mut browser);
        assert_eq!(self.arrive(&mut browser, &token).status, 303);
        let page = self.get(&mut browser, PLACE);
        let csrf = field(&page.text(), "csrf");
        let done = self.post(&mut browser, REDEEM, &format!("csrf={csrf}&organization=&name={name}"));
        assert_eq!(done.status, 200, "{}", done.text());
        let all = self.http.get("/organizations").expect(200);
        let all = all["organizations"].as_array().expect("organizations").clone();
        text_of(&all.iter().find(|one| one["name"] == name).expect("it is there")["id"])
    }

    fn billing(&self, organization: &str) -> Value {
        let path = format!("/organizations/{organization}/billing/customer");
        let shown = self.http.get(&path).expect(200);
        json!([shown["marketplace"], shown["collection_method"]])
    }

    /// What its status and tier are.
    fn status(&self, organization: &str) -> Value {
        let shown = self.http.get(&format!("/organizations/{organization}")).expect(200);
        let status = &shown["status"];
        json!([status["status"], status["billing_status"], status["usage_tier"]])
    }

    fn wait_status(&self, organization: &str, expected: &Value) {
        wait_for(&format!("{organization} is {expected}"), PATIENCE, || {
            (self.status(organization) == *expected).then_some(())
        });
    }

    /// Seals a third of an hour of a branch, so many hours ago.
    fn seal(&self, organization: &str, branch: &str, hours_ago: i64) {
        self.seal_of(organization, branch, hours_ago, THIRD);
    }

    fn seal_of(&self, organization: &str, branch: &str, hours_ago: i64, what: (&str, &str, i32, &str)) {
        self.http.metastore(&sealed(organization, branch, hours_ago, what));
    }

    /// Has a subscription have begun so many hours ago.
    fn begin_earlier(&self, license: &str, hours_ago: i64) {
        self.http.metastore(&format!(
            "update marketplace_subscriptions set billed_from = date_trunc('hour', now(), 'UTC') - interval '{hours_ago} hours'
             where license_id = '{license}'",
        ));
    }

    fn wait_charged(&self, license: &str, expected: &[(&str, DateTime<Utc>, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(dimension, hour, quantity)| ((*dimension).to_owned(), *hour, (*quantity).to_owned()))
            .collect();
        wait_for(&format!("{expected:?} is charged by {license}"), PATIENCE, || {
            let charged = self.aws.charged(license);
            (charged == expected).then_some(())
        });
    }

    /// What is said of records that are not told, or not any more.
    fn is_refused(&self, license: &str, what: &str) -> bool {
        self.http.asks(&format!(
            "select exists (select from marketplace_records
                            where license_id = '{license}' and told_at is null and refused like '%{what}%')"
        ))
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
    assert!(page.contains("111122223333") && page.contains("Sign in") && !page.contains("csrf"), "{page}");

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
    assert_eq!(redeem(&mut browser, &csrf, "Buyer").status, 200);
    let all = sold.http.get("/organizations").expect(200);
    let buyers: Vec<_> = all["organizations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["name"] == "Buyer")
        .collect();
    assert_eq!(buyers.len(), 1, "{all}");
    let organization = text_of(&buyers[0]["id"]);
    assert_eq!(sold.status(&organization), json!(["enabled", "ok", "t2"]), "it needs no card");
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
    assert_eq!(sold.status(&own), json!(["disabled", "no_payment_method", "t1"]));
    assert_eq!(sold.post(&mut browser, REDEEM, &form(&own)).status, 200);
    assert_eq!(sold.status(&own), json!(["enabled", "ok", "t2"]));
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
fn each_sealed_hour_is_charged_once_whatever_fails_on_the_way() {
    let sold = Sold::start();
    let organization = sold.new_customer("metered");
    sold.begin_earlier("l-metered", 6);
    sold.aws.go_down(true);
    // An hour is sealed at once.
    let at_once = [
        ("br_a", 5, THIRD),
        ("br_b", 5, THIRD),
        ("br_a", 4, THIRD),
        ("br_a", 4, ("storage", "", 0, "38654705664000000000")),
        ("br_a", 4, ("asleep", "", 0, "5")),
        ("br_a", 7, THIRD),
    ];
    let at_once = at_once.map(|(branch, ago, what)| sealed(&organization, branch, ago, what));
    sold.http.metastore(&at_once.concat());
    let recorded = "select count(*) = 3 from marketplace_records where due_at is not null";
    wait_for("the hours are in records", PATIENCE, || sold.http.asks(recorded).then_some(()));
    assert_eq!(sold.aws.charged("l-metered"), vec![]);
    sold.aws.be_busy(1);
    sold.aws.go_down(false);
    let due =
        || sold.http.metastore("update marketplace_records set due_at = now() where due_at is not null");
    due();
    wait_for("AWS did not process it", PATIENCE, || {
        sold.aws.asked().iter().any(|asked| asked.target.ends_with("BatchMeterUsage")).then_some(())
    });
    due();
    let (four, five) = (hour(4), hour(5));
    let first = [
        ("micro_hours", five, "0.666667"),
        ("micro_hours", four, "0.333333"),
        ("storage", four, "10.000000"),
    ];
    sold.wait_charged("l-metered", &first);

    // As after a crash between its answer and the note that it came.
    sold.http.metastore("update marketplace_records set due_at = now(), told_at = null, record_id = null");
    let told = "select bool_and(told_at is not null and record_id <> '') from marketplace_records";
    wait_for("all is told again", PATIENCE, || sold.http.asks(told).then_some(()));
    sold.wait_charged("l-metered", &first);

    // What comes later is part of the next hour: AWS keeps the first number. What is too much, of the next but one.
    sold.seal_of(&organization, "br_a", 5, ("awake", "micro", 1, "-1800000000"));
    sold.seal(&organization, "br_a", 3);
    wait_for("it is carried", PATIENCE, || {
        sold.http
            .asks("select exists (select from marketplace_carries where quantity = -0.166667)")
            .then_some(())
    });
    sold.seal(&organization, "br_a", 2);
    let mut all = first.to_vec();
    all.insert(2, ("micro_hours", hour(2), "0.166666"));
    sold.wait_charged("l-metered", &all);
}

#[test]
fn one_bad_record_keeps_no_other_back_and_what_is_never_charged_is_said() {
    let sold = Sold::start();
    // More than one request holds, while AWS is away. Never more than five hours old: those of the last month are taken
    // until six.
    sold.aws.go_down(true);
    let names = ["mixed", "second", "third"];
    let organizations = names.map(|name| {
        sold.aws.go_down(false);
        let organization = sold.new_customer(name);
        sold.aws.go_down(true);
        sold.begin_earlier(&format!("l-{name}"), 60);
        for ago in 1..=5 {
            let branch = format!("br_{name}");
            sold.seal(&organization, &branch, ago);
            sold.seal_of(&organization, &branch, ago, ("storage", "", 0, "3865470566400000000"));
        }
        organization
    });
    // The product has no such dimension; somebody else told of this hour; and this is older than AWS takes it.
    sold.seal_of(&organizations[0], "br_mixed", 3, ("egress", "", 0, "1073741824"));
    sold.aws.charge("l-mixed", "micro_hours", hour(2), "7");
    sold.seal(&organizations[0], "br_mixed", 30);
    let recorded = "select count(*) = 32 from marketplace_records";
    wait_for("all of it is in records", PATIENCE, || sold.http.asks(recorded).then_some(()));
    sold.aws.go_down(false);
    sold.http.metastore("update marketplace_records set due_at = now() where due_at is not null");
    for name in names {
        wait_for(&format!("{name} is charged"), PATIENCE, || {
            (sold.aws.charged(&format!("l-{name}")).len() == 10).then_some(())
        });
    }
    for (what, why) in [
        ("InvalidUsageDimensionException", "it is tried again"),
        ("DuplicateRecord", "AWS keeps what it has"),
        ("it is too old", "it is lost, and said"),
    ] {
        wait_for(why, PATIENCE, || sold.is_refused("l-mixed", what).then_some(()));
    }
    assert!(
        sold.http.asks("select due_at > now() from marketplace_records where refused like '%Dimension%'")
    );
    let lost = "select count(*) = 2 and bool_and(due_at is null) from marketplace_records where refused not like '%Dimension%'";
    assert!(sold.http.asks(lost), "nothing is lost silently");
    let most = sold
        .aws
        .asked()
        .iter()
        .filter(|asked| asked.target.ends_with("BatchMeterUsage"))
        .map(|asked| {
            let body: Value = serde_json::from_str(&asked.body).expect("JSON");
            body["UsageRecords"].as_array().expect("records").len()
        })
        .max();
    assert_eq!(most, Some(25));
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
    assert_eq!(sold.status(&organization), json!(["enabled", "ok", "t2"]));

    // An hour is not sealed yet, and AWS does not wait for that.
    let ended = now - TimeDelta::minutes(4);
    let last = ended.duration_trunc(TimeDelta::hours(1)).expect("an hour");
    sold.begin_earlier("l-leaving", 2);
    sold.http.metastore(&format!(
        "insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
             values ('br_last', 'main', 'prj_1', 'p', '{organization}');
         update usage_meter set sealed_until = '{last}';
         alter table usage_hours disable trigger usage_hours_for_marketplace;
         insert into usage_hours (branch_id, hour, meter, instance_type, quantity)
             values ('br_last', '{last}', 'awake', 'micro', 1800000000);
         alter table usage_hours enable trigger usage_hours_for_marketplace",
    ));
    for _ in 0..2 {
        told(event(ENDED, "l-leaving", ended, |_| {}));
    }
    told(event(UPDATED, "l-leaving", ended - TimeDelta::minutes(1), |_| {}));
    let over = json!(["disabled", "no_payment_method", "t1"]);
    sold.wait_status(&organization, &over);
    let shown = sold.http.get(&format!("/organizations/{organization}")).expect(200);
    assert!(text_of(&shown["status"]["billing_reason"]).contains("AWS Marketplace is over"), "{shown}");
    assert_eq!(sold.billing(&organization), json!([null, "bank_transfer"]));
    let closed = "select closed_at is not null from marketplace_subscriptions where license_id = 'l-leaving'";
    wait_for("it is summed up", PATIENCE, || sold.http.asks(closed).then_some(()));
    wait_for("all of it was read", PATIENCE, || (sold.aws.waiting() == 0).then_some(()));
    sold.http.lift_payment_requirement();
    assert_eq!(sold.status(&organization), over, "an older word changes nothing, and nothing lifts it");
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
    sold.wait_status(&organization, &json!(["enabled", "ok", "t2"]));
    told(event(ENDED, "l-leaving", ended + TimeDelta::minutes(2), |_| {}));
    sold.wait_status(&organization, &over);
    sold.aws.buy("token-back", "l-back", "123456789012");
    let mut browser = Browser::default();
    sold.sign_in(&mut browser);
    sold.arrive(&mut browser, "token-back");
    let csrf = field(&sold.get(&mut browser, PLACE).text(), "csrf");
    let back = sold.post(&mut browser, REDEEM, &format!("csrf={csrf}&organization={organization}"));
    assert_eq!(back.status, 200, "{}", back.text());
    assert_eq!(sold.status(&organization), json!(["enabled", "ok", "t2"]));
    assert_eq!(sold.billing(&organization), json!(["aws", "marketplace"]));
}

#[test]
fn a_license_of_which_aws_says_for_a_day_that_nobody_pays_by_it_is_over() {
    let sold = Sold::start();
    let organization = sold.new_customer("unsaid");
    sold.begin_earlier("l-unsaid", 30);
    sold.aws.end("l-unsaid");
    sold.seal(&organization, "br_u", 1);
    wait_for("AWS says so", PATIENCE, || sold.is_refused("l-unsaid", "CustomerNotSubscribed").then_some(()));
    assert_eq!(sold.status(&organization)[0], "enabled", "once may be a mistake");
    sold.http.metastore(
        "update marketplace_records set hour = hour - interval '26 hours', due_at = now() where license_id = 'l-unsaid'",
    );
    sold.wait_status(&organization, &json!(["disabled", "no_payment_method", "t1"]));
}

#[test]
fn what_aws_charges_is_on_no_invoice_of_ours() {
    let sold = Sold::start();
    let organization = sold.new_customer("charged");
    let upcoming = || {
        let path = format!("/organizations/{organization}/billing/invoices/upcoming");
        sold.http.get(&path).expect(200)["total"].clone()
    };
    sold.seal_of(&organization, "br_i", 0, ("awake", "micro", 0, "3600000000000"));
    assert_eq!(upcoming(), json!(0.0));
    sold.http.metastore("update marketplace_subscriptions set billed_from = now() + interval '1 hour'");
    assert_eq!(upcoming(), json!(17.0), "what was used before is ours to bill");
}

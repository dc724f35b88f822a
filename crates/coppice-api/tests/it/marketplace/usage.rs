//! What organizations use is charged by AWS, once.

use std::sync::LazyLock;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_test_support::{text_of, wait_for};
use serde_json::{Value, json};

use super::browser::{Browser, field};
use super::{PATIENCE, PLACE, REDEEM, Sold};

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

/// An hour that began so many before this one; the same for all of a process, although another begins meanwhile.
fn hour(ago: i64) -> DateTime<Utc> {
    static THIS: LazyLock<DateTime<Utc>> =
        LazyLock::new(|| Utc::now().duration_trunc(TimeDelta::hours(1)).expect("an hour"));
    *THIS - TimeDelta::hours(ago)
}

impl Sold {
    /// Seals a third of an hour of a branch, so many hours ago.
    pub(super) fn seal(&self, organization: &str, branch: &str, hours_ago: i64) {
        self.seal_of(organization, branch, hours_ago, THIRD);
    }

    pub(super) fn seal_of(
        &self,
        organization: &str,
        branch: &str,
        hours_ago: i64,
        what: (&str, &str, i32, &str),
    ) {
        self.http.metastore(&sealed(organization, branch, hours_ago, what));
    }

    /// Has a subscription have begun so many hours ago.
    pub(super) fn begin_earlier(&self, license: &str, hours_ago: i64) {
        self.http.metastore(&format!(
            "update marketplace_subscriptions set billed_from = '{}' where license_id = '{license}'",
            hour(hours_ago),
        ));
    }

    pub(super) fn wait_charged(&self, license: &str, expected: &[(&str, DateTime<Utc>, &str)]) {
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
    pub(super) fn is_refused(&self, license: &str, what: &str) -> bool {
        self.http.asks(&format!(
            "select exists (select from marketplace_records
                            where license_id = '{license}' and told_at is null and refused like '%{what}%')"
        ))
    }
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
    // None is told before all are due.
    let all_due = |when: &str| {
        sold.http
            .metastore(&format!("update marketplace_records set due_at = {when} where due_at is not null"));
    };
    all_due("now() + interval '1 hour'");
    sold.aws.go_down(false);
    all_due("now()");
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
fn what_aws_charges_is_on_no_invoice_of_ours() {
    let sold = Sold::start();
    let organization = sold.new_customer("charged");
    sold.begin_earlier("l-charged", 0);
    let upcoming = || {
        let path = format!("/organizations/{organization}/billing/invoices/upcoming");
        sold.http.get(&path).expect(200)["total"].clone()
    };
    sold.seal_of(&organization, "br_i", 0, ("awake", "micro", 0, "3600000000000"));
    assert_eq!(upcoming(), json!(0.0));
    sold.http.metastore("update marketplace_subscriptions set billed_from = now() + interval '1 hour'");
    assert_eq!(upcoming(), json!(17.0), "what was used before is ours to bill");
}

#[test]
fn a_subscription_whose_organization_is_deleted_pays_for_another_and_for_what_is_left() {
    let sold = Sold::start();
    let former = sold.new_customer("former");
    sold.begin_earlier("l-former", 5);
    let mut browser = Browser::default();
    sold.sign_in(&mut browser);
    sold.arrive(&mut browser, "token-former");
    assert_eq!(sold.get(&mut browser, PLACE).status, 409, "it pays for one that is there");
    sold.http.call("DELETE", &format!("/organizations/{former}")).expect(204);

    let page = sold.get(&mut browser, PLACE).text();
    let csrf = field(&page, "csrf");
    let done = sold.post(&mut browser, REDEEM, &format!("csrf={csrf}&organization=&name=Second"));
    assert_eq!(done.status, 200, "{}", done.text());
    let all = sold.http.get("/organizations").expect(200);
    let all = all["organizations"].as_array().expect("organizations").clone();
    let second = text_of(&all.iter().find(|one| one["name"] == "Second").expect("it is there")["id"]);
    assert_eq!(sold.billing(&second), json!(["aws", "marketplace"]));
    assert_eq!(sold.http.standing(&second), json!(["enabled", "ok", "t2"]));

    // The last hours of the one are sealed later, and charged beside those of the other: one number for each hour.
    sold.http
        .metastore("update marketplace_subscriptions set billed_from = billed_from - interval '2 hours'");
    sold.seal(&former, "br_former", 3);
    let both = [sealed(&former, "br_former", 1, THIRD), sealed(&second, "br_second", 1, THIRD)].concat();
    sold.http.metastore(&format!("begin; {both} commit"));
    let micro = |ago, quantity| ("micro_hours", hour(ago), quantity);
    sold.wait_charged("l-former", &[micro(3, "0.333333"), micro(1, "0.666667")]);
    let again = sold.arrive(&mut browser, "token-former");
    assert_eq!(again.status, 303, "{}", again.text());
    assert_eq!(sold.get(&mut browser, PLACE).status, 409, "it pays for one that is there again");
    assert!(
        sold.http.asks(&format!(
            "select is_billed_at_aws('{former}', now()) and not exists (select from orb_usage)"
        ))
    );
}

//! What is sent to Orb, and what its double answers, by the types of Orb's own client.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::Stdio;

use coppice_test_support::wait_for;
use serde_json::json;

use super::client::program;
use super::double::{Asked, Double, KEY};
use super::{Billed, PATIENCE};

#[test]
fn orbs_own_client_understands_the_double_and_its_types_are_those_of_what_is_sent() {
    let billed = Billed::start();
    let organization = billed.new_customer("typed");
    billed.add_card(&organization);
    let of_client = Double::start();
    let mut driver = program("drive.mjs");
    let driver = driver.args([of_client.url(), KEY]).stderr(Stdio::piped()).output().expect("node runs");
    assert!(driver.status.success(), "{}", String::from_utf8_lossy(&driver.stderr));

    billed.orb.credit(&organization, "cr_1", 1.0);
    billed.orb.invoice(&organization, "in_1", "issued", ("5.00", false));
    billed.billing(&organization, "invoices").expect(200);
    billed.billing(&organization, "invoices/upcoming").expect(200);
    billed.seal(&organization, "br_typed", 2);
    billed.seal(&organization, "br_typed_before", 40);
    wait_all_sent(&billed);
    billed.http.metastore(&format!("update organizations set name = 'other' where id = '{organization}'"));
    wait_for("Orb is told", PATIENCE, || {
        (billed.orb.customer(&organization).expect("a customer")["name"] == "other").then_some(())
    });
    billed.http.call("POST", &format!("/organizations/{organization}/deletion-request")).expect(202);
    wait_for("the subscription is over", PATIENCE, || {
        (billed.orb.subscriptions(&organization) == ["ended"]).then_some(())
    });

    let written = of_client.asked();
    let mut lines = String::new();
    let mut kinds = BTreeSet::new();
    for asked in billed.orb.asked() {
        let Some((kind, from, answer)) = types_of(&asked) else { panic!("nobody knows what {asked:?} is") };
        kinds.insert(kind);
        let like = written.iter().filter(|one| types_of(one).is_some_and(|(known, ..)| known == kind));
        let known: BTreeSet<_> = like.flat_map(|one| &one.query).map(|(name, _)| name).collect();
        let unknown = asked.query.iter().find(|(name, _)| !known.contains(name));
        assert_eq!(unknown, None, "{kind} is asked for as Orb's client does");
        if asked.method != "GET" && !kind.is_empty() && asked.body != json!({}) {
            lines += &format!("{}\n", json!({ "type": kind, "from": from, "value": asked.body }));
        }
        if asked.answer.get("validation_errors").is_none() {
            lines += &format!(
                "{}\n",
                json!({ "type": answer.0, "from": answer.1, "value": asked.answer["data"].as_array()
                .map_or(asked.answer.clone(), |data| data.first().cloned().unwrap_or(json!({}))), "isPart": true })
            );
        }
    }
    assert_eq!(kinds.len(), 12, "{kinds:?}");
    let mut checker = program("check.mjs").spawn().expect("node runs");
    checker.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it listens");
    let mut said = String::new();
    checker.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(checker.wait().expect("an end").success(), "{said}");
}

fn wait_all_sent(billed: &Billed) {
    wait_for("everything is sent", PATIENCE, || {
        billed.http.asks("select not exists (select from orb_usage)").then_some(())
    });
}

/// The type of a request's body, or its name where it has none, where it is declared, and the type of its answer.
fn types_of(asked: &Asked) -> Option<(&'static str, &'static str, (&'static str, &'static str))> {
    const CUSTOMERS: &str = "customers/customers";
    const BACKFILLS: &str = "events/backfills";
    let path: Vec<_> = asked.path.split('/').collect();
    Some(match (asked.method.as_str(), path.as_slice()) {
        ("GET", ["customers", _, _, "credits"]) => {
            ("credits", "", ("CreditListByExternalIDResponse", "customers/credits/credits"))
        }
        ("GET", ["customers", ..]) => ("customer", "", ("Customer", CUSTOMERS)),
        ("POST", ["customers"]) => ("CustomerCreateParams", CUSTOMERS, ("Customer", CUSTOMERS)),
        ("PUT", ["customers", ..]) => {
            ("CustomerUpdateByExternalIDParams", CUSTOMERS, ("Customer", CUSTOMERS))
        }
        ("GET", ["subscriptions"]) => ("subscriptions", "", ("Subscription", "subscriptions")),
        ("POST", ["subscriptions"]) => {
            ("SubscriptionCreateParams", "subscriptions", ("MutatedSubscription", "subscription-changes"))
        }
        ("POST", ["subscriptions", _, "cancel"]) => {
            ("SubscriptionCancelParams", "subscriptions", ("MutatedSubscription", "subscription-changes"))
        }
        ("POST", ["ingest"]) => {
            ("EventIngestParams", "events/events", ("EventIngestResponse", "events/events"))
        }
        ("POST", ["events", "backfills"]) => {
            ("BackfillCreateParams", BACKFILLS, ("BackfillCreateResponse", BACKFILLS))
        }
        ("POST", ["events", "backfills", _, "close"]) => ("close", "", ("BackfillCloseResponse", BACKFILLS)),
        ("GET", ["invoices", "upcoming"]) => ("upcoming", "", ("InvoiceFetchUpcomingResponse", "invoices")),
        ("GET", ["invoices"]) => ("invoices", "", ("Invoice", "shared")),
        _ => return None,
    })
}

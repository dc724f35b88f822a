//! What an organization may use in a month.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_test_support::{Answer, fields, text_of};
use serde_json::{Value, json};

use crate::http::Http;
use crate::{is_timestamp, shared};

/// An organization of its own with a project, and two branches that are up: one
/// that connections may wake, and one that they may not.
struct Shop {
    http: Arc<Http>,
    id: String,
    project: String,
    sleepy: String,
    steady: String,
    /// May do with branches what it likes, but not see passwords.
    token: String,
}

/// An id of a branch that nobody else makes up.
fn branch_id(project: &str, letter: char) -> String {
    format!("{letter}{}", &project[5..30])
}

impl Shop {
    fn new(name: &str) -> Self {
        let http = shared();
        let id = http.new_organization(name);
        let made =
            http.post(&format!("/organizations/{id}/projects"), &json!({ "name": "shop" })).expect(201);
        let project = text_of(&made["id"]);
        let (sleepy, steady) = (branch_id(&project, 'a'), branch_id(&project, 'b'));
        let scopes = json!({ "scopes": ["branch:read", "branch:write", "data:read"] });
        let token = http.new_token(&format!("/organizations/{id}/api-keys"), scopes);
        let shop = Self { http, id, project, sleepy, steady, token };
        shop.make(&shop.sleepy, true, "null");
        shop.make(&shop.steady, false, "null");
        shop
    }

    fn make(&self, branch: &str, scale_to_zero: bool, key: &str) {
        self.http.metastore(&format!(
            "begin;
             insert into branches (id, project_id, name, description, region, image_major, image_minor,
                 instance_type, replicas, storage_gib, parameters, preload_libraries, scale_to_zero,
                 inactivity_minutes, goal, state, volume_id, password_sealed, managed_role_verifier, made_with)
             values ('{branch}', '{}', '{branch}', '', 'local', 18, 0, 'micro', 0, 1, '{{}}', '{{}}',
                 {scale_to_zero}, 5, 'running', 'ready', 'vol_{branch}', '', '', {key});
             insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 values ('vol_{branch}', 'hst_1', '{branch}', 'admitted', nextval('volume_accounts'), 18, 0);
             commit",
            self.project
        ));
    }

    /// So many hours of a small instance were used this month.
    fn used(&self, branch: &str, hours: u32) {
        self.http.metastore(&format!(
            "insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
             select '{branch}', date_trunc('hour', now(), 'UTC'), 'awake', 'micro', 1 + count(*),
                    {hours}::numeric * 3600000000, 'of the test'
             from usage_hours where branch_id = '{branch}'"
        ));
    }

    fn path(&self, subject: &str) -> String {
        format!("/organizations/{}/budgets/{subject}", self.id)
    }

    fn set(&self, subject: &str, limit: &str, unit: &str) -> Answer {
        self.http.with("PUT", &self.path(subject), &json!({ "limit": limit, "unit": unit }))
    }

    fn branch(&self, branch: &str) -> String {
        format!("/organizations/{}/projects/{}/branches/{branch}", self.id, self.project)
    }

    /// A request about a branch, which has no password here that could be shown.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.http.as_key(&self.token, method, path, body)
    }

    fn wake(&self, branch: &str) -> Answer {
        self.ask("PATCH", &self.branch(branch), Some(&json!({ "hibernate": false })))
    }

    /// Refuses a branch that is to be something else; the reconciler does what it is to be.
    #[track_caller]
    fn is(&self, goal: &str, branch: &str) {
        self.http.metastore(&format!(
            "do $$ begin
                 if (select goal from branches where id = '{branch}') <> '{goal}' then
                     raise exception 'it is not {goal}';
                 end if;
                 update branches set state = case goal when 'running' then 'ready' else goal end
                     where id = '{branch}';
             end $$"
        ));
    }

    /// What was told of budgets until now: what comes after it is there.
    fn told(&self) -> Vec<Value> {
        let marker = self.http.new_key(&format!("/organizations/{}/api-keys", self.id), json!({}));
        let path = format!("/organizations/{}/events?limit=200&wait=5", self.id);
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut told, mut after) = (vec![], String::new());
        loop {
            assert!(Instant::now() < deadline, "{told:?}");
            let page = self.http.get(&format!("{path}&after={after}")).expect(200);
            after = text_of(&page["cursor"]);
            let events = page["events"].as_array().expect("events");
            let is_budget = |event: &&Value| event["type"] == "budget.reached";
            told.extend(events.iter().filter(is_budget).map(|event| event["data"].clone()));
            if events.iter().any(|event| event["data"]["key_id"] == marker["id"]) {
                return told;
            }
        }
    }
}

#[track_caller]
fn gone(answer: &Answer) {
    assert_eq!(answer.status, 204, "{}", answer.text());
}

#[test]
fn a_budget_is_set_shown_and_removed() {
    let shop = Shop::new("budgets shown");
    let (http, list) = (&shop.http, format!("/organizations/{}/budgets", shop.id));
    assert_eq!(http.get(&list).expect(200), json!({ "budgets": [] }));
    shop.used(&shop.sleepy, 10);
    let made = http.with("PUT", &shop.path(&shop.project), &json!({ "limit": "20.00" })).expect(200);
    let names = [
        "covers",
        "limit",
        "name",
        "projectID",
        "reached",
        "renewsAt",
        "subjectID",
        "unit",
        "updatedAt",
        "used",
    ];
    assert_eq!(fields(&made), names);
    is_timestamp(&made["renewsAt"]);
    assert_eq!((&made["covers"], &made["name"]), (&json!("project"), &json!("shop")));
    assert_eq!((&made["limit"], &made["unit"]), (&json!("20.00"), &json!("EUR")), "the list's currency");
    assert_eq!((&made["used"], &made["reached"]), (&json!("0.170000"), &json!(0)), "by the price of now");

    let whole = shop.set(&shop.id, "20", "instance-hours").expect(200);
    assert_eq!((&whole["used"], &whole["reached"]), (&json!("10.000000"), &json!(50)));
    let listed = http.get(&list).expect(200);
    let covers: Vec<_> = listed["budgets"].as_array().expect("budgets").iter().collect();
    assert_eq!((covers[0]["covers"].as_str(), covers.len()), (Some("organization"), 2));
    assert_eq!(shop.set(&shop.id, "40", "instance-hours").expect(200)["reached"], 0, "there is one of each");
    assert_eq!(http.get(&list).expect(200)["budgets"].as_array().map(Vec::len), Some(2));

    gone(&http.delete(&shop.path(&shop.id)));
    http.delete(&shop.path(&shop.id)).expect_error(404, "budget_not_found");
}

#[test]
fn a_budget_that_makes_no_sense_or_is_somebody_elses_is_refused() {
    let shop = Shop::new("budgets refused");
    let http = &shop.http;
    for limit in ["0", "-1", "1e9", "1,50", "", "0.0", "99999999999"] {
        shop.set(&shop.id, limit, "EUR").expect_error(400, "invalid_field");
    }
    let why = shop.set(&shop.id, "1", "USD").expect_error(400, "invalid_field");
    assert_eq!(why, "invalid unit: must be EUR or instance-hours");
    http.with("PUT", &shop.path(&shop.id), &json!({})).expect_error(400, "missing_field");
    let other = Shop::new("other budgets");
    for subject in ["prj_nowhere", &other.id, &other.project, &other.sleepy, "usr_1"] {
        shop.set(subject, "1", "EUR").expect_error(404, "subject_not_found");
    }
    // What it is of is theirs, and so is the budget.
    other.set(&other.project, "5", "EUR").expect(200);
    http.delete(&shop.path(&other.project)).expect_error(404, "budget_not_found");

    let keys = format!("/organizations/{}/api-keys", shop.id);
    let body = json!({ "limit": "999", "unit": "EUR" });
    let path = shop.path(&shop.id);
    let refused = |more: Value, method: &str| {
        let key = http.new_token(&keys, more);
        let body = (method == "PUT").then_some(&body);
        http.as_key(&key, method, &path, body).refusal()
    };
    for method in ["PUT", "DELETE"] {
        let reads = json!({ "scopes": ["org:read", "project:write", "branch:write"] });
        assert_eq!(refused(reads, method), (403, "insufficient_scope".to_owned()));
        let limited = json!({ "scopes": ["org:write"], "projects": [shop.project] });
        assert_eq!(refused(limited, method), (403, "restricted_key".to_owned()));
        let limited = json!({ "scopes": ["org:write"], "branches": [shop.sleepy] });
        assert_eq!(refused(limited, method), (403, "restricted_key".to_owned()));
    }
}

#[test]
fn a_budget_that_is_used_up_keeps_branches_asleep_until_there_is_more() {
    let shop = Shop::new("budget used up");
    shop.used(&shop.sleepy, 7);
    shop.used(&shop.steady, 1);
    assert_eq!(shop.set(&shop.project, "10", "instance-hours").expect(200)["reached"], 80);
    shop.is("running", &shop.sleepy);
    shop.is("running", &shop.steady);
    let told = shop.told();
    assert_eq!(told.len(), 1, "of what is reached at once only the greatest part is told: {told:?}");
    assert_eq!((&told[0]["threshold"], &told[0]["limit"]), (&json!(80), &json!("10")));
    assert_eq!((&told[0]["covers"], &told[0]["project_id"]), (&json!("project"), &json!(shop.project)));

    shop.used(&shop.sleepy, 2);
    assert_eq!(shop.set(&shop.project, "10", "instance-hours").expect(200)["used"], "10.000000");
    shop.is("hibernated", &shop.sleepy);
    shop.is("hibernated", &shop.steady);
    let shown = shop.ask("GET", &shop.branch(&shop.steady), None).expect(200);
    let message = text_of(&shown["status"]["message"]);
    assert!(
        message.contains("the budget of its project, 10 instance-hours a month, is used up"),
        "{message}"
    );
    assert!(message.contains("The owner or an admin of the organization can raise it"), "{message}");
    for branch in [&shop.sleepy, &shop.steady] {
        let why = shop.wake(branch).expect_error(403, "budget_reached");
        assert!(why.contains("10 instance-hours a month, is used up"), "{why}");
    }
    let query = json!({ "query": "SELECT 1" });
    let asked = shop.ask("POST", &format!("{}/query", shop.branch(&shop.sleepy)), Some(&query));
    assert_eq!(asked.refusal(), (403, "budget_reached".to_owned()));
    // Whatever statement it is, also one that knew nothing of it.
    shop.http.metastore(&format!("update branches set goal = 'running' where id = '{}'", shop.sleepy));
    shop.is("hibernated", &shop.sleepy);
    let told = shop.told();
    assert_eq!(told.iter().map(|data| &data["threshold"]).collect::<Vec<_>>(), [&json!(80), &json!(100)]);

    assert_eq!(shop.set(&shop.project, "100", "instance-hours").expect(200)["reached"], 0);
    // What no connection can wake goes on by itself.
    shop.is("running", &shop.steady);
    // And what one can is left to it.
    shop.is("hibernated", &shop.sleepy);
    shop.wake(&shop.sleepy).expect(200);
    shop.is("running", &shop.sleepy);

    // One that is removed keeps nothing asleep, and tells nothing twice when it is set again.
    shop.set(&shop.project, "10", "instance-hours").expect(200);
    shop.is("hibernated", &shop.steady);
    gone(&shop.http.delete(&shop.path(&shop.project)));
    shop.is("running", &shop.steady);
    shop.set(&shop.project, "10.0", "instance-hours").expect(200);
    shop.is("hibernated", &shop.steady);
    assert_eq!(shop.told().len(), 2);
}

#[test]
fn a_branch_in_the_trash_counts_and_comes_back_only_when_there_is_more() {
    let shop = Shop::new("budget and trash");
    shop.used(&shop.sleepy, 3);
    gone(&shop.http.delete(&shop.branch(&shop.sleepy)));
    assert_eq!(shop.set(&shop.id, "3", "instance-hours").expect(200)["reached"], 100);
    shop.is("hibernated", &shop.steady);
    let back = format!("/organizations/{}/projects/{}/trash/{}/undelete", shop.id, shop.project, shop.sleepy);
    shop.ask("POST", &back, Some(&json!({}))).expect_error(403, "budget_reached");
    shop.set(&shop.id, "30", "instance-hours").expect(200);
    shop.ask("POST", &back, Some(&json!({}))).expect(200);
}

#[test]
fn the_budget_of_a_key_counts_what_was_made_with_keys_that_it_made() {
    let shop = Shop::new("budget of keys beside each other");
    let keys = format!("/organizations/{}/api-keys", shop.id);
    let made = shop.http.new_key(&keys, json!({ "name": "ci" }));
    let key = text_of(&made["id"]);
    let make = |with: &Value| {
        let body = json!({ "name": "child" });
        shop.http.as_key(&text_of(&with["token"]), "POST", &keys, Some(&body)).expect(201)["key"].clone()
    };
    // One before it has a budget, and one after that; the key in between is gone by then.
    let child = make(&made);
    let before = make(&child);
    gone(&shop.http.with("DELETE", &keys, &json!({ "ids": [child["id"]] })));
    shop.set(&key, "10", "instance-hours").expect(200);
    let after = make(&made);
    for (letter, of) in [('c', &before), ('d', &after)] {
        let branch = branch_id(&shop.project, letter);
        shop.make(&branch, true, &format!("'{}'", text_of(&of["id"])));
        shop.used(&branch, 3);
    }
    let budget = shop.set(&key, "6", "instance-hours").expect(200);
    assert_eq!((&budget["used"], &budget["reached"]), (&json!("6.000000"), &json!(100)));
    for letter in ['c', 'd'] {
        let branch = branch_id(&shop.project, letter);
        shop.is("hibernated", &branch);
        shop.wake(&branch).expect_error(403, "budget_reached");
    }
    // What somebody else made is not part of it.
    shop.is("running", &shop.sleepy);
    let of_child = shop.set(&text_of(&before["id"]), "9", "instance-hours").expect(200);
    assert_eq!(of_child["used"], "3.000000");
}

#[test]
fn the_budget_of_a_key_counts_what_was_made_with_it() {
    let shop = Shop::new("budget of a key");
    let made = shop.http.new_key(&format!("/organizations/{}/api-keys", shop.id), json!({ "name": "ci" }));
    let key = text_of(&made["id"]);
    let branch = branch_id(&shop.project, 'c');
    shop.make(&branch, true, &format!("'{key}'"));
    shop.used(&branch, 5);
    shop.used(&shop.steady, 50);
    let budget = shop.set(&key, "10", "instance-hours").expect(200);
    assert_eq!((&budget["covers"], &budget["name"]), (&json!("key"), &json!("ci")));
    assert_eq!((&budget["used"], &budget["reached"]), (&json!("5.000000"), &json!(50)));
    shop.set(&key, "5", "instance-hours").expect(200);
    shop.is("hibernated", &branch);
    shop.is("running", &shop.steady);
    let why = shop.wake(&branch).expect_error(403, "budget_reached");
    assert!(why.contains("the budget of the key that it was made with"), "{why}");
    // Neither the branch nor the key has to be there for it.
    gone(&shop.http.delete(&format!("{}?purge=true", shop.branch(&branch))));
    shop.http.metastore(&format!("delete from api_keys where id = '{key}'"));
    let listed = shop.http.get(&format!("/organizations/{}/budgets", shop.id)).expect(200);
    let kept = &listed["budgets"][0];
    assert_eq!(
        (&kept["used"], &kept["reached"], &kept["name"]),
        (&json!("5.000000"), &json!(100), &Value::Null)
    );
}

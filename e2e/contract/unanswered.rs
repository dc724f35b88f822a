//! A POST with an `Idempotency-Key` whose process ended when the work was done and nobody had been told: it is done
//! once, and its repetition is told everything, what is told once among it.

use coppice_test_support::psql;
use serde_json::{Value, json};

use super::custom;
use crate::http::{Answer, Http, text_of};
use crate::setup::{arm, platform};

/// Where the process ends: each is reached right after a commit.
const PLACES: &str = "request.committed=abort,branch.committed=abort,reset.committed";

struct Story {
    http: Http,
    /// What its requests are known by.
    key: &'static str,
}

impl Story {
    fn begin() -> Self {
        let mut platform = platform();
        arm(&mut platform, PLACES);
        platform.restart();
        Self { http: Http::new(platform), key: "once" }
    }

    fn ask(&self, path: &str, body: &Value) -> Option<Answer> {
        self.http.try_send(self.http.request("POST", path).header("idempotency-key", self.key).json(body))
    }

    /// Asks for something that is done and not answered.
    fn cut(&mut self, path: &str, body: &Value) {
        assert!(self.ask(path, body).is_none(), "the process ended: {path}");
        self.http.platform.wait_end();
        self.http.platform.spawn();
        self.http.platform.wait_ready();
    }

    /// The answer that the next process has.
    fn again(&self, path: &str, body: &Value, status: u16) -> Value {
        self.ask(path, body).expect("an answer").expect(status)
    }

    /// As [`Self::again`], of something that goes on: the request may still run, for all that is known.
    fn goes_on(&self, path: &str, body: &Value, status: u16) -> Value {
        self.ask(path, body).expect("an answer").expect_error(409, "idempotency_in_progress");
        let age = "update idempotent_requests set started_at = started_at - interval '2 minutes' where status is null";
        assert!(psql(&self.http.platform.metastore_url(), age).is_ok);
        self.again(path, body, status)
    }

    /// How many of a list have this name, or whatever says what they are.
    fn count(&self, path: &str, list: &str, field: &str, value: &str) -> usize {
        let all = self.http.get(path).expect(200);
        all[list].as_array().expect("a list").iter().filter(|one| one[field] == value).count()
    }

    /// Something that is made and found in a list: there is one of it.
    #[track_caller]
    fn is_made_once(&mut self, path: &str, body: &Value, list: &str, field: &str) -> Value {
        self.cut(path, body);
        let made = self.again(path, body, 201);
        assert_eq!(self.again(path, body, 201), made);
        let other = self.ask(path, &json!({ "name": "another" })).expect("an answer");
        other.expect_error(409, "idempotency_mismatch");
        assert_eq!(self.count(path, list, field, &text_of(&body[field])), 1, "{path}");
        made
    }
}

#[test]
fn what_was_done_when_the_platform_was_killed_is_told_to_whoever_asks_again_and_not_done_twice() {
    let mut story = Story::begin();
    let named = json!({ "name": "once" });
    for path in ["/organizations/{org}/api-keys", "/api-keys"] {
        let made = story.is_made_once(path, &named, "keys", "name");
        story.http.as_key(&text_of(&made["key"]["token"]), "GET", "/organizations", None).expect(200);
    }
    story.is_made_once("/organizations", &named, "organizations", "name");
    let invited = json!({ "email": "once@example.com" });
    story.is_made_once("/organizations/{org}/invitations", &invited, "invitations", "email");
    story.tells_secrets_of_webhooks();

    let project = story.is_made_once("/organizations/{org}/projects", &named, "projects", "name");
    let branches = format!("/organizations/{{org}}/projects/{}/branches", text_of(&project["id"]));
    let parent = story.makes_a_branch_once(&branches, &custom("parent", json!({})));
    story.key = "once more";
    let parent = parent.rsplit('/').next();
    let copy = json!({ "name": "copy", "mode": "inherit", "parentID": parent });
    let copy = story.makes_a_branch_once(&branches, &copy);
    story.resets_once(&copy);
}

impl Story {
    fn tells_secrets_of_webhooks(&mut self) {
        let webhooks = "/organizations/{org}/webhooks";
        let body = json!({ "url": "https://hooks.invalid/once" });
        let made = self.is_made_once(webhooks, &body, "webhooks", "url");
        let rotate = format!("{webhooks}/{}/rotate", text_of(&made["id"]));
        self.cut(&rotate, &Value::Null);
        let rotated = self.again(&rotate, &Value::Null, 200);
        assert_ne!(text_of(&rotated["secret"]), text_of(&made["secret"]));
        assert_eq!(self.again(&rotate, &Value::Null, 200), rotated);
    }

    fn makes_a_branch_once(&mut self, branches: &str, body: &Value) -> String {
        self.cut(branches, body);
        let made = self.goes_on(branches, body, 201);
        assert_eq!(self.again(branches, body, 201), made);
        assert_eq!(self.count(branches, "branches", "name", &text_of(&body["name"])), 1);
        let branch = format!("{branches}/{}", text_of(&made["id"]));
        self.http.wait_healthy(&branch);
        assert_eq!(self.sql(&branch, "SELECT 1"), "1");
        branch
    }

    /// Each process has another address.
    fn sql(&self, branch: &str, sql: &str) -> String {
        let url = text_of(&self.http.get(branch).expect(200)["connectionString"]);
        let said = psql(&url, sql);
        assert!(said.is_ok, "{sql}: {}", said.err);
        said.out
    }

    /// What was written after a reset is not lost by a second one.
    fn resets_once(&mut self, branch: &str) {
        self.sql(branch, "CREATE TABLE before ()");
        let reset = format!("{branch}/reset");
        self.cut(&reset, &json!({}));
        self.http.wait_healthy(branch);
        assert_eq!(self.sql(branch, "SELECT to_regclass('before')"), "");
        self.sql(branch, "CREATE TABLE after ()");
        self.goes_on(&reset, &json!({}), 200);
        self.http.wait_healthy(branch);
        assert_eq!(self.sql(branch, "SELECT to_regclass('after')"), "after");
    }
}

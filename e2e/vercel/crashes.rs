//! The platform ends between what it writes down and what it says, at each such place, and Vercel asks again.

use std::time::{SystemTime, UNIX_EPOCH};

use coppice_test_support::wait_for;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::{CLIENT_SECRET, PATIENCE, Story, database, does, first_answer, url};
use crate::credentials::is_refused;
use crate::http::text_of;
use crate::setup::arm;

const TRANSFERS: &str = "/resource-transfer-requests";

impl Story {
    /// Starts the platform again, as one that ends at a place; without one, it goes on.
    fn spawn_until(&mut self, place: &str) {
        let platform = &mut self.http.platform;
        platform.kill();
        arm(platform, place);
        platform.spawn();
    }

    fn restart_until(&mut self, place: &str) {
        self.spawn_until(place);
        self.http.platform.wait_ready();
    }

    /// The platform ends by a request, which is not answered.
    #[track_caller]
    fn is_cut(&mut self, request: RequestBuilder) {
        assert!(self.http.try_send(request).is_none(), "the process died");
        self.http.platform.wait_end();
    }

    fn cut(&mut self, method: &str, installation: &str, below: &str, body: &Value, key: &str) {
        let token = self.vercel.token(installation, &json!({}));
        let path = format!("/v1/installations/{installation}{below}");
        let request = self.request_with(&token, method, &path, body, key);
        self.is_cut(request);
    }

    fn wait_until(&self, what: &str, sql: &str) {
        wait_for(what, PATIENCE, || (self.metastore(sql) == "t").then_some(()));
    }

    /// How many projects, branches, databases of Vercel's and logins of theirs that are good there are.
    fn counts(&self) -> String {
        self.metastore(
            "select (select count(*) from projects p join vercel_installations using (organization_id)
                     where p.deleted_at is null),
                    (select count(*) from vercel_resources join branches using (project_id) where deleted_at is null),
                    (select count(*) from vercel_resources),
                    (select count(*) from vercel_logins where ends_at is null or ends_at > now())",
        )
    }
}

#[test]
fn what_vercel_asks_again_of_a_platform_that_was_killed_is_done_once_and_whole() {
    let mut story = Story::begin();
    for installation in ["icfg_one", "icfg_two"] {
        story.install(installation);
    }
    let (id, first) = story.is_made_once();
    let second = story.is_rotated_once(&id, &first);
    story.is_told_of_its_name(&id);
    story.gets_to_another_account_whole(&id, [&first, &second]);
    story.ends_by_a_delivery();
    story.ends_by_a_request();
    story.keeps_to_itself();
}

impl Story {
    fn is_made_once(&mut self) -> (String, String) {
        self.restart_until("vercel.provisioned");
        self.cut("POST", "icfg_one", "/resources", &database("shop"), "made");
        self.restart_until("vercel.rotated");
        let made = self.provision("icfg_one", "shop", "made");
        assert_eq!(self.provision("icfg_one", "shop", "made"), made);
        assert_eq!(self.ask("POST", "icfg_one", "/resources", &database("other"), "made").0, 409);
        let first = url(&made);
        first_answer(&first);
        does(&first, "CREATE TABLE kept AS SELECT 1 AS n");
        assert_eq!(self.counts(), "1|1|1|1");
        let is_told = "select bool_and(told_status = 'ready') from vercel_resources";
        self.wait_until("Vercel knows that it is ready", is_told);
        (text_of(&made["id"]), first)
    }

    fn is_rotated_once(&mut self, id: &str, first: &str) -> String {
        let hours = json!({ "delayOldSecretsExpirationHours": 1 });
        self.cut("POST", "icfg_one", &format!("/resources/{id}/secrets/rotate"), &hours, "rotated");
        self.restart_until("vercel.told");
        let told = self.rotate("icfg_one", id, &hours, "rotated");
        assert_eq!(self.rotate("icfg_one", id, &hours, "rotated"), told);
        let second = url(&told);
        assert_ne!(second, first);
        for url in [first, &second] {
            first_answer(url);
            assert_eq!(does(url, "SELECT n FROM kept"), "1");
        }
        assert_eq!(self.counts(), "1|1|1|2", "no third");
        second
    }

    /// It may be told twice; that it is told is certain.
    fn is_told_of_its_name(&mut self, id: &str) {
        let events = self.told("icfg_one/events").len();
        let token = self.vercel.token("icfg_one", &json!({}));
        let path = format!("/v1/installations/icfg_one/resources/{id}");
        let name = json!({ "name": "renamed" });
        // Vercel may hear of it before this is answered.
        let _ = self.http.try_send(self.request_with(&token, "PATCH", &path, &name, ""));
        self.http.platform.wait_end();
        assert_eq!(self.told("icfg_one/events").len(), events + 1);
        self.restart_until("vercel.transfer_begun");
        let is_told = "select bool_and(told_name = 'renamed') from vercel_resources";
        self.wait_until("Vercel knows its name", is_told);
        assert_eq!(self.told("icfg_one/events").len(), events + 2);
    }

    fn gets_to_another_account_whole(&mut self, id: &str, former: [&str; 2]) {
        let body = json!({ "resourceIds": [id], "expiresAt": 4e12 });
        self.cut("POST", "icfg_one", TRANSFERS, &body, "begun");
        self.restart_until("vercel.transferred");
        let begun = self.ask("POST", "icfg_one", TRANSFERS, &body, "begun").1;
        assert_eq!(self.metastore("select count(*) from vercel_transfers"), "1", "no second one");
        let accept = format!("{TRANSFERS}/{}/accept", text_of(&begun["providerClaimId"]));
        self.cut("POST", "icfg_two", &accept, &Value::Null, "");
        // A login was written down that Vercel never heard of.
        self.spawn_until("vercel.offered");
        self.http.platform.wait_end();
        self.restart_until("vercel.removed");
        assert_eq!(self.ask("POST", "icfg_two", &accept, &Value::Null, "").0, 204, "again");
        assert_eq!(self.ask("POST", "icfg_one", &accept, &Value::Null, "").0, 409, "and by nobody else");
        let third = self.new_secrets("icfg_two", id, former[1]);
        first_answer(&third);
        assert_eq!(does(&third, "SELECT n FROM kept"), "1");
        wait_for("who had it can't connect", PATIENCE, || former.into_iter().all(is_refused).then_some(()));
        let owners = "select r.installation_id, i.id, count(*) over () from vercel_resources r
             join projects p on p.id = r.project_id
             join vercel_installations i on i.organization_id = p.organization_id";
        assert_eq!(self.metastore(owners), "icfg_two|icfg_two|1");
        assert_eq!(self.counts(), "1|1|1|1");
    }

    /// Vercel says that an installation was removed, again and again.
    fn ends_by_a_delivery(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() as u64;
        let told = json!({ "type": "integration-configuration.removed", "createdAt": now,
            "payload": { "configuration": { "id": "icfg_one" } } });
        let body = told.to_string();
        let sign = json!({ "command": "signature", "secret": CLIENT_SECRET, "body": body });
        let signature = text_of(&self.vercel.0.command(&sign));
        let delivery = |story: &Self| {
            let request =
                story.http.anonymous("POST", "/webhooks/vercel").header("x-vercel-signature", &signature);
            request.header("content-type", "application/json").body(body.clone())
        };
        let request = delivery(self);
        self.is_cut(request);
        // Vercel hears that it is over before that is written down, so it hears it twice.
        self.spawn_until("vercel.finalized");
        self.http.platform.wait_end();
        self.restart_until("vercel.ending");
        let request = delivery(self);
        assert_eq!(self.http.send(request).status, 200, "again");
        let is_gone = "select not exists (select from vercel_installations where id = 'icfg_one')";
        self.wait_until("the installation is gone", is_gone);
        assert_eq!(self.told("icfg_one/billing/finalize").len(), 2);
        assert_eq!(self.counts(), "1|1|1|1", "the other one's are untouched");
    }

    fn ends_by_a_request(&mut self) {
        let body = json!({ "cascadeResourceDeletion": true });
        self.cut("DELETE", "icfg_two", "", &body, "");
        self.restart_until("");
        assert_eq!(self.ask("DELETE", "icfg_two", "", &body, "").0, 204, "again");
        let is_gone = "select not exists (select from vercel_installations)";
        self.wait_until("the installation is gone", is_gone);
        assert_eq!(self.told("icfg_two/billing/finalize").len(), 1);
        assert_eq!(self.counts(), "0|0|0|0");
        let rows = "select count(*) from projects where deleted_at is null and name = 'renamed'";
        assert_eq!(self.metastore(rows), "0");
    }
}

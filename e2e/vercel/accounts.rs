//! People who come from Vercel, what it is told by itself, and databases that get to another account there.

use std::process::{Child, Command, Stdio};

use coppice_test_support::{Answer, psql, wait_for};
use reqwest::Client;
use reqwest::redirect::Policy;
use serde_json::{Value, json};

use super::{CLIENT, CLIENT_SECRET, ISSUER, PATIENCE, Story, does, first_answer, secret, url};
use crate::credentials::is_refused;
use crate::http::text_of;

/// What a page has in a field.
fn field(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
    rest.split('"').next().expect("an end").to_owned()
}

fn cookie(answer: &Answer) -> String {
    answer.header("set-cookie").split(';').next().expect("a cookie").to_owned()
}

impl Story {
    /// A code that stands for somebody with these claims.
    fn code(&mut self, code: &str, by: &str, more: &Value) {
        let mut claims = json!({
            "iss": ISSUER, "sub": "account:a:user:u", "aud": CLIENT, "exp": 4_000_000_000_u64,
            "account_id": "of-icfg_one", "installation_id": "icfg_one", "user_id": "Ada1", "user_role": "ADMIN",
            "user_name": "Ada", "user_email": "ada@example.com",
        });
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        let known = json!({ "command": "code", "code": code, "state": "of-vercel", "secret": CLIENT_SECRET,
            "by": by, "claims": claims });
        self.vercel.0.command(&known);
    }

    /// What comes of pressing the button of the page that a code leads to.
    fn arrive(&self, code: &str, resource: &str) -> Answer {
        let place = format!("/vercel/sign-in?mode=sso&code={code}&state=of-vercel&resource_id={resource}");
        let page = self.http.send(self.http.anonymous("GET", &place));
        assert_eq!(page.status, 200, "{}", page.text());
        let csrf = field(&page.text(), "csrf");
        let form = format!("code={code}&state=of-vercel&resource_id={resource}");
        let press = |cookie: &str, csrf: &str| {
            let place = format!("{}/vercel/sign-in", self.http.platform.api());
            // Where it leads is looked at, not followed.
            let client = Client::builder().redirect(Policy::none()).build().expect("a client");
            let request = client.post(place).header("cookie", cookie);
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            self.http.send(request.body(format!("{form}&csrf={csrf}")))
        };
        // Nobody else can press it for them, and the code is still good afterwards.
        assert_eq!(press("", &csrf).status, 400);
        assert_eq!(press(&cookie(&page), "made-up").status, 400);
        press(&cookie(&page), &csrf)
    }

    /// Asks as a page of the console does.
    fn console(&self, session: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.anonymous(method, &format!("/console/api{path}"));
        let request = request.header("cookie", session).header("x-coppice-console", "1");
        let answer = self.http.send(if body.is_null() { request } else { request.json(body) });
        (answer.status, answer.json())
    }

    pub(super) fn told(&mut self, of: &str) -> Vec<Value> {
        let told = self.vercel.0.command(&json!({ "command": "told", "of": of }));
        told.as_array().expect("a list").clone()
    }

    /// What Vercel is told at a path, and was not told before, that is as it should be.
    fn hears(&mut self, what: &str, of: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, PATIENCE, || self.told(of).into_iter().rfind(&is_it))
    }

    fn set_up(&mut self, is_up: bool) {
        self.vercel.0.command(&json!({ "command": "up", "value": is_up }));
    }

    pub(super) fn metastore(&self, sql: &str) -> String {
        let said = psql(&self.http.platform.metastore_url(), sql);
        assert!(said.is_ok, "{sql}: {}", said.err);
        said.out
    }

    /// The secrets that Vercel has by the last that it was told.
    pub(super) fn new_secrets(&mut self, installation: &str, id: &str, former: &str) -> String {
        let place = format!("/v1/installations/{installation}/resources/{id}/secrets");
        let put = self.hears("Vercel has other secrets", &place, |told| url(&told["body"]) != former);
        assert_eq!(
            (&put["method"], &put["authorization"]),
            (&json!("PUT"), &json!("Bearer planted-secret-of-an-installation"))
        );
        self.remember(&put["body"]);
        url(&put["body"])
    }
}

#[test]
fn people_from_vercel_land_at_their_database_and_what_they_do_there_vercel_is_told() {
    let mut story = Story::begin();
    story.install("icfg_one");
    let made = story.provision("icfg_one", "shop", "");
    let (id, first) = (text_of(&made["id"]), url(&made));
    first_answer(&first);

    story.refuses_who_is_not_known();
    story.code("good", "vercel", &json!({}));
    let arrived = story.arrive("good", &id);
    let place = arrived.header("location").to_owned();
    assert_eq!(arrived.status, 303, "{}", arrived.text());
    let begin = story.metastore("select organization_id from vercel_installations");
    assert!(place.starts_with(&format!("/console/orgs/{begin}/projects/{id}/branches/")), "{place}");
    let ada = cookie(&arrived);
    assert_eq!(story.arrive("good", &id).status, 403, "once");
    let (_, session) = story.console(&ada, "GET", "/session", &Value::Null);
    let organizations = session["organizations"].as_array().expect("a list");
    assert_eq!(organizations.len(), 1, "{session}");
    assert_eq!((&organizations[0]["id"], &organizations[0]["role"]), (&json!(begin), &json!("admin")));
    assert_eq!(session["user"]["name"], "Ada");
    assert!(text_of(&session["user"]["email"]).ends_with("@vercel.invalid"), "no address that others have");
    let (status, refused) = story.console(&ada, "POST", "/organizations", &json!({ "name": "more" }));
    assert_eq!((status, &refused["id"]), (403, &json!("role_not_allowed")), "{refused}");

    story.has_no_password(&ada);
    let branch = place.split('/').nth_back(1).expect("a branch").to_owned();
    let project = format!("/organizations/{begin}/projects/{id}");
    story.looks_only(&project);
    story.tells_vercel(&ada, &project, &branch, &id, &first);
    story.lets_go_of(&ada);
    story.keeps_to_itself();
}

impl Story {
    fn refuses_who_is_not_known(&mut self) {
        for (number, (by, more)) in [
            ("stranger", json!({})),
            ("vercel", json!({ "aud": "oac_another" })),
            ("vercel", json!({ "exp": 1 })),
            ("vercel", json!({ "installation_id": "icfg_unknown" })),
            ("vercel", json!({ "account_id": "of-icfg_two" })),
            ("vercel", json!({ "user_role": "GUEST" })),
            ("vercel", json!({ "user_id": null })),
            ("vercel", json!({ "user_id": "../../x" })),
        ]
        .into_iter()
        .enumerate()
        {
            self.code(&format!("bad{number}"), by, &more);
            let refused = self.arrive(&format!("bad{number}"), "");
            assert_eq!(refused.status, 403, "{by} {more}: {}", refused.text());
            assert_eq!(refused.header("set-cookie"), "", "{by} {more}");
        }
        assert_eq!(self.arrive("made-up", "").status, 403);
        let lacking = self.http.send(self.http.anonymous("GET", "/vercel/sign-in"));
        assert_eq!(lacking.status, 403);
        assert_eq!(self.metastore("select count(*) from vercel_people"), "0");
    }

    /// With one they would come back when they are removed at Vercel.
    fn has_no_password(&self, ada: &str) {
        let page = self.http.send(self.http.anonymous("GET", "/account/password").header("cookie", ada));
        let cookies = format!("{ada}; {}", cookie(&page));
        let csrf = field(&page.text(), "csrf");
        let form = format!("csrf={csrf}&new_password=long+enough&repeated_password=long+enough");
        let request = self.http.anonymous("POST", "/account/password").header("cookie", cookies);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer = self.http.send(request.body(form));
        assert!(answer.status == 403 && answer.text().contains("by Vercel alone"), "{}", answer.text());
        assert_eq!(self.metastore("select count(*) from users where password is not null"), "1");
    }

    /// Who may only look at Vercel may only look here.
    fn looks_only(&mut self, project: &str) {
        self.code("bob", "vercel", &json!({ "user_id": "bob", "user_role": "USER" }));
        let bob = cookie(&self.arrive("bob", "prj_unknown"));
        assert_eq!(self.console(&bob, "GET", project, &Value::Null).0, 200);
        let (status, refused) = self.console(&bob, "DELETE", project, &Value::Null);
        assert_eq!((status, &refused["id"]), (403, &json!("role_not_allowed")), "{refused}");
    }

    fn tells_vercel(&mut self, ada: &str, project: &str, branch: &str, id: &str, first: &str) {
        let is_updated = |told: &Value| told["body"]["event"]["resourceId"] == json!(id);
        let updated = self.hears("the database is ready", "icfg_one/events", is_updated);
        assert_eq!(
            updated["body"]["event"],
            json!({ "type": "resource.updated", "productId": "iap_postgres", "resourceId": id })
        );
        // Nothing is lost while Vercel does not answer and the platform ends.
        self.set_up(false);
        let count = self.told("icfg_one/events").len();
        assert_eq!(self.console(ada, "PATCH", project, &json!({ "name": "renamed" })).0, 200);
        let credentials = format!("{project}/branches/{branch}/credentials/rotate");
        assert!(self.console(ada, "POST", &credentials, &json!({ "username": "app" })).0 < 300, "rotated");
        let tried = "select 1 from vercel_resources where news_attempts > 0";
        wait_for("Vercel was asked", PATIENCE, || (self.metastore(tried) == "1").then_some(()));
        does(first, "SELECT 1");
        self.http.platform.kill();
        self.http.platform.restart();
        self.set_up(true);
        wait_for("it hears of the name", PATIENCE, || {
            (self.told("icfg_one/events").len() > count).then_some(())
        });
        let second = self.new_secrets("icfg_one", id, first);
        first_answer(&second);
        wait_for("the former secrets end", PATIENCE, || is_refused(first).then_some(()));
        assert_eq!(does(&second, "SELECT session_user"), "app");
        let nothing_new = "select count(*) from vercel_resources where rotations_asked > rotations_told";
        wait_for("all is told", PATIENCE, || (self.metastore(nothing_new) == "0").then_some(()));
        // It is deleted here, so it goes there.
        assert!(self.console(ada, "DELETE", project, &Value::Null).0 < 300, "deleted");
        let place = format!("icfg_one/resources/{id}");
        self.hears("it is gone", &place, |told| told["method"] == "DELETE");
        assert!(is_refused(&second));
    }

    /// Whose role at Vercel is another one, or who has none any more.
    fn lets_go_of(&mut self, ada: &str) {
        let ago = "update vercel_people set looked_at = now() - interval '2 hours'";
        let role_of = |story: &Self| {
            let (_, session) = story.console(ada, "GET", "/session", &Value::Null);
            session["organizations"][0]["role"].as_str().map(str::to_owned)
        };
        self.vercel.0.command(&json!({ "command": "member", "id": "Ada1", "role": "USER" }));
        self.metastore(ago);
        wait_for("she may only look", PATIENCE, || {
            (role_of(self).as_deref() == Some("viewer")).then_some(())
        });
        self.vercel.0.command(&json!({ "command": "member", "id": "Ada1", "role": null }));
        self.metastore(ago);
        wait_for("she is out", PATIENCE, || {
            (self.console(ada, "GET", "/session", &Value::Null).1 == Value::Null).then_some(())
        });
        wait_for("bob, too", PATIENCE, || {
            (self.metastore("select count(*) from vercel_people") == "0").then_some(())
        });
        assert_eq!(self.metastore("select count(*) from users where email like '%vercel.invalid'"), "0");
    }
}

#[test]
fn a_database_gets_to_another_account_of_vercels_and_who_had_it_can_connect_no_more() {
    let mut story = Story::begin();
    for installation in ["icfg_one", "icfg_two", "icfg_three"] {
        story.install(installation);
    }
    let made = story.provision("icfg_one", "shop", "");
    let (id, first) = (text_of(&made["id"]), url(&made));
    first_answer(&first);
    does(&first, "CREATE TABLE kept AS SELECT 1 AS n");
    let requests = "/resource-transfer-requests";
    for (installation, body, status) in [
        ("icfg_one", json!({ "resourceIds": [id], "expiresAt": 1000 }), 400),
        ("icfg_one", json!({ "resourceIds": [], "expiresAt": 4e12 }), 400),
        ("icfg_one", json!({ "resourceIds": [id, "prj_other"], "expiresAt": 4e12 }), 404),
        ("icfg_two", json!({ "resourceIds": [id], "expiresAt": 4e12 }), 404),
    ] {
        assert_eq!(story.ask("POST", installation, requests, &body, "").0, status, "{installation} {body}");
    }
    let body = json!({ "resourceIds": [id], "expiresAt": 4e12 });
    let (status, begun) = story.ask("POST", "icfg_one", requests, &body, "once");
    assert_eq!(status, 200, "{begun}");
    assert_eq!(story.ask("POST", "icfg_one", requests, &body, "once").1, begun, "is told again");
    let claim = text_of(&begun["providerClaimId"]);
    story.secrets.push(claim.clone());
    let at = |what: &str| format!("{requests}/{claim}/{what}");
    let late = text_of(&story.ask("POST", "icfg_one", requests, &body, "").1["providerClaimId"]);

    assert_eq!(story.ask("GET", "icfg_two", &format!("{requests}/made-up/verify"), &Value::Null, "").0, 404);
    assert_eq!(story.ask("GET", "icfg_two", &at("verify"), &Value::Null, "").0, 200);
    assert_eq!(story.ask("GET", "icfg_three", &at("verify"), &Value::Null, "").0, 200, "who may yet take it");
    let reader = story.vercel.token("icfg_two", &json!({ "user_role": "USER" }));
    let place = format!("/v1/installations/icfg_two{}", at("accept"));
    assert_eq!(story.ask_with(&reader, "POST", &place, &Value::Null, "").0, 403);
    story.refuses_while_its_organization_is_disabled(&at("accept"));
    let left = Left::behind(&made);
    story.set_up(false);
    assert_eq!(story.ask("POST", "icfg_two", &at("accept"), &Value::Null, "").0, 204);
    assert_eq!(story.ask("POST", "icfg_two", &at("accept"), &Value::Null, "").0, 204, "again");
    for (below, installation) in [(at("accept"), "icfg_three"), (at("accept"), "icfg_one")] {
        let (status, refused) = story.ask("POST", installation, &below, &Value::Null, "");
        assert_eq!((status, &refused["error"]["code"]), (409, &json!("conflict")), "{refused}");
    }
    assert_eq!(story.ask("GET", "icfg_two", &at("verify"), &Value::Null, "").0, 409);
    let other = format!("{requests}/{late}/accept");
    assert_eq!(story.ask("POST", "icfg_three", &other, &Value::Null, "").0, 404, "it has it no more");

    let below = format!("/resources/{id}");
    assert_eq!(story.ask("GET", "icfg_one", &below, &Value::Null, "").0, 404);
    let (status, shown) = story.ask("GET", "icfg_two", &below, &Value::Null, "");
    assert_eq!((status, &shown["id"]), (200, &json!(id)), "{shown}");
    left.leads_nowhere(&first);
    let handed_over =
        || (story.metastore("select count(*) from branches where hands_over") == "0").then_some(());
    wait_for("it is handed over", PATIENCE, handed_over);
    // What Vercel connects with goes on until it has what to connect with next.
    does(&first, "SELECT n FROM kept");
    let meanwhile = Left::behind(&made);
    story.http.platform.kill();
    story.http.platform.restart();
    story.set_up(true);
    let second = story.new_secrets("icfg_two", &id, &first);
    first_answer(&second);
    assert_eq!(does(&second, "SELECT n FROM kept"), "1");
    wait_for("who had it can't connect", PATIENCE, || is_refused(&first).then_some(()));
    meanwhile.leads_nowhere(&second);
    // The role is there, and whoever has the database now may give it a password.
    does(&second, "ALTER ROLE \"left behind\" PASSWORD 'of the next owner'");
    story.moves_all(&id);
    story.keeps_to_itself();
}

impl Story {
    /// Nobody gets a database out of an organization that is disabled.
    fn refuses_while_its_organization_is_disabled(&mut self, accept: &str) {
        let set = |is_disabled| {
            format!(
                "update organizations set disabled_by_admin = {is_disabled} where id =
                 (select organization_id from vercel_installations where id = 'icfg_one')"
            )
        };
        self.metastore(&set(true));
        let (status, refused) = self.ask("POST", "icfg_two", accept, &Value::Null, "");
        assert_eq!((status, &refused["error"]["code"]), (409, &json!("conflict")), "{refused}");
        self.metastore(&set(false));
    }
}

/// What somebody who has a database makes to come back by, with its secrets.
struct Left {
    /// Roles that have a password of theirs; the second has a name like the platform's.
    roles: [String; 2],
    /// Sessions that go on, whether anybody listens to them or not; the role of the second is gone.
    sessions: [Child; 2],
}

impl Left {
    fn behind(told: &Value) -> Self {
        let (url, user) = (url(told), secret(told, "PGUSER"));
        let (login, rest) = user.split_once('.').expect("a branch");
        let of_login = format!("{login}.{rest}:{}@", secret(told, "PGPASSWORD"));
        let of = |role: &str| url.replace(&of_login, &format!("{role}.{rest}:planted@"));
        does(
            &url,
            "DROP ROLE IF EXISTS \"left behind\", coppice_replica_99, dropped; CREATE ROLE \"left behind\" LOGIN PASSWORD 'planted';
             CREATE ROLE coppice_replica_99 LOGIN PASSWORD 'planted'; CREATE ROLE dropped LOGIN PASSWORD 'planted'",
        );
        let [role, dropped] = ["left%20behind", "dropped"].map(of);
        wait_for("the role signs in", PATIENCE, || psql(&role, "SELECT 1").is_ok.then_some(()));
        let stays = "SET application_name = 'stays'; DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(600); \
                     EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";
        let start = |role: &String| {
            let session = Command::new("psql").args([role, "-X", "-c", stays]).stderr(Stdio::null()).spawn();
            session.expect("psql runs")
        };
        let sessions = [&role, &dropped].map(start);
        let left = Self { roles: [role, of("coppice_replica_99")], sessions };
        wait_for("sessions of its own", PATIENCE, || (Self::sessions(&url) == "2").then_some(()));
        does(&url, "DROP ROLE dropped");
        left
    }

    /// How many there are, as somebody else sees.
    fn sessions(url: &str) -> String {
        let said = psql(url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stays'");
        // A session that is cut asks again.
        said.out
    }

    fn leads_nowhere(&self, url: &str) {
        for role in &self.roles {
            wait_for("its password is good for nothing", PATIENCE, || is_refused(role).then_some(()));
        }
        wait_for("its sessions have ended", PATIENCE, || (Self::sessions(url) == "0").then_some(()));
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        for session in &mut self.sessions {
            let _ = session.kill();
            let _ = session.wait();
        }
    }
}

impl Story {
    /// Nothing of the former organization leads to it.
    fn moves_all(&self, id: &str) {
        let owners = |table: &str, column: &str| {
            format!(
                "select i.id from {table} t join vercel_installations i on i.organization_id = t.organization_id
                 where t.{column} = '{id}'"
            )
        };
        for (table, column) in [("projects", "id"), ("usage_branches", "project_id")] {
            assert_eq!(self.metastore(&owners(table, column)), "icfg_two", "{table}");
        }
        let actions =
            "select string_agg(action, ' ' order by began_at) from audit_log where action like '%Transfer'";
        assert!(self.metastore(actions).starts_with("createTransfer createTransfer acceptTransfer"));
    }
}

//! Everything that is secret of an integration, searched for wherever people, programs and GitHub read.

use coppice_test_support::{Platform, psql};
use serde_json::{Value, json};

use super::{CLIENT_SECRET, Github, WEBHOOK_SECRET};
use crate::http::{Http, text_of};
use crate::metastore::{all_rows, as_bytes};

const WRONG: [&str; 3] =
    ["planted-code-of-a-person", "planted-token-of-the-job", "planted-password-that-is-wrong"];

/// What a database holds: no secret for whoever may ask it.
const OF_A_CUSTOMER: &str = "planted-value-of-a-customer";

/// A place that is read, and what is there.
type Place = (String, String);

/// A platform whose log is as talkative as it can be, and a branch of it that a pull request has.
struct Search<'a> {
    http: Http,
    github: &'a mut Github,
    pull: i64,
    /// The path of the project; ids of it and of the branch.
    project: (String, String),
    branch: String,
    /// A key for the branch alone, and the id of a webhook.
    key: String,
    webhook: String,
}

/// Nothing that is secret was told to GitHub, to agents, in answers and events, or to those who read logs.
pub(super) fn are_kept(platform: Platform, github: &mut Github, pull: i64, branch: &Value) -> Platform {
    let http = Http::new(platform);
    let (organization, branch) = (http.organization().to_owned(), text_of(&branch["id"]));
    let id = text_of(&http.get("/organizations/{org}/projects").expect(200)["projects"][0]["id"]);
    let project = (format!("/organizations/{organization}/projects/{id}"), id);
    let key = http.new_token("/organizations/{org}/api-keys", json!({ "branches": [branch] }));
    let made = http.platform.cli(&["webhook", "create", "https://hooks.invalid/planted"]);
    let webhook = text_of(&made["id"]);
    let mut search = Search { http, github, pull, project, branch, key, webhook };
    let secrets = search.secrets(&text_of(&made["secret"]));
    let mut places = search.errors();
    places.extend(search.answers());
    places.extend(search.agents());
    places.extend(search.at_github());
    // Last, so that all that was asked is in it.
    let log = search.http.platform.log();
    assert!(log.contains("TRACE"), "it is as talkative as it can be");
    assert!(!log.contains(OF_A_CUSTOMER), "what an agent asked a database, or its answer, is in the log");
    places.push(("the log".to_owned(), log));
    for (name, place) in &places {
        assert!(place.len() > 2, "nothing was read: {name}");
        for secret in &secrets {
            let line = place.lines().find(|line| line.contains(secret.as_str()));
            assert_eq!(line, None, "`{secret}` is in {name}");
            assert!(!place.contains(&as_bytes(secret)), "`{secret}` is in {name}, as bytes");
        }
        assert!(!place.contains("ghs_"), "a token of the App's is in {name}");
    }
    search.http.platform
}

impl Search<'_> {
    fn password(&self, key: &str, branch: &str) -> String {
        let place = format!("{}/branches/{branch}/credentials", self.project.0);
        text_of(&self.http.as_key(key, "GET", &place, None).expect(200)["password"])
    }

    /// What must be nowhere, among it what was tried and is wrong.
    fn secrets(&self, of_webhook: &str) -> Vec<String> {
        let (admin, platform) = (self.http.admin(), &self.http.platform);
        let mut secrets = vec![
            WEBHOOK_SECRET.to_owned(),
            CLIENT_SECRET.to_owned(),
            admin.to_owned(),
            platform.setting("COPPICE_PASSWORD").to_owned(),
            self.key.clone(),
            of_webhook.to_owned(),
            self.password(admin, &self.branch),
            self.password(admin, &platform.branch_id("main")),
            self.password(&self.key, &self.branch),
        ];
        secrets.extend(self.github.key.lines().filter(|line| !line.starts_with("--")).map(str::to_owned));
        secrets.extend(WRONG.map(str::to_owned));
        assert!(secrets.iter().all(|secret| secret.len() >= 6), "{secrets:?}");
        secrets
    }

    /// What is refused, with something secret in it.
    fn errors(&self) -> Vec<Place> {
        let [code, token, wrong] = WRONG;
        let branches = format!("{}/branches", self.project.0);
        let all = json!({ "zen": [WEBHOOK_SECRET, CLIENT_SECRET, self.key] });
        let exchange = format!(
            "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token={token}\
             &subject_token_type=urn:ietf:params:oauth:token-type:jwt"
        );
        let form = self.http.anonymous("POST", "/oauth/token").body(exchange);
        let answers = [
            self.http.as_key(&format!("{}x", self.key), "GET", &branches, None),
            self.http.as_key(&self.key, "GET", "/organizations/{org}/api-keys", None),
            self.http.as_key(&self.key, "POST", &branches, Some(&json!({ "name": "x", "mode": "inherit" }))),
            self.http.send(self.http.anonymous("POST", "/webhooks/github").json(&all)),
            self.http.send(form.header("content-type", "application/x-www-form-urlencoded")),
        ];
        let mut places: Vec<Place> = vec![];
        for answer in answers {
            assert!((400..500).contains(&answer.status), "{}: {}", answer.status, answer.text());
            places.push((format!("a refusal, {}", answer.status), answer.text()));
        }
        let linked = self.http.platform.run(&["github", "link", "100", "--code", code]);
        assert!(!linked.status.success());
        places.push(("what the CLI says".to_owned(), String::from_utf8_lossy(&linked.stderr).into_owned()));
        let url = self.http.platform.connection_string(&self.branch);
        let said = psql(&url.replace(&self.password(self.http.admin(), &self.branch), wrong), "SELECT 1");
        assert!(!said.is_ok, "{}", said.out);
        places.push(("a refusal of the gateway".to_owned(), said.err));
        places.push(("an error of a statement".to_owned(), psql(&url, "SELECT * FROM nowhere").err));
        places
    }

    /// What the platform shows of what it has.
    fn answers(&self) -> Vec<Place> {
        let branches = format!("{}/branches", self.project.0);
        let deliveries = format!("/organizations/{{org}}/webhooks/{}/deliveries", self.webhook);
        let paths = [
            "/organizations/{org}/audit-log",
            "/organizations/{org}/events?limit=200",
            "/organizations/{org}/webhooks",
            &deliveries,
            "/organizations/{org}/api-keys",
            &branches,
            "/user",
        ];
        let mut places: Vec<_> =
            paths.map(|path| (path.to_owned(), self.http.get(path).expect(200).to_string())).to_vec();
        for arguments in [["github", "list"], ["github", "show"]] {
            places.push((arguments.join(" "), self.http.platform.cli(&arguments).to_string()));
        }
        places.push(("the metastore".to_owned(), all_rows(&self.http.platform)));
        places
    }

    /// What tools tell agents.
    fn agents(&self) -> Vec<Place> {
        let (organization, project) = (self.http.organization(), &self.project.1);
        let calls = [
            ("list_branches", json!({})),
            ("describe_branch", json!({ "branchID": self.branch })),
            ("describe_branch", json!({ "branchID": "nowhere" })),
            ("get_connection_string", json!({ "branchID": self.branch })),
            ("run_sql", json!({ "branchID": self.branch, "query": "SELECT * FROM nowhere" })),
            ("run_sql", json!({ "branchID": self.branch, "query": "SELECT * FROM pg_authid" })),
        ];
        let ask = |(tool, mut arguments): (&str, Value)| {
            arguments["organizationID"] = json!(organization);
            arguments["projectID"] = json!(project);
            let params = json!({ "name": tool, "arguments": arguments });
            let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            let request = self.http.request("POST", "/mcp").json(&call);
            let answer = self.http.send(request.header("accept", "application/json, text/event-stream"));
            (format!("{tool} for agents"), answer.expect(200).to_string())
        };
        let mut places = calls.map(ask).to_vec();
        let query = format!("SELECT '{OF_A_CUSTOMER}'");
        places.push(ask(("run_sql", json!({ "branchID": self.branch, "query": query }))));
        assert!(places.last().is_some_and(|(_, place)| place.contains(OF_A_CUSTOMER)), "{places:?}");
        places
    }

    fn at_github(&mut self) -> Vec<Place> {
        let comments = self.github.comments(self.pull).concat();
        let checks = json!(self.github.checks(self.pull)).to_string();
        let deployments = self.github.program.command(&json!({ "command": "deployments" })).to_string();
        let told = [("a comment", comments), ("a check", checks), ("a deployment", deployments)];
        for (name, place) in &told {
            assert!(!place.contains("postgresql://"), "{name}: {place}");
        }
        told.map(|(name, place)| (name.to_owned(), place)).to_vec()
    }
}

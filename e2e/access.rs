//! Who may carry out what: every operation of the served document, asked by
//! callers that may not.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::{Value, json};

use crate::http::{Answer, Http, text_of};
use crate::setup::platform;

/// Where the text of every refusal is fixed.
const FIXED_TEXT: [&str; 4] =
    ["getOrganizationsList", "createOrganization", "listOrganizationAPIKeys", "resendOrganizationInvitation"];

/// Documents an access failure as 401.
const WITHOUT_403: &str = "listRegions";

/// One operation of the document.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) scope: Option<String>,
    pub(crate) has_body: bool,
    statuses: Vec<String>,
}

/// Areas of the document that keys of ours are not for.
pub(crate) const OF_OTHERS: [&str; 5] = ["Gateway", "MCP", "Projects Webhooks", "Vercel", "Webhooks"];

pub(crate) fn operations(document: &Value) -> Vec<Operation> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = paths.iter().flat_map(|(path, item)| {
        item.as_object().expect("an item").iter().map(move |(method, operation)| (path, method, operation))
    });
    // What branches are reached by lets in with their passwords, Vercel signs for who asks for its installations, who sends
    // deliveries signs them, and what agents may is a matter of their tools.
    let of_api =
        methods.filter(|(_, _, operation)| OF_OTHERS.iter().all(|tag| operation["tags"] != json!([tag])));
    let mut operations: Vec<_> = of_api
        .map(|(path, method, operation)| {
            let scopes = operation["security"][0]["bearer"].as_array().expect("scopes");
            assert!(scopes.len() <= 1, "{method} {path} needs one scope or none");
            Operation {
                id: text_of(&operation["operationId"]),
                method: method.to_uppercase(),
                path: path.clone(),
                scope: scopes.first().map(text_of),
                has_body: operation.get("requestBody").is_some(),
                statuses: operation["responses"].as_object().expect("responses").keys().cloned().collect(),
            }
        })
        .collect();
    operations.sort_by(|a, b| a.id.cmp(&b.id));
    operations
}

/// What the paths of the document are filled with.
struct Place<'a> {
    organization: &'a str,
    project: &'a str,
    branch: &'a str,
}

impl Operation {
    fn path_at(&self, place: &Place<'_>) -> String {
        let path = self
            .path
            .replace("{organizationID}", place.organization)
            .replace("{projectID}", place.project)
            .replace("{branchID}", place.branch)
            .replace("{backupID}", place.branch)
            .replace("{userID}", "usr_nowhere")
            .replace("{invitationID}", "inv_nowhere")
            .replace("{webhookID}", "whk_nowhere")
            .replace("{deliveryID}", "dlv_nowhere")
            .replace("{invoiceID}", "bil_nowhere")
            .replace("{subjectID}", "prj_nowhere")
            .replace("{githubInstallationID}", "ghi_nowhere");
        assert!(!path.contains('{'), "{}: this test knows no value for a parameter of {path}", self.id);
        path
    }

    pub(crate) fn names(&self, parameter: &str) -> bool {
        self.path.contains(&format!("{{{parameter}}}"))
    }

    fn call(&self, http: &Http, key: Option<&str>, place: &Place<'_>) -> Answer {
        // Without a credential the rate is small; whoever waits is served again.
        let answer = wait_for("an answer", Duration::from_secs(60), || {
            let mut request = http.anonymous(&self.method, &self.path_at(place));
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            if self.has_body {
                // Never complete: a refusal that does not come must change nothing.
                request = request.json(&json!([]));
            }
            Some(http.send(request)).filter(|answer| answer.status != 429)
        });
        assert!(
            self.statuses.contains(&answer.status.to_string()),
            "{}: {} is not documented",
            self.id,
            answer.status
        );
        answer
    }

    /// Asserts a refusal: 403, or what this operation answers instead.
    fn is_refused(&self, answer: &Answer, ids: &[&str]) {
        let status = if self.id == WITHOUT_403 { 401 } else { 403 };
        let (got, id) = answer.refusal();
        assert_eq!(got, status, "{}: {}", self.id, answer.text());
        assert!(ids.contains(&id.as_str()), "{}: {id} instead of {ids:?}", self.id);
        let message = text_of(&answer.json()["message"]);
        if FIXED_TEXT.contains(&self.id.as_str()) || status == 401 {
            assert_eq!(message, "invalid API key", "{}", self.id);
        } else if id != "owner_required" {
            assert!(message.starts_with("access denied: "), "{}: {message}", self.id);
        }
    }

    fn refuses_strangers(&self, http: &Http, place: &Place<'_>) {
        let answer = self.call(http, None, place);
        assert_eq!(answer.expect_error(401, "missing_token"), "invalid API key", "{}", self.id);
        assert_eq!(answer.header("www-authenticate"), r#"Bearer realm="platform""#, "{}", self.id);
        let answer = self.call(http, Some("pku_nonsense"), place);
        assert_eq!(answer.expect_error(401, "invalid_token"), "invalid API key", "{}", self.id);
        let challenge = r#"Bearer realm="platform", error="invalid_token""#;
        assert_eq!(answer.header("www-authenticate"), challenge, "{}", self.id);
    }

    fn refuses_other_scopes(&self, http: &Http, place: &Place<'_>) {
        let Some(needed) = &self.scope else { return };
        // The other half of the same pair, and something else altogether.
        let other = match needed.split_once(':') {
            Some((what, "read")) => format!("{what}:write"),
            Some((what, _)) => format!("{what}:read"),
            None => panic!("{}: {needed} is no scope", self.id),
        };
        let unrelated = if needed == "logs:read" { "keys:read" } else { "logs:read" };
        let token = http.new_token("/api-keys", json!({ "scopes": [other, unrelated] }));
        let answer = self.call(http, Some(&token), place);
        self.is_refused(&answer, &["insufficient_scope"]);
        let challenge = answer.header("www-authenticate");
        if answer.status == 403 {
            let expected = format!(r#"error="insufficient_scope", scope="{needed}""#);
            assert!(challenge.contains(&expected), "{}: {challenge}", self.id);
        } else {
            assert!(challenge.starts_with("Bearer "), "{}: {challenge}", self.id);
        }
        // This one may; so it is sent where it can't succeed.
        let nowhere = Place { organization: "org_nowhere", ..*place };
        let enough = http.new_token("/api-keys", json!({ "scopes": [needed] }));
        let answer = self.call(http, Some(&enough), &nowhere);
        assert_ne!(answer.refusal().1, "insufficient_scope", "{}: {needed} is enough", self.id);
    }

    fn refuses_other_organizations(&self, http: &Http, place: &Place<'_>, foreign_key: &str) {
        if !self.names("organizationID") {
            return;
        }
        let nowhere = Place { organization: "org_nowhere", ..*place };
        let ids = ["organization_access_denied"];
        let answer = self.call(http, Some(http.admin()), &nowhere);
        self.is_refused(&answer, &ids);
        let answer = self.call(http, Some(foreign_key), place);
        // A key of an organization is no user, which is checked before.
        self.is_refused(&answer, &["organization_access_denied", "user_required"]);
    }

    fn refuses_limited_keys(&self, http: &Http, place: &Place<'_>, keys: &LimitedKeys) {
        if self.names("projectID") {
            let answer = self.call(http, Some(&keys.other_project), place);
            self.is_refused(&answer, &["project_access_denied"]);
            let unknown = Place { project: "prj_nowhere", ..*place };
            let answer = self.call(http, Some(&keys.other_project), &unknown);
            self.is_refused(&answer, &["project_access_denied"]);
            let answer = self.call(http, Some(&keys.foreign_branch), place);
            self.is_refused(&answer, &["project_access_denied"]);
        }
        if self.names("branchID") || self.names("backupID") {
            let answer = self.call(http, Some(&keys.sibling_branch), place);
            self.is_refused(&answer, &["branch_access_denied"]);
            let unknown = Place { branch: "nowhere", ..*place };
            let answer = self.call(http, Some(&keys.sibling_branch), &unknown);
            self.is_refused(&answer, &["branch_access_denied"]);
        }
    }
}

/// Keys that may do everything, but elsewhere.
struct LimitedKeys {
    other_project: String,
    foreign_branch: String,
    sibling_branch: String,
}

pub(crate) fn new_branch(http: &Http, project: &str, name: &str) -> String {
    let configuration = json!({ "region": "local", "instanceType": "micro", "image": "postgres:17" });
    let body = json!({ "name": name, "mode": "custom", "configuration": configuration });
    text_of(&http.post(&format!("{project}/branches"), &body).expect(201)["id"])
}

#[test]
fn every_operation_refuses_whoever_may_not() {
    let http = Http::new(platform());
    let project = http.new_project("here");
    let elsewhere = http.new_project("elsewhere");
    let id_of = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let branch = new_branch(&http, &project, "a");
    let sibling = new_branch(&http, &project, "b");
    let foreign = new_branch(&http, &elsewhere, "c");
    let other_organization = http.new_organization("other");
    let foreign_key = http.new_token(&format!("/organizations/{other_organization}/api-keys"), json!({}));
    let limited = |limits: Value| http.new_token("/api-keys", limits);
    let keys = LimitedKeys {
        other_project: limited(json!({ "projects": [id_of(&elsewhere)] })),
        foreign_branch: limited(json!({ "branches": [foreign] })),
        sibling_branch: limited(json!({ "branches": [sibling] })),
    };
    let (organization, project) = (http.organization().to_owned(), id_of(&project));
    let place = Place { organization: &organization, project: &project, branch: &branch };

    let operations = operations(&http.send(http.anonymous("GET", "/openapi.json")).expect(200));
    assert!(operations.len() > 30, "the document lists every operation");
    for operation in &operations {
        operation.refuses_strangers(&http, &place);
        operation.refuses_other_scopes(&http, &place);
        operation.refuses_other_organizations(&http, &place, &foreign_key);
        operation.refuses_limited_keys(&http, &place, &keys);
    }
    // Nothing that was refused has happened.
    let listed = http.get(&format!("/organizations/{{org}}/projects/{project}/branches")).expect(200);
    assert_eq!(listed["branches"].as_array().map(Vec::len), Some(2));
    http.get("/organizations/{org}").expect(200);
}

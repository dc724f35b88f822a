//! Who may do what and is shown which secret: every operation of the served
//! document, asked by every role with every kind of credential and limit. What
//! has to come of it is worked out here from the documented rules, not from
//! the program's own tables, so that an operation or a secret that is new has
//! to follow them, or this fails.

mod rules;

use std::collections::BTreeSet;
use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::{Value, json};

use crate::access::{Operation, new_branch, operations};
use crate::http::{Answer, Http, text_of};
use crate::oauth;
use crate::people::token_of;
use crate::setup::platform;
use rules::{Caller, LOOKING, NEED_PRICES, OF_OWNERS, REFUSALS, is_write};

/// In the URL of a webhook: who knows it can send there.
const OF_RECEIVER: &str = "a-secret-of-the-receiver";
const PASSWORD: &str = "a password of somebody";
/// Makes somebody a member, in the end, and the role when none is named.
const MAKES_MEMBERS: &str = "createOrganizationInvitation";
const INVITED_AS: &str = "editor";

/// Secrets of the document: the name of the field, and the scope that shows it.
struct Secrets(Vec<(String, String)>);

impl Secrets {
    fn of(document: &Value) -> Self {
        let mut found = BTreeSet::new();
        for schema in document["components"]["schemas"].as_object().expect("schemas").values() {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(scope) = field["x-secret"].as_str() {
                    found.insert((name.clone(), scope.to_owned()));
                }
            }
        }
        assert!(found.len() >= 4, "{found:?}");
        Self(found.into_iter().collect())
    }

    /// Those that an answer shows, with their scopes.
    fn shown_by<'a>(&'a self, answer: &Value, shown: &mut Vec<&'a (String, String)>) {
        match answer {
            Value::Object(fields) => {
                for (name, value) in fields {
                    shown.extend(self.0.iter().filter(|(secret, _)| secret == name && !value.is_null()));
                    self.shown_by(value, shown);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.shown_by(item, shown)),
            _ => {}
        }
    }
}

/// Whether a schema of the document has a secret in it, however deep.
fn has_secret(document: &Value, schema: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        return has_secret(document, document.pointer(&reference[1..]).expect("a schema"));
    }
    schema.get("x-secret").is_some()
        || match schema {
            Value::Object(fields) => fields.values().any(|part| has_secret(document, part)),
            Value::Array(parts) => parts.iter().any(|part| has_secret(document, part)),
            _ => false,
        }
}

fn answers_with_secret(document: &Value, operation: &Operation) -> bool {
    let method = operation.method.to_lowercase();
    let responses = document["paths"][&operation.path][&method]["responses"].as_object().expect("responses");
    let good = responses.iter().filter(|(status, _)| status.starts_with('2'));
    good.into_iter().any(|(_, response)| has_secret(document, response))
}

/// What there is to reach.
struct Place {
    organization: String,
    project: String,
    branch: String,
    /// Not what is removed for real.
    invitation: String,
    webhook: String,
    password: String,
    link_token: String,
}

impl Place {
    fn new(http: &Http) -> Self {
        let organization = http.organization().to_owned();
        let project_path = http.new_project("here");
        let project = project_path.rsplit('/').next().unwrap_or_default().to_owned();
        let branch = new_branch(http, &project_path, "main");
        let branch_path = format!("{project_path}/branches/{branch}");
        http.wait_healthy(&branch_path);
        let credentials = http.get(&format!("{branch_path}/credentials")).expect(200);
        let invited = json!({ "email": "somebody@example.com" });
        let invitation = http.post("/organizations/{org}/invitations", &invited).expect(201);
        Self {
            organization,
            project,
            branch,
            password: text_of(&credentials["password"]),
            link_token: token_of(&text_of(&invitation["invite_link"])),
            invitation: text_of(&invitation["id"]),
            webhook: text_of(&http.post("/organizations/{org}/webhooks", &webhook()).expect(201)["id"]),
        }
    }

    /// The operation's path; with `nowhere` what it ends in does not exist, or its project.
    fn path(&self, operation: &Operation, nowhere: bool) -> String {
        let filled = |path: &str| {
            path.replace("{organizationID}", &self.organization)
                .replace("{projectID}", &self.project)
                .replace("{branchID}", &self.branch)
                .replace("{backupID}", &self.branch)
                .replace("{invitationID}", &self.invitation)
                .replace("{webhookID}", &self.webhook)
                .replace("{deliveryID}", "dlv_nowhere")
                .replace("{githubInstallationID}", "ghi_nowhere")
                .replace("{invoiceID}", "bil_nowhere")
                .replace("{subjectID}", "prj_nowhere")
                .replace("{userID}", "usr_nowhere")
        };
        let path = match (nowhere, operation.path.rsplit_once("/{")) {
            (true, Some((before, last))) if !last.contains('/') => format!("{}/nowhere", filled(before)),
            (true, _) => filled(&operation.path.replace("{projectID}", "prj_nowhere")),
            _ => filled(&operation.path),
        };
        assert!(!path.contains('{'), "{}: this test knows no value for a parameter of {path}", operation.id);
        match operation.id.as_str() {
            "listExtensions" => format!("{path}?image=postgres:17"),
            // With itself, which has no parent.
            "diffBranches" => format!("{path}?against={}", self.branch),
            _ => path,
        }
    }

    /// A body that an operation takes which looks, or answers with a secret.
    fn body(&self, operation: &Operation, index: usize) -> Value {
        let (start, end) = ("2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z");
        match operation.id.as_str() {
            "branchLogs" => json!({ "start": start, "end": end }),
            "branchMetrics" => json!({ "start": start, "end": end, "metrics": ["cpu"] }),
            "createOrganizationAPIKey" | "createUserAPIKey" => json!({ "name": "made" }),
            "createOrganizationInvitation" => json!({ "email": format!("p{index}@example.com") }),
            "createBranch" => {
                json!({ "name": format!("b{index}"), "mode": "inherit", "parentID": self.branch })
            }
            "queryBranch" => json!({ "query": "SELECT 1" }),
            "updateBranch" | "updateWebhook" => json!({}),
            "createWebhook" => webhook(),
            "setBudget" => json!({ "limit": "20" }),
            other => panic!("{other}: this test knows no body for it"),
        }
    }
}

/// A webhook to be made, which leads nowhere.
fn webhook() -> Value {
    json!({ "url": format!("https://hook.invalid/{OF_RECEIVER}") })
}

/// The credentials of one role: of a person by key and token, or of the
/// organization by key.
fn callers_of(http: &Http, place: &Place, role: &'static str, account: Option<(&str, &str)>) -> Vec<Caller> {
    let without_credentials: Vec<_> = LOOKING
        .into_iter()
        .chain(["org:write", "keys:write", "invite:write", "project:write", "branch:write"])
        .collect();
    let caller = |what: &str, bearer: String, scopes: Option<&[&'static str]>| Caller {
        what: format!("{role}, {what}"),
        role,
        bearer,
        scopes: scopes.map(<[_]>::to_vec),
        is_for_project: false,
        is_for_branch: false,
        ends: false,
    };
    let token = |scopes: &str| {
        let (email, password) = account.expect("a person");
        oauth::token_of(http, email, password, scopes)
    };
    let (maker, at) = match account {
        Some(_) => (token("openid"), "/api-keys".to_owned()),
        None => (http.admin().to_owned(), format!("/organizations/{}/api-keys", place.organization)),
    };
    let key = |mut body: Value| {
        body["name"] = json!("k");
        text_of(&http.as_key(&maker, "POST", &at, Some(&body)).expect(201)["key"]["token"])
    };
    let mut callers = vec![
        caller("a key for everything", key(json!({})), None),
        caller("a key for looking", key(json!({ "scopes": LOOKING })), Some(&LOOKING)),
        Caller {
            ends: true,
            ..caller("a key that ends", key(json!({ "expiry": "2099-01-01T00:00:00Z" })), None)
        },
        caller(
            "a key for everything but credentials",
            key(json!({ "scopes": without_credentials })),
            Some(&without_credentials),
        ),
        Caller {
            is_for_project: true,
            ..caller("a key for one project", key(json!({ "projects": [place.project] })), None)
        },
        Caller {
            is_for_branch: true,
            ..caller("a key for one branch", key(json!({ "branches": [place.branch] })), None)
        },
    ];
    if account.is_some() {
        callers.push(caller("a token for everything", token("openid"), None));
        let looking = token(&LOOKING.join(" "));
        callers.push(Caller { ends: true, ..caller("a token for looking", looking, Some(&LOOKING)) });
    }
    callers
}

/// Everybody who asks.
fn callers(http: &Http, place: &Place) -> Vec<Caller> {
    let first = (http.platform.setting("COPPICE_EMAIL"), http.platform.setting("COPPICE_PASSWORD"));
    let mut callers = callers_of(http, place, "owner", Some(first));
    for role in ["admin", "editor", "viewer"] {
        let email = format!("{role}@example.com");
        let body = json!({ "email": email, "role": role });
        let invitation = http.post("/organizations/{org}/invitations", &body).expect(201);
        oauth::join(http, &text_of(&invitation["invite_link"]), &email, PASSWORD);
        callers.extend(callers_of(http, place, role, Some((&email, PASSWORD))));
    }
    callers.extend(callers_of(http, place, "organization", None));
    callers
}

/// Asks; the answer, unless an allowed caller would only break something.
fn ask(
    http: &Http,
    place: &Place,
    caller: &Caller,
    operation: &Operation,
    document: &Value,
    index: usize,
) -> Option<Answer> {
    let may_try = caller.may_carry_out(operation);
    // Whom it would invite is known from the body only.
    let is_beyond = may_try && operation.id == MAKES_MEMBERS && !caller.may_make(INVITED_AS);
    let is_allowed = may_try && !is_beyond;
    let is_for_real = !is_write(operation)
        || answers_with_secret(document, operation)
            // Nothing is in the trash, and no branch has a parent; what they would answer, updateBranch does. What
            // can be restored is up to the machine.
            && !["undeleteBranch", "promoteBranch", "resetBranch", "upgradeBranch", "restoreFromBackup"].contains(&operation.id.as_str())
            // Branches are dear; one role and the organization are enough.
            && (operation.id != "createBranch" || ["editor", "organization"].contains(&caller.role));
    let is_removal = operation.method == "DELETE" && !operation.has_body;
    // Where a limit lets nobody past what is not there.
    let is_spared = is_removal && (caller.is_for_project || caller.is_for_branch)
        || OF_OWNERS.contains(&operation.id.as_str())
        || operation.id == "resendOrganizationInvitation";
    if is_allowed && !is_for_real && is_spared {
        return None;
    }
    let path = place.path(operation, is_allowed && is_removal);
    let body = operation.has_body.then(|| match may_try && is_for_real {
        true => place.body(operation, index),
        // Never complete: it changes nothing also where it is let through.
        false => json!([]),
    });
    let answer = http.as_key(&caller.bearer, &operation.method, &path, body.as_ref());
    let expected: &[u16] = match is_allowed {
        true if NEED_PRICES.contains(&operation.id.as_str()) => &[404],
        true if is_for_real => &[200, 201],
        true => &[400, 404],
        false if operation.id == "listRegions" => &[401],
        false => &[403],
    };
    let who = format!("{} of {}", operation.id, caller.what);
    assert!(expected.contains(&answer.status), "{who}: {} {}", answer.status, answer.text());
    if !is_allowed {
        let id = answer.refusal().1;
        assert!(REFUSALS.contains(&id.as_str()), "{who}: {id}");
    }
    Some(answer)
}

#[test]
fn nobody_is_shown_a_secret_or_does_a_thing_beyond_role_scope_and_limit() {
    let http = Http::new(platform());
    let place = Place::new(&http);
    let document = http.send(http.anonymous("GET", "/openapi.json")).expect(200);
    let (operations, secrets) = (operations(&document), Secrets::of(&document));
    let callers = callers(&http, &place);
    let (mut seen, mut asked) = (BTreeSet::new(), 0);
    for (index, caller) in callers.iter().enumerate() {
        for operation in &operations {
            let Some(answer) = ask(&http, &place, caller, operation, &document, index) else { continue };
            asked += 1;
            let who = format!("{} of {}", operation.id, caller.what);
            let mut shown = vec![];
            secrets.shown_by(&answer.json(), &mut shown);
            for (name, scope) in shown {
                assert!(caller.may(scope) || is_own_key(operation, caller), "{who} shows {name}");
                assert!(name != "invite_link" || caller.may_make(INVITED_AS), "{who} shows {name}");
                seen.insert(name.clone());
            }
            // Also where nobody would look for it.
            let text = answer.text();
            assert!(!text.contains(&place.password) || caller.may("credentials:read"), "{who}: {text}");
            let may_have_link = caller.may("invite:write") && caller.may_make(INVITED_AS);
            assert!(!text.contains(&place.link_token) || may_have_link, "{who}: {text}");
            assert!(!text.contains(OF_RECEIVER) || caller.may("org:write"), "{who}: {text}");
            // There may only be a few of them.
            if ["createBranch", "createWebhook"].contains(&operation.id.as_str()) && answer.status == 201 {
                let made = format!("{}/{}", place.path(operation, false), text_of(&answer.json()["id"]));
                assert_eq!(http.delete(&made).status, 204);
            }
        }
    }
    assert!(asked > 1000, "{asked}");
    let all: BTreeSet<_> = secrets.0.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(seen, all, "each secret was shown to somebody, so that hiding it proves something");
    is_unchanged(&http, &place);
}

/// A person's own keys are no organization's business.
fn is_own_key(operation: &Operation, caller: &Caller) -> bool {
    operation.id == "createUserAPIKey" && caller.has("keys:write")
}

/// Nothing that was refused has happened, and no password is in the log.
fn is_unchanged(http: &Http, place: &Place) {
    let branch = format!("/organizations/{{org}}/projects/{}/branches/{}", place.project, place.branch);
    let credentials = http.get(&format!("{branch}/credentials")).expect(200);
    assert_eq!(credentials["password"], json!(place.password));
    let members = http.get("/organizations/{org}/members").expect(200);
    assert_eq!(members["members"].as_array().map(Vec::len), Some(4));
    let invitation = format!("/organizations/{{org}}/invitations/{}", place.invitation);
    assert_eq!(http.get(&invitation).expect(200)["status"], "pending");
    let gone = || {
        let listed =
            http.get(&format!("/organizations/{{org}}/projects/{}/branches", place.project)).expect(200);
        (listed["branches"].as_array().map(Vec::len) == Some(1)).then_some(())
    };
    wait_for("only what was there is there", Duration::from_secs(60), gone);
    let log = http.platform.log();
    let secrets = [&*place.password, &*place.link_token, OF_RECEIVER];
    assert!(!secrets.iter().any(|secret| log.contains(secret)), "a secret is in the log");
}

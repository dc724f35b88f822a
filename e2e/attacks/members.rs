//! Members with few rights, keys with few rights, and those who had more once.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::{Value, json};

use crate::access::new_branch;
use crate::http::{Answer, Http, Shared, text_of};
use crate::oauth;
use crate::people::Person;
use crate::setup::platform;

static SHARED: Shared = Shared::new();

fn shared() -> std::sync::Arc<Http> {
    SHARED.get(platform)
}

/// An organization with a project of one branch.
struct Victim {
    organization: String,
    project: String,
    branch: String,
    password: String,
}

impl Victim {
    fn new(http: &Http, name: &str) -> Self {
        let organization = http.new_organization(name);
        let projects = format!("/organizations/{organization}/projects");
        let project = text_of(&http.post(&projects, &json!({ "name": "p" })).expect(201)["id"]);
        let project = format!("{projects}/{project}");
        let branch = format!("{project}/branches/{}", new_branch(http, &project, "main"));
        let credentials = http.get(&format!("{branch}/credentials")).expect(200);
        Self { organization, project, branch, password: text_of(&credentials["password"]) }
    }

    fn at(&self, rest: &str) -> String {
        format!("/organizations/{}{rest}", self.organization)
    }

    fn member(&self, http: &Http, name: &str, role: &str) -> Person {
        Person::in_organization(http, &self.organization, name, role)
    }

    fn set_role(&self, http: &Http, person: &Person, role: &str) {
        let path = self.at(&format!("/members/{}/role", person.id));
        assert_eq!(http.with("PUT", &path, &json!({ "role": role })).status, 204);
    }

    /// The key of this organization with this id, as the list shows it.
    fn key(&self, http: &Http, id: &Value) -> Value {
        let list = http.get(&self.at("/api-keys")).expect(200);
        let mut keys = list["keys"].as_array().expect("keys").iter();
        keys.find(|key| key["id"] == *id).cloned().unwrap_or_default()
    }
}

fn is_told(answer: &Answer, secret: &str) -> bool {
    answer.text().contains(secret)
}

#[test]
fn a_viewer_learns_no_password_of_a_branch() {
    let http = shared();
    let victim = Victim::new(&http, "passwords");
    let viewer = victim.member(&http, "viewer", "viewer");
    let editor = victim.member(&http, "editor", "editor");
    let narrow = |key: &str, at: &str| {
        let body = json!({ "name": "k", "scopes": ["branch:read", "branch:write"] });
        text_of(&http.as_key(key, "POST", at, Some(&body)).expect(201)["key"]["token"])
    };
    let callers = [
        ("a viewer", viewer.key.clone()),
        ("an editor's key without credentials:read", narrow(&editor.key, "/api-keys")),
        ("an organization's key without credentials:read", narrow(http.admin(), &victim.at("/api-keys"))),
    ];
    for (who, key) in &callers {
        let shown = http.as_key(key, "GET", &victim.branch, None);
        assert_eq!(shown.expect(200)["connectionString"], Value::Null, "{who}");
        assert!(!is_told(&shown, &victim.password), "{who}");
        let list = http.as_key(key, "GET", &format!("{}/branches", victim.project), None);
        assert!(list.status == 200 && !is_told(&list, &victim.password), "{who}");
        let refused = http.as_key(key, "GET", &format!("{}/credentials", victim.branch), None);
        assert!(refused.status == 403 && !is_told(&refused, &victim.password), "{who}");
        let changed = http.as_key(key, "PATCH", &victim.branch, Some(&json!({ "description": "mine" })));
        assert!(!is_told(&changed, &victim.password), "{who}");
    }
    let shown = http.as_key(&editor.key, "GET", &victim.branch, None);
    assert!(is_told(&shown, &victim.password), "who may read credentials is shown them");
}

#[test]
fn who_lost_a_right_gets_no_secret_by_repeating_a_request() {
    let http = shared();
    let victim = Victim::new(&http, "repetitions");
    let ada = victim.member(&http, "ada", "admin");
    let invite = json!({ "email": "mallory@example.com", "role": "admin" });
    http.wait_healthy(&victim.branch);
    let parent = victim.branch.rsplit('/').next().expect("an id");
    let child = json!({ "name": "child", "mode": "inherit", "parentID": parent });
    let requests = [
        (victim.at("/invitations"), invite, "/invite_link"),
        (victim.at("/api-keys"), json!({ "name": "k" }), "/key/token"),
        (format!("{}/branches", victim.project), child, "/connectionString"),
    ];
    let send = |(path, body, _): &(String, Value, &str)| {
        let request = http.anonymous("POST", path).bearer_auth(&ada.key);
        http.send(request.header("idempotency-key", "once").json(body))
    };
    let first: Vec<Answer> = requests.iter().map(&send).collect();
    let secrets: Vec<_> = first
        .iter()
        .zip(&requests)
        .map(|(answer, (_, _, at))| text_of(answer.expect(201).pointer(at).expect("a secret")))
        .collect();
    for (request, answer) in requests.iter().zip(&first) {
        let again = send(request);
        assert_eq!((&again.bytes, again.header("idempotency-replayed")), (&answer.bytes, "true"));
    }
    let refused = |id: &str| {
        for (request, secret) in requests.iter().zip(&secrets) {
            let again = send(request);
            again.expect_error(403, id);
            assert!(!is_told(&again, secret), "{}", request.0);
        }
    };
    victim.set_role(&http, &ada, "viewer");
    refused("role_not_allowed");
    assert_eq!(http.delete(&victim.at(&format!("/members/{}", ada.id))).status, 204);
    refused("organization_access_denied");
}

#[test]
fn what_a_key_makes_ends_with_it() {
    let http = shared();
    let victim = Victim::new(&http, "expiry");
    let viewer = victim.member(&http, "viewer", "viewer");
    let end = chrono::Utc::now() + chrono::TimeDelta::seconds(6);
    let end = end.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let mut made = vec![];
    for (key, at) in [(viewer.key.as_str(), "/api-keys".to_owned()), (http.admin(), victim.at("/api-keys"))] {
        let body = json!({ "name": "short", "expiry": end });
        let short = http.as_key(key, "POST", &at, Some(&body)).expect(201)["key"].clone();
        let make = |key: &Value, more: Value| {
            let mut body = json!({ "name": "long" });
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            http.as_key(&text_of(&key["token"]), "POST", &at, Some(&body))
        };
        for beyond in [json!({ "expiry": null }), json!({ "expiry": "2099-01-01T00:00:00Z" })] {
            let message = make(&short, beyond).expect_error(403, "scope_not_grantable");
            assert!(message.contains("must not outlive it; ask for an expiry until then"), "{message}");
        }
        let child = make(&short, json!({})).expect(201)["key"].clone();
        assert_eq!(child["expiry"], short["expiry"], "what is not said is the maker's");
        let grandchild = make(&child, json!({ "expiry": end })).expect(201)["key"].clone();
        made.extend([child, grandchild]);
    }
    for key in &made {
        let refusal = || {
            let answer = http.as_key(&text_of(&key["token"]), "GET", "/organizations", None);
            (answer.status != 200).then_some(answer)
        };
        let refused = wait_for("the key ends", Duration::from_secs(60), refusal);
        refused.expect_error(401, "expired_token");
    }
}

#[test]
fn no_credential_makes_a_member_who_outlives_it_or_may_do_more() {
    let http = shared();
    let victim = Victim::new(&http, "lasting members");
    let viewer = victim.member(&http, "viewer", "viewer");
    let key = |body: Value| http.new_token(&victim.at("/api-keys"), body);
    let ending = key(json!({ "expiry": "2099-01-01T00:00:00Z" }));
    let inviting = key(json!({ "scopes": ["invite:write", "org:write", "org:read"] }));
    let pending = json!({ "email": "late@example.com", "role": "admin" });
    let pending = http.post(&victim.at("/invitations"), &pending).expect(201);
    let pending_path = victim.at(&format!("/invitations/{}", text_of(&pending["id"])));
    for (who, lacks) in [(&ending, "this credential ends at 2099"), (&inviting, "lacks the scope keys:read")]
    {
        for role in ["admin", "editor"] {
            let body = json!({ "email": "mallory@example.com", "role": role });
            let refused = http.as_key(who, "POST", &victim.at("/invitations"), Some(&body));
            let message = refused.expect_error(403, "scope_not_grantable");
            assert!(message.starts_with(&format!("cannot grant role {role}: ")), "{message}");
            let change = http.as_key(
                who,
                "PUT",
                &victim.at(&format!("/members/{}/role", viewer.id)),
                Some(&json!({ "role": role })),
            );
            change.expect_error(403, "scope_not_grantable");
            assert!(role != "admin" || message.contains(lacks), "{message}");
        }
        let seen = http.as_key(who, "GET", &pending_path, None);
        assert!(
            !is_told(&seen, &text_of(&pending["invite_link"])),
            "whoever has the link can be that member"
        );
        // To give somebody less makes nothing.
        victim.set_role(&http, &viewer, "editor");
        let body = json!({ "role": "viewer" });
        let path = victim.at(&format!("/members/{}/role", viewer.id));
        assert_eq!(http.as_key(who, "PUT", &path, Some(&body)).status, 204);
    }
}

#[test]
fn what_a_client_with_few_rights_makes_ends_with_its_session() {
    let http = shared();
    let setting = |name| http.platform.setting(name).to_owned();
    let (email, password) = (setting("COPPICE_EMAIL"), setting("COPPICE_PASSWORD"));
    let token = |scopes| oauth::token_of(&http, &email, &password, scopes);
    let make = |token: &str, body: Value| http.as_key(token, "POST", "/api-keys", Some(&body));
    let few = token("keys:write project:read offline_access");
    make(&few, json!({ "name": "k", "expiry": null })).expect_error(403, "scope_not_grantable");
    let key = make(&few, json!({ "name": "k" })).expect(201)["key"].clone();
    let ends = chrono::DateTime::parse_from_rfc3339(&text_of(&key["expiry"])).expect("a time");
    let days = (ends.to_utc() - chrono::Utc::now()).num_days();
    assert!((59..=60).contains(&days), "it ends with the session, in {days} days");
    // Who may do everything is the person.
    let all = token("openid");
    let key = make(&all, json!({ "name": "k", "expiry": null })).expect(201)["key"].clone();
    assert_eq!(key["expiry"], Value::Null);
}

#[test]
fn a_key_for_one_branch_or_for_reading_leaves_its_user_alone() {
    let http = shared();
    let victim = Victim::new(&http, "accounts");
    let ada = victim.member(&http, "ada", "editor");
    let branch = victim.branch.rsplit('/').next().expect("an id");
    let key = |body: Value| {
        text_of(&http.as_key(&ada.key, "POST", "/api-keys", Some(&body)).expect(201)["key"]["token"])
    };
    let reading = key(json!({ "name": "k", "scopes": ["branch:read"] }));
    let one_branch = key(json!({ "name": "k", "scopes": ["branch:read"], "branches": [branch] }));
    let limited = key(json!({ "name": "k", "branches": [branch] }));
    let before = http.as_key(&ada.key, "GET", "/user", None).expect(200);
    let other = http.new_organization("to join");
    let invitation = json!({ "email": ada.email });
    let invitation = http.post(&format!("/organizations/{other}/invitations"), &invitation).expect(201);
    let token = crate::people::token_of(&text_of(&invitation["invite_link"]));
    for (key, id) in
        [(&reading, "insufficient_scope"), (&one_branch, "insufficient_scope"), (&limited, "restricted_key")]
    {
        http.as_key(key, "PATCH", "/user", Some(&json!({ "name": "mallory" }))).expect_error(403, id);
        let accept = json!({ "token": token });
        http.as_key(key, "POST", "/invitations/accept", Some(&accept)).expect_error(403, id);
        assert_eq!(http.as_key(key, "GET", "/user", None).expect(200), before);
    }
    let renamed = http.as_key(&ada.key, "PATCH", "/user", Some(&json!({ "name": "Ada" }))).expect(200);
    assert_eq!(renamed["name"], "Ada");
}

#[test]
fn keys_of_an_admin_who_left_are_marked_wherever_somebody_looks() {
    let http = shared();
    let victim = Victim::new(&http, "leavers");
    let ada = victim.member(&http, "ada", "admin");
    let at = victim.at("/api-keys");
    let make = |key: &str, body: Value| http.as_key(key, "POST", &at, Some(&body)).expect(201)["key"].clone();
    let first = make(&ada.key, json!({ "name": "first" }));
    let second = make(&text_of(&first["token"]), json!({ "name": "second" }));
    let reader = make(&ada.key, json!({ "name": "reader", "scopes": ["branch:read"] }));
    let own = make(http.admin(), json!({ "name": "own" }));
    let review = |key: &Value| victim.key(&http, &key["id"])["review"].clone();
    let reasons = || [&first, &second, &reader, &own].map(|key| review(key)["reason"].clone());
    assert_eq!(reasons(), [const { Value::Null }; 4]);
    victim.set_role(&http, &ada, "viewer");
    let exceeds = json!("exceeds_maker");
    assert_eq!(reasons(), [exceeds.clone(), exceeds, Value::Null, Value::Null]);
    let line = || http.get(&victim.at("/audit-log?limit=1")).expect(200)["entries"][0].clone();
    assert_eq!(line()["target_ids"], json!([ada.id, first["id"], second["id"]]));

    victim.set_role(&http, &ada, "admin");
    assert_eq!(reasons(), [const { Value::Null }; 4]);
    let operator = |verb: &str| {
        let done = http.platform.run(&["admin", "user", verb, &ada.email]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    operator("disable");
    let disabled = json!("made_by_disabled_user");
    assert_eq!(reasons(), [disabled.clone(), disabled.clone(), disabled, Value::Null]);
    http.as_key(&ada.key, "GET", "/organizations", None).expect_error(401, "invalid_token");
    operator("enable");

    let run =
        |command: &[&str]| http.platform.run(&[command, &["--organization", &victim.organization]].concat());
    let removed = run(&["org", "remove-member", &ada.email, "--yes"]);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&removed.stdout), said(&removed.stderr));
    assert!(removed.status.success(), "{err}");
    for key in [&first, &second, &reader] {
        let id = text_of(&key["id"]);
        assert!(out.contains(&id) && err.contains(&id), "{out}{err}");
        assert_eq!(review(key), json!({ "reason": "made_by_former_member", "maker": ada.id }));
    }
    assert!(out.contains("its maker left") && err.contains("coppice key delete"), "{out}{err}");
    assert!(!out.contains(&text_of(&own["id"])), "{out}");
    assert_eq!(line()["target_ids"], json!([ada.id, first["id"], second["id"], reader["id"]]));
    let listed = run(&["key", "list"]);
    assert_eq!(said(&listed.stdout).matches("its maker left").count(), 3);

    // Her own key is of no use there; those of the organization are its business.
    http.as_key(&ada.key, "GET", &at, None).expect_error(403, "organization_access_denied");
    http.as_key(&text_of(&second["token"]), "GET", &at, None).expect(200);
}

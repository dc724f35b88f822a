//! Other people: accounts that a story needs besides the first user's.

use coppice_test_support::psql;
use serde_json::json;

use crate::http::{Http, text_of};
use crate::setup::platform;

/// Somebody with an account and a key of their own.
pub(crate) struct Person {
    pub(crate) id: String,
    pub(crate) email: String,
    pub(crate) key: String,
}

/// Runs a statement on the metastore; panics when it fails.
pub(crate) fn in_metastore(http: &Http, sql: &str) -> String {
    let said = psql(&http.platform.metastore_url(), sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

impl Person {
    /// Makes an account that belongs to no organization.
    pub(crate) fn new(http: &Http, name: &str) -> Self {
        let made = http.new_key("/api-keys", json!({}));
        let (key_id, key) = (text_of(&made["id"]), text_of(&made["token"]));
        let suffix = key_id.trim_start_matches("key_");
        let (id, email) = (format!("usr_{suffix}"), format!("{name}.{suffix}@example.com"));
        in_metastore(
            http,
            &format!(
                "insert into users (id, email, name) values ('{id}', '{email}', '{name}');
                 update api_keys set user_id = '{id}' where id = '{key_id}'"
            ),
        );
        Self { id, email, key }
    }

    /// Makes an account that is invited to an organization and has accepted.
    pub(crate) fn in_organization(http: &Http, organization: &str, name: &str, role: &str) -> Self {
        let person = Self::new(http, name);
        let path = format!("/organizations/{organization}/invitations");
        let body = json!({ "email": person.email, "role": role });
        let invitation = http.post(&path, &body).expect(201);
        let token = token_of(&text_of(&invitation["invite_link"]));
        http.as_key(&person.key, "POST", "/invitations/accept", Some(&json!({ "token": token }))).expect(200);
        person
    }
}

/// The secret in an invitation's link.
pub(crate) fn token_of(link: &str) -> String {
    let (_, token) = link.split_once("/invitation?token=").expect("a link to an invitation");
    token.to_owned()
}

fn printed(http: &Http, arguments: &[&str]) -> String {
    let output = http.platform.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    // What was done is said beside the data.
    String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned()
}

#[test]
fn people_come_and_go_by_the_command_line() {
    let http = Http::new(platform());
    let ada = Person::new(&http, "ada");
    let email = ada.email.as_str();
    let invited = printed(&http, &["org", "invite", email, "--role", "viewer"]);
    assert!(invited.starts_with(&format!("invited {email} as viewer, until 20")), "{invited}");
    assert!(invited.contains("nobody has shown that the address is theirs"), "{invited}");
    let first = token_of(invited.lines().last().expect("a link"));
    let again = http.platform.run(&["org", "invite", email]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("already invited") && said.contains("coppice org invitations"), "{said}");
    let listed = printed(&http, &["org", "invitations", "--search", "ada."]);
    assert!(listed.contains(email) && listed.contains("pending"), "{listed}");
    assert_eq!(http.platform.cli(&["org", "invitations", "--search", "&"]), json!({ "invitations": [] }));

    let second = http.platform.cli(&["org", "resend", email]);
    let link = text_of(&second["invite_link"]);
    assert_ne!(token_of(&link), first);
    let as_ada = |arguments: &[&str]| http.platform.run(&[arguments, &["--api-key", &ada.key]].concat());
    let late = as_ada(&["org", "accept", &first]);
    assert_eq!(late.status.code(), Some(4), "{}", String::from_utf8_lossy(&late.stderr));
    let accepted = as_ada(&["org", "accept", &link]);
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));

    assert!(printed(&http, &["org", "set-role", email, "admin"]).contains("is admin now"));
    let members = printed(&http, &["org", "members"]);
    let row = members.lines().find(|line| line.contains(email)).expect("a row");
    assert!(row.contains("admin") && row.contains(&ada.id), "{members}");
    assert!(printed(&http, &["org", "roles"]).contains("viewer"));
    let unsure = http.platform.run(&["org", "remove-member", email]);
    assert!(String::from_utf8_lossy(&unsure.stderr).contains("--yes"));
    assert!(printed(&http, &["org", "remove-member", email, "--yes"]).contains("removed"));
    let gone = http.platform.run(&["org", "set-role", email, "admin"]);
    assert_eq!(gone.status.code(), Some(4), "{}", String::from_utf8_lossy(&gone.stderr));
    printed(&http, &["org", "invite", "bob@example.com"]);
    assert!(printed(&http, &["org", "uninvite", "Bob@example.com"]).contains("withdrew"));
    assert_eq!(http.platform.cli(&["org", "invitations"]), json!({ "invitations": [] }));
}

//! What waits within a request, and whoever sent it has lost the right to it when that is over.

use coppice_test_support::{Answer, text_of};
use serde_json::{Value, json};

use crate::backups::Project;
use crate::http::{Http, Paying};
use crate::progress::{AT_ONCE, OF_PERSON_AT_ONCE, guest};

/// A member's id.
const MEMBER: &str = "usr_late";
/// Changes of one person that the metastore is asked for at once.
const CHANGES_AT_ONCE: usize = 4;

/// Something to be asked for: method, path and body.
type Asked = (&'static str, String, Value);

/// The answers to requests with a key that wait for `lock`, in whose transaction the statements `lost` are carried out.
fn answers(http: &Http, key: &str, asked: &[Asked], (lock, lost): (&str, &str)) -> Vec<Answer> {
    let statement = format!("{lock}; {lost}").replace("{org}", http.organization());
    let begun = http.while_locked(&statement, async |http| {
        let begin = |(method, path, body): &Asked| {
            let path = path.replace("{org}", http.organization());
            http.begin_many(1, key, (method, &path), Some(body).filter(|body| !body.is_null()))
        };
        let begun: Vec<_> = asked.iter().flat_map(begin).collect();
        http.locks_waited_for(i64::try_from(asked.len()).expect("few")).await;
        begun
    });
    http.finish(begun)
}

/// What an organization is locked with by who changes something of it.
const LOCK: &str = "select from organizations where id = '{org}' for no key update";

/// Maps a project to a repository without previews, and tells where its branch is of which those would be copies.
fn mapped(http: &Http, project: &Project) -> String {
    http.metastore(&format!(
        "insert into github_installations (id, organization_id, installation_id) values ('ghi_late', '{{org}}', 9);
         insert into github_repositories (id, installation_id, repository_id, project_id, root_branch_id, previews,
             forks, job_keys)
         values ('ghr_late', 'ghi_late', 9, '{}', '{}', false, false, false)",
        project.id, project.kept
    ));
    project.of(&project.kept)
}

/// Changes of an organization that let somebody in, or stay, and of what it has.
fn changes(http: &Http) -> Vec<Asked> {
    let at = |path: &str| format!("/organizations/{{org}}{path}");
    let url = json!({ "url": "https://hook.invalid/late" });
    let invited = |name: &str| json!({ "email": format!("{name}@example.com"), "role": "viewer" });
    let made = |path: &str, body: &Value| format!("{}/{}", at(path), made(http, &at(path), body));
    let webhook = made("/webhooks", &url);
    let project = || made("/projects", &json!({ "name": "early" }));
    let invitation = made("/invitations", &invited("early"));
    let other = format!("{}/role", at("/members/usr_other"));
    let branch = mapped(http, &Project::make(http));
    let webhook_id = webhook.rsplit('/').next().expect("an id");
    http.metastore(&format!(
        "insert into events (organization_id, type, data, id, number)
             values ('{{org}}', 'branch.created', '{{}}', 'evt_late', 1000000);
         insert into webhook_deliveries (id, webhook_id, event_seq, state, due_at)
             select 'dlv_late', '{webhook_id}', seq, 'failed', null from events where id = 'evt_late'"
    ));
    vec![
        ("POST", format!("{webhook}/deliveries/dlv_late/resend"), Value::Null),
        ("POST", format!("{branch}/credentials/rotate"), json!({ "username": "app" })),
        ("DELETE", format!("{branch}/githubapp/repository"), Value::Null),
        ("PATCH", at("/billing/customer"), json!({ "billing_email": "late@example.com" })),
        ("POST", at("/webhooks"), url.clone()),
        ("POST", format!("{webhook}/rotate"), Value::Null),
        ("PATCH", webhook, json!({ "url": "https://hook.invalid/other" })),
        ("POST", at("/invitations"), invited("late")),
        ("POST", format!("{invitation}/resend"), Value::Null),
        ("PUT", other, json!({ "role": "admin" })),
        ("POST", at("/api-keys"), json!({ "name": "late" })),
        ("POST", at("/projects"), json!({ "name": "late" })),
        ("PATCH", project(), json!({ "name": "late" })),
        ("DELETE", project(), Value::Null),
        ("PUT", at(""), json!({ "name": "late" })),
        ("PUT", at("/budgets/{org}"), json!({ "limit": "1" })),
    ]
}

/// The id of what is made there.
fn made(http: &Http, path: &str, body: &Value) -> String {
    text_of(&http.post(path, body).expect(201)["id"])
}

#[test]
fn nothing_is_changed_by_right_of_what_ended_while_the_change_waited() {
    let http = Http::start(Paying::default());
    let member = guest(&http, MEMBER, 1).remove(0);
    guest(&http, "usr_other", 1);
    let asked = changes(&http);
    let member_row =
        |change: &str| format!("{change} where organization_id = '{{org}}' and user_id = '{MEMBER}'");
    let (removed, demoted) = (member_row("delete from members"), "update members set role = 'viewer'");
    for asked in asked.chunks(CHANGES_AT_ONCE) {
        for answer in answers(&http, &member, asked, (LOCK, &member_row(demoted))) {
            answer.expect_error(403, "role_not_allowed");
        }
        http.metastore(&member_row("update members set role = 'admin'"));
        for answer in answers(&http, &member, asked, (LOCK, &removed)) {
            answer.expect_error(403, "organization_access_denied");
        }
        http.metastore(&format!("insert into members values ('{{org}}', '{MEMBER}', 'admin')"));
        let asks = |asks: bool| {
            format!("update organizations set requires_second_factor = {asks} where id = '{{org}}'")
        };
        for answer in answers(&http, &member, asked, (LOCK, &asks(true))) {
            answer.expect_error(403, "second_factor_required");
        }
        http.metastore(&asks(false));
        let disabled = |is: bool| format!("update users set disabled = {is} where id = '{MEMBER}'");
        for answer in answers(&http, &member, asked, (LOCK, &disabled(true))) {
            answer.expect_error(401, "invalid_token");
        }
        http.metastore(&disabled(false));
        let asks = |does: bool| {
            format!("update organizations set requires_second_factor = {does} where id = '{{org}}'")
        };
        let shown =
            |was: bool| format!("update api_keys set with_second_factor = {was} where user_id = '{MEMBER}'");
        for answer in answers(&http, &member, asked, (LOCK, &asks(true))) {
            answer.expect_error(403, "second_factor_required");
        }
        http.metastore(&shown(true));
        for answer in answers(&http, &member, asked, (LOCK, &shown(false))) {
            answer.expect_error(403, "second_factor_required");
        }
        http.metastore(&asks(false));
        let key = http.new_key("/organizations/{org}/api-keys", json!({}));
        let ended = format!("delete from api_keys where id = '{}'", text_of(&key["id"]));
        for answer in answers(&http, &text_of(&key["token"]), asked, (LOCK, &ended)) {
            answer.expect_error(401, "invalid_token");
        }
    }
    // Nothing of it is wrong but that.
    for asked in asked.chunks(CHANGES_AT_ONCE) {
        for answer in answers(&http, &member, asked, (LOCK, "select")) {
            assert!([200, 201, 202, 204].contains(&answer.status), "{}", answer.text());
        }
    }
}

#[test]
fn nothing_is_changed_of_what_got_to_another_organization_while_the_change_waited() {
    let http = Http::start(Paying::default());
    let (project, other) = (Project::make(&http), http.new_organization("other"));
    let branch = mapped(&http, &project);
    let asked = [
        ("POST", format!("{branch}/credentials/rotate"), json!({ "username": "app" })),
        ("DELETE", format!("{branch}/githubapp/repository"), Value::Null),
        ("PATCH", branch.clone(), json!({ "description": "late" })),
    ];
    let moved = format!("update projects set organization_id = '{other}' where id = '{}'", project.id);
    for answer in answers(&http, http.key(), &asked, (LOCK, &moved)) {
        answer.expect_error(404, "project_not_found");
    }
    assert!(http.asks(&format!(
        "select managed_role_verifier = 'SCRAM' and description = ''
             and exists (select from github_repositories where root_branch_id = b.id)
         from branches b where id = '{}'",
        project.kept
    )));
}

#[test]
fn nothing_of_a_persons_own_is_changed_by_right_of_what_ended_while_the_change_waited() {
    let http = Http::start(Paying::default());
    let keys = guest(&http, MEMBER, 2);
    let aws = json!({ "customer_id": "c", "product_id": "p", "account_id": "123456789012" });
    let subscribed = json!({ "marketplace": "aws", "company_name": "Late", "aws": aws });
    let asked = [
        ("POST", "/organizations".to_owned(), json!({ "name": "late" })),
        ("POST", "/api-keys".to_owned(), json!({ "name": "late" })),
        ("PATCH", "/user".to_owned(), json!({ "name": "Late" })),
        ("POST", "/marketplace/register".to_owned(), subscribed),
    ];
    let lock = format!("select from users where id = '{MEMBER}' for no key update");
    let told = |key: &str, lost: &str| answers(&http, key, &asked, (&lock, lost));

    let last = format!("(select max(id) from api_keys where user_id = '{MEMBER}')");
    for answer in told(&keys[1], &format!("delete from api_keys where id = {last}")) {
        answer.expect_error(401, "invalid_token");
    }
    let disabled = |is: bool| format!("update users set disabled = {is} where id = '{MEMBER}'");
    for answer in told(&keys[0], &disabled(true)) {
        answer.expect_error(401, "invalid_token");
    }
    http.metastore(&disabled(false));
    for answer in told(&keys[0], "select") {
        assert!([200, 201].contains(&answer.status), "{}", answer.text());
    }
}

#[test]
fn nobody_is_told_a_password_that_was_read_after_they_had_lost_the_right_to_it() {
    let http = Http::start(Paying::default());
    let member = guest(&http, MEMBER, 1).remove(0);
    let project = Project::make(&http);
    let made = project.restore(&http, &project.kept, &json!({ "name": "late" })).expect(201);
    let branch = project.of(&text_of(&made["id"]));
    let asked = [
        ("GET", format!("{branch}/credentials"), Value::Null),
        ("GET", branch.clone(), Value::Null),
        ("PATCH", branch.clone(), json!({ "description": "late" })),
    ];
    let (reads, of_member) = (&asked[..2], format!("where user_id = '{MEMBER}'"));
    let told = |asked: &[Asked], lost: &str| {
        answers(&http, &member, asked, ("lock table branch_verifiers in access exclusive mode", lost))
    };
    let password = |answer: &Answer| answer.expect(200)["connectionString"].clone();

    let first = told(&asked, "select");
    assert!(first.iter().all(|answer| password(answer).is_string()));
    let demoted = told(reads, &format!("update members set role = 'viewer' {of_member}"));
    demoted[0].expect_error(403, "role_not_allowed");
    assert_eq!(password(&demoted[1]), Value::Null);
    http.metastore(&format!("update members set role = 'editor' {of_member}"));
    for answer in told(reads, &format!("delete from members {of_member}")) {
        answer.expect_error(403, "organization_access_denied");
    }
    http.metastore(&format!("insert into members values ('{{org}}', '{MEMBER}', 'editor')"));
    // Nobody waits for its key to be written down as used.
    http.metastore(&format!("update api_keys set last_used = now() + interval '1 day' {of_member}"));
    let ended = told(&asked, &format!("update api_keys set expiry = now() {of_member}"));
    for answer in &ended[..2] {
        answer.expect_error(401, "expired_token");
    }
    assert_eq!(password(&ended[2]), Value::Null, "it was done, and is told so");
}

#[test]
fn who_waited_for_a_turn_is_looked_at_again() {
    let http = Http::start(Paying::default());
    let mut keys = guest(&http, MEMBER, OF_PERSON_AT_ONCE / AT_ONCE + 2);
    let late = keys.pop().expect("a key");
    let path = format!("/organizations/{}", http.organization());
    let statement = format!(
        "lock table webhooks in access exclusive mode;
         delete from api_keys where id = (select max(id) from api_keys where user_id = '{MEMBER}')"
    );
    let (many, late) = http.while_locked(&statement, async |http| {
        // Who has been answered came in behind all that were sent before.
        let all_are_in = async || {
            let own = http.begin_many(1, http.key(), ("GET", &path), None);
            assert_eq!(own.into_iter().next().expect("one").await.expect("no panic").status, 200);
        };
        let mut many = vec![];
        for key in &keys {
            many.extend(http.begin_many(AT_ONCE, key, ("GET", &format!("{path}/webhooks")), None));
            all_are_in().await;
        }
        let late = http.begin_many(1, &late, ("GET", &path), None);
        all_are_in().await;
        (many, late)
    });
    assert!(http.finish(many).iter().all(|answer| answer.status == 200), "the others only waited");
    http.finish(late)[0].expect_error(401, "invalid_token");
}

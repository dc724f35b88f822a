//! What GitHub sends, and what is refused of those who link it. GitHub itself does not answer here, but of one
//! installation.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use coppice_app::{AppKey, GithubConfig};
use coppice_test_support::{Answer, text_of, wait_for};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::backups::Project;
use crate::double::serve;
use crate::http::Paying;
use crate::{Http, shared};

/// What deliveries are signed with; the first is being replaced.
const SECRETS: [&str; 2] = ["the secret of before", "It's a Secret to Everybody"];

/// How often tokens were asked for of the one installation.
static TOKENS_ASKED: AtomicUsize = AtomicUsize::new(0);

/// What GitHub's API answers: installation 70 is there, and reaches no repository any more.
async fn answer(request: Request) -> (StatusCode, Json<Value>) {
    match request.uri().path() {
        "/app/installations/70" => (StatusCode::OK, Json(json!({ "suspended_at": null }))),
        "/app/installations/70/access_tokens" => {
            TOKENS_ASKED.fetch_add(1, Ordering::Relaxed);
            (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({})))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({}))),
    }
}

/// An App at a GitHub whose web site is not there.
pub(crate) fn app() -> GithubConfig {
    static KEY: LazyLock<Arc<AppKey>> = LazyLock::new(|| {
        let pair = KeyPair::generate(KeySize::Rsa2048).expect("a key");
        let der = BASE64_STANDARD.encode(pair.as_der().expect("as PKCS #8").as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n");
        Arc::new(AppKey::read(&pem).expect("it is read"))
    });
    static API: LazyLock<String> = LazyLock::new(|| serve(Router::new().fallback(answer)));
    GithubConfig {
        app_id: "1".to_owned(),
        key: KEY.clone(),
        client_id: "Iv1.x".to_owned(),
        client_secret: Zeroizing::new("the client's secret".to_owned()),
        webhook_secrets: SECRETS.map(|secret| Zeroizing::new(secret.to_owned())).to_vec(),
        site: "http://127.0.0.1:1".parse().expect("an address"),
        api: API.parse().expect("an address"),
        jobs_issuer: "http://127.0.0.1:1".to_owned(),
    }
}

fn signature(secret: &str, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body.as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

fn deliver(http: &Http, id: &str, event: &str, signature: &str, body: &str) -> Answer {
    let headers = [("x-github-delivery", id), ("x-github-event", event), ("x-hub-signature-256", signature)];
    http.send_text("POST", "/webhooks/github", &headers, body)
}

#[test]
fn every_delivery_that_github_has_published_is_taken_also_twice() {
    let place = "../../e2e/github/node_modules/@octokit/webhooks-examples/api.github.com/index.json";
    let file = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(place));
    let events: Value = serde_json::from_slice(&file.expect("the examples: run `make setup`")).expect("JSON");
    let http = shared();
    let mut count = 0;
    for event in events.as_array().expect("events") {
        let name = event["name"].as_str().expect("a name");
        for example in event["examples"].as_array().expect("examples") {
            let (id, body) = (format!("published-{count}"), example.to_string());
            // Twice of one kind: the second changes nothing.
            for _ in 0..if count % 10 == 0 { 2 } else { 1 } {
                let answer = deliver(&http, &id, name, &signature(SECRETS[count % 2], &body), &body);
                assert_eq!(answer.expect(200), json!({}), "{name}: {body}");
            }
            count += 1;
        }
    }
    assert!(count > 300, "{count} examples");
}

#[test]
fn what_github_did_not_sign_is_refused_before_it_is_read() {
    let http = shared();
    let body = r#"{"zen":"x"}"#;
    let good = signature(SECRETS[1], body);
    for bad in ["", "sha256=00", &good[7..], &signature("a stranger's secret", body)] {
        deliver(&http, "1", "ping", bad, body).expect_error(400, "invalid_signature");
    }
    deliver(&http, "1", "ping", &good, "not JSON").expect_error(400, "invalid_signature");
    let not_json = "not JSON";
    deliver(&http, "1", "ping", &signature(SECRETS[1], not_json), not_json).expect_error(400, "invalid_json");
    deliver(&http, "", "ping", &good, body).expect_error(400, "missing_parameter");
    let large = " ".repeat((25 << 20) + 1);
    deliver(&http, "1", "ping", "", &large).expect_error(413, "body_too_large");
    http.anonymous("GET", "/webhooks/github", &[]).expect_error(405, "method_not_allowed");
}

#[test]
fn an_installation_is_linked_by_who_proves_that_it_is_theirs_and_a_repository_needs_one() {
    let http = shared();
    let installations = "/organizations/{org}/githubapp/installations";
    let unproven = http.post(installations, &json!({ "installationId": 7 }));
    let told = unproven.expect_error(403, "installation_not_yours");
    assert!(told.starts_with("access denied: GitHub does not say that installation 7 is yours"), "{told}");
    // Without an answer of GitHub's nothing is believed.
    let unheard = http.post(installations, &json!({ "installationId": 7, "code": "x" }));
    unheard.expect_error(503, "unavailable");
    for bad in [json!(0), json!(-1), json!("7"), json!(1.5)] {
        http.post(installations, &json!({ "installationId": bad })).expect_error(400, "invalid_field");
    }
    let listed = http.get(installations).expect(200);
    let linked = listed["installations"].as_array().expect("installations");
    assert!(linked.iter().all(|one| one["installationId"] != 7), "{listed}");
    let absent = http.with("PUT", &format!("{installations}/ghi_nowhere"), &json!({ "installationId": 7 }));
    absent.expect_error(404, "installation_not_found");
    let project = http.new_project("of a repository");
    let mapping = format!("{project}/branches/nothing/githubapp/repository");
    http.get(&mapping).expect_error(404, "branch_not_found");
    http.post(&mapping, &json!({ "githubRepositoryID": 5 })).expect_error(404, "branch_not_found");
}

#[test]
fn a_key_for_some_branches_changes_no_mapping_of_another_branch() {
    let http = shared();
    let project = Project::make(&http);
    http.metastore(&format!(
        "insert into github_installations (id, organization_id, installation_id) values ('ghi_of_keys', '{{org}}', 9);
         insert into github_repositories (id, installation_id, repository_id, project_id, root_branch_id, previews, forks, job_keys)
         values ('ghr_of_keys', 'ghi_of_keys', 9, '{}', '{}', false, false, true)",
        project.id, project.kept
    ));
    let mapping = |branch: &str| format!("{}/githubapp/repository", project.of(branch));
    let body = json!({ "githubRepositoryID": 9 });
    let keys = "/organizations/{org}/api-keys";
    let other = http.new_token(keys, json!({ "branches": [project.new] }));
    let makes = http.new_token(keys, json!({ "own_branches": true }));
    let restore = format!("{}/restore", project.of(&project.kept));
    let made = http.as_key(&makes, "POST", &restore, Some(&json!({ "name": "ci" }))).expect(201);
    for (key, own) in [(&other, &project.new), (&makes, &text_of(&made["id"]))] {
        let path = mapping(own);
        http.as_key(key, "PUT", &path, Some(&body)).expect_error(403, "branch_access_denied");
        http.as_key(key, "DELETE", &path, None).expect_error(403, "branch_access_denied");
    }
    let there = http.get(&mapping(&project.kept)).expect(200);
    assert_eq!(there["mapping"]["rootBranchId"], project.kept.as_str());
    let own = http.new_token(keys, json!({ "branches": [project.kept] }));
    http.as_key(&own, "DELETE", &mapping(&project.kept), None).expect(204);
}

#[test]
fn github_is_asked_so_often_by_the_app_for_the_organizations_of_one_owner_whatever_needs_it() {
    let http = Http::start(Paying::default());
    let (project, other) = (Project::make(&http), Project::make(&http));
    http.metastore(
        "insert into github_installations (id, organization_id, installation_id, administered)
         values ('ghi_empty', '{org}', 70, '{5,6}')",
    );
    let mapping = format!("{}/githubapp/repository", project.of(&project.kept));
    let change = |method| http.with(method, &mapping, &json!({ "githubRepositoryID": 5 }));
    let told = change("POST").expect_error(400, "invalid_field");
    assert!(told.contains("no installation that the organization has linked reaches repository 5"), "{told}");
    assert_eq!(TOKENS_ASKED.load(Ordering::Relaxed), 1);

    http.metastore("update attempts set count = 120 where kind = 'as-app'");
    let refused = change("POST");
    let told = refused.expect_error(429, "rate_limited");
    assert!(told.contains("too often for organizations of this owner: try again in"), "{told}");
    let wait: u32 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=900).contains(&wait), "{wait}");

    // So is what the platform asks by itself, and it is put off until then.
    let mapped = |id: &str, repository: u32, project: &Project| {
        http.metastore(&format!(
            "insert into github_repositories (id, installation_id, repository_id, project_id, root_branch_id, previews,
                 forks, job_keys)
             values ('{id}', 'ghi_empty', {repository}, '{}', '{}', true, false, true)",
            project.id, project.kept
        ));
    };
    mapped("ghr_empty", 5, &project);
    mapped("ghr_other", 6, &other);
    let put_off =
        "select count(*) = 2 from github_repositories where looked_at < now() - interval '40 minutes'";
    wait_for("both are put off", Duration::from_secs(60), || http.asks(put_off).then_some(()));
    change("PUT").expect_error(429, "rate_limited");
    assert_eq!(TOKENS_ASKED.load(Ordering::Relaxed), 1);

    // Those of another owner are asked about as ever.
    http.metastore(
        "update members set role = 'admin' where organization_id = '{org}';
         insert into users (id, email) values ('usr_next', 'next@example.com');
         insert into members (organization_id, user_id, role) values ('{org}', 'usr_next', 'owner')",
    );
    change("PUT").expect_error(400, "invalid_field");
    assert_eq!(TOKENS_ASKED.load(Ordering::Relaxed), 2);
}

#[test]
fn who_has_installed_the_app_is_told_how_to_link_it_and_nothing_that_was_made_up() {
    let http = shared();
    let page = |query: &str| {
        let host = [("host", "127.0.0.1:7070")];
        http.anonymous("GET", &format!("/github/setup{query}"), &host).text()
    };
    let good = page("?code=4f9d8a1c2b3e&installation_id=12345&setup_action=install");
    assert!(good.contains("coppice github link 12345 --code 4f9d8a1c2b3e"), "{good}");
    for bad in [
        "",
        "?code=x",
        "?installation_id=1",
        "?code=x%20--url%20evil&installation_id=1",
        "?code=x&installation_id=1%3Bls",
    ] {
        let page = page(bad);
        assert!(page.contains("GitHub did not say who you are") && !page.contains("github link"), "{bad}");
    }
}

#[test]
fn what_is_no_token_of_a_job_is_refused_and_the_metadata_say_that_jobs_get_keys() {
    let http = shared();
    let exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
    let metadata = http.anonymous("GET", "/.well-known/oauth-authorization-server", &[]).expect(200);
    let grants = metadata["grant_types_supported"].as_array().expect("grants");
    assert!(grants.contains(&json!(exchange)), "{grants:?}");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let ask = |more: &str| {
        let body = format!("grant_type={exchange}&{more}");
        http.send_text("POST", "/oauth/token", &form, &body)
    };
    let jwt = "subject_token_type=urn:ietf:params:oauth:token-type:jwt";
    for bad in ["", jwt, "subject_token=x", &format!("{jwt}&subject_token=x")] {
        assert_eq!(ask(bad).expect(400)["error"], "invalid_request", "{bad}");
    }
    let elsewhere = ask(&format!("{jwt}&subject_token=x&audience=https://other.example"));
    assert_eq!(elsewhere.expect(400)["error"], "invalid_target");
    // Well formed, of an issuer that does not answer: nothing is believed.
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"k"}"#);
    let unproven = ask(&format!("{jwt}&subject_token={header}.e30.AA"));
    assert_eq!(unproven.expect(503)["error"], "temporarily_unavailable");
}

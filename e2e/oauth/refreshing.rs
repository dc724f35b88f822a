//! Refresh tokens, and what clients may ask about tokens.

use serde_json::Value;

use super::browser::{Answer, Browser};
use super::{APP, metastore, shared, tokens_of_app, tokens_of_spa, who_am_i};
use crate::http::Http;

fn refresh(http: &Http, tokens: &Value, client: &[(&str, &str)], more: &[(&str, &str)]) -> Answer {
    let token = tokens["refresh_token"].as_str().expect("a refresh token");
    let pairs = [&[("grant_type", "refresh_token"), ("refresh_token", token)], client, more].concat();
    Browser::new(http).post("/realms/main/protocol/openid-connect/token", &pairs)
}

const AS_APP: [(&str, &str); 2] = [("client_id", APP.0), ("client_secret", APP.1)];
const AS_SPA: [(&str, &str); 1] = [("client_id", "spa")];

#[test]
fn a_client_with_a_secret_may_use_its_refresh_token_again_and_again() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid offline_access");
    assert_eq!(tokens["refresh_expires_in"], 2_592_000);
    for _ in 0..3 {
        let again = refresh(&http, &tokens, &AS_APP, &[]).json(200);
        assert_eq!(again["session_state"], tokens["session_state"]);
        assert_eq!(again["scope"], tokens["scope"]);
        assert_ne!(again["access_token"], tokens["access_token"]);
        assert_eq!(who_am_i(&http, &again["access_token"]).0, 200);
    }
    let less = refresh(&http, &tokens, &AS_APP, &[("scope", "org:read")]).json(200);
    assert_eq!(less["scope"], "org:read");
    refresh(&http, &tokens, &AS_APP, &[("scope", "profile")]).is_error(400, "invalid_scope");
}

#[test]
fn a_repetition_is_known_also_with_a_renewed_token() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid");
    let renewed = refresh(&http, &tokens, &AS_APP, &[]).json(200);
    let create = |tokens: &Value| {
        let request = http.anonymous("POST", "/organizations/{org}/projects");
        let request = request.bearer_auth(tokens["access_token"].as_str().expect("a token"));
        let body = serde_json::json!({ "name": "made once" });
        http.send(request.header("idempotency-key", "the same").json(&body)).expect(201)["id"].clone()
    };
    assert_eq!(create(&tokens), create(&renewed));
}

#[test]
fn a_public_client_gets_another_refresh_token_each_time() {
    let http = shared();
    let first = tokens_of_spa(&http, &mut Browser::new(&http), "openid");
    let second = refresh(&http, &first, &AS_SPA, &[]).json(200);
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    let session = first["session_state"].as_str().expect("a session");
    metastore(
        &http,
        &format!(
            "update refresh_tokens set replaced_at = replaced_at - interval '61 seconds' where session_id = '{session}'"
        ),
    );
    // A minute later somebody else has it: everything of it ends.
    refresh(&http, &first, &AS_SPA, &[]).is_error(400, "invalid_grant");
    refresh(&http, &second, &AS_SPA, &[]).is_error(400, "invalid_grant");
    assert_eq!(who_am_i(&http, &second["access_token"]), (401, "invalid_token".to_owned()));
}

#[test]
fn a_refresh_token_that_is_used_twice_is_replaced_by_one() {
    let http = shared();
    let first = tokens_of_spa(&http, &mut Browser::new(&http), "openid");
    let id = |tokens: &Value| {
        super::claims(tokens["refresh_token"].as_str().expect("a token"))["jti"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    // Requests may have crossed.
    let crossed: Vec<Value> = std::thread::scope(|scope| {
        let ask = || refresh(&http, &first, &AS_SPA, &[]).json(200);
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    assert!(crossed.iter().all(|tokens| id(tokens) == id(&crossed[0]) && id(tokens) != id(&first)));
    let next = refresh(&http, &crossed[0], &AS_SPA, &[]).json(200);
    assert_eq!(id(&refresh(&http, &crossed[1], &AS_SPA, &[]).json(200)), id(&next));
    // Who has gone on does not come back to the first: that is somebody else, also within the minute.
    refresh(&http, &first, &AS_SPA, &[]).is_error(400, "invalid_grant");
    refresh(&http, &next, &AS_SPA, &[]).is_error(400, "invalid_grant");
    assert_eq!(who_am_i(&http, &next["access_token"]), (401, "invalid_token".to_owned()));
}

#[test]
fn a_refresh_token_that_was_forgotten_was_replaced() {
    let http = shared();
    let tokens = tokens_of_spa(&http, &mut Browser::new(&http), "openid");
    refresh(&http, &tokens, &AS_SPA, &[]).json(200);
    let session = tokens["session_state"].as_str().expect("a session");
    metastore(
        &http,
        &format!("delete from refresh_tokens where session_id = '{session}' and replaced_at is not null"),
    );
    refresh(&http, &tokens, &AS_SPA, &[]).is_error(400, "invalid_grant");
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
}

#[test]
fn a_refresh_token_is_its_clients_alone() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid");
    refresh(&http, &tokens, &AS_SPA, &[]).is_error(400, "invalid_grant");
    let second = [("client_id", "second"), ("client_secret", "the secret of the second")];
    refresh(&http, &tokens, &second, &[]).is_error(400, "invalid_grant");
    refresh(&http, &tokens, &[("client_id", "app")], &[]).is_error(401, "invalid_client");
    // An access token is none, nor is one that was changed.
    let mut other = tokens.clone();
    other["refresh_token"] = tokens["access_token"].clone();
    refresh(&http, &other, &AS_APP, &[]).is_error(400, "invalid_grant");
    let text = tokens["refresh_token"].as_str().expect("a token");
    other["refresh_token"] = text[..text.len() - 2].into();
    refresh(&http, &other, &AS_APP, &[]).is_error(400, "invalid_grant");
    refresh(&http, &tokens, &AS_APP, &[]).json(200);
}

#[test]
fn sessions_end_when_they_are_not_used() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid");
    let session = tokens["session_state"].as_str().expect("a session");
    let set = |column: &str| {
        metastore(&http, &format!("update sessions set {column} = now() where id = '{session}'"))
    };
    set("idle_until");
    refresh(&http, &tokens, &AS_APP, &[]).is_error(400, "invalid_grant");
    set("expires_at");
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
}

#[test]
fn a_session_that_goes_on_without_the_browser_ends_after_sixty_days() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid offline_access");
    let session = tokens["session_state"].as_str().expect("a session");
    let ask = |what: &str| metastore(&http, &format!("select {what} from sessions where id = '{session}'"));
    // Both count from the same moment.
    let both = "extract(epoch from expires_at - idle_until)::int + 2592000";
    assert_eq!(ask(both), "5184000");
    let end = |column: &str, left: &str| {
        let statement =
            format!("update sessions set {column} = now() + interval '{left}' where id = '{session}'");
        metastore(&http, &statement)
    };
    end("idle_until", "1 day");
    assert_eq!(refresh(&http, &tokens, &AS_APP, &[]).json(200)["refresh_expires_in"], 2_592_000);
    let later = "extract(epoch from idle_until - now()) between 2591940 and 2592000";
    assert_eq!(ask(later), "t", "it is used, so it goes on");

    // Close to its end that is all there is.
    end("expires_at", "100 seconds");
    let last = refresh(&http, &tokens, &AS_APP, &[]).json(200);
    let ends = ask("extract(epoch from expires_at)::bigint").parse::<i64>().expect("a time");
    let refresh_token = last["refresh_token"].as_str().expect("a token");
    for (left, token) in [
        ("refresh_expires_in", refresh_token),
        ("expires_in", last["access_token"].as_str().expect("a token")),
    ] {
        assert!(last[left].as_i64().is_some_and(|left| (1..=100).contains(&left)), "{left}: {last}");
        let exp = super::claims(token)["exp"].as_i64().expect("a time");
        assert!((ends - 1..=ends).contains(&exp), "{left}: {exp}, and the session ends at {ends}");
    }
    end("expires_at", "0 seconds");
    refresh(&http, &last, &AS_APP, &[]).is_error(400, "invalid_grant");
}

#[test]
fn a_client_ends_its_session_by_revoking_a_token() {
    let http = shared();
    let below = "/realms/main/protocol/openid-connect/revoke";
    for (kind, path) in
        [("refresh_token", "/oauth/revoke"), ("access_token", "/oauth/revoke"), ("refresh_token", below)]
    {
        let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid");
        let token = tokens[kind].as_str().expect("a token");
        let revoke = |client: &[(&str, &str)], token: &str| {
            Browser::new(&http).post(path, &[&[("token", token)], client].concat())
        };
        // Another client's token is left alone, without a word about it.
        revoke(&AS_SPA, token).json(200);
        assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
        revoke(&[("client_id", "app")], token).is_error(401, "invalid_client");
        revoke(&AS_APP, "nonsense").json(200);
        revoke(&AS_APP, token).json(200);
        assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()), "{kind}");
        refresh(&http, &tokens, &AS_APP, &[]).is_error(400, "invalid_grant");
        revoke(&AS_APP, token).json(200);
    }
}

#[test]
fn a_client_with_a_secret_may_ask_about_a_token() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid org:read");
    let ask_at = |path: &str, client: &[(&str, &str)], token: &Value| {
        let token = token.as_str().expect("a token");
        Browser::new(&http).post(path, &[&[("token", token)], client].concat())
    };
    let ask = |client: &[(&str, &str)], token: &Value| ask_at("/oauth/introspect", client, token);
    let said = ask(&AS_APP, &tokens["access_token"]).json(200);
    assert_eq!((&said["active"], &said["scope"]), (&true.into(), &"openid org:read".into()));
    assert_eq!((&said["client_id"], &said["token_type"]), (&"app".into(), &"Bearer".into()));
    let below = "/realms/main/protocol/openid-connect/token/introspect";
    assert_eq!(ask_at(below, &AS_APP, &tokens["access_token"]).json(200), said);
    ask_at(below, &AS_SPA, &tokens["access_token"]).is_error(401, "invalid_client");
    assert_eq!(ask(&AS_APP, &tokens["refresh_token"]).json(200)["active"], true);
    let second = [("client_id", "second"), ("client_secret", "the secret of the second")];
    assert_eq!(ask(&second, &tokens["access_token"]).json(200)["active"], true);
    assert_eq!(ask(&second, &tokens["refresh_token"]).json(200), serde_json::json!({ "active": false }));
    assert_eq!(ask(&AS_APP, &"nonsense".into()).json(200), serde_json::json!({ "active": false }));
    ask(&AS_SPA, &tokens["access_token"]).is_error(401, "invalid_client");
    let session = tokens["session_state"].as_str().expect("a session");
    metastore(&http, &format!("delete from sessions where id = '{session}'"));
    assert_eq!(ask(&AS_APP, &tokens["access_token"]).json(200), serde_json::json!({ "active": false }));
}

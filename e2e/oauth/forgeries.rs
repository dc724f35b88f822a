//! Tokens that are not ours, or not for this.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use coppice_oauth::signing::{SigningAlgorithm, SigningKey};
use serde_json::{Value, json};

use super::browser::Browser;
use super::{claims, shared, tokens_of_app, who_am_i};

fn part(value: &Value) -> String {
    BASE64URL.encode(value.to_string())
}

#[test]
fn forged_tokens_are_worth_nothing() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let tokens = tokens_of_app(&http, &mut browser, "openid");
    let token = tokens["access_token"].as_str().expect("a token");
    let body = claims(token);
    let jwks = browser.get("/oauth/jwks").json(200);
    let public = &jwks["keys"][0];
    assert_eq!(
        (&public["kty"], &public["alg"], &public["use"]),
        (&"RSA".into(), &"RS256".into(), &"sig".into())
    );
    for private in ["d", "p", "q", "dp", "dq", "qi"] {
        assert!(public.get(private).is_none(), "{public}");
    }
    let id = &public["kid"];
    let invalid = (401, "invalid_token".to_owned());
    let refused = |forged: String| assert_eq!(who_am_i(&http, &forged.as_str().into()), invalid, "{forged}");

    // Without a signature, by whatever name.
    for algorithm in ["none", "None", "nOnE", ""] {
        let header = json!({ "alg": algorithm, "typ": "JWT", "kid": id });
        refused(format!("{}.{}.", part(&header), part(&body)));
        refused(format!(
            "{}.{}.{}",
            part(&header),
            part(&body),
            token.rsplit('.').next().expect("a signature")
        ));
    }
    // With the public key as the secret of a MAC.
    let header = json!({ "alg": "HS256", "typ": "JWT", "kid": id });
    let text = format!("{}.{}", part(&header), part(&body));
    let modulus = public["n"].as_str().expect("a modulus");
    for secret in [
        modulus.as_bytes().to_vec(),
        BASE64URL.decode(modulus).expect("base64url"),
        public.to_string().into(),
    ] {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);
        let mac = BASE64URL.encode(aws_lc_rs::hmac::sign(&key, text.as_bytes()));
        refused(format!("{text}.{mac}"));
    }
    // With a key of one's own: under its own name, under ours, and brought along.
    let own = SigningAlgorithm::EdDsa;
    let own = SigningKey::read(own, &SigningKey::generate(own).expect("a key")).expect("the key");
    let forged = own.sign(&body).expect("a token");
    refused(forged.clone());
    let signature = forged.rsplit('.').next().expect("a signature");
    for header in [
        json!({ "alg": "EdDSA", "typ": "JWT", "kid": id }),
        json!({ "alg": "EdDSA", "typ": "JWT", "jwk": own.public.jwk }),
        json!({ "alg": "EdDSA", "typ": "JWT", "kid": id, "jwk": own.public.jwk }),
        json!({ "alg": "EdDSA", "typ": "JWT", "jku": "https://evil.example.com/jwks" }),
        json!({ "alg": "EdDSA", "typ": "JWT", "kid": "../../../../dev/null" }),
        json!({ "alg": "EdDSA", "typ": "JWT" }),
    ] {
        refused(format!("{}.{}.{signature}", part(&header), part(&body)));
    }
    // Ours, with something else in it.
    let mut other = body.clone();
    other["sub"] = "usr_somebody".into();
    let pieces: Vec<_> = token.split('.').collect();
    refused(format!("{}.{}.{}", pieces[0], part(&other), pieces[2]));
    for text in
        [format!("{token}x"), format!("{token}."), token[1..].to_owned(), "a.b.c".to_owned(), "..".to_owned()]
    {
        refused(text);
    }
}

#[test]
fn tokens_are_good_for_what_they_are_made_for() {
    let http = shared();
    let tokens = tokens_of_app(&http, &mut Browser::new(&http), "openid offline_access");
    for kind in ["id_token", "refresh_token"] {
        assert_eq!(who_am_i(&http, &tokens[kind]), (401, "invalid_token".to_owned()), "{kind}");
    }
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
}

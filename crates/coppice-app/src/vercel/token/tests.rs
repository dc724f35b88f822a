use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chrono::Utc;
use coppice_core::{Error, ErrorCode, ErrorKind};
use jsonwebtoken::{Algorithm, EncodingKey};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const ISSUER: &str = "https://marketplace.vercel.com";
const CLIENT: &str = "oac_ours";
const PATIENCE: Duration = Duration::from_secs(60);

/// One who signs, and what of it everybody may know.
struct Signer {
    key: EncodingKey,
    id: &'static str,
    public: Vec<u8>,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let pair = Ed25519KeyPair::generate().expect("a key");
        let der = pair.to_pkcs8v1().expect("DER");
        let public = pair.public_key().as_ref().to_vec();
        Self { key: EncodingKey::from_ed_der(der.as_ref()), id, public }
    }

    fn jwk(&self) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "x": BASE64.encode(&self.public), "kid": self.id, "use": "sig" })
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        jsonwebtoken::encode(&header, claims, &self.key).expect("a token")
    }
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "account:a1:user:u1", "aud": CLIENT, "exp": Utc::now().timestamp() + 60,
        "account_id": "a1", "installation_id": "icfg_1", "user_id": "u1", "user_role": "ADMIN",
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = claims();
    change(&mut claims);
    claims
}

/// What a place for keys does with whoever asks.
#[derive(Clone)]
enum Place {
    Answers(Value),
    Hangs,
    NeverEnds,
}

/// A place for keys, which does what is in the cell.
async fn place(cell: Arc<Mutex<Place>>) -> VercelApi {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let keys = format!("http://{}/keys", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let does = cell.lock().clone();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                match does {
                    Place::Answers(document) => {
                        let body = document.to_string();
                        let head = format!(
                            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                            body.len()
                        );
                        let _ = stream.write_all((head + &body).as_bytes()).await;
                    }
                    Place::Hangs => std::future::pending().await,
                    Place::NeverEnds => {
                        let _ = stream
                            .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"keys\":[")
                            .await;
                        while stream.write_all(&[b' '; 1 << 16]).await.is_ok() {}
                    }
                }
            });
        }
    });
    let keys: reqwest::Url = keys.parse().expect("an address");
    let api = keys.clone();
    VercelApi::new(VercelConfig {
        client_id: CLIENT.to_owned(),
        issuer: ISSUER.to_owned(),
        keys,
        client_secrets: vec![],
        api,
    })
}

async fn with_keys(signers: &[&Signer]) -> (VercelApi, Arc<Mutex<Place>>) {
    let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
    let cell = Arc::new(Mutex::new(Place::Answers(json!({ "keys": keys }))));
    (place(cell.clone()).await, cell)
}

async fn caller(vercel: &VercelApi, token: &str) -> Result<VercelCaller> {
    let installation = VercelInstallationId::parse("icfg_1").expect("an id");
    vercel.claims(token).await?.caller_for(installation)
}

#[tokio::test]
async fn a_token_says_who_calls_and_whether_they_may_change_something() {
    let signer = Signer::new("k");
    let (vercel, _) = with_keys(&[&Signer::new("other"), &signer]).await;
    let admin = caller(&vercel, &signer.sign(&claims())).await.expect("a good token");
    assert_eq!((admin.account.as_str(), admin.user.as_deref(), admin.may_write), ("a1", Some("u1"), true));
    for (role, user, may_write) in [
        (json!("USER"), json!("u1"), false),
        (json!("admin"), json!("u1"), false),
        (Value::Null, json!("u1"), false),
        (json!("USER"), Value::Null, false),
        (Value::Null, Value::Null, true),
    ] {
        let claims = with(|claims| {
            claims["user_role"] = role.clone();
            claims["user_id"] = user;
        });
        let caller = caller(&vercel, &signer.sign(&claims)).await.expect("a good token");
        assert_eq!(caller.may_write, may_write, "{role}");
    }
}

#[tokio::test]
async fn what_vercel_did_not_sign_for_us_and_for_now_is_refused() {
    let (signer, stranger) = (Signer::new("k"), Signer::new("k"));
    let (vercel, _) = with_keys(&[&signer]).await;
    let now = Utc::now().timestamp();
    let mut bad = vec![
        ("of a stranger".to_owned(), stranger.sign(&claims())),
        ("of an unknown key".to_owned(), Signer::new("unknown").sign(&claims())),
        ("too long".to_owned(), signer.sign(&with(|claims| claims["x"] = json!("x".repeat(10_000))))),
        ("nothing".to_owned(), String::new()),
    ];
    for (name, value) in [
        ("iss", json!("https://evil.example")),
        ("iss", json!([ISSUER, "https://evil.example"])),
        ("aud", json!("oac_another")),
        ("exp", json!(now - 60)),
        ("nbf", json!(now + 90)),
        ("installation_id", json!("icfg_2")),
        ("installation_id", json!(["icfg_1"])),
        ("account_id", json!("")),
        ("account_id", json!("a b")),
        ("account_id", json!("a".repeat(129))),
        ("user_id", json!("")),
    ] {
        bad.push((format!("{name} = {value}"), signer.sign(&with(|claims| claims[name] = value))));
    }
    for name in ["iss", "aud", "exp", "sub", "account_id", "installation_id"] {
        let claims = with(|claims| drop(claims.as_object_mut().expect("an object").remove(name)));
        bad.push((format!("no {name}"), signer.sign(&claims)));
    }
    // What everybody can read is no secret to sign with.
    let header = Header { kid: Some("k".to_owned()), ..Header::new(Algorithm::HS256) };
    let by_public = EncodingKey::from_secret(&signer.public);
    bad.push((
        "by the public key".to_owned(),
        jsonwebtoken::encode(&header, &claims(), &by_public).expect("a token"),
    ));
    let part = |value: &Value| BASE64.encode(value.to_string());
    let unsigned = format!("{}.{}.", part(&json!({ "alg": "none", "kid": "k" })), part(&claims()));
    bad.push(("unsigned".to_owned(), unsigned));
    for (what, token) in bad {
        let error = caller(&vercel, &token).await.expect_err(&what);
        assert!(matches!(error, Error::Forbidden { code: ErrorCode::InvalidToken, .. }), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn a_key_that_vercel_has_begun_to_sign_with_is_fetched() {
    let (first, second) = (Signer::new("first"), Signer::new("second"));
    let (vercel, cell) = with_keys(&[&first]).await;
    assert!(caller(&vercel, &first.sign(&claims())).await.is_ok());
    *cell.lock() = Place::Answers(json!({ "keys": [second.jwk()] }));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // Not at once: whoever names keys that there are not must not have them fetched all the time.
    while caller(&vercel, &second.sign(&claims())).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it is never fetched");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(caller(&vercel, &first.sign(&claims())).await.is_err(), "the former key is believed");
}

#[tokio::test]
async fn keys_that_never_come_or_never_end_let_nobody_in_and_hold_nobody_up() {
    let signer = Signer::new("k");
    let refused = async |does: Place| {
        let vercel = place(Arc::new(Mutex::new(does))).await;
        let error = tokio::time::timeout(PATIENCE, caller(&vercel, &signer.sign(&claims()))).await;
        error.expect("an answer").expect_err("refused").kind()
    };
    let (hanging, endless, strange) = tokio::join!(
        refused(Place::Hangs),
        refused(Place::NeverEnds),
        refused(Place::Answers(json!({ "keys": "none" })))
    );
    assert_eq!([hanging, endless, strange], [ErrorKind::Unavailable; 3]);
}

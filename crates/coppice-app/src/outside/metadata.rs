//! What the provider says about itself.

use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Result, broken};
use super::http::{address, send};

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// What is needed of the document of an issuer whose keys alone are asked for.
#[derive(Deserialize)]
struct KeysDocument {
    issuer: String,
    jwks_uri: String,
}

/// How the client secret is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretPlace {
    /// In the `Authorization` header.
    Header,
    /// In the form.
    Form,
}

/// The provider's document (OpenID Connect Discovery), checked.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    pub(super) authorization: Url,
    pub(super) token: Url,
    pub(super) keys: Url,
    pub(super) userinfo: Option<Url>,
    pub(super) secret_place: SecretPlace,
    /// Whether it always names itself in its answers (RFC 9207).
    pub(super) names_itself: bool,
}

/// Fetches the document of `issuer`.
pub(super) async fn fetch(client: &Client, issuer: &str) -> Result<Metadata> {
    check(document(client, issuer).await?, issuer)
}

/// Where the keys of `issuer` are.
pub(super) async fn place_of_keys(client: &Client, issuer: &str) -> Result<Url> {
    let KeysDocument { issuer: itself, jwks_uri } = document(client, issuer).await?;
    is_itself(&itself, issuer)?;
    address(&jwks_uri)
}

async fn document<T: DeserializeOwned>(client: &Client, issuer: &str) -> Result<T> {
    let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    send(client.get(address(&place)?)).await?.json("its description")
}

fn is_itself(itself: &str, issuer: &str) -> Result<()> {
    if itself == issuer { Ok(()) } else { Err(broken(format!("it calls itself `{itself}`, not `{issuer}`"))) }
}

fn check(document: Document, issuer: &str) -> Result<Metadata> {
    is_itself(&document.issuer, issuer)?;
    let methods = document.token_endpoint_auth_methods_supported;
    // What a document does not say means the header.
    let has_header = methods.is_none_or(|methods| methods.iter().any(|one| one == "client_secret_basic"));
    Ok(Metadata {
        authorization: address(&document.authorization_endpoint)?,
        token: address(&document.token_endpoint)?,
        keys: address(&document.jwks_uri)?,
        userinfo: document.userinfo_endpoint.as_deref().map(address).transpose()?,
        secret_place: if has_header { SecretPlace::Header } else { SecretPlace::Form },
        names_itself: document.authorization_response_iss_parameter_supported,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(change: impl FnOnce(&mut serde_json::Value)) -> Result<Metadata> {
        let mut document = json!({
            "issuer": "https://id.example.com",
            "authorization_endpoint": "https://id.example.com/auth",
            "token_endpoint": "https://id.example.com/token",
            "jwks_uri": "https://id.example.com/keys",
        });
        change(&mut document);
        check(serde_json::from_value(document).expect("a document"), "https://id.example.com")
    }

    #[test]
    fn a_document_of_another_issuer_is_refused() {
        assert!(described(|_| ()).is_ok());
        for other in ["https://id.example.com/", "https://id.example.org", "http://id.example.com"] {
            assert!(described(|document| document["issuer"] = json!(other)).is_err(), "{other}");
        }
    }

    #[test]
    fn no_endpoint_is_asked_in_the_clear() {
        for endpoint in ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] {
            let in_the_clear = described(|document| document[endpoint] = json!("http://id.example.com/x"));
            assert!(in_the_clear.is_err(), "{endpoint}");
        }
    }

    #[test]
    fn the_secret_is_sent_the_way_that_is_offered() {
        let with = |methods: serde_json::Value| {
            described(|document| document["token_endpoint_auth_methods_supported"] = methods)
                .expect("a good document")
                .secret_place
        };
        assert_eq!(described(|_| ()).expect("a good document").secret_place, SecretPlace::Header);
        assert_eq!(with(json!(["client_secret_post"])), SecretPlace::Form);
        assert_eq!(with(json!(["client_secret_post", "client_secret_basic"])), SecretPlace::Header);
    }
}

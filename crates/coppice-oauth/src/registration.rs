//! Clients that register themselves (RFC 7591). They are public: a secret
//! that anybody can ask for proves nothing.

use coppice_core::name::is_unseen;
use serde_json::{Value, json};

use crate::client::{Client, Trust};
use crate::error::{OAuthError, OAuthErrorCode};
use crate::lookalike::Reading;
use crate::redirect;

/// Most redirect URIs of one client.
const REDIRECT_URIS_MAX: usize = 10;
const NAME_MAX: usize = 100;
/// The name of the product: no client that registers itself has it in its own.
const PRODUCT: &str = "Coppice";
/// What people are shown of a client without a name.
const NAMELESS: &str = "A program without a name";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A client that may be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// What people are shown.
    pub name: String,
    /// Where they may be sent back to.
    pub redirect_uris: Vec<String>,
}

fn invalid(description: impl Into<String>) -> OAuthError {
    OAuthError::new(OAuthErrorCode::InvalidClientMetadata, description)
}

fn texts<'a>(metadata: &'a Value, name: &str) -> Result<Vec<&'a str>, OAuthError> {
    match &metadata[name] {
        Value::Null => Ok(vec![]),
        Value::Array(items) => {
            let texts =
                items.iter().map(|item| item.as_str().ok_or_else(|| invalid(format!("{name} has texts"))));
            texts.collect()
        }
        _ => Err(invalid(format!("{name} is a list"))),
    }
}

/// Whether a text within is one that PostgreSQL can't keep.
fn has_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_zero),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || has_zero(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Registration {
    /// Understands the metadata that a client sends of itself. The operator
    /// allows `own_uris`, each as it stands.
    ///
    /// # Errors
    /// `invalid_redirect_uri`, `invalid_client_metadata`
    pub fn read(metadata: &Value, own_uris: &[String]) -> Result<Self, OAuthError> {
        if !metadata.is_object() {
            return Err(invalid("the metadata is a JSON object"));
        }
        if has_zero(metadata) {
            return Err(invalid("the metadata has a zero byte, which is in no text that means anything"));
        }
        let uris = texts(metadata, "redirect_uris")?;
        if uris.is_empty() || uris.len() > REDIRECT_URIS_MAX {
            let description = format!("redirect_uris has 1 to {REDIRECT_URIS_MAX} URIs");
            return Err(OAuthError::new(OAuthErrorCode::InvalidRedirectUri, description));
        }
        for uri in uris.iter().filter(|uri| !own_uris.iter().any(|own| own == *uri)) {
            redirect::check(uri).map_err(|why| {
                OAuthError::new(OAuthErrorCode::InvalidRedirectUri, format!("a redirect URI {why}"))
            })?;
        }
        if let Some(other) = texts(metadata, "response_types")?.into_iter().find(|kind| *kind != "code") {
            let plain: String = other.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
            return Err(invalid(format!(
                "the response type {plain} is not for clients that register themselves"
            )));
        }
        let grants = ["authorization_code", "refresh_token", DEVICE_GRANT];
        if texts(metadata, "grant_types")?.iter().any(|grant| !grants.contains(grant)) {
            return Err(invalid("grant_types has only authorization_code, refresh_token and device_code"));
        }
        Ok(Self { name: name(metadata)?, redirect_uris: uris.into_iter().map(str::to_owned).collect() })
    }

    /// Refuses a name that people could take for the product's, or for that of
    /// one of these clients, which somebody vouches for.
    ///
    /// # Errors
    /// `invalid_client_metadata`
    pub fn check_name(&self, vouched: &[Client]) -> Result<(), OAuthError> {
        if is_taken(&self.name, vouched) {
            let description = "client_name reads like the name of another program: choose one of your own";
            return Err(invalid(description));
        }
        Ok(())
    }

    /// The client that it becomes. A name that was registered before it became
    /// one of `vouched` is not shown.
    pub fn client(self, id: String, vouched: &[Client]) -> Client {
        let name = if is_taken(&self.name, vouched) { NAMELESS.to_owned() } else { self.name };
        Client {
            id,
            name,
            secret: None,
            redirect_uris: self.redirect_uris,
            any_loopback_port: true,
            trust: Trust::Nobody,
            may_use_implicit: false,
            may_use_device: true,
        }
    }
}

fn is_taken(name: &str, vouched: &[Client]) -> bool {
    let name = Reading::of(name);
    name.contains(&Reading::of(PRODUCT)) || vouched.iter().any(|client| name.is(&Reading::of(&client.name)))
}

/// What people are shown.
fn name(metadata: &Value) -> Result<String, OAuthError> {
    let name = match &metadata["client_name"] {
        Value::Null => "",
        Value::String(name) => name.trim(),
        _ => return Err(invalid("client_name is a text")),
    };
    if name.chars().count() > NAME_MAX || name.contains(is_unseen) {
        return Err(invalid(format!(
            "client_name has at most {NAME_MAX} characters, all of which can be seen"
        )));
    }
    Ok(if name.is_empty() { NAMELESS.to_owned() } else { name.to_owned() })
}

/// What a client is told about its registration.
pub fn answer(client: &Client, issued_at: i64) -> Value {
    json!({
        "client_id": client.id,
        "client_id_issued_at": issued_at,
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token", DEVICE_GRANT],
        "response_types": ["code"]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(metadata: &Value) -> &'static str {
        Registration::read(metadata, &[]).map_or_else(|error| error.code.as_str(), |_| "ok")
    }

    #[test]
    fn a_client_says_where_people_come_back_to() {
        assert_eq!(code(&json!({ "redirect_uris": ["http://127.0.0.1/cb"] })), "ok");
        for uris in [
            json!(null),
            json!([]),
            json!(["http://evil/cb"]),
            json!(["javascript:x"]),
            json!(["https://a/#f"]),
        ] {
            assert_eq!(code(&json!({ "redirect_uris": uris })), "invalid_redirect_uri", "{uris}");
        }
        assert_eq!(code(&json!({ "redirect_uris": "https://a/cb" })), "invalid_client_metadata");
        assert_eq!(code(&json!({ "redirect_uris": [1] })), "invalid_client_metadata");
        assert_eq!(code(&json!([])), "invalid_client_metadata");
    }

    #[test]
    fn the_operator_allows_single_uris_with_schemes_without_a_dot() {
        let own = ["cursor://anysphere.cursor-mcp/oauth/callback".to_owned()];
        let read =
            |uri: &str| Registration::read(&json!({ "redirect_uris": [uri, "https://a/cb"] }), &own).is_ok();
        assert!(read("cursor://anysphere.cursor-mcp/oauth/callback"));
        for uri in
            ["cursor://anysphere.cursor-mcp/oauth/callback/", "cursor://other/oauth/callback", "javascript:x"]
        {
            assert!(!read(uri), "{uri}");
        }
    }

    #[test]
    fn a_zero_byte_is_refused_wherever_it_is() {
        let uris = ["https://a/cb"];
        for metadata in [
            json!({ "redirect_uris": uris, "client_name": "a\0" }),
            json!({ "redirect_uris": uris, "software_id": "\0" }),
            json!({ "redirect_uris": uris, "contacts": ["a", "\0"] }),
            json!({ "redirect_uris": uris, "jwks": { "keys": [{ "kid\0": 1 }] } }),
            json!({ "redirect_uris": ["https://a/\0"] }),
        ] {
            assert_eq!(code(&metadata), "invalid_client_metadata", "{metadata}");
        }
    }

    #[test]
    fn who_registers_alone_gets_no_token_without_a_code() {
        let with = |name: &str, value: Value| {
            let mut metadata = json!({ "redirect_uris": ["https://a/cb"] });
            metadata[name] = value;
            code(&metadata)
        };
        assert_eq!(with("response_types", json!(["code"])), "ok");
        assert_eq!(with("response_types", json!(["token"])), "invalid_client_metadata");
        assert_eq!(with("grant_types", json!(["authorization_code", "refresh_token"])), "ok");
        assert_eq!(with("grant_types", json!(["implicit"])), "invalid_client_metadata");
        assert_eq!(with("grant_types", json!(["client_credentials"])), "invalid_client_metadata");
        // Another method than none is replaced, as the standard allows.
        assert_eq!(with("token_endpoint_auth_method", json!("client_secret_basic")), "ok");
    }

    #[test]
    fn a_name_shows_nothing_that_is_not_there() {
        for name in ["a\nb", "a\u{202e}b", "\u{200b}"] {
            let metadata = json!({ "redirect_uris": ["https://a/cb"], "client_name": name });
            assert_eq!(code(&metadata), "invalid_client_metadata", "{name:?}");
        }
        let nameless =
            Registration::read(&json!({ "redirect_uris": ["https://a/cb"] }), &[]).expect("a client");
        assert!(!nameless.name.is_empty());
    }

    #[test]
    fn nobody_takes_a_name_that_somebody_vouches_for() {
        let vouched = [Client::console("https://db.example.com"), {
            let mut client = Client::console("https://db.example.com");
            client.name = "Ledger".to_owned();
            client
        }];
        let named = |name: &str| {
            let metadata = json!({ "redirect_uris": ["https://a/cb"], "client_name": name });
            Registration::read(&metadata, &[]).expect("a client")
        };
        for name in [
            "Coppice console (official)",
            "coppice",
            "My C|oppice",
            "\u{421}oppice",
            "LEDGER",
            "Led ger",
            "l\u{435}dger",
        ] {
            assert!(named(name).check_name(&vouched).is_err(), "{name}");
            assert_eq!(named(name).client("dyn_1".to_owned(), &vouched).name, NAMELESS, "{name}");
        }
        for name in ["Ledger reader", "Claude", "Caf\u{e9}", "\u{7b46}\u{8a18}"] {
            assert!(named(name).check_name(&vouched).is_ok(), "{name}");
            assert_eq!(named(name).client("dyn_1".to_owned(), &vouched).name, name);
        }
    }
}

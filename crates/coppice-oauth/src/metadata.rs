//! What clients can find out about the authorization server (RFC 8414, OpenID
//! Connect Discovery) and about who accepts its tokens (RFC 9728).

use coppice_core::access::Scope;
use serde_json::{Value, json};

use crate::issuer::{Issuers, Realm};
use crate::resource::AGENTS;
use crate::scope;
use crate::signing::SigningAlgorithm;

/// The grant by which a token of somebody else's becomes one of ours (RFC 8693).
pub const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// What not every platform offers.
#[derive(Clone, Copy, Debug)]
pub struct Offers {
    /// Whether clients may register themselves.
    pub registration: bool,
    /// Whether jobs of pull requests get keys for a token that proves what they run for.
    pub job_keys: bool,
}

/// The metadata of a realm.
pub fn of_server(issuers: &Issuers, realm: &Realm, algorithm: SigningAlgorithm, offers: Offers) -> Value {
    let issuer = issuers.issuer(realm);
    let at = |path: &str, below: &str| issuers.endpoint(realm, path, below);
    let mut metadata = json!({
        "issuer": issuer,
        "authorization_endpoint": at("authorize", "auth"),
        "token_endpoint": at("token", "token"),
        "device_authorization_endpoint": at("device_authorization", "auth/device"),
        "introspection_endpoint": at("introspect", "token/introspect"),
        "revocation_endpoint": at("revoke", "revoke"),
        "userinfo_endpoint": at("userinfo", "userinfo"),
        "jwks_uri": at("jwks", "certs"),
        "end_session_endpoint": at("logout", "logout"),
        "scopes_supported": scope::supported(),
        "response_types_supported": ["code", "token"],
        "response_modes_supported": ["query", "fragment"],
        "grant_types_supported": [
            "authorization_code",
            "implicit",
            "refresh_token",
            "urn:ietf:params:oauth:grant-type:device_code"
        ],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [algorithm.as_str()],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
        "revocation_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        "code_challenge_methods_supported": ["S256"],
        "acr_values_supported": ["1", "2"],
        "prompt_values_supported": ["none", "login", "select_account", "consent"],
        "claims_supported": [
            "iss", "sub", "aud", "exp", "iat", "auth_time", "acr", "amr", "nonce", "sid", "name", "email",
            "email_verified", "preferred_username"
        ],
        "authorization_response_iss_parameter_supported": true,
        "claims_parameter_supported": false,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false
    });
    if let Some(grants) = metadata["grant_types_supported"].as_array_mut().filter(|_| offers.job_keys) {
        grants.push(TOKEN_EXCHANGE.into());
    }
    if offers.registration {
        metadata["registration_endpoint"] = format!("{}/oauth/register", issuers.public_url()).into();
    }
    metadata
}

/// The metadata of what is at `path` of the platform: empty for the API itself.
pub fn of_resource(issuers: &Issuers, path: &str) -> Value {
    let scopes = match path {
        // Programs ask for all that is named here.
        AGENTS => Scope::OF_AGENTS.iter().map(|scope| scope.as_str()).collect(),
        _ => scope::supported(),
    };
    json!({
        "resource": format!("{}{path}", issuers.public_url()),
        "authorization_servers": [issuers.first()],
        "bearer_methods_supported": ["header"],
        "scopes_supported": scopes,
        "resource_name": "Coppice"
    })
}

//! Which client sends a request, and how it proves that: with HTTP Basic, in
//! the form, or not at all (RFC 6749, 2.3.1).

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use coppice_app::{App, ClientClaim, IdentityError};
use coppice_oauth::OAuthError;
use coppice_oauth::client::Client;
use coppice_oauth::params::Params;
use zeroize::Zeroizing;

/// A form, if the body is one.
pub(super) fn form(headers: &HeaderMap, body: &[u8]) -> Result<Params, OAuthError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(OAuthError::invalid_request("send a form, application/x-www-form-urlencoded"));
    }
    Params::parse(body)
}

/// Id and secret of the `Authorization` header, each escaped as in a form.
fn basic(headers: &HeaderMap) -> Result<Option<(String, Zeroizing<String>)>, OAuthError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let unusable = || OAuthError::invalid_client();
    let value = value.to_str().map_err(|_| unusable())?;
    let (scheme, encoded) = value.split_once(' ').ok_or_else(unusable)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(unusable());
    }
    let decoded = Zeroizing::new(BASE64.decode(encoded.trim()).map_err(|_| unusable())?);
    let text = std::str::from_utf8(&decoded).map_err(|_| unusable())?;
    let (id, secret) = text.split_once(':').ok_or_else(unusable)?;
    Ok(Some((unescape(id)?, Zeroizing::new(unescape(secret)?))))
}

fn unescape(text: &str) -> Result<String, OAuthError> {
    let params = Params::parse(format!("x={}", text.replace('&', "%26")).as_bytes())?;
    Ok(params.get("x").unwrap_or_default().to_owned())
}

/// The client that sends a request, if it proves to be it.
pub(super) async fn client(app: &App, headers: &HeaderMap, form: &Params) -> Result<Client, IdentityError> {
    if form.repeats(&["client_id", "client_secret"]) {
        return Err(OAuthError::invalid_request("client_id and client_secret come once").into());
    }
    let in_form = (form.get("client_id"), form.get("client_secret"));
    match basic(headers)? {
        Some((id, secret)) => {
            if in_form.1.is_some() || in_form.0.is_some_and(|found| found != id) {
                let description = "the client names itself in two ways: use Basic or the form";
                return Err(OAuthError::invalid_request(description).into());
            }
            let secret = Some(secret.as_str()).filter(|secret| !secret.is_empty());
            app.identity.authenticate_client(ClientClaim { id: &id, secret }).await
        }
        None => {
            let id = in_form.0.ok_or_else(OAuthError::invalid_client)?;
            app.identity.authenticate_client(ClientClaim { id, secret: in_form.1 }).await
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(value: &str) -> Option<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a value"));
        let found = basic(&headers).ok().flatten();
        found.map(|(id, secret)| (id, secret.to_string()))
    }

    #[test]
    fn id_and_secret_are_escaped_as_in_a_form() {
        let header = |text: &str| format!("basic {}", BASE64.encode(text));
        for (text, id, secret) in [
            ("a:b", "a", "b"),
            ("a:", "a", ""),
            ("a:b:c", "a", "b:c"),
            ("a%3Ab:c%26d+e", "a:b", "c&d e"),
            ("a:b&c", "a", "b&c"),
        ] {
            assert_eq!(read(&header(text)), Some((id.to_owned(), secret.to_owned())), "{text}");
        }
        for value in ["Bearer x", "Basic", "Basic !", &header("a")] {
            assert_eq!(read(value), None, "{value}");
        }
    }
}

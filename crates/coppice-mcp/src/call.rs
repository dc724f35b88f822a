//! A request of a tool to the API, on behalf of whoever called the tool.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri, response};
use coppice_api::ByAgent;
use serde_json::Value;
use tower::ServiceExt;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Longest name of a client, in characters.
const CLIENT_MAX: usize = 100;

/// What the API must know of whoever sent the message: who, from where, and
/// under which id it is in the log.
static PASSED_ON: [HeaderName; 3] =
    [AUTHORIZATION, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("x-request-id")];

/// An answer of the API.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: response::Parts,
    pub(crate) body: Bytes,
}

/// Asks the API. `client` is the program that the agent is in, for the audit
/// log.
pub(crate) async fn ask(
    api: &Router,
    sender: &Parts,
    client: &str,
    (method, uri, body): (Method, Uri, Option<&Value>),
) -> Answered {
    let bytes = body.map(Value::to_string).unwrap_or_default();
    let mut request = Request::new(Body::from(bytes));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    for name in &PASSED_ON {
        for value in sender.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Ok(agent) = HeaderValue::from_str(&format!("mcp/{}", printable(client))) {
        headers.insert(USER_AGENT, agent);
    }
    // Tokens that are for agents alone are good here, and nowhere else.
    request.extensions_mut().insert(ByAgent);
    if let Some(from) = sender.extensions.get::<ConnectInfo<SocketAddr>>() {
        request.extensions_mut().insert(*from);
    }
    let Ok(answer) = api.clone().oneshot(request).await;
    let (head, body) = answer.into_parts();
    Answered { head, body: to_bytes(body, ANSWER_BYTES_MAX).await.unwrap_or_default() }
}

fn printable(client: &str) -> String {
    client.chars().filter(|letter| (' '..='~').contains(letter)).take(CLIENT_MAX).collect()
}

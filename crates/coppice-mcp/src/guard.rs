//! Who may send a message: somebody with a credential, and no page of another
//! site.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, ORIGIN, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_api::Hosts;
use coppice_core::ErrorCode;
use coppice_core::access::Scope;
use serde_json::{Value, json};
use url::Url;

use crate::PATH;
use crate::call::{Answered, ask};
use crate::tools::Tools;

/// See the module.
#[derive(Debug)]
pub(crate) struct Guard {
    api: Router,
    metadata: String,
    origin: Option<url::Origin>,
    hosts: Hosts,
    tools: Arc<Tools>,
}

/// Whose message it is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The id of the credential.
    pub(crate) credential: String,
    pub(crate) scopes: Vec<String>,
}

impl Guard {
    pub(crate) fn new(api: Router, public_url: &str, hosts: Hosts, tools: Arc<Tools>) -> Self {
        let metadata = format!("{public_url}/.well-known/oauth-protected-resource{PATH}");
        Self { api, metadata, origin: Url::parse(public_url).ok().map(|url| url.origin()), hosts, tools }
    }

    /// Whether no page of another site sends it.
    fn is_from_here(&self, parts: &Parts) -> bool {
        let Some(sent) = parts.headers.get(ORIGIN) else { return true };
        let origin = sent.to_str().ok().and_then(|text| Url::parse(text).ok()).map(|url| url.origin());
        origin.is_some() && origin == self.origin
    }

    /// Who sends it; the answer if nobody that we know.
    async fn caller(&self, parts: &Parts) -> Result<Caller, Response> {
        let uri = Uri::from_static("/credential");
        let answered = ask(&self.api, parts, "credential", (Method::GET, uri, None)).await;
        if answered.head.status != StatusCode::OK {
            return Err(self.refusal(parts, answered));
        }
        coppice_api::note_sender(&answered.head);
        let known: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
        let scopes = known["scopes"].as_array().into_iter().flatten();
        let scopes = scopes.filter_map(|scope| scope.as_str().map(str::to_owned)).collect();
        Ok(Caller { credential: known["id"].as_str().unwrap_or_default().to_owned(), scopes })
    }

    /// The API's own words, with where to sign in.
    fn refusal(&self, parts: &Parts, answered: Answered) -> Response {
        let is_unknown = answered.head.status == StatusCode::UNAUTHORIZED;
        let mut response = Response::from_parts(answered.head, Body::from(answered.body));
        if is_unknown {
            let error =
                if parts.headers.contains_key(AUTHORIZATION) { ", error=\"invalid_token\"" } else { "" };
            let scopes = Scope::OF_AGENTS.map(Scope::as_str).join(" ");
            let challenge =
                format!("Bearer resource_metadata=\"{}\", scope=\"{scopes}\"{error}", self.metadata);
            if let Ok(challenge) = HeaderValue::from_str(&challenge) {
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
        }
        response
    }

    /// The answer to a call of a tool that needs another scope.
    fn lack(&self, caller: &Caller, message: &Value) -> Option<Response> {
        let tool =
            (message["method"] == "tools/call").then(|| message["params"]["name"].as_str()).flatten()?;
        let needed = self.tools.named(tool)?.lacks(&caller.scopes)?;
        let challenge = format!(
            "Bearer error=\"insufficient_scope\", scope=\"{needed}\", resource_metadata=\"{}\"",
            self.metadata
        );
        let text = format!("the tool {tool} needs the scope {needed}, which the credential does not have");
        let mut response = refuse(StatusCode::FORBIDDEN, ErrorCode::InsufficientScope, &text);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_str(&challenge).ok()?);
        Some(response)
    }
}

/// Lets a message through, with its caller.
pub(crate) async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if !guard.hosts.are_called(&parts.uri, &parts.headers) {
        let text = "this site has another name; who runs it sets it with --public-url";
        return refuse(StatusCode::FORBIDDEN, ErrorCode::UnknownHost, text);
    }
    if !guard.is_from_here(&parts) {
        let text = "pages of other sites may not send messages here";
        return refuse(StatusCode::FORBIDDEN, ErrorCode::ForeignOrigin, text);
    }
    let caller = match guard.caller(&parts).await {
        Ok(caller) => caller,
        Err(refusal) => return refusal,
    };
    if parts.method != Method::POST {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let (message, bytes) = match coppice_api::read_json(&parts, body).await {
        Ok(read) => read,
        Err(refusal) => return refusal,
    };
    if let Some(refusal) = guard.lack(&caller, &message) {
        return refusal;
    }
    drop(message);
    parts.extensions.insert(caller);
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

fn refuse(status: StatusCode, id: ErrorCode, message: &str) -> Response {
    (status, Json(json!({ "message": message, "id": id.as_str() }))).into_response()
}

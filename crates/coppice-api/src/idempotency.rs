//! `Idempotency-Key` on POST: the first answer is given again to repetitions.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, Begun, RepeatableCall, Uncommitted};
use coppice_core::access::CredentialId;
use coppice_core::operation::Operation;
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire::secrets_in;
use serde_json::Value;

use crate::BODY_LIMIT_BYTES;
use crate::body::{BodyError, InMemory};
use crate::client_address::client_address;
use crate::context;
use crate::entry::Entry;
use crate::error::{ApiError, with_status};
use crate::proof::Proof;
use crate::rates::Rates;
use crate::request::{Call, Counted, kind_of};

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Largest answer that is kept. Only one that reads can be larger.
const ANSWER_LIMIT_BYTES: usize = BODY_LIMIT_BYTES;
/// The same of a refusal.
const REFUSAL_LIMIT_BYTES: usize = 16 << 10;

/// Lets a POST with a key through once. Nothing can happen twice by one that
/// only reads, or was refused; so an answer of it that would take too much room
/// is not kept, and a repetition of it is answered anew. Of one whose
/// credential is good for nothing of the kind, nothing is kept.
pub(crate) async fn idempotent(
    State(app): State<App>,
    Extension(rates): Extension<Arc<Rates>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(&IDEMPOTENCY_KEY) {
        return next.run(request).await;
    }
    // A bad credential has nothing to repeat; the handler says what is wrong.
    let Some(proof) = Proof::of(request.headers(), request.extensions()) else {
        return next.run(request).await;
    };
    let (parts, body) = request.into_parts();
    let shown = (Some(&proof), client_address(&parts));
    let authenticated = rates.progress.authenticate(&app, shown, None).await;
    let mut request = Request::from_parts(parts, body);
    let credential = match authenticated {
        Ok(credential) => credential,
        Err(error @ Error::TooMany { .. }) => return ApiError::from(error).into_response(),
        Err(_) => return next.run(request).await,
    };
    context::note_caller(kind_of(&credential.caller), credential.holder());
    if let Err(error) = rates.admit_credential(&credential.caller.credential) {
        return ApiError::from(error).into_response();
    }
    request.extensions_mut().insert(Counted);
    let key = match key_of(&request) {
        Ok(key) => key,
        Err(error) => return ApiError::from(error).into_response(),
    };
    if context::operation()
        .is_some_and(|operation| app.callers.check_credential(&credential, operation).is_err())
    {
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    let (mut parts, body) = request.into_parts();
    let asked = match Call::from_request_parts(&mut parts, &()).await {
        Ok(asked) => asked,
        Err(error) => return error.into_response(),
    };
    let body = match Entry::of(&parts).read::<BodyError>(body).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    // A token is renewed every few minutes, its session goes on.
    let caller = match (&credential.caller.credential, &proof) {
        (CredentialId::Session(session), _) => session.as_str(),
        (_, proof) => proof.text(),
    };
    let call = match app.calls.begin(caller, &path, &key, &body).await {
        Ok(Begun::First(call)) => call,
        Ok(Begun::Running) => return running(),
        Ok(Begun::Mismatch) => {
            let message = "the idempotency key was used with another request";
            return with_status(StatusCode::CONFLICT, ErrorCode::IdempotencyMismatch, message);
        }
        Ok(Begun::Answered(status, body)) => return replay_to(&app, &asked, status, body).await,
        Err(error) => return ApiError::from(error).into_response(),
    };
    let work = async move {
        parts.extensions.insert(InMemory);
        parts.extensions.insert(call.clone());
        let (bytes, place) = body.into_parts();
        let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
        drop(place);
        keep(&app, &call, response).await
    };
    match context::detached(work).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => ApiError::from(error).into_response(),
        Err(failed) => ApiError::from(Error::internal(failed)).into_response(),
    }
}

/// An answer that is kept, with what it tells of.
#[derive(Clone, Copy, Debug)]
struct Kept;

/// Commits the transaction of an operation that may be repeated together with its stored answer, where the operation
/// leaves that to its caller. So it stands inside the layer that writes the audit line's end.
pub(crate) async fn committed(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let Some(call) = request.extensions_mut().remove::<RepeatableCall>() else {
        return next.run(request).await;
    };
    match app.calls.carry_out(call.clone(), next.run(request)).await {
        (response, Some(done)) if response.status().is_success() => commit(&app, &call, done, response)
            .await
            .unwrap_or_else(|error| ApiError::from(error).into_response()),
        (response, _) => response,
    }
}

async fn commit(app: &App, call: &RepeatableCall, done: Uncommitted, response: Response) -> Result<Response> {
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, ANSWER_LIMIT_BYTES).await.map_err(Error::internal)?;
    let text = std::str::from_utf8(&body).map_err(Error::internal)?;
    app.calls.commit(call, done, parts.status.as_u16(), text).await?;
    parts.extensions.insert(Kept);
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// Whether the operation that is asked for changes nothing.
fn only_reads() -> bool {
    context::operation().is_some_and(|operation| !operation.is_write)
}

fn key_of(request: &Request) -> Result<String> {
    let value = request.headers().get(&IDEMPOTENCY_KEY).and_then(|value| value.to_str().ok());
    let is_allowed =
        |key: &&str| (1..=255).contains(&key.len()) && key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let key = value.filter(is_allowed);
    key.map(str::to_owned).ok_or_else(|| {
        Error::invalid_field("Idempotency-Key", "must have 1 to 255 printable ASCII characters")
    })
}

/// Keeps the answer. One that says "try again" is not the last word, so the
/// same key may try again.
async fn keep(app: &App, call: &RepeatableCall, response: Response) -> Result<Response> {
    if response.extensions().get::<Kept>().is_some() {
        return Ok(response);
    }
    let is_refused = response.status().is_client_error();
    let is_harmless = is_refused || only_reads();
    let limit_bytes = if is_refused { REFUSAL_LIMIT_BYTES } else { ANSWER_LIMIT_BYTES };
    if is_harmless && response.body().size_hint().lower() > limit_bytes as u64 {
        app.calls.finish(call, None, true).await?;
        return Ok(response);
    }
    let runs_sql = context::operation().is_some_and(|operation| operation.runs_sql);
    let (parts, body) = response.into_parts();
    let body: Bytes = to_bytes(body, ANSWER_LIMIT_BYTES).await.map_err(Error::internal)?;
    let is_final = !parts.status.is_server_error() && parts.status != StatusCode::TOO_MANY_REQUESTS;
    let (status, kept) = match runs_sql && !is_harmless && body.len() > REFUSAL_LIMIT_BYTES {
        true => too_long_to_keep().await?,
        false => (parts.status, body.clone()),
    };
    let text = std::str::from_utf8(&kept).map_err(Error::internal)?;
    let answer = is_final.then_some((status.as_u16(), text));
    app.calls.finish(call, answer, is_harmless).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// What is kept in place of rows: whoever may run SQL would else fill the metastore with them.
async fn too_long_to_keep() -> Result<(StatusCode, Bytes)> {
    let message = "this request was carried out before, and its answer was too long to be kept: to carry it out once \
                   more, send it with another idempotency key";
    let response = with_status(StatusCode::CONFLICT, ErrorCode::IdempotencyAnswerTooLong, message);
    let status = response.status();
    let body = to_bytes(response.into_body(), REFUSAL_LIMIT_BYTES).await.map_err(Error::internal)?;
    Ok((status, body))
}

fn running() -> Response {
    let message = "a request with this idempotency key is still running";
    let mut response = with_status(StatusCode::CONFLICT, ErrorCode::IdempotencyInProgress, message);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
    response
}

/// Gives an answer again. What is in it may be no business of the caller's by
/// now: a role can change, and a session's next token may be good for less. The
/// answer of one that reads, or runs SQL, is nothing but what was read.
async fn replay_to(app: &App, call: &Call, status: u16, body: String) -> Response {
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    let secrets = secrets_in(&answer);
    let shows_data = |operation: &Operation| !operation.is_write || operation.runs_sql;
    if let Some(operation) =
        context::operation().filter(|operation| !secrets.is_empty() || shows_data(operation))
        && let Err(error) = call
            .authorize_again(app, operation)
            .await
            .and_then(|may_see| secrets.iter().try_for_each(|secret| may_see(secret)))
    {
        return ApiError::from(error).into_response();
    }
    replay(status, body)
}

fn replay(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let has_body = !body.is_empty();
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(IDEMPOTENCY_REPLAYED.clone(), HeaderValue::from_static("true"));
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    } else {
        headers.remove(CONTENT_TYPE);
    }
    response
}

//! `Idempotency-Key` of Vercel's: what was done is told again to repetitions.

use axum::Json;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, Begun, RepeatableCall, VercelCaller};
use coppice_core::{Error, ErrorCode, Result};
use serde_json::Value;

use super::{Refused, to_its_end};

const HEADER: &str = "idempotency-key";
const KEY_LENGTH_MAX: usize = 255;

/// By what repetitions of a request are known. Keys of one installation say nothing to another one.
#[derive(Clone, Debug)]
pub(super) struct Repeat {
    caller: String,
    path: String,
    key: String,
}

impl Repeat {
    /// None for a request that says nothing of repetitions.
    ///
    /// # Errors
    /// `invalid_field`
    pub(super) fn of(parts: &Parts, caller: &VercelCaller) -> Result<Option<Self>> {
        let Some(value) = parts.headers.get(HEADER) else { return Ok(None) };
        let key = value.to_str().ok().filter(|key| (1..=KEY_LENGTH_MAX).contains(&key.len()));
        let key = key.ok_or_else(|| {
            Error::invalid_field(
                "Idempotency-Key",
                format_args!("must have 1 to {KEY_LENGTH_MAX} printable ASCII characters"),
            )
        })?;
        let (caller, path) = (format!("vercel {}", caller.installation), parts.uri.path().to_owned());
        Ok(Some(Self { caller, path, key: key.to_owned() }))
    }
}

/// Carries something out to its end, once where the request has a key. What was refused can be tried anew. What must
/// not be done again after an end of the process in between keeps its answer itself, for the call that it gets.
pub(super) async fn once<W: Future<Output = Result<Value>> + Send + 'static>(
    app: App,
    repeat: Option<Repeat>,
    asked: Value,
    work: impl FnOnce(Option<RepeatableCall>) -> W,
) -> Result<Response, Refused> {
    let Some(Repeat { caller, path, key }) = repeat else {
        return Ok(Json(to_its_end(work(None)).await?).into_response());
    };
    let body = asked.to_string();
    let call = match app.calls.begin(&caller, &path, &key, body.as_bytes()).await? {
        Begun::First(call) => call,
        Begun::Answered(_, text) => {
            return Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response());
        }
        Begun::Running => {
            let public = "a request with this idempotency key is still running; try again in a second";
            return Err(conflict(ErrorCode::IdempotencyInProgress, public));
        }
        Begun::Mismatch => {
            let public = "the idempotency key was used with another request";
            return Err(conflict(ErrorCode::IdempotencyMismatch, public));
        }
    };
    let work = work(Some(call.clone()));
    let done = to_its_end(async move {
        let done = work.await;
        let text = done.as_ref().ok().map(ToString::to_string);
        app.calls.finish(&call, text.as_deref().map(|text| (200, text)), false).await?;
        done
    });
    Ok(Json(done.await?).into_response())
}

fn conflict(code: ErrorCode, public: &str) -> Refused {
    Error::Conflict { code, public: public.to_owned() }.into()
}

//! `POST /sql`.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use coppice_gateway::{Gateway, Visitor};
use coppice_sql::{Output, Request as Statements, Wrong};

use super::leaving::Leaving;
use super::refused::{BODY_BYTES_MAX, Refused};
use super::session::{Owned, is_at_rest};
use super::wanted::Wanted;
use crate::arrival::{Place, Received, Room, Senders, Unread};
use crate::client_address::client_address;
use crate::{connections, context};

/// How long a statement may take.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(30);
/// Largest result.
const RESULT_BYTES_MAX: usize = 10 << 20;

/// For bodies of those who have a session.
pub(super) static BODIES: LazyLock<Room> = LazyLock::new(|| {
    Room::new(5 * BODY_BYTES_MAX / 2, BODY_BYTES_MAX, Duration::from_secs(60), Duration::from_secs(3))
});
/// For results, from their first byte until their last one was sent.
pub(super) static RESULTS: LazyLock<Room> =
    LazyLock::new(|| Room::new(128 << 20, usize::MAX, Duration::MAX, Duration::from_secs(3)));

pub(super) async fn query(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match answer(&gateway, &parts, body).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn answer(gateway: &Arc<Gateway>, parts: &Parts, body: Body) -> Result<Response, Refused> {
    let wanted = Wanted::read(&parts.headers)?;
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(Unread::TooLarge.into());
    }
    let is_plain = |encoding: &HeaderValue| encoding.as_bytes().eq_ignore_ascii_case(b"identity");
    if !parts.headers.get(CONTENT_ENCODING).is_none_or(is_plain) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Refused::new(status, "UNSUPPORTED_ENCODING", "request bodies are not decompressed"));
    }
    let (address, login) = (client_address(parts), &wanted.login);
    let visitor = Visitor { address, host: Some(login.host.clone()), is_pooled: true };
    let mut owned = Owned::begin(gateway, login, visitor, STATEMENT_PATIENCE).await?;
    if let Some(holder) = owned.holder() {
        context::note_caller("role", holder);
    }
    let senders = Senders::who_show(address, (&login.host, login.user()));
    let read = async {
        let body = BODIES.read(body, senders).await?;
        Ok::<_, Refused>((body, RESULTS.hold(0, senders).await?))
    };
    let (body, place) = match read.await {
        Ok(read) => read,
        Err(refused) => {
            owned.end().await;
            return Err(refused);
        }
    };
    let answered = carry_out(&mut owned, &wanted, body, place).await;
    match &answered {
        Err(Wrong::Failure(failure)) if !is_at_rest(failure) => drop(owned),
        Ok(_) | Err(_) => owned.end().await,
    }
    let (pieces, place) = answered?;
    Ok(sent(pieces, place, parts))
}

/// The answer with a result.
pub(super) fn sent(pieces: Vec<Bytes>, place: Place<'static>, parts: &Parts) -> Response {
    let unread = parts.extensions.get::<connections::Unread>().cloned().unwrap_or_default();
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Body::new(Leaving::new(pieces, place, unread))).into_response()
}

/// A result in pieces, with their place.
type Pieces = (Vec<Bytes>, Place<'static>);

async fn carry_out(
    owned: &mut Owned,
    wanted: &Wanted,
    body: Received<'_>,
    place: Place<'static>,
) -> Result<Pieces, Wrong> {
    let mut out = Output::new(RESULT_BYTES_MAX, place);
    let session = owned.session();
    match Statements::parse(&body).map_err(Wrong::Request)? {
        Statements::Single(statement) => session.single(&statement, wanted.shape, &mut out).await?,
        Statements::Batch(statements) => {
            session.batch(&statements, wanted.transaction, wanted.shape, &mut out).await?;
        }
    }
    Ok(out.finish().await?)
}

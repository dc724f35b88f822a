//! `GET /v2`: the PostgreSQL protocol in frames of a WebSocket (RFC 6455).

use std::future::pending;
use std::io;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use coppice_gateway::{Gateway, Visitor};
use hyper_util::rt::TokioIo;

use super::refused::Refused;
use super::tunnel::Tunnel;
use crate::client_address::client_address;
use crate::connections::{Ending, Seat, count_ending};
use crate::hosts::called;

/// What every server adds to the key of a client (RFC 6455, section 1.3).
const ACCEPT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION: &str = "13";
/// Bytes of a client's key.
const KEY_BYTES: usize = 16;

pub(super) async fn websocket(State(gateway): State<Arc<Gateway>>, mut request: Request) -> Response {
    let Some(accept) = accept(request.headers()) else { return not_valid() };
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, _) = request.into_parts();
    let visitor = Visitor { address: client_address(&parts), host: host(&parts), is_pooled: false };
    // It has its place among the connections until it ends.
    let seat = parts.extensions.get::<Arc<Seat>>().cloned();
    let asked = seat.as_ref().map(Seat::asked);
    tokio::spawn(async move {
        let served = match upgrade.await {
            Ok(upgraded) => tokio::select! {
                served = Tunnel::new(TokioIo::new(upgraded)).serve(&gateway, visitor, asked) => served,
                ending = ended(seat) => {
                    count_ending(ending);
                    Err(io::Error::other(ending.label()))
                }
            },
            Err(error) => Err(io::Error::other(error)),
        };
        if let Err(error) = served {
            tracing::debug!("a WebSocket ended: {error}");
        }
    });
    let headers = [
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

/// Completes when its connection has to end, which only itself still knows of.
async fn ended(seat: Option<Arc<Seat>>) -> Ending {
    match seat {
        Some(seat) => seat.ended().await,
        None => pending().await,
    }
}

fn not_valid() -> Response {
    let told = Refused::bad_request("this path is for WebSockets: send a valid upgrade, version 13");
    ([(SEC_WEBSOCKET_VERSION, VERSION)], told).into_response()
}

/// The answer to a client's key; none when it does not ask for a WebSocket.
fn accept(headers: &HeaderMap) -> Option<HeaderValue> {
    let names = |name: HeaderName, token: &str| {
        let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).any(|one| one.trim().eq_ignore_ascii_case(token))
    };
    let is_asked = names(UPGRADE, "websocket") && names(CONNECTION, "upgrade");
    if !is_asked || headers.get(SEC_WEBSOCKET_VERSION)? != VERSION {
        return None;
    }
    let key = headers.get(SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    BASE64.decode(key).ok().filter(|bytes| bytes.len() == KEY_BYTES)?;
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT}").as_bytes());
    HeaderValue::from_str(&BASE64.encode(digest)).ok()
}

/// By which name the client called; which branch it means, if it has one of its own.
fn host(parts: &Parts) -> Option<String> {
    called(&parts.uri, &parts.headers).map(|authority| authority.host().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        accept(&pairs.collect()).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn the_key_of_a_client_is_answered_as_the_standard_says() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let version = ("sec-websocket-version", "13");
        let (upgrade, connection) = (("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade"));
        let answer = asked(&[upgrade, connection, version, key]);
        assert_eq!(answer.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for pairs in [
            [upgrade, connection, version, ("sec-websocket-key", "c2hvcnQ=")],
            [upgrade, connection, version, ("sec-websocket-key", "no base64")],
            [upgrade, connection, ("sec-websocket-version", "8"), key],
            [upgrade, ("connection", "keep-alive"), version, key],
            [("upgrade", "h2c"), connection, version, key],
            [upgrade, connection, version, ("x-key", "")],
        ] {
            assert_eq!(asked(&pairs), None, "{pairs:?}");
        }
    }
}

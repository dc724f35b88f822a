//! Accepting HTTP connections, and letting them finish.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use coppice_core::id::random_text;
use coppice_gateway::Gateway;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::connections::{ConnectionLimits, Connections, IDLE_PATIENCE, Seat, count_ending};
use crate::unreadable::{InProgress, Watched};

/// Largest request line with all headers; more is answered with 431.
const HEADERS_LIMIT_BYTES: usize = 32 << 10;
/// Requests of one HTTP/2 connection that may be in progress.
const STREAMS_MAX: u32 = 32;
/// Bytes of bodies that an HTTP/2 client may send before anybody reads them:
/// of one request, and of all requests of a connection (RFC 9113, 5.2). They
/// wait in memory.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 128 << 10;
/// How long requests may go on after the end was asked for.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// Pause after an accept that failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The answer to a client for which there is no room.
fn full() -> String {
    let id = random_text();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nx-request-id: req_{id}\r\nconnection: close\r\nretry-after: 1\r\n\
         content-length: 0\r\n\r\n"
    )
}

/// Serves `router` until `stop` completes, then lets requests finish. Clients
/// may begin with TLS, by the certificate of `gateway`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    gateway: Arc<Gateway>,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) {
    let connections = Connections::new(limits);
    let (graceful, ending) = (GracefulShutdown::new(), CancellationToken::new());
    let served = Served { builder: builder(), router, gateway, ending: ending.clone() };
    tokio::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("accepting an HTTP connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let Some(seat) = connections.admit(peer.ip()).map(Arc::new) else {
            let _ = stream.try_write(full().as_bytes());
            continue;
        };
        if let Err(error) = coppice_gateway::tune(&stream) {
            tracing::debug!(%peer, "a client left at once: {error}");
            continue;
        }
        let connection = served.clone().connection(stream, peer, seat.clone(), graceful.watcher());
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%peer, "an HTTP connection ended: {error}");
                },
                ending = seat.ended() => {
                    tracing::debug!(%peer, "an HTTP connection was ended: {}", ending.label());
                    count_ending(ending);
                }
            }
        });
    }
    drop(listener);
    ending.cancel();
    if tokio::time::timeout(DRAIN_PATIENCE, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time");
    }
}

/// What every connection is served with.
#[derive(Clone)]
struct Served {
    builder: Builder<TokioExecutor>,
    router: Router,
    gateway: Arc<Gateway>,
    /// Once it is cancelled, connections that have sent nothing yet are closed.
    ending: CancellationToken,
}

impl Served {
    async fn connection(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        seat: Arc<Seat>,
        watcher: Watcher,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let stream = tokio::select! {
            stream = self.gateway.http_stream(stream) => stream?,
            () = self.ending.cancelled() => return Ok(()),
        };
        let in_progress = Arc::<InProgress>::default();
        let stream = TokioIo::new(Watched::new(stream, in_progress.clone()));
        let service = service(self.router, peer, (seat, in_progress));
        watcher.watch(self.builder.serve_connection_with_upgrades(stream, service).into_owned()).await
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_PATIENCE)
        .max_buf_size(HEADERS_LIMIT_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADERS_LIMIT_BYTES as u32);
    builder
}

/// Answers the requests of one connection.
fn service(
    router: Router,
    peer: SocketAddr,
    (seat, in_progress): (Arc<Seat>, Arc<InProgress>),
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Send {
    service_fn(move |mut request: Request<Incoming>| {
        let (asked, answering) = (seat.asked(), in_progress.begin(request.version()));
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(seat.unread());
        // For what outlives the request.
        request.extensions_mut().insert(seat.clone());
        let answered = router.clone().oneshot(request);
        async move {
            let answer = answered.await.map(|answer| answering.with(answer));
            drop(asked);
            answer
        }
    })
}

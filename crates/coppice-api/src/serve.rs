//! Accepting HTTP connections, and letting them finish.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Extension};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// Largest request line with all headers; more is answered with 431.
const HEADERS_LIMIT_BYTES: usize = 32 << 10;
/// How long a client may take to send them, from the end of its last request
/// on: longer than clients keep connections they don't use, so that they and
/// not we close them and no request is sent into a connection that goes away.
const HEADERS_PATIENCE: Duration = Duration::from_secs(120);
/// How long requests may go on after the end was asked for.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// Pause after an accept that failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` until `stop` completes, then lets requests finish.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_PATIENCE)
        .max_buf_size(HEADERS_LIMIT_BYTES);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HEADERS_LIMIT_BYTES as u32);
    let graceful = GracefulShutdown::new();
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
        let _ = stream.set_nodelay(true);
        let service = router.clone().layer(Extension(ConnectInfo::<SocketAddr>(peer)));
        let connection =
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, "an HTTP connection ended: {error}");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_PATIENCE, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time");
    }
}

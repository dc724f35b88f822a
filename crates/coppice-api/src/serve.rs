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
use coppice_core::proxies::TrustedProxies;
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
use crate::departure;
use crate::pace::{AnsweredFor, Arriving, PATIENCE, Strangers, Unanswered};
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
/// How long requests may go on after the end was asked for. Then their connections end: the process may go on for
/// the sake of others.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// Pause after an accept that failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often those are forgotten who have not called for a while.
const CLEANING: Duration = Duration::from_secs(60);

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
    if let Err(error) = coppice_gateway::keep_waiting(&listener) {
        tracing::warn!("bursts of requests may have to wait: {error}");
    }
    let trusted_proxies = Arc::new(limits.trusted_proxies.clone());
    let connections = Connections::new(limits);
    let graceful = GracefulShutdown::new();
    let [ending, over] = [(); 2].map(|()| CancellationToken::new());
    let strangers = Arc::new(Strangers::new());
    let answering = Answers { router, trusted_proxies, strangers: strangers.clone() };
    let served = Served { builder: builder(), answers: answering, gateway, ending: ending.clone() };
    let mut cleaning = tokio::time::interval(CLEANING);
    tokio::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut stop => break,
            _ = cleaning.tick() => {
                strangers.forget_idle();
                continue;
            }
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
        let tuned = coppice_gateway::tune(&stream)
            .and_then(|()| coppice_gateway::end_untaken_after(&stream, departure::PATIENCE));
        if let Err(error) = tuned {
            tracing::debug!(%peer, "a client left at once: {error}");
            continue;
        }
        let connection = served.clone().connection(stream, peer, seat.clone(), graceful.watcher());
        let over = over.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%peer, "an HTTP connection ended: {error}");
                },
                ending = seat.ended() => {
                    tracing::debug!(%peer, "an HTTP connection was ended: {}", ending.label());
                    count_ending(ending);
                }
                () = over.cancelled() => {}
            }
        });
    }
    drop(listener);
    ending.cancel();
    if tokio::time::timeout(DRAIN_PATIENCE, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time");
    }
    over.cancel();
}

/// What every connection is served with.
#[derive(Clone)]
struct Served {
    builder: Builder<TokioExecutor>,
    answers: Answers,
    gateway: Arc<Gateway>,
    /// Once it is cancelled, connections that have sent nothing yet are closed.
    ending: CancellationToken,
}

/// What answers requests.
#[derive(Clone)]
struct Answers {
    router: Router,
    trusted_proxies: Arc<TrustedProxies>,
    strangers: Arc<Strangers>,
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
        if self.answers.trusted_proxies.trusts(peer.ip()) {
            in_progress.pace.set_boundless();
        }
        let stream = TokioIo::new(Watched::new(stream, in_progress.clone()));
        let service = service(self.answers, peer, (seat, in_progress));
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
    answers: Answers,
    peer: SocketAddr,
    (seat, in_progress): (Arc<Seat>, Arc<InProgress>),
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Send {
    let is_proxy = answers.trusted_proxies.trusts(peer.ip());
    service_fn(move |request: Request<Incoming>| {
        let answering = in_progress.begin(request.version());
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(ConnectInfo(peer));
        parts.extensions.insert(seat.unread());
        let asked = Arc::new(seat.asked());
        parts.extensions.insert(Arc::downgrade(&asked));
        // For what outlives the request.
        parts.extensions.insert(seat.clone());
        parts.extensions.insert(answers.trusted_proxies.clone());
        let strangers = answers.strangers.clone();
        let body = Arriving::new(body, in_progress.pace.clone(), &seat);
        let answered = answers.router.clone().oneshot(Request::from_parts(parts, body));
        let in_progress = in_progress.clone();
        let unanswered = Unanswered::on(in_progress.pace.clone());
        async move {
            let Ok(answer) = answered.await;
            unanswered.end();
            drop(asked);
            let is_answered_for = answer.extensions().get::<AnsweredFor>().is_some();
            if !is_answered_for && !is_proxy && !strangers.is_answered_at_once(peer.ip()) {
                // The connection counts as idle: who has to wait makes room for others.
                tokio::time::sleep(PATIENCE).await;
            }
            in_progress.pace.add_request(answer.status(), is_answered_for);
            Ok(answering.with(answer))
        }
    })
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::body::Bytes;
    use axum::middleware::{Next, from_fn};
    use axum::routing::{get, post};
    use coppice_core::organization::Holder;
    use futures_util::stream;
    use hyper::client::conn::http2::{SendRequest, handshake};
    use tokio::io::duplex;
    use tokio::sync::mpsc;

    use super::*;
    use crate::connections::Ending;
    use crate::context;
    use crate::identify::identify;

    /// What answers strangers, and somebody who is known, behind this proxy.
    fn answers() -> Answers {
        let router = Router::new()
            .route("/stranger", get("hello"))
            .route("/known", get((Extension(AnsweredFor), "hello")));
        let trusted_proxies = Arc::new(TrustedProxies::parse(&["192.0.2.1"]).expect("a range"));
        Answers { router, trusted_proxies, strangers: Arc::new(Strangers::new()) }
    }

    /// A connection of HTTP/2 from an address.
    async fn connect(answers: &Answers, from: &str) -> SendRequest<Body> {
        let peer = SocketAddr::new(from.parse().expect("an address"), 1);
        let seat = Arc::new(connections(1).admit(peer.ip()).expect("room"));
        connect_with(answers, peer, seat).await
    }

    fn connections(total: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits {
            total,
            per_address: total,
            first_request: IDLE_PATIENCE,
            trusted_proxies: TrustedProxies::default(),
        })
    }

    async fn connect_with(answers: &Answers, peer: SocketAddr, seat: Arc<Seat>) -> SendRequest<Body> {
        let (here, there) = duplex(1 << 16);
        let in_progress = Arc::<InProgress>::default();
        let service = service(answers.clone(), peer, (seat, in_progress));
        tokio::spawn(async move { builder().serve_connection(TokioIo::new(there), service).await });
        let (client, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(here)).await.expect("a server");
        tokio::spawn(connection);
        client
    }

    async fn ask(mut client: SendRequest<Body>, path: &'static str) {
        let answer = client.send_request(Request::get(path).body(Body::empty()).expect("a request")).await;
        assert!(answer.expect("an answer").status().is_success());
    }

    /// Whether a stranger waits for an answer while somebody who is known gets many, on the same connection.
    async fn waits(client: &SendRequest<Body>) -> bool {
        let stranger = tokio::spawn(ask(client.clone(), "/stranger"));
        for _ in 0..20 {
            if stranger.is_finished() {
                break;
            }
            ask(client.clone(), "/known").await;
        }
        !stranger.is_finished()
    }

    #[tokio::test]
    async fn a_burst_of_connections_waits_for_its_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        coppice_gateway::keep_waiting(&listener).expect("it listens");
        let address = listener.local_addr().expect("an address");
        let mut connections = vec![];
        while connections.len() < 600 {
            let connected = tokio::time::timeout(DRAIN_PATIENCE, TcpStream::connect(address)).await;
            connections.push(connected.expect("room, though nobody accepts").expect("a connection"));
        }
    }

    #[tokio::test]
    async fn a_stranger_who_asks_too_often_waits_alone_and_behind_a_proxy_never() {
        let answers = answers();
        let (own, proxy) = ("192.0.2.2", "192.0.2.1");
        let ask_too_often = || {
            for address in [own, proxy].map(|address| address.parse().expect("an address")) {
                while answers.strangers.is_answered_at_once(address) {}
            }
        };
        let clients = [connect(&answers, own).await, connect(&answers, proxy).await];
        let mut waited = [false; 2];
        for _ in 0..20 {
            for (client, waited) in clients.iter().zip(&mut waited) {
                ask_too_often();
                *waited |= waits(client).await;
            }
        }
        assert_eq!(waited, [true, false], "whoever else is behind a proxy would wait with it");
    }

    #[tokio::test]
    async fn a_connection_whose_body_does_not_come_makes_room_for_one_of_somebody_else() {
        let (came, mut has_come) = mpsc::channel(8);
        let known = move |request: axum::extract::Request, next: Next| {
            context::note_caller("user", &Holder::from_trusted(request.uri().path()));
            let _ = came.try_send(());
            next.run(request)
        };
        let router = Router::new().route("/{name}", post(async |_: Bytes| "hello"));
        let router = router.layer(from_fn(known)).layer(from_fn(identify));
        let answers = Answers { router, ..answers() };
        let all = connections(8);
        let (mut seats, mut answers_to_come) = (vec![], vec![]);
        let mut post_to = async |path: &str, body: Body| {
            let peer = SocketAddr::from(([192, 0, 2, 2], 1));
            let seat = Arc::new(all.admit(peer.ip()).expect("room"));
            seats.push(seat.clone());
            let mut client = connect_with(&answers, peer, seat).await;
            let request = Request::post(path).body(body).expect("a request");
            answers_to_come.push(tokio::spawn(async move { client.send_request(request).await }));
            has_come.recv().await.expect("it has come");
        };
        for _ in 0..7 {
            let silent = stream::pending::<Result<Bytes, Infallible>>();
            post_to("/many", Body::from_stream(silent)).await;
        }
        post_to("/few", Body::from("all of it")).await;
        let answered = answers_to_come.pop().expect("one").await.expect("it ends");
        assert_eq!(answered.expect("an answer").status(), 200);
        assert_eq!(seats[0].ended().await, Ending::Displaced, "it was the first whose body has not come");
    }
}

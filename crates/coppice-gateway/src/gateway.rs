//! Stage: taking clients in, and letting them go.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use coppice_pgwire::encode;
use coppice_turns::Turns;
use parking_lot::RwLock;
use rustix::net::sockopt;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::failures::Failures;
use crate::handshakes::Handshakes;
use crate::lanes::Lanes;
use crate::places::{Full, Places};
use crate::pool::Pools;
use crate::reason::Reason;
use crate::sessions::Sessions;
use crate::waiting::Waiters;
use crate::{Branches, Certificate, GatewayConfig, metrics};

/// How long to wait when the system has no socket left for us.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Questions about one branch at the same time.
const QUESTIONS_OF_BRANCH_MAX: usize = 4;
/// How often it is looked whether the logins of open sessions are over.
const LOGINS_LOOK: Duration = Duration::from_secs(1);
/// A client that vanished without a word is noticed after idle + count × interval.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 6;
/// What the kernel takes for a client beyond what is under way to it. What is under way is as much as the client's
/// window and the line take, however far it is; so this only has to last until we are told that there is room again:
/// at 10 Gbit/s it is 0.1 ms.
const UNSENT_BYTES: u32 = 128 << 10;

/// Takes clients in and connects them to the servers of their branches.
pub struct Gateway {
    pub(crate) config: GatewayConfig,
    certificate: RwLock<Certificate>,
    pub(crate) branches: Arc<dyn Branches>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) waiters: Waiters,
    pub(crate) failures: Failures,
    /// Questions about branches, by the name that was sent. Strangers cause them, so what they
    /// cost a branch is bounded however many strangers there are, and no other branch waits.
    pub(crate) questions: Turns<String>,
    pub(crate) handshakes: Handshakes,
    pub(crate) pools: Pools,
    pub(crate) places: Arc<Places>,
    /// Those of visitors.
    pub(crate) visitors: Arc<Places>,
    /// Counts sessions that replicas serve.
    pub(crate) replica_turn: AtomicUsize,
    lanes: Lanes,
    pub(crate) clients: TaskTracker,
    /// Ends those that outlast the drain timeout.
    pub(crate) cut: CancellationToken,
}

/// Bytes that passed through open and past sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// From clients to servers.
    pub from_clients: u64,
    /// From servers to clients.
    pub to_clients: u64,
}

/// How many clients there are, and how many there may be, but for visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Clients that are served, with or without a session.
    pub taken: usize,
    /// How many of them have not signed in yet.
    pub starting: usize,
    /// Clients that may be served at the same time.
    pub places: usize,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway to these branches that keeps its sessions in `sessions`, and
    /// shows `certificate` to clients that use TLS. Their handshakes are computed
    /// on the runtime in which it is made.
    ///
    /// # Errors
    /// When the system has no threads for it.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(
        config: GatewayConfig,
        certificate: Certificate,
        branches: Arc<dyn Branches>,
        sessions: Arc<Sessions>,
    ) -> io::Result<Self> {
        metrics::describe();
        Ok(Self {
            lanes: Lanes::start()?,
            certificate: RwLock::new(certificate),
            places: Places::new(config.limits),
            visitors: Places::new(config.visitors),
            failures: Failures::new(config.failures_per_minute),
            questions: Turns::of_each(QUESTIONS_OF_BRANCH_MAX),
            handshakes: Handshakes::on(Handle::current()),
            pools: Pools::default(),
            replica_turn: AtomicUsize::new(0),
            sessions,
            waiters: Waiters::default(),
            clients: TaskTracker::new(),
            cut: CancellationToken::new(),
            config,
            branches,
        })
    }

    /// Its sessions.
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// What passed through since the start.
    pub fn traffic(&self) -> Traffic {
        let counters = &self.sessions.counters;
        Traffic {
            from_clients: counters.from_clients.load(Ordering::Relaxed),
            to_clients: counters.to_clients.load(Ordering::Relaxed),
        }
    }

    /// When its certificate ends, in seconds of Unix time; none when that is not understood.
    pub fn certificate_expiry(&self) -> Option<i64> {
        self.certificate().expiry
    }

    /// Shows another certificate to clients that connect from now on.
    pub fn set_certificate(&self, certificate: Certificate) {
        *self.certificate.write() = certificate;
    }

    pub(crate) fn certificate(&self) -> Certificate {
        self.certificate.read().clone()
    }

    /// How full it is.
    pub fn occupancy(&self) -> Occupancy {
        let (taken, starting) = self.places.taken_and_starting();
        Occupancy { taken, starting, places: self.config.limits.total }
    }

    /// Takes clients in until `stop`, then returns as soon as all of them have
    /// ended, cutting those that outlast the drain timeout. Who was taken in
    /// is served to the end.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        if let Err(error) = keep_waiting(&listener) {
            tracing::warn!("bursts of clients may have to wait: {error}");
        }
        let _watch = AbortOnDropHandle::new(tokio::spawn(self.clone().watch_logins()));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((tcp, address)) => self.take_in(tcp, address),
                Err(error) => {
                    tracing::warn!("a client could not be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        self.clients.close();
        if tokio::time::timeout(self.config.drain_timeout, self.clients.wait()).await.is_err() {
            tracing::warn!(
                "cutting {} client connections that outlast the drain timeout",
                self.clients.len()
            );
            self.cut.cancel();
            self.clients.wait().await;
        }
    }

    fn take_in(self: &Arc<Self>, tcp: TcpStream, address: SocketAddr) {
        metrics::connected();
        let client_address = address.ip().to_canonical();
        let is_proxy = self.config.trusted_proxies.trusts(client_address);
        let place = match self.places.enter((!is_proxy).then_some(client_address)) {
            Ok(place) => place,
            Err(full) => {
                turn_away(tcp, full);
                return metrics::refused(Reason::TooMany);
            }
        };
        let tcp = match tune(&tcp).and_then(|()| tcp.into_std()) {
            Ok(tcp) => tcp,
            Err(error) => {
                tracing::debug!(%client_address, "a client left at once: {error}");
                return metrics::refused(Reason::Gone);
            }
        };
        let (gateway, displaced) = (self.clone(), place.displaced());
        let served = Box::pin(async move { gateway.serve_client(tcp, client_address, place).await });
        self.serve_until_cut(async move {
            until_displaced(displaced, served).await;
        });
    }

    /// Ends the sessions of logins that are over, as long as there is anybody to look after.
    async fn watch_logins(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOGINS_LOOK).await;
            let open = self.sessions.logins();
            if open.is_empty() {
                continue;
            }
            match self.branches.over(&open).await {
                Ok(over) => over.iter().for_each(|(branch, role)| self.sessions.end_login(branch, role)),
                // Whoever asks again is told the same.
                Err(error) => tracing::warn!("logins of keys can't be looked at: {}", error.for_log()),
            }
        }
    }

    /// Goes on until it ends, or the drain timeout is over.
    pub(crate) fn serve_until_cut(&self, served: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        let until_cut = async move {
            tokio::select! {
                () = served => {}
                () = cut.cancelled() => {}
            }
        };
        self.clients.spawn_on(until_cut, self.lanes.next());
    }
}

/// What serves a client. It is in a place of its own, because each future around
/// it would have room for it twice.
type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Goes on until it ends, or its client's place is another's; tells which.
pub(crate) async fn until_displaced(displaced: CancellationToken, served: Served) -> bool {
    let is_displaced = displaced.run_until_cancelled(served).await.is_none();
    if is_displaced {
        metrics::refused(Reason::TooMany);
    }
    is_displaced
}

/// Says why to a client that has no place, as far as that needs no waiting. One
/// that asked for TLS understands it, too: a server without TLS says it so.
pub(crate) fn turn_away(tcp: TcpStream, full: Full) {
    let mut message = BytesMut::new();
    encode::fatal_error(&mut message, &full.refusal().report());
    let Ok(mut tcp) = tcp.into_std() else { return };
    let _ = tcp.write_all(&message);
    let _ = tcp.shutdown(Shutdown::Write);
    // Bytes that nobody reads would make the kernel take the message back.
    let _ = tcp.read(&mut [0; 1024]);
}

/// Has a listener keep as many connections that were not accepted yet as the system allows. The standard library asks for
/// 128: what is beyond in a burst would try again after a second.
///
/// # Errors
/// When it does not listen.
pub fn keep_waiting(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, i32::MAX)?)
}

/// Has a connection send at once what there is, keep little in the kernel of what its client
/// doesn't read, and notice when its client vanished.
///
/// All sockets of the machine share the memory that the kernel has for them (`tcp_mem`). Nobody counts
/// what is there of a client, and without a bound that may be some megabytes of each.
///
/// # Errors
/// When the client is gone already.
pub fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_COUNT)?;
    SockRef::from(tcp).set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// Has the kernel end a connection whose client takes nothing of what is sent for so long, or confirms none
/// of it; also when it was closed meanwhile.
///
/// # Errors
/// When the client is gone already.
pub fn end_untaken_after(tcp: &TcpStream, patience: Duration) -> io::Result<()> {
    let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(tcp, millis)?)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;
    use tokio::time::timeout;

    use super::*;

    /// Taken for "the kernel takes nothing any more".
    const SILENCE: Duration = Duration::from_secs(1);

    /// A connection, and its client, who reads nothing.
    async fn unread() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpSocket::new_v4().expect("a socket");
        client.set_recv_buffer_size(2048).expect("a small buffer");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(client.connect(address), listener.accept());
        (accepted.expect("a client").0, client.expect("a connection"))
    }

    #[tokio::test]
    async fn of_what_a_client_does_not_read_the_kernel_keeps_little() {
        let (tcp, _client) = unread().await;
        tune(&tcp).expect("it is there");
        let (mut taken, bound) = (0, 2 * UNSENT_BYTES as usize);
        while taken <= bound && timeout(SILENCE, tcp.writable()).await.is_ok() {
            taken += tcp.try_write(&[0; 16 << 10]).unwrap_or_default();
        }
        assert!(taken <= bound, "{taken} bytes");
    }

    async fn send_for_ever(tcp: &TcpStream) -> io::Result<()> {
        loop {
            tcp.writable().await?;
            match tcp.try_write(&[0; 16 << 10]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => _ = written?,
            }
        }
    }

    #[tokio::test]
    async fn a_connection_ends_whose_client_takes_nothing() {
        let (tcp, _client) = unread().await;
        end_untaken_after(&tcp, SILENCE).expect("it is there");
        let ended = timeout(Duration::from_secs(60), send_for_ever(&tcp)).await.expect("it ends");
        assert_eq!(ended.expect_err("it ends").kind(), io::ErrorKind::TimedOut);
    }
}

//! TLS handshakes: computed by turns of networks, and not where clients are served.
//!
//! The first message of one costs a stranger nothing, and the answer to it takes longer than many
//! messages of sessions. So handshakes are computed on the threads of the program, a few at a time.
//! Between messages, while its client has the word, a handshake has no turn.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use coppice_core::network;
use coppice_turns::Turns;
use rustls::server::ServerConfig;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

/// Handshakes that are computed at the same time, and of them those of one network.
const AT_ONCE: usize = 4;
const OF_NETWORK: usize = 2;

/// See the module.
pub(crate) struct Handshakes {
    turns: Turns<IpAddr>,
    /// Where they are computed.
    runtime: Handle,
}

impl Handshakes {
    pub(crate) fn on(runtime: Handle) -> Self {
        Self { turns: Turns::new(AT_ONCE, OF_NETWORK), runtime }
    }

    /// Begins TLS with a client that is at this address. Takes as long as the client does, and ends, also
    /// while it waits for its turn, when nobody waits for it any more.
    ///
    /// # Errors
    /// When the client is gone, or there is no TLS that both speak.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        client: IpAddr,
        tls: Arc<ServerConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.compute(client, TlsAcceptor::from(tls).accept(tcp)).await
    }

    async fn compute<T: Send + 'static>(
        &self,
        client: IpAddr,
        handshake: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (turns, network) = (self.turns.clone(), network::site(client));
        let computing = self.runtime.spawn(async move { in_turns(&turns, &network, handshake).await });
        AbortOnDropHandle::new(computing).await?
    }
}

/// Does work of a network that has a turn whenever there is something to do.
async fn in_turns<T>(turns: &Turns<IpAddr>, network: &IpAddr, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        let turn = turns.take(network).await;
        let done = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        drop(turn);
        if let Poll::Ready(done) = done {
            return done;
        }
        // The work has the task woken when it can go on.
        woken().await;
    }
}

/// Returns when the task is woken.
async fn woken() {
    let mut was_asleep = false;
    let until_woken = poll_fn(|_| match std::mem::replace(&mut was_asleep, true) {
        false => Poll::Pending,
        true => Poll::Ready(()),
    });
    until_woken.await;
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::sync::oneshot;
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::timeout;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    fn one_at_a_time() -> Handshakes {
        Handshakes { turns: Turns::new(1, 1), runtime: Handle::current() }
    }

    #[tokio::test]
    async fn a_handshake_that_waits_for_its_client_keeps_nobody_waiting() {
        let handshakes = one_at_a_time();
        let (says, hears) = oneshot::channel();
        let slow = handshakes.compute(ONE, async { hears.await.map_err(io::Error::other) });
        let others = async {
            handshakes.compute(ONE, async { Ok(()) }).await.expect("the turn is free");
            says.send("the rest").expect("it still waits");
        };
        let (slow, ()) = tokio::join!(slow, others);
        assert_eq!(slow.expect("its client went on"), "the rest");
    }

    #[tokio::test]
    async fn a_network_with_many_is_not_before_one_with_few() {
        let handshakes = Arc::new(one_at_a_time());
        let held = handshakes.turns.take(&network::site(ONE)).await;
        let (order, mut all) = (Arc::<Mutex<Vec<IpAddr>>>::default(), JoinSet::new());
        for client in [ONE; 8].into_iter().chain([OTHER]) {
            let (handshakes, order) = (handshakes.clone(), order.clone());
            let handshake = async move {
                order.lock().push(client);
                Ok(())
            };
            all.spawn(async move { handshakes.compute(client, handshake).await });
        }
        // All happens on one thread: each waits for its turn when nothing more does.
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(order.lock().is_empty(), "nobody has a turn");
        drop(held);
        while let Some(ended) = all.join_next().await {
            ended.expect("it does not panic").expect("it is done");
        }
        let before = order.lock().iter().position(|client| *client == OTHER);
        assert!(before.is_some_and(|before| before < 2), "{before:?} were before");
    }

    #[tokio::test]
    async fn a_handshake_whose_time_is_over_ends_while_it_waits_for_its_turn() {
        let handshakes = one_at_a_time();
        let held = handshakes.turns.take(&network::site(ONE)).await;
        let (ends, ended) = oneshot::channel::<()>();
        let handshake = async move {
            let _ends = ends;
            pending::<io::Result<()>>().await
        };
        let given_up = timeout(Duration::ZERO, handshakes.compute(ONE, handshake)).await;
        assert!(given_up.is_err(), "it has no turn");
        assert!(ended.await.is_err(), "it is gone, with its client");
        drop(held);
        handshakes.compute(ONE, async { Ok(()) }).await.expect("the turn is free");
    }
}

//! Where clients are served: on threads of their own, each with an event loop.
//!
//! A client and its server stay on one thread. Passing a message on takes a few
//! microseconds, of which waking another thread for it would be a good part, and
//! a thread that serves many has the next message at hand when it is done with
//! one. Whatever takes longer is asked of [`Branches`](crate::Branches), which
//! answers from elsewhere, and TLS handshakes are computed there (`handshakes.rs`).

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// All threads.
pub(crate) struct Lanes {
    lanes: Vec<Handle>,
    turn: AtomicUsize,
    /// They end with this.
    _stop: DropGuard,
}

impl Lanes {
    /// One thread for each two processors: the servers, and clients of this
    /// machine, need as much of them again.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn start() -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let lanes = (0..processors.div_ceil(2)).map(|number| start_lane(number, stop.clone()));
        Ok(Self { lanes: lanes.collect::<io::Result<_>>()?, turn: AtomicUsize::new(0), _stop: guard })
    }

    /// The thread whose turn it is to take a client.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.lanes[turn % self.lanes.len()]
    }
}

fn start_lane(number: usize, stop: CancellationToken) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("gateway-{number}")).spawn(move || {
        runtime.block_on(stop.cancelled());
        // Nobody waits for keys that are still being derived.
        runtime.shutdown_background();
    })?;
    Ok(handle)
}

//! Work that takes a processor for a while, and how much of it is done at once.

use coppice_core::{Error, Result};
use tokio::sync::Semaphore;

/// Turns at some work; who finds none free waits for one.
#[derive(Debug)]
pub(crate) struct Turns(Semaphore);

impl Turns {
    /// So many at once.
    pub(crate) const fn new(count: usize) -> Self {
        Self(Semaphore::const_new(count))
    }

    /// Does work in its turn, on a thread that may block. It has it to its end, also
    /// when nobody waits for that any more.
    ///
    /// # Errors
    /// What the work ends with; `internal` when it panics.
    pub(crate) async fn take<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.0.acquire().await.map_err(Error::internal)?;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        working.await.map_err(Error::internal)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn work_whose_client_is_gone_has_its_turn_to_its_end() {
        static TURNS: Turns = Turns::new(1);
        let (begun, has_begun) = channel();
        let (end, ends) = channel::<()>();
        let work = move || {
            begun.send(()).map_err(Error::internal)?;
            ends.recv().map_err(Error::internal)
        };
        let client = tokio::spawn(TURNS.take(work));
        tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("a thread").expect("it has begun");
        client.abort();
        assert!(client.await.expect_err("nobody waits").is_cancelled());
        assert_eq!(TURNS.0.available_permits(), 0, "the work goes on");
        end.send(()).expect("it still waits");
        TURNS.take(|| Ok(())).await.expect("the next one has its turn then");
    }
}

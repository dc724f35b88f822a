//! Work that blocks on a disk, away from the threads that serve everybody; and work that nobody can leave in the
//! middle.

use tokio::sync::oneshot;

use crate::{EngineError, Result, errand};

/// Does it on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let errand = errand::current();
    let done = tokio::task::spawn_blocking(move || errand::work_for(errand, work));
    done.await.map_err(|error| EngineError::Other(error.to_string()))?
}

/// Does it to its end, also when whoever waits for that gives up: then the outcome is undone.
pub(super) async fn to_its_end<T: Send + 'static, U: Future<Output = ()> + Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
    undo: impl FnOnce(T) -> U + Send + 'static,
) -> Result<T> {
    let (errand, (told, outcome)) = (errand::current(), oneshot::channel());
    tokio::spawn(async move {
        if let Err(Ok(unwanted)) = told.send(work.await) {
            undo(unwanted).await;
        }
        drop(errand);
    });
    outcome.await.unwrap_or_else(|_| Err(EngineError::Other("it panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::errand::{Errand, on_errand};

    struct Asked;

    impl Errand for Asked {
        fn is_given_up(&self) -> bool {
            false
        }
    }

    /// Begins calls for an errand, and gives them up when `has_begun` says so.
    async fn give_up(calls: impl Future, has_begun: mpsc::Receiver<()>) -> Weak<Asked> {
        let asked = Arc::new(Asked);
        let left = Arc::downgrade(&asked);
        let mut calls = Box::pin(on_errand(asked, calls));
        while has_begun.try_recv().is_err() {
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut calls).await;
        }
        left
    }

    async fn is_over(errand: &Weak<Asked>) {
        while errand.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn an_errand_is_not_over_while_a_thread_goes_on_with_it() {
        let ((begun, has_begun), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let calls = blocking(move || {
            begun.send(()).expect("somebody looks");
            ends.recv().map_err(|error| EngineError::Other(error.to_string()))
        });
        let left = give_up(calls, has_begun).await;
        assert_eq!(left.strong_count(), 1);
        end.send(()).expect("it goes on");
        is_over(&left).await;
    }

    #[tokio::test]
    async fn what_goes_to_its_end_is_undone_when_it_was_given_up() {
        let ((begun, has_begun), (undone, is_undone)) = (mpsc::channel(), mpsc::channel());
        let (end, ends) = oneshot::channel();
        let work = async move {
            begun.send(()).expect("somebody looks");
            ends.await.map_err(|_| EngineError::Other("nobody ends it".to_owned()))
        };
        let undo = move |outcome: u32| async move { undone.send(outcome).expect("somebody looks") };
        let left = give_up(to_its_end(work, undo), has_begun).await;
        assert_eq!(left.strong_count(), 1);
        end.send(7).expect("it goes on");
        is_over(&left).await;
        assert_eq!(is_undone.try_recv(), Ok(7));
    }

    #[tokio::test]
    async fn what_goes_to_its_end_is_left_to_who_waits_for_it() {
        let (undone, is_undone) = mpsc::channel();
        let undo = move |outcome: u32| async move { undone.send(outcome).expect("somebody looks") };
        assert_eq!(to_its_end(async { Ok(7) }, undo).await.expect("its outcome"), 7);
        assert!(is_undone.try_recv().is_err());
    }
}

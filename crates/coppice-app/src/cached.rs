//! What somebody else says, kept for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::outside::error::OutsideError;

/// How long it is believed.
const AGE_MAX: Duration = Duration::from_secs(3600);
/// A fetch is not repeated earlier, whatever the reason.
const AGE_MIN: Duration = Duration::from_secs(5);
/// Pause after the first failure; it doubles with every further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A value that is fetched when it is missing, old, or lacks something.
#[derive(Debug)]
pub(crate) struct Cached<T, E = OutsideError> {
    state: Mutex<State<T, E>>,
    /// Whoever fetches has it.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T, E> {
    value: Option<(Instant, Arc<T>)>,
    failure: Option<Failure<E>>,
}

#[derive(Debug)]
struct Failure<E> {
    until: Instant,
    pause: Duration,
    error: E,
}

impl<T, E> Default for Cached<T, E> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { value: None, failure: None }),
            fetching: tokio::sync::Mutex::default(),
        }
    }
}

impl<T, E: Clone> Cached<T, E> {
    /// The value; fetched anew if it is old or not `is_enough`, unless that was
    /// just done: then it is what there is. All who need that wait for one fetch, and
    /// nobody else does: anybody can ask for what is not there.
    ///
    /// # Errors
    /// What `fetch` says; while it pauses after failures, what it said last.
    pub(crate) async fn get<F>(
        &self,
        is_enough: impl Fn(&T) -> bool,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        if let Some(there) = self.there(&is_enough) {
            return there;
        }
        let _fetching = self.fetching.lock().await;
        // Somebody may have fetched it meanwhile.
        if let Some(there) = self.there(&is_enough) {
            return there;
        }
        let fetched = fetch().await;
        let mut state = self.state.lock();
        match fetched {
            Ok(value) => {
                let value = Arc::new(value);
                *state = State { value: Some((Instant::now(), value.clone())), failure: None };
                Ok(value)
            }
            Err(error) => {
                let pause = state.failure.as_ref().map_or(PAUSE_MIN, |last| (last.pause * 2).min(PAUSE_MAX));
                let until = Instant::now() + pause;
                state.failure = Some(Failure { until, pause, error: error.clone() });
                Err(error)
            }
        }
    }

    /// What is answered without a fetch, if anything is.
    fn there(&self, is_enough: impl Fn(&T) -> bool) -> Option<Result<Arc<T>, E>> {
        let state = self.state.lock();
        if let Some((at, value)) = &state.value {
            let age = at.elapsed();
            if age < AGE_MIN || (age < AGE_MAX && is_enough(value)) {
                return Some(Ok(value.clone()));
            }
        }
        let failure = state.failure.as_ref().filter(|failure| Instant::now() < failure.until);
        failure.map(|failure| Err(failure.error.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn who_asks_at_the_same_time_waits_for_one_fetch() {
        let (cached, fetches) = (Cached::<_, OutsideError>::default(), AtomicU32::new(0));
        let ask = || {
            cached.get(
                |_| true,
                || async {
                    tokio::task::yield_now().await;
                    Ok(fetches.fetch_add(1, Ordering::Relaxed))
                },
            )
        };
        let (a, b) = tokio::join!(ask(), ask());
        assert_eq!((*a.expect("a value"), *b.expect("a value")), (0, 0));
        assert_eq!(fetches.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn whose_value_is_there_does_not_wait_for_a_fetch_of_another() {
        let cached = Cached::<_, OutsideError>::default();
        cached.get(|_| true, || async { Ok(1) }).await.expect("a value");
        if let Some((at, _)) = &mut cached.state.lock().value {
            *at -= 2 * AGE_MIN;
        }
        let is_two = |value: &i32| *value == 2;
        let fetching = cached.get(is_two, std::future::pending::<Result<i32, OutsideError>>);
        let asking = async {
            tokio::task::yield_now().await;
            cached.get(|_| true, || async { Ok(3) }).await
        };
        let got = tokio::select! {
            biased;
            _ = fetching => unreachable!("it has no end"),
            got = asking => got,
        };
        assert_eq!(*got.expect("a value"), 1);
    }

    #[tokio::test]
    async fn asking_for_what_is_not_there_does_not_fetch_again_and_again() {
        let (cached, fetches) = (Cached::<_, OutsideError>::default(), AtomicU32::new(0));
        for _ in 0..10 {
            let got = cached.get(|_| false, || async { Ok(fetches.fetch_add(1, Ordering::Relaxed)) }).await;
            assert_eq!(*got.expect("what there is"), 0);
        }
        assert_eq!(fetches.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_failure_is_told_again_without_a_fetch_while_it_pauses() {
        let (cached, fetches) = (Cached::<()>::default(), AtomicU32::new(0));
        for _ in 0..10 {
            let got = cached
                .get(
                    |()| true,
                    || async {
                        fetches.fetch_add(1, Ordering::Relaxed);
                        Err(OutsideError::Unreachable("refused".to_owned()))
                    },
                )
                .await;
            assert_eq!(got, Err(OutsideError::Unreachable("refused".to_owned())));
        }
        assert_eq!(fetches.load(Ordering::Relaxed), 1);
    }
}

//! Tasks: work that goes on beside requests, each under a name.
//!
//! One that fails or panics is done again: nobody else does its work. The log
//! says why it failed, and `/metrics` when it last succeeded and how often it
//! should.

mod list;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use coppice_core::Result;
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::metrics;
use crate::pace::Pace;

/// Pause before a task that panicked is begun again.
const AFTER_PANIC: Duration = Duration::from_secs(5);
/// The tasks of a process. Dropping them ends them without ceremony.
#[derive(Debug, Default)]
pub struct Tasks(Vec<AbortOnDropHandle<()>>);

impl Tasks {
    /// Does `work` at once, and again each `period` after it began, or as soon
    /// as it has ended.
    pub fn every<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.every_taking(name, period, period, state, work);
    }

    /// The same for work that takes up to `longest` now and then.
    pub fn every_taking<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        longest: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.repeat((name, longest), move |_, _| period, &Arc::default(), state, work);
    }

    /// The same, and as soon as it has ended when somebody nudges it.
    pub fn nudged<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        nudge: &Arc<Notify>,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.repeat((name, period), move |_, _| period, nudge, state, work);
    }

    /// The same, so that what was there when a turn began is dealt with `period` later: the
    /// next turn has ended by then, if it takes no longer than those before it.
    pub fn within<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut pace = Pace::new(period);
        let pause = move |took, is_done| pace.next(took, is_done);
        self.repeat((name, period), pause, &Arc::default(), state, work);
    }

    /// Does `work` at once, and again and again. By how long a turn took, and whether
    /// it went well, `pause` says how long after its beginning the next one begins, unless
    /// somebody nudges it; not before it has ended.
    fn repeat<S, F>(
        &mut self,
        (name, longest): (&'static str, Duration),
        mut pause: impl FnMut(Duration, bool) -> Duration + Send + 'static,
        nudge: &Arc<Notify>,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        metrics::task_begun(name, longest);
        let (state, nudge) = (state.clone(), nudge.clone());
        self.0.push(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut runs = Runs { name, complaint: None };
            loop {
                let began = Instant::now();
                let is_done = runs.run(work(state.clone())).await;
                let next = began + pause(began.elapsed(), is_done);
                let _ = timeout_at(next, nudge.notified()).await;
            }
        })));
    }

    /// Does work that knows itself when there is something to do, until it ends.
    pub fn keep<F>(&mut self, name: &'static str, work: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.push(AbortOnDropHandle::new(tokio::spawn(kept(name, work))));
    }
}

/// A task's runs, one after the other.
struct Runs {
    name: &'static str,
    complaint: Option<String>,
}

impl Runs {
    /// Tells whether it went well.
    async fn run(&mut self, work: impl Future<Output = Result<()>>) -> bool {
        let name = self.name;
        let failure = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.for_log()),
            Err(_) => Some("it panicked".to_owned()),
        };
        match &failure {
            None => metrics::task_succeeded(name),
            // Said once, not at every run.
            Some(why) if failure != self.complaint => tracing::warn!("the task {name} failed: {why}"),
            Some(_) => {}
        }
        self.complaint = failure;
        self.complaint.is_none()
    }
}

/// Work that is begun again when it panics, until it ends.
pub async fn kept<F>(name: &'static str, work: impl Fn() -> F + Send)
where
    F: Future<Output = ()> + Send,
{
    while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
        tracing::error!("the task {name} panicked: it is begun again");
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use coppice_core::Error;

    use super::*;

    #[tokio::test]
    async fn a_task_goes_on_after_a_failure_and_a_panic_and_ends_with_its_owner() {
        let turns = Arc::new(AtomicU32::new(0));
        let mut tasks = Tasks::default();
        tasks.every("test", Duration::from_millis(1), &turns, |turns| async move {
            match turns.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::internal("it fails")),
                1 => panic!("it panics"),
                _ => Ok(()),
            }
        });
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let wait_for = async |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(tokio::time::Instant::now() < deadline, "{turns:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        wait_for(&|| turns.load(Ordering::Relaxed) > 3).await;
        drop(tasks);
        wait_for(&|| Arc::strong_count(&turns) == 1).await;
    }
}

//! What goes on of a call that was given up.
//!
//! Whoever drops a call of the engine ends what waits in it, but no thread that blocks on a disk, and no program that
//! is on its way into its cgroup, where it is killed then. So both hold the *errand* that the call is made for: when
//! that is dropped, nothing of it goes on any more, and another process may do the work.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

tokio::task_local! {
    static OF_TASK: Arc<dyn Errand>;
}

thread_local! {
    static OF_THREAD: RefCell<Option<Arc<dyn Errand>>> = const { RefCell::new(None) };
}

/// What calls of the engine are made for. It is over when it is dropped.
pub trait Errand: Send + Sync {
    /// Whether nobody waits for the outcome any more: what takes long ends with an error then.
    fn is_given_up(&self) -> bool;
}

/// Makes calls of the engine for an errand.
pub fn on_errand<F: Future>(errand: Arc<dyn Errand>, calls: F) -> impl Future<Output = F::Output> {
    OF_TASK.scope(errand, calls)
}

/// What this task makes its calls for, if that is known.
pub(crate) fn current() -> Option<Arc<dyn Errand>> {
    OF_TASK.try_with(Arc::clone).ok()
}

/// Does work on this thread for an errand.
pub(crate) fn work_for<T>(errand: Option<Arc<dyn Errand>>, work: impl FnOnce() -> T) -> T {
    OF_THREAD.with_borrow_mut(|held| *held = errand);
    let _held = Held;
    work()
}

/// Lets the errand of this thread go when it is dropped, also by a panic.
struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        drop(OF_THREAD.with_borrow_mut(Option::take));
    }
}

/// Fails when what this thread does was given up. Asked between one file and the next by what takes as long as there
/// are files.
pub(crate) fn go_on() -> io::Result<()> {
    match OF_THREAD.with_borrow(|held| held.as_ref().is_some_and(|errand| errand.is_given_up())) {
        true => Err(io::Error::other("it was given up")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Asked(AtomicBool);

    impl Errand for Asked {
        fn is_given_up(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn work_that_was_given_up_ends_between_two_files_and_no_other_does() {
        let asked = Arc::<Asked>::default();
        work_for(Some(asked.clone()), || {
            go_on().expect("somebody waits for it");
            asked.0.store(true, Ordering::Relaxed);
            go_on().expect_err("nobody does any more");
        });
        assert_eq!(Arc::strong_count(&asked), 1, "it is over");
        go_on().expect("the thread does something else by now");
    }

    #[test]
    fn an_errand_is_over_when_its_work_panics() {
        let asked = Arc::<Asked>::default();
        let errand: Arc<dyn Errand> = asked.clone();
        let works = AssertUnwindSafe(move || work_for::<()>(Some(errand), || panic!("as a test does")));
        std::panic::catch_unwind(works).expect_err("it panics");
        assert_eq!(Arc::strong_count(&asked), 1);
    }
}

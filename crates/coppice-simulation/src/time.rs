//! The clocks of a thread that plays a history.
//!
//! Whatever is linked into the same program asks the C library for the time, by
//! this symbol: the standard library, and with it tokio's timers and chrono.
//! Threads that play nothing get the kernel's answer.

#![allow(unsafe_code, reason = "the symbol of the C library is taken over, and its contract with it")]

use std::cell::Cell;
use std::time::Duration;

/// What the clocks of a history say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// Since some moment in the past; never set back.
    pub(crate) monotonic: Duration,
    /// Since 1970; can be set.
    pub(crate) calendar: Duration,
}

thread_local! {
    static SIMULATED: Cell<Option<Clocks>> = const { Cell::new(None) };
}

/// Sets the clocks of this thread, or gives it the real ones back.
pub(crate) fn set_on_this_thread(clocks: Option<Clocks>) {
    SIMULATED.set(clocks);
}

/// clock_gettime(2).
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let simulated = SIMULATED.get().and_then(|clocks| match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Some(clocks.calendar),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => Some(clocks.monotonic),
        _ => None,
    });
    match simulated {
        Some(since) => {
            let tv_sec = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            let answer = libc::timespec { tv_sec, tv_nsec: since.subsec_nanos().into() };
            // SAFETY: the caller passes a place for the answer, as clock_gettime(2) asks of it.
            unsafe { time.write(answer) };
            0
        }
        // SAFETY: the arguments are the caller's, for the same call of the kernel.
        None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as libc::c_int },
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use super::*;

    #[test]
    fn a_thread_has_the_clocks_that_it_was_given_and_others_have_their_own() {
        let clocks = Clocks { monotonic: Duration::from_secs(1 << 40), calendar: Duration::from_secs(7) };
        set_on_this_thread(Some(clocks));
        let (before, calendar) = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed());
        set_on_this_thread(Some(Clocks { monotonic: clocks.monotonic + Duration::from_nanos(5), ..clocks }));
        let passed = before.elapsed();
        let elsewhere = std::thread::spawn(|| SystemTime::UNIX_EPOCH.elapsed()).join().expect("a time");
        set_on_this_thread(None);
        assert_eq!((passed, calendar.ok()), (Duration::from_nanos(5), Some(Duration::from_secs(7))));
        assert!(elsewhere.is_ok_and(|real| real > Duration::from_secs(1 << 30)));
        assert!(Instant::now() < before);
    }
}

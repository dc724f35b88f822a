//! As PID 1 of a container: a process that only reaps and passes signals on,
//! with the platform as its child. The platform then stops every branch before
//! it ends, because the container's end is the machine's end.

use std::process::Command;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Set for the platform by the process above.
const INSIDE_INIT: &str = "COPPICE_INSIDE_INIT";

/// Whether the end of this process is the end of the machine.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE_INIT).is_some()
}

/// Undoes, in the platform, the blocking of signals that the first process
/// needs for itself and that its child inherits.
pub(crate) fn unblock_signals() -> anyhow::Result<()> {
    SigSet::all().thread_unblock().context("unblocking signals")
}

/// Runs this program again as a child, with the same arguments, and reaps
/// whatever else ends, until the child does. Returns the child's exit code.
pub(crate) fn run_as_init() -> anyhow::Result<i32> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block().context("blocking signals")?;
    let program = std::env::current_exe().context("finding this program")?;
    let child = Command::new(program).args(std::env::args_os().skip(1)).env(INSIDE_INIT, "1").spawn();
    let child = Pid::from_raw(child.context("starting the platform")?.id() as i32);
    loop {
        let signal = signals.wait().context("waiting for a signal")?;
        if signal != Signal::SIGCHLD {
            let _ = kill(child, signal);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == child => return Ok(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return Ok(128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
}

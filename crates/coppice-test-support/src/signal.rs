//! Signals to processes.

use rustix::io::{Errno, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to a process.
///
/// # Errors
/// When there is no such process, or it is somebody else's.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    kill_process(pid, signal)
}

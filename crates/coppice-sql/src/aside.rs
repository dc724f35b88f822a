//! Work that takes as long as there are bytes.

use tokio::runtime::{Handle, RuntimeFlavor};

/// As much as is read at once in well under a millisecond.
const LITTLE: usize = 64 << 10;

/// Does work on so many bytes; where they are many, the other tasks of the thread go on elsewhere
/// meanwhile.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let has_others =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > LITTLE && has_others() { tokio::task::block_in_place(work) } else { work() }
}

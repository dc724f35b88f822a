//! Lines for whoever reads them, who may have gone: `… | head -1` closes the
//! pipe, which is no reason to panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this program has nothing to do but to be read.
static ENDS_WITH_READER: AtomicBool = AtomicBool::new(false);

/// A line of data on standard output.
macro_rules! say {
    ($($part:tt)*) => { $crate::say::line(format_args!($($part)*)) };
}

/// A line of prose on standard error.
macro_rules! note {
    ($($part:tt)*) => { $crate::say::note(format_args!($($part)*)) };
}

/// From now on the program ends as soon as nobody reads what it says.
pub(crate) fn end_with_reader() {
    ENDS_WITH_READER.store(true, Ordering::Relaxed);
}

/// See `say!`.
pub(crate) fn line(text: Arguments<'_>) {
    piece(&format!("{text}\n"));
}

/// Writes a piece of data, and ends the program if nobody reads any more.
pub(crate) fn piece(text: &str) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else { return };
    if !ENDS_WITH_READER.load(Ordering::Relaxed) {
        return;
    }
    let is_gone = error.kind() == ErrorKind::BrokenPipe;
    if !is_gone {
        note(format_args!("coppice: writing the answer: {error}"));
    }
    #[expect(clippy::disallowed_methods, reason = "a command that only answers starts and locks nothing")]
    std::process::exit(i32::from(!is_gone));
}

/// See `note!`. The commands that it names are completed.
pub(crate) fn note(text: Arguments<'_>) {
    remark(&crate::suggest::completed(&text.to_string()));
}

/// A line on standard error as it is.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

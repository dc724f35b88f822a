//! Lines for whoever reads them, who may have gone: `… | head -1` closes the
//! pipe, which is no reason to panic. Others wrote much of it, so nothing in it commands
//! the terminal that it is read on.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::words::harmless;

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
    whole(&format!("{text}\n"));
}

/// Writes data of many lines, as it is where no terminal shows it.
pub(crate) fn whole(text: &str) {
    piece(&shown(text, std::io::stdout().is_terminal()));
}

fn shown(text: &str, by_terminal: bool) -> Cow<'_, str> {
    match by_terminal {
        true => Cow::Owned(harmless(&text.replace("\r\n", "\n"))),
        false => Cow::Borrowed(text),
    }
}

/// Writes a piece of data that may command a terminal, as colours do, and ends the program
/// if nobody reads any more.
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

/// As [`note`], with commands as they are.
pub(crate) fn remark(text: &str) {
    let text = shown(text, std::io::stderr().is_terminal());
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_commands_no_terminal_and_reaches_programs_as_it_is() {
        let written = "a\u{1b}]0;b\u{7}\tc\r\nd\re\u{9b}2J\u{202e}\n";
        assert_eq!(shown(written, true), "a\u{fffd}]0;b\u{fffd}\tc\nd\u{fffd}e\u{fffd}2J\u{fffd}\n");
        assert_eq!(shown(written, false), written);
    }
}

//! Programs that end with whoever started them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs a program until nobody has the other end of its input, then removes what it leaves.
const KEEPER: &str = r#"
    signal=$1 leaves=$2
    shift 2
    "$@" </dev/null &
    read -r _
    kill -"$signal" $!
    wait $!
    rm -rf "$leaves"
"#;

/// A program that goes on until this is dropped; also when the tests are killed, or one of
/// them never lets go of it.
#[derive(Debug)]
pub(crate) struct Kept(Child);

impl Kept {
    /// Starts a program by a shell, which runs as whom it should. It ends by a signal, and
    /// leaves a directory, if it is not empty text.
    pub(crate) fn start<T: AsRef<OsStr>>(
        mut shell: Command,
        (signal, leaves): (&str, &Path),
        program: &Path,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        shell.args(["-c", KEEPER, "keeper", signal]).arg(leaves).arg(program).args(arguments);
        let kept = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(kept.unwrap_or_else(|error| panic!("{}: {error}", program.display())))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

//! Servers from the Python packages that `make setup` installs.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::kept::Kept;

/// A program of the Python packages that `make setup` installs.
pub fn python_program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin").join(name)
}

/// Starts a program of theirs that serves until it is killed.
pub(crate) fn spawn(name: &str, arguments: &[&str]) -> Kept {
    let program = python_program(name);
    assert!(program.exists(), "`make setup` installs {}", program.display());
    let mut shell = Command::new("sh");
    shell.stderr(Stdio::null());
    Kept::start(shell, ("KILL", "".as_ref()), &program, arguments)
}

/// Ports that nobody listens on.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

//! Servers from the Python packages that `make setup` installs.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

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

/// Ports that nobody listens on, and that no other test is given: whoever is to listen on one
/// begins later.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    static GIVEN: Mutex<Vec<UnixListener>> = Mutex::new(vec![]);
    [(); COUNT].map(|()| {
        loop {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let name = SocketAddr::from_abstract_name(format!("coppice-test-port-{port}")).expect("a name");
            if let Ok(held) = UnixListener::bind_addr(&name) {
                GIVEN.lock().expect("no panic").push(held);
                return port;
            }
        }
    })
}

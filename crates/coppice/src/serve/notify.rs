//! What a service manager is told: systemd's notification protocol
//! (sd_notify(3)), lines in a datagram to the socket named by `NOTIFY_SOCKET`.
//!
//! Libraries for it don't know abstract sockets, which container managers use,
//! and what is needed is one datagram. Without a manager nothing happens.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A manager that does not read its socket must not hold the platform up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Says what is being done, for people.
pub(super) fn status(text: &str) {
    send(&format!("STATUS={text}\n"));
}

/// Says that clients are served from now on, by this process: it may have
/// taken the place of the one that the manager started.
pub(super) fn ready(status: &str) {
    send(&format!("READY=1\nMAINPID={}\nSTATUS={status}\n", std::process::id()));
}

/// Says that the end has begun.
pub(super) fn stopping(status: &str) {
    send(&format!("STOPPING=1\nSTATUS={status}\n"));
}

fn send(lines: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send_to(&socket, lines) {
        tracing::warn!("telling the service manager at {}: {error}", socket.display());
    }
}

fn send_to(socket: &OsStr, lines: &str) -> io::Result<()> {
    let address = address(socket)?;
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to_addr(lines.as_bytes(), &address)?;
    Ok(())
}

/// A path, or after an `@` an abstract name.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(by: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let length = by.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_datagram_reaches_a_socket_with_a_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        send_to(path.as_os_str(), "READY=1\n").expect("is sent");
        assert_eq!(received(&manager), "READY=1\n");
    }

    #[test]
    fn a_datagram_reaches_an_abstract_socket() {
        let name = format!("coppice-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("a socket");
        send_to(OsStr::new(&format!("@{name}")), "STOPPING=1\n").expect("is sent");
        assert_eq!(received(&manager), "STOPPING=1\n");
    }

    #[test]
    fn a_manager_that_is_not_there_is_an_error_and_no_wait() {
        assert!(send_to(OsStr::new("/nonexistent/notify"), "READY=1\n").is_err());
    }
}

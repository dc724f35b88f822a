//! The platform as a service: what it tells its manager.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use coppice_test_support::Platform;

use crate::setup::{PROGRAM, options};

const PATIENCE: Duration = Duration::from_secs(120);

/// A service manager's end of the notification socket.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket, path, _directory: directory }
    }

    /// Everything up to the message with this line.
    fn hear(&self, line: &str) -> Vec<String> {
        let mut heard: Vec<String> = vec![];
        while !heard.iter().any(|message| message.lines().any(|said| said == line)) {
            let mut bytes = [0; 1000];
            let length = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{heard:?}: {error}"));
            heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        heard
    }
}

#[test]
fn the_manager_is_told_when_the_platform_serves_and_when_it_ends() {
    let manager = Manager::new();
    let mut options = options();
    options.environment.push(("NOTIFY_SOCKET".to_owned(), manager.path.display().to_string()));
    let mut coppice = Platform::prepare(PROGRAM, options);
    coppice.spawn();
    let heard = manager.hear("READY=1");
    assert!(heard.len() > 1, "what is being done is said before: {heard:?}");
    assert!(heard[..heard.len() - 1].iter().all(|message| message.starts_with("STATUS=")), "{heard:?}");
    assert!(coppice.data_dir().join("serve.json").exists(), "{heard:?}");
    coppice.wait_ready();
    assert!(heard.concat().contains(coppice.api().trim_start_matches("http://")), "{heard:?}");
    assert_eq!(coppice.call_as(None, "GET", "/readyz", None).0, 200);
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");

    assert_eq!(coppice.terminate(), Some(0));
    let heard = manager.hear("STOPPING=1");
    assert_eq!(heard.len(), 1, "nothing was said in between: {heard:?}");

    // A manager that does not listen any more is no reason not to start.
    drop(manager);
    coppice.restart();
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
    let log = coppice.log();
    assert!(log.contains("telling the service manager"), "{log}");
    assert!(!log.contains('\x1b'), "a log that is no terminal has no colors: {log:?}");
}

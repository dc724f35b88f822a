//! A server that speaks S3, for tests that need a bucket.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::wait_for;

const READY_PATIENCE: Duration = Duration::from_secs(60);

/// The secret that [`S3Server::environment`] has; to be found nowhere else.
pub const S3_SECRET: &str = "very secret";

/// moto's server. It ends with this, and what was in it is gone.
#[derive(Debug)]
pub struct S3Server {
    process: Child,
    port: u16,
}

/// A program of the Python packages that `make setup` installs.
pub fn python_program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin").join(name)
}

impl S3Server {
    /// Starts one on a free port, and waits until it listens.
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let program = python_program("moto_server");
        let process = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error} (`make setup` installs it)", program.display()));
        wait_for("moto listens", READY_PATIENCE, || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { process, port }
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What a program is told by that has to use it.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", "id".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3_SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }
}

/// Makes a bucket on the server at an endpoint.
pub fn make_bucket(endpoint: &str, name: &str) {
    let made = Command::new("curl").args(["-sfX", "PUT", &format!("{endpoint}/{name}")]).status();
    assert!(made.expect("curl runs").success());
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

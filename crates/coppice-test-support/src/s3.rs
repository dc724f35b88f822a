//! Servers that speak S3, for tests that need a bucket.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::kept::Kept;
use crate::python::{free_ports, python_program, spawn};
use crate::swift;
use crate::wait_for;

const READY_PATIENCE: Duration = Duration::from_secs(60);

/// The secret that [`S3Server::environment`] has; to be found nowhere else.
pub const S3_SECRET: &str = "very-secret";

/// Makes a bucket of the first argument.
const MAKE_BUCKET: &str = "import boto3, sys; \
                           boto3.client('s3', region_name='us-east-1').create_bucket(Bucket=sys.argv[1])";

/// A server that speaks S3. It ends with this, and what was in it is gone.
#[derive(Debug)]
pub struct S3Server {
    _processes: Vec<Kept>,
    port: u16,
    access_key: &'static str,
    /// Where it keeps what it has, if that is on a disk.
    _home: Option<TempDir>,
}

impl S3Server {
    /// Starts moto's server, which imitates AWS in memory and checks nobody's signature.
    pub fn start() -> Self {
        let [port] = free_ports();
        let process = spawn("moto_server", &["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = Self { _processes: vec![process], port, access_key: "id", _home: None };
        server.wait_for(&[port]);
        server
    }

    /// Starts OpenStack Swift, which people keep their objects in: it writes files,
    /// checks signatures, and has its own reading of S3.
    pub fn swift() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let ports = free_ports();
        let _processes = swift::start(home.path(), ports, S3_SECRET);
        let access_key = swift::ACCESS_KEY;
        let server = Self { _processes, port: ports[swift::PROXY], access_key, _home: Some(home) };
        server.wait_for(&ports);
        server
    }

    /// Waits until somebody listens on all of these ports.
    fn wait_for(&self, ports: &[u16]) {
        for port in ports {
            wait_for("the S3 server listens", READY_PATIENCE, || {
                TcpStream::connect(("127.0.0.1", *port)).ok()
            });
        }
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What a program is told by that has to use it.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", self.access_key.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3_SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }

    /// Makes a bucket.
    pub fn make_bucket(&self, name: &str) {
        make_bucket(&self.environment(), name);
    }
}

/// Makes a bucket on the server that this environment names, or that of this process.
pub fn make_bucket(environment: &[(&'static str, String)], name: &str) {
    let mut python = Command::new(python_program("python"));
    let made = python.args(["-c", MAKE_BUCKET, name]).envs(environment.iter().cloned()).output();
    let made = made.expect("python runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

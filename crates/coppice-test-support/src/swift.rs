//! OpenStack Swift on one directory: a proxy, which speaks S3, and what is behind it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kept::Kept;
use crate::python::{python_program, spawn};

/// What is behind the proxy, each with a ring that has one device.
const PARTS: [&str; 3] = ["account", "container", "object"];
const DEVICE: &str = "disk";
/// Which of the ports is the proxy's.
pub(crate) const PROXY: usize = PARTS.len();
pub(crate) const ACCESS_KEY: &str = "test:tester";

/// Starts its programs, which keep everything in a directory and know one secret.
pub(crate) fn start(directory: &Path, ports: [u16; PROXY + 1], secret: &str) -> Vec<Kept> {
    fs::create_dir_all(directory.join("devices").join(DEVICE)).expect("a directory");
    write(
        directory,
        "swift",
        "[swift-hash]\nswift_hash_path_suffix = test\n[storage-policy:0]\nname = all\ndefault = yes\n",
    );
    for (part, port) in PARTS.into_iter().zip(ports) {
        ring(directory, part, port);
        let settings = format!(
            "[pipeline:main]\npipeline = {part}-server\n[app:{part}-server]\nuse = egg:swift#{part}\n"
        );
        write(directory, part, &(common(directory, port) + &settings));
    }
    write(directory, "proxy", &(common(directory, ports[PROXY]) + &proxy(secret)));
    let names = PARTS.iter().chain(&["proxy"]);
    let started = names.map(|name| {
        let settings = directory.join(format!("{name}.conf"));
        spawn(&format!("swift-{name}-server"), &[settings.to_str().expect("its name is text")])
    });
    started.collect()
}

fn write(directory: &Path, name: &str, settings: &str) {
    fs::write(directory.join(format!("{name}.conf")), settings).expect("written");
}

/// What all of them are told. Without workers they serve in the process that was started.
fn common(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    let account = if rustix::process::getuid().is_root() { "user = root\n" } else { "" };
    format!(
        "[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {port}\nworkers = 0\n{account}swift_dir = {directory}\n\
         devices = {directory}/devices\nmount_check = false\n"
    )
}

/// The way of a request through the proxy: S3, its signature, large objects.
fn proxy(secret: &str) -> String {
    let ways = ["catch_errors", "gatekeeper", "listing_formats", "s3api", "tempauth", "slo"];
    let mut settings = format!(
        "[pipeline:main]\npipeline = {} proxy-server\n[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n",
        ways.join(" ")
    );
    for way in ways {
        let more = match way {
            "s3api" => "location = us-east-1\n".to_owned(),
            "tempauth" => format!("user_test_tester = {secret} .admin\n"),
            _ => String::new(),
        };
        settings += &format!("[filter:{way}]\nuse = egg:swift#{way}\n{more}");
    }
    settings
}

fn ring(directory: &Path, part: &str, port: u16) {
    let builder = directory.join(format!("{part}.builder"));
    let device = format!("r1z1-127.0.0.1:{port}/{DEVICE}");
    for step in [&["create", "4", "1", "0"][..], &["add", &device, "1"], &["rebalance"]] {
        let mut program = Command::new(python_program("swift-ring-builder"));
        let made = program.arg(&builder).args(step).output().expect("swift-ring-builder runs");
        assert!(made.status.success(), "{step:?}: {}", String::from_utf8_lossy(&made.stdout));
    }
}

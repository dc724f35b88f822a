//! A program in Node that stands for somebody else's service.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// Says a line about itself when it is ready, then answers each line with one, all
/// of them JSON. Ends with this.
#[derive(Debug)]
pub struct NodeProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it said of itself.
    pub about: Value,
}

impl Drop for NodeProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl NodeProgram {
    /// Starts a script of a directory that holds its packages, by a Node of one's own.
    pub fn start(node: &Path, directory: &Path, script: &[&str]) -> Self {
        let packages = directory.join("node_modules");
        assert!(packages.exists(), "{} is missing: run `make setup`", packages.display());
        let mut child = Command::new(node)
            .arg("--no-warnings")
            .args(script)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node runs: `make setup` installs it");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut program = Self { child, input, output, about: Value::Null };
        program.about = program.line();
        program
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).expect("a line") > 0, "node ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Has it do something, and returns what came of it.
    pub fn command(&mut self, command: &Value) -> Value {
        writeln!(self.input, "{command}").expect("it listens");
        self.line()["answer"].take()
    }
}

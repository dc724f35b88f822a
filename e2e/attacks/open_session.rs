//! Sessions that stay open.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Ends what one statement said.
const END: &str = "--- end of statement";
/// For statements that nothing keeps waiting.
const PATIENCE: Duration = Duration::from_secs(30);

/// A psql that is told one thing after the other. Dropping it cuts it off.
pub(super) struct OpenSession {
    psql: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    statements: u32,
}

impl OpenSession {
    pub(super) fn new(url: &str) -> Self {
        let (said, says) = std::io::pipe().expect("a pipe");
        let mut psql = Command::new("psql")
            .args([url, "-XAtq"])
            .env("PGCONNECT_TIMEOUT", "30")
            .stdin(Stdio::piped())
            .stdout(says.try_clone().expect("the pipe again"))
            .stderr(says)
            .spawn()
            .expect("psql runs");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(said).split(b'\n').map_while(Result::ok);
            // Names may be no UTF-8.
            let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
            lines.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        let input = psql.stdin.take().expect("a pipe");
        Self { psql, input, lines, statements: 0 }
    }

    /// Runs SQL; what came of it, errors among it.
    pub(super) fn run(&mut self, sql: &str) -> String {
        self.run_within(sql, PATIENCE).unwrap_or_else(|| panic!("no end of {sql}"))
    }

    /// Runs SQL; none when it is not done by then, and goes on. What was run
    /// before may still speak.
    pub(super) fn run_within(&mut self, sql: &str, patience: Duration) -> Option<String> {
        self.statements += 1;
        let end = format!("{END} {}", self.statements);
        // It may have ended.
        let _ = writeln!(self.input, "{sql};\n\\echo {end}");
        let deadline = Instant::now() + patience;
        let mut said = vec![];
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line == end => return Some(said.join("\n")),
                Ok(line) => said.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Some(said.join("\n")),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return None,
            }
        }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

//! SQL as a user runs it.

use std::process::{Command, Stdio};

/// What psql said.
#[derive(Debug)]
pub struct Psql {
    /// Standard output, without the last line break.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Whether it succeeded.
    pub is_ok: bool,
}

/// Runs SQL through psql.
pub fn psql(connection_string: &str, sql: &str) -> Psql {
    let output = Command::new("psql")
        .args([
            connection_string,
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ])
        .stdin(Stdio::null())
        .env("PGCONNECT_TIMEOUT", "60")
        .output()
        .expect("psql runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    Psql { out: text(&output.stdout), err: text(&output.stderr), is_ok: output.status.success() }
}

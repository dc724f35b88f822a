//! SQL as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Debian's `psql` on the path looks for the right one of several releases, and
/// takes four times as long for that as the program itself does to start.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let releases = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = releases.filter_map(Result::ok).map(|release| release.path().join("bin/psql"));
    programs.filter(|program| program.exists()).max().unwrap_or_else(|| "psql".into())
});

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
    let output = Command::new(&*PROGRAM)
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

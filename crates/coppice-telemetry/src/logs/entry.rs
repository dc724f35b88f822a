//! A log entry as callers see it.

/// Longest message of an entry in bytes, with the mark that says it was cut.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Ends a message that was cut.
pub(super) const CUT: &str = "… [cut]";

/// How serious an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// DEBUG1 to DEBUG5
    Debug,
    /// INFO, NOTICE, LOG
    Info,
    /// WARNING
    Warning,
    /// ERROR, FATAL, PANIC
    Error,
}

impl LogLevel {
    /// Every level, least serious first.
    pub const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warning, Self::Error];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// PostgreSQL's names for it.
    pub(super) fn severities(self) -> &'static [&'static str] {
        match self {
            Self::Debug => &["DEBUG", "DEBUG1", "DEBUG2", "DEBUG3", "DEBUG4", "DEBUG5"],
            Self::Info => &["INFO", "NOTICE", "LOG"],
            Self::Warning => &["WARNING"],
            Self::Error => &["ERROR", "FATAL", "PANIC"],
        }
    }

    /// The level of a severity as PostgreSQL writes it.
    pub(super) fn of_severity(severity: &[u8]) -> Self {
        let is_of = |level: &Self| level.severities().iter().any(|name| name.as_bytes() == severity);
        Self::ALL.into_iter().find(is_of).unwrap_or(Self::Info)
    }
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was written, in milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// The instance that wrote it.
    pub instance: String,
    /// How serious it is.
    pub level: LogLevel,
    /// The kind of process that wrote it, for example `client backend`.
    pub process: String,
    /// What it says, with detail, hint, context and statement in lines of
    /// their own, without passwords, at most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
}

/// Cuts a message at its greatest length and says so.
pub(super) fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = message.floor_char_boundary(MESSAGE_BYTES_MAX - CUT.len());
        message.truncate(end);
        message.push_str(CUT);
    }
    message
}

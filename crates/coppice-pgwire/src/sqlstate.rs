//! Codes of errors, SQLSTATEs, under their names of PostgreSQL's manual (appendix A, "PostgreSQL Error Codes").

/// Class 08: the server does not take the connection.
pub const SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION: &str = "08004";
/// Class 08: the connection broke.
pub const CONNECTION_FAILURE: &str = "08006";
/// Class 08: what was sent is not the protocol.
pub const PROTOCOL_VIOLATION: &str = "08P01";
/// Class 0A: there is no such thing here.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
/// Class 22: a parameter can't have this value.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// Class 26: no statement has been prepared by this name.
pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";
/// Class 28: whoever signs in must not.
pub const INVALID_AUTHORIZATION_SPECIFICATION: &str = "28000";
/// Class 28: the password is wrong.
pub const INVALID_PASSWORD: &str = "28P01";
/// Class 3D: no database has this name.
pub const INVALID_CATALOG_NAME: &str = "3D000";
/// Class 53: the memory does not suffice.
pub const OUT_OF_MEMORY: &str = "53200";
/// Class 53: no more connections are taken.
pub const TOO_MANY_CONNECTIONS: &str = "53300";
/// Class 53: a limit that somebody has set is reached.
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
/// Class 54: more than can be worked with.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// Class 57: the statement was cancelled.
pub const QUERY_CANCELED: &str = "57014";
/// Class 57: the server is being stopped.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// Class 57: a server process has crashed.
pub const CRASH_SHUTDOWN: &str = "57P02";
/// Class 57: the server is not up yet, or not any more.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// Class 57: the session waited for longer than it may.
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
/// Class XX: a fault of the server's own.
pub const INTERNAL_ERROR: &str = "XX000";

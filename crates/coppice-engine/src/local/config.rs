//! The configuration files of one server.
//!
//! What must not be changed goes to the command line, which beats every file;
//! the rest goes to `postgresql.conf`, where a reload can change it.

use std::fmt::Write;
use std::path::Path;

/// Sessions on top of the user's: those that the platform may have open while
/// its users take all that is theirs, and those that stay free for it then.
const PLATFORM_CONNECTIONS: u32 = 5;
/// What stays free. PostgreSQL takes an open session of a superuser from the
/// others' share, so this is less than all of them.
const RESERVED_CONNECTIONS: u32 = 3;

/// What decides a server's settings.
#[derive(Clone, Debug)]
pub(super) struct Configuration<'a> {
    pub(super) major: u32,
    /// From the instance type and the user; a later one wins.
    pub(super) settings: &'a [(String, String)],
    /// By name.
    pub(super) preload_libraries: &'a [String],
    /// Whether this is the first start of a copy: nothing may leave it.
    pub(super) is_first_start: bool,
    /// Whether the platform signs in by the account of its process.
    pub(super) trusts_root: bool,
}

/// Directories as the server sees them.
#[derive(Clone, Debug)]
pub(super) struct ServerPaths<'a> {
    pub(super) data: &'a Path,
    pub(super) configuration: &'a Path,
    pub(super) log: &'a Path,
    pub(super) socket: &'a Path,
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

impl Configuration<'_> {
    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// `postgresql.conf`
    pub(super) fn file(&self) -> String {
        let mut text = String::from("# Written by coppice at every start; changes are lost.\n");
        let mut set = |name: &str, value: &str| {
            let _ = writeln!(text, "{name} = {}", quoted(value));
        };
        // An idle server should cost next to nothing: few wake-ups, little memory.
        let lean = [
            ("max_wal_size", "1GB"),
            ("min_wal_size", "80MB"),
            ("wal_level", "replica"),
            ("jit", "off"),
            ("huge_pages", "off"),
            ("timezone", "UTC"),
            // What an owner has to know: who waits for whom, what spills to
            // disk. Who comes and goes is told by the branch's activity.
            ("log_lock_waits", "on"),
            ("log_temp_files", "64MB"),
            ("log_checkpoints", "on"),
            ("log_autovacuum_min_duration", "1min"),
            ("track_io_timing", "on"),
            ("track_wal_io_timing", "on"),
            ("max_prepared_transactions", "20"),
            ("autovacuum_naptime", "60s"),
            ("bgwriter_delay", "1000ms"),
            ("wal_writer_delay", "1000ms"),
            ("idle_in_transaction_session_timeout", "0"),
        ];
        for (name, value) in lean {
            set(name, value);
        }
        if self.major >= 16 {
            // A role that makes another one may use it at once.
            set("createrole_self_grant", "set, inherit");
        }
        for (name, value) in self.settings.iter().filter(|(name, _)| name != "max_connections") {
            set(name, value);
        }
        if self.is_first_start {
            // The apply worker of an inherited subscription can't load what it
            // would connect with, so it can't take its parent's place.
            set("dynamic_library_path", "/nonexistent");
        }
        text
    }

    /// `pg_hba.conf`
    pub(super) fn access_file(&self) -> String {
        let platform = if self.trusts_root { "peer map=platform" } else { "scram-sha-256" };
        format!(
            "local all platform {platform}\n\
             local replication platform {platform}\n\
             local replication all reject\n\
             local all all scram-sha-256\n"
        )
    }

    /// Arguments of the server.
    pub(super) fn arguments(&self, paths: &ServerPaths<'_>) -> Vec<String> {
        let user_connections: u32 =
            self.setting("max_connections").and_then(|value| value.parse().ok()).unwrap_or(100);
        let in_configuration = |name: &str| paths.configuration.join(name).display().to_string();
        let socket_mode = if self.trusts_root { "0000" } else { "0700" };
        let libraries: Vec<_> = self.preload_libraries.iter().map(|name| format!("$libdir/{name}")).collect();
        let settings = [
            ("config_file", in_configuration("postgresql.conf")),
            ("hba_file", in_configuration("pg_hba.conf")),
            ("ident_file", in_configuration("pg_ident.conf")),
            ("listen_addresses", String::new()),
            ("port", "5432".to_owned()),
            ("unix_socket_directories", paths.socket.display().to_string()),
            ("unix_socket_permissions", socket_mode.to_owned()),
            ("max_connections", (user_connections + PLATFORM_CONNECTIONS).to_string()),
            ("superuser_reserved_connections", RESERVED_CONNECTIONS.to_string()),
            ("shared_preload_libraries", libraries.join(",")),
            ("fsync", "on".to_owned()),
            ("full_page_writes", "on".to_owned()),
            ("ssl", "off".to_owned()),
            ("restart_after_crash", "on".to_owned()),
            ("password_encryption", "scram-sha-256".to_owned()),
            ("max_slot_wal_keep_size", "4GB".to_owned()),
            ("logging_collector", "on".to_owned()),
            ("log_destination", "jsonlog".to_owned()),
            ("log_directory", paths.log.display().to_string()),
            ("log_filename", "postgresql-%Y%m%d-%H%M%S.log".to_owned()),
            ("log_rotation_age", "1d".to_owned()),
            ("log_rotation_size", "10MB".to_owned()),
            ("log_file_mode", "0600".to_owned()),
            ("log_timezone", "UTC".to_owned()),
        ];
        let mut arguments = vec!["-D".to_owned(), paths.data.display().to_string()];
        for (name, value) in settings {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(settings: &[(String, String)]) -> Configuration<'_> {
        Configuration {
            major: 17,
            settings,
            preload_libraries: &[],
            is_first_start: false,
            trusts_root: true,
        }
    }

    #[test]
    fn a_setting_can_not_break_out_of_its_quotes() {
        let settings = [("work_mem".to_owned(), "1MB'\nfsync = 'off".to_owned())];
        let file = configuration(&settings).file();
        assert!(file.contains("work_mem = '1MB''\nfsync = ''off'"), "{file}");
    }

    #[test]
    fn the_platforms_sessions_come_on_top_of_the_users() {
        let settings = [("max_connections".to_owned(), "50".to_owned())];
        let here = Path::new("/x");
        let paths = ServerPaths { data: here, configuration: here, log: here, socket: here };
        assert!(configuration(&settings).arguments(&paths).contains(&"max_connections=55".to_owned()));
    }
}

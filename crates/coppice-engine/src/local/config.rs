//! The configuration files of one server.
//!
//! What must not be changed goes to the command line, which beats every file;
//! the rest goes to `postgresql.conf`, where a reload can change it.

use std::fmt::Write;
use std::path::Path;

use coppice_core::storage::Fullness;

use super::following::all_names;
use super::slots;

/// Connections that stay free for the platform while others take all that
/// there are; fewer where there are few.
const RESERVED_CONNECTIONS: u32 = 4;
/// Connections where nothing else is said, as in PostgreSQL.
const CONNECTIONS: u32 = 100;
/// Replication slots where nothing else is said, as in PostgreSQL.
const REPLICATION_SLOTS: u32 = 10;
/// Processes that send WAL: as many as in PostgreSQL, and the platform's.
const WAL_SENDERS: u32 = 10 + slots::RESERVED;
/// Processes that are neither sessions nor workers: the first one, those that
/// write, archive, collect and launch, three of autovacuum and those that send
/// WAL, and as many again, for those that are about to end.
const OTHER_PROCESSES: u32 = 50 + 2 * slots::RESERVED;
/// WAL that a replication slot may hold back where storage is not limited.
const SLOT_WAL_MAX_MB: u64 = 4096;
/// The part of a branch's storage that one process may take for temporary
/// files, and that a slot may hold back.
const STORAGE_PART: u64 = 4;
/// WAL between two checkpoints takes no more of it than one part in so many.
const STORAGE_PART_OF_WAL: u64 = 8;

/// Keeps a server from doing anything by itself: workers of autovacuum evaluate what indexes are
/// made of, which may write. Those against a wraparound, which `autovacuum` alone does not stop,
/// evaluate what BRIN indexes are made of; where nobody writes, no wraparound comes.
pub(super) const NO_AUTOVACUUM: [(&str, &str); 3] = [
    ("autovacuum", "off"),
    ("autovacuum_freeze_max_age", "2000000000"),
    ("autovacuum_multixact_freeze_max_age", "2000000000"),
];

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
    /// Most that its data may take, where that is limited.
    pub(super) storage_bytes: Option<u64>,
    /// How full that is.
    pub(super) fullness: Fullness,
    /// Its role and slot at the server that it follows, if it is a replica's.
    pub(super) follows: Option<&'a str>,
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
    /// The directory of the socket of the server that it follows.
    pub(super) primary: &'a Path,
    /// The file with its password there.
    pub(super) password: &'a Path,
}

/// A number among settings, of which a later one wins.
fn number(settings: &[(String, String)], name: &str) -> Option<u32> {
    settings.iter().rev().find(|(key, _)| key == name).and_then(|(_, value)| value.parse().ok())
}

/// How many processes a server with these settings may have at most.
pub(super) fn processes_max(settings: &[(String, String)]) -> u32 {
    let number = |name, default| number(settings, name).unwrap_or(default);
    let sessions = number("max_connections", CONNECTIONS);
    // Ends of sessions overlap with beginnings of others.
    sessions + sessions / 4 + number("max_worker_processes", 8) + number("io_workers", 3) + OTHER_PROCESSES
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// What has a server follow the one at `paths.primary`. Holds no secret: every
/// account of the machine can see it.
fn following(name: &str, paths: &ServerPaths<'_>) -> Vec<(&'static str, String)> {
    let quoted = |path: &Path| {
        let text = path.display().to_string();
        format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
    };
    let (host, password) = (quoted(paths.primary), quoted(paths.password));
    let conninfo = format!(
        "host={host} port=5432 user={name} passfile={password} application_name={name} connect_timeout=10"
    );
    vec![
        ("primary_conninfo", conninfo),
        ("primary_slot_name", name.to_owned()),
        ("hot_standby", "on".to_owned()),
        ("recovery_target_timeline", "latest".to_owned()),
    ]
}

impl Configuration<'_> {
    /// What a part of the storage is, in MB.
    fn storage_part_mb(&self, parts: u64) -> Option<u64> {
        self.storage_bytes.map(|bytes| (bytes >> 20) / parts)
    }

    /// What temporary files and slots may take of the storage. Not on the command
    /// line, so that storage can grow without a restart; nobody else may set them.
    fn storage_settings(&self) -> [(&'static str, String); 2] {
        let part = self.storage_part_mb(STORAGE_PART);
        [
            ("temp_file_limit", part.map_or_else(|| "-1".to_owned(), |part| format!("{part}MB"))),
            ("max_slot_wal_keep_size", format!("{}MB", part.unwrap_or(SLOT_WAL_MAX_MB).min(SLOT_WAL_MAX_MB))),
        ]
    }

    /// `postgresql.conf`
    pub(super) fn file(&self) -> String {
        let mut text = String::from("# Written by coppice at every start; changes are lost.\n");
        let mut set = |name: &str, value: &str| {
            let _ = writeln!(text, "{name} = {}", quoted(value));
        };
        // An idle server should cost next to nothing: few wake-ups, little memory.
        let wal_mb = self.storage_part_mb(STORAGE_PART_OF_WAL).map_or(1024, |part| part.min(1024));
        set("max_wal_size", &format!("{wal_mb}MB"));
        let lean = [
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
        let asked = number(self.settings, "max_replication_slots").unwrap_or(REPLICATION_SLOTS);
        set("max_replication_slots", &(asked + slots::RESERVED).to_string());
        set("max_wal_senders", &WAL_SENDERS.to_string());
        let is_given_elsewhere = |name: &str| ["max_connections", "max_replication_slots"].contains(&name);
        // Chosen before servers had to do without it.
        let is_refused = |name: &str, value: &str| name == "io_method" && value == "io_uring";
        for (name, value) in self.settings {
            if !is_given_elsewhere(name) && !is_refused(name, value) {
                set(name, value);
            }
        }
        for (name, value) in self.storage_settings() {
            set(name, &value);
        }
        if self.fullness >= Fullness::Full {
            set("default_transaction_read_only", "on");
        }
        if self.fullness == Fullness::Shut {
            for (name, value) in NO_AUTOVACUUM {
                set(name, value);
            }
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
        let others = if self.fullness == Fullness::Shut { "reject" } else { "scram-sha-256" };
        let replicas = all_names();
        format!(
            "local all platform {platform}\n\
             local replication platform {platform}\n\
             local replication {replicas} scram-sha-256\n\
             local replication all reject\n\
             local all {replicas} reject\n\
             local all all {others}\n"
        )
    }

    /// Arguments of the server.
    pub(super) fn arguments(&self, paths: &ServerPaths<'_>) -> Vec<String> {
        let connections = number(self.settings, "max_connections").unwrap_or(CONNECTIONS);
        let reserved = RESERVED_CONNECTIONS.min(connections.saturating_sub(1) / 2);
        let in_configuration = |name: &str| paths.configuration.join(name).display().to_string();
        // Its group is the server's own account, which owns it, too, and to which
        // the owner's rights apply: none. Only replicas are in that group besides.
        let socket_mode = if self.trusts_root { "0020" } else { "0700" };
        let libraries: Vec<_> = self.preload_libraries.iter().map(|name| format!("$libdir/{name}")).collect();
        let settings = [
            ("config_file", in_configuration("postgresql.conf")),
            ("hba_file", in_configuration("pg_hba.conf")),
            ("ident_file", in_configuration("pg_ident.conf")),
            ("listen_addresses", String::new()),
            ("port", "5432".to_owned()),
            ("unix_socket_directories", paths.socket.display().to_string()),
            ("unix_socket_permissions", socket_mode.to_owned()),
            ("max_connections", connections.to_string()),
            ("superuser_reserved_connections", reserved.to_string()),
            ("shared_preload_libraries", libraries.join(",")),
            ("fsync", "on".to_owned()),
            // The other one is denied (`process/seccomp.rs`), and would count as done.
            ("recovery_init_sync_method", "fsync".to_owned()),
            ("full_page_writes", "on".to_owned()),
            ("ssl", "off".to_owned()),
            // Every account of the machine can see it.
            ("update_process_title", "off".to_owned()),
            ("restart_after_crash", "on".to_owned()),
            ("password_encryption", "scram-sha-256".to_owned()),
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
        let following = self.follows.map(|name| following(name, paths)).unwrap_or_default();
        for (name, value) in settings.into_iter().chain(following) {
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
            storage_bytes: Some(2 << 30),
            fullness: Fullness::Fine,
            follows: None,
            trusts_root: true,
        }
    }

    fn paths(here: &Path) -> ServerPaths<'_> {
        ServerPaths {
            data: here,
            configuration: here,
            log: here,
            socket: here,
            primary: here,
            password: here,
        }
    }

    #[test]
    fn only_a_replica_follows_and_its_role_can_do_nothing_else() {
        let own = configuration(&[]);
        let arguments = |one: &Configuration<'_>| one.arguments(&paths(Path::new("/it's"))).join(" ");
        assert!(!arguments(&own).contains("primary"));
        let replica = Configuration { follows: Some("coppice_replica_2"), ..own };
        let told = arguments(&replica);
        assert!(told.contains("primary_slot_name=coppice_replica_2"), "{told}");
        assert!(told.contains(r"host='/it\'s' port=5432 user=coppice_replica_2"), "{told}");
        let access = replica.access_file();
        let line =
            |text: &str| access.lines().position(|line| line == text).unwrap_or_else(|| panic!("{access}"));
        let names = "coppice_replica_2,coppice_replica_3,coppice_replica_4,coppice_replica_5";
        assert!(
            line(&format!("local replication {names} scram-sha-256")) < line("local replication all reject")
        );
        assert!(line(&format!("local all {names} reject")) < line("local all all scram-sha-256"));
    }

    #[test]
    fn what_is_temporary_leaves_room_for_what_is_not() {
        let file = |storage_bytes| Configuration { storage_bytes, ..configuration(&[]) }.file();
        let small = file(Some(2 << 30));
        for expected in
            ["temp_file_limit = '512MB'", "max_slot_wal_keep_size = '512MB'", "max_wal_size = '256MB'"]
        {
            assert!(small.contains(expected), "{expected}: {small}");
        }
        let unlimited = file(None);
        assert!(
            unlimited.contains("temp_file_limit = '-1'") && unlimited.contains("max_wal_size = '1024MB'")
        );
        assert!(file(Some(1 << 40)).contains("max_slot_wal_keep_size = '4096MB'"));
    }

    #[test]
    fn a_full_branch_is_read_only_and_one_far_beyond_lets_nobody_in() {
        let with = |fullness| Configuration { fullness, ..configuration(&[]) };
        let read_only = "default_transaction_read_only = 'on'";
        assert!(!with(Fullness::Short).file().contains(read_only));
        assert!(with(Fullness::Full).file().contains(read_only));
        assert!(with(Fullness::Full).access_file().contains("local all all scram-sha-256"));
        let shut = with(Fullness::Shut);
        assert!(shut.file().contains(read_only) && shut.access_file().contains("local all all reject"));
        let sets = |file: &str, (name, value)| file.contains(&format!("{name} = '{value}'"));
        assert!(NO_AUTOVACUUM.iter().all(|one| sets(&shut.file(), *one)));
        assert!(!NO_AUTOVACUUM.iter().any(|one| sets(&with(Fullness::Full).file(), *one)));
        assert!(shut.access_file().starts_with("local all platform peer"));
    }

    #[test]
    fn every_session_and_worker_fits_below_the_limit_of_processes() {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(processes_max(&[]), 100 + 25 + 8 + 3 + OTHER_PROCESSES);
        let settings = [setting("max_connections", "200"), setting("max_worker_processes", "64")];
        assert_eq!(processes_max(&settings), 200 + 50 + 64 + 3 + OTHER_PROCESSES);
    }

    #[test]
    fn there_is_room_for_the_slots_that_were_asked_for_and_for_the_platform_s() {
        let room = |settings: &[(String, String)]| {
            let file = configuration(settings).file();
            let mut lines = file.lines().filter(|line| line.starts_with("max_replication_slots"));
            (lines.next().map(str::to_owned), lines.next().map(str::to_owned))
        };
        assert_eq!(room(&[]), (Some("max_replication_slots = '18'".to_owned()), None));
        let more = [("max_replication_slots".to_owned(), "30".to_owned())];
        assert_eq!(room(&more), (Some("max_replication_slots = '38'".to_owned()), None));
    }

    #[test]
    fn a_setting_can_not_break_out_of_its_quotes() {
        let settings = [("work_mem".to_owned(), "1MB'\nfsync = 'off".to_owned())];
        let file = configuration(&settings).file();
        assert!(file.contains("work_mem = '1MB''\nfsync = ''off'"), "{file}");
    }

    #[test]
    fn a_server_has_the_connections_that_were_asked_for_and_some_stay_free() {
        let here = Path::new("/x");
        let paths = paths(here);
        for (connections, reserved) in [("50", 4), ("9", 4), ("7", 3), ("5", 2), ("3", 1), ("1", 0)] {
            let settings = [("max_connections".to_owned(), connections.to_owned())];
            let arguments = configuration(&settings).arguments(&paths);
            for expected in [
                format!("max_connections={connections}"),
                format!("superuser_reserved_connections={reserved}"),
            ] {
                assert!(arguments.contains(&expected), "{expected}: {arguments:?}");
            }
        }
    }
}

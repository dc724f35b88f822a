//! The parameters that can be set, with what the PostgreSQL manual says of
//! each in our words. A test on real servers compares defaults, bounds, words
//! and the need for a restart with what `pg_settings` says.

mod planning;
mod resources;
mod sessions;
mod wal;

use std::sync::LazyLock;

use super::ParameterKind::Duration;
use super::value::DAY;
use super::{Parameter, ParameterKind, Section};

const ON_OFF: &[&str] = &["on", "off"];
const ANY_TIMEOUT: ParameterKind = Duration(0, 20 * DAY);

const CONNECTION: &str = "runtime-config-connection";
const CLIENT: &str = "runtime-config-client";
const RESOURCE: &str = "runtime-config-resource";
const STATISTICS: &str = "runtime-config-statistics";
const QUERY: &str = "runtime-config-query";
const LOCKS: &str = "runtime-config-locks";
const LOGGING: &str = "runtime-config-logging";
const AUTOVACUUM: &str = "runtime-config-autovacuum";
const WRITE_AHEAD: &str = "runtime-config-wal";

/// One that every version has, with the default of PostgreSQL itself.
const fn parameter(
    section: Section,
    name: &'static str,
    kind: ParameterKind,
    default: &'static str,
    page: &'static str,
    description: &'static str,
) -> Parameter {
    Parameter {
        name,
        kind,
        section,
        description,
        needs_restart: false,
        library: None,
        page,
        first_major: 0,
        default,
        later_default: None,
    }
}

impl Parameter {
    const fn restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    const fn of(self, library: &'static str) -> Self {
        Self { library: Some(library), ..self }
    }

    const fn from(self, first_major: u32) -> Self {
        Self { first_major, ..self }
    }

    const fn later(self, major: u32, default: &'static str) -> Self {
        Self { later_default: Some((major, default)), ..self }
    }
}

/// Every parameter an owner may set, by section.
pub static PARAMETERS: LazyLock<Vec<Parameter>> =
    LazyLock::new(|| [sessions::SESSIONS, resources::RESOURCES, planning::PLANNING, wal::WAL].concat());

/// Libraries that are preloaded unless the owner chose others.
pub const DEFAULT_PRELOAD_LIBRARIES: &[&str] = &["pg_stat_statements", "auto_explain"];

/// Libraries that an owner may preload, where the image has them. They reach
/// no file, no process and no network.
pub const PRELOAD_LIBRARIES: &[&str] = &["auth_delay", "auto_explain", "pg_prewarm", "pg_stat_statements"];

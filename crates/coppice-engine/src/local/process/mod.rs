//! Processes: how a program is confined, started, recognised and ended.
//!
//! [`launch`] describes a confined program and starts it; [`sandbox`] is the
//! part that runs in the launched process before it becomes PostgreSQL;
//! [`cgroup`] groups and limits what it starts; [`identity`] recognises it
//! again later.

pub mod cgroup;
pub mod identity;
pub mod launch;
mod sandbox;
mod syscalls;
pub(in crate::local) mod usage;

pub use sandbox::{landlock_version, launcher_main};
pub(super) use syscalls::watch_exit;

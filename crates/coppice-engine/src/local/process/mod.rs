//! Processes: how a program is confined, started, recognised and ended.
//!
//! [`launch`] describes a confined program and starts it; [`sandbox`] is the
//! part that runs in the launched process before it becomes PostgreSQL, with
//! the [`root`] directory that it makes and the system calls that [`seccomp`]
//! leaves;
//! [`cgroup`] groups and limits what it starts, as [`controllers`] are told, and has it [`frozen`] where it
//! would get away from that; [`oom`] has it go before the platform; [`identity`] recognises it again later.

pub mod cgroup;
pub mod controllers;
mod failure;
mod frozen;
pub mod identity;
pub mod launch;
pub(in crate::local) mod oom;
mod root;
mod sandbox;
mod seccomp;
mod syscalls;
pub(in crate::local) mod usage;

pub use sandbox::{landlock_version, launcher_main};
pub(super) use syscalls::watch_exit;

//! What the engine promises, on real file systems and with real servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod handing_over;
mod held;
mod server;
mod slots;
mod storage;
mod system_views;
mod volume_bytes;
mod volumes;
mod volumes_crash;
mod volumes_pool;

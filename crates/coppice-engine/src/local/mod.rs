//! The engine of one Linux machine.
//!
//! [`HostEngine`] runs PostgreSQL servers; it needs nothing but the data
//! directory, so the metastore is one of them. [`LocalEngine`] adds volumes
//! and with them branches. The order at boot: identity and lock
//! ([`installation`]), images, metastore, volumes, branches.

mod barman;
mod base_room;
mod bases;
mod blockers;
mod blocking;
mod bounded;
mod btrfs;
mod btrfs_room;
mod btrfs_written;
mod config;
mod connecting;
mod contents;
mod control_file;
mod copying;
mod drill;
pub mod durable;
mod engine;
mod first_start;
mod following;
mod fresh;
mod handing_over;
mod health;
mod held_wal;
mod history;
pub mod images;
pub mod installation;
mod instances;
mod launch;
pub mod layout;
mod limits;
mod log_files;
mod log_pipe;
mod logins;
mod logs;
mod managed_role;
mod many;
mod measure;
mod metastore;
mod own_relations;
mod owned;
mod pace;
mod packing;
mod pool;
mod prepared;
pub mod process;
mod reader;
mod replica_slots;
mod replicas;
mod server;
mod session;
mod sessions;
mod shared_extents;
mod sizes;
mod sleep;
mod sleeping;
mod slots;
mod states;
mod statistics;
mod storage_options;
mod storage_usage;
mod system_views;
mod taken;
mod template;
mod templates;
mod trust;
pub mod untrusted;
mod upgrade;
mod verifiers;
pub mod volumes;
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use coppice_core::image::PostgresVersion;
use coppice_core::random;

pub use barman::{BarmanPlan, export_to_barman};
pub use engine::LocalEngine;
pub use metastore::MetastoreAddress;

use crate::{Capacity, EngineError, Result};
use durable::write_durably;
use images::InstalledImage;
use installation::Installation;
use layout::Layout;
use process::cgroup::Cgroups;
use server::Servers;

/// PostgreSQL servers on this machine.
#[derive(Debug)]
pub struct HostEngine {
    servers: Servers,
    images: BTreeMap<PostgresVersion, InstalledImage>,
    /// The platform role's password, where its account is not enough.
    secret: Option<String>,
}

impl HostEngine {
    /// Looks at the machine and copies new PostgreSQL installations. The
    /// caller holds the control lock of `data_dir`.
    ///
    /// `launcher` is the program with the hidden `launch` subcommand;
    /// `postgres_dirs` are searched besides the system's own place.
    ///
    /// # Errors
    /// When the data directory can't be used or an installation can't be copied.
    pub fn open(data_dir: &Path, launcher: PathBuf, postgres_dirs: &[PathBuf]) -> Result<Self> {
        let installation = Installation::ensure(data_dir)?;
        let key = installation.key(data_dir);
        let layout = Layout::new(data_dir, &key);
        layout.check_runtime()?;
        let is_root = rustix::process::geteuid().is_root();
        let images = images::collect(&layout, postgres_dirs)?;
        let secret = if is_root { None } else { Some(ensure_secret(data_dir)?) };
        let cgroups = if is_root { Cgroups::detect() } else { None };
        let servers = Servers { layout, installation, key, launcher, cgroups, is_root };
        Ok(Self { servers, images, secret })
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.servers.layout
    }

    /// Whose data directory this is.
    pub fn installation(&self) -> &Installation {
        &self.servers.installation
    }

    /// What groups and limits processes here, if anything does.
    pub fn cgroups(&self) -> Option<&Cgroups> {
        self.servers.cgroups.as_ref()
    }

    /// Images, oldest release first.
    pub fn installed_images(&self) -> Vec<InstalledImage> {
        self.images.values().cloned().collect()
    }

    /// Memory that is free or can be made so, in bytes.
    fn available_memory(&self) -> u64 {
        meminfo("MemAvailable:")
    }

    /// The uid and gid of a program with this number; none where it runs as this
    /// process does.
    fn account_of_programs(&self, number: u32) -> Option<u32> {
        self.servers.is_root.then(|| self.installation().instance_account(number))
    }

    fn image(&self, version: PostgresVersion) -> Result<InstalledImage> {
        self.images.get(&version).cloned().ok_or(EngineError::NoImage(version))
    }

    fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// The platform role's password as `initdb` is told it; PostgreSQL makes
    /// the verifier.
    fn platform_password(&self) -> Option<String> {
        self.secret.clone()
    }

    fn give_to_storage(&self, directory: &Path) -> Result<()> {
        if !self.servers.is_root {
            return Ok(());
        }
        let account = self.installation().storage_account();
        chown(directory, Some(account), Some(account)).map_err(EngineError::io("giving a directory away"))
    }

    /// CPUs and memory of the machine.
    pub fn capacity(&self) -> Capacity {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        Capacity { cpus, memory_bytes: meminfo("MemTotal:") }
    }

    fn capacity_cpu_millis(&self) -> u32 {
        self.capacity().cpus * 1000
    }

    /// Removes what the engine keeps outside the data directory, after
    /// everything was stopped.
    pub fn forget_runtime(&self) {
        let _ = fs::remove_dir_all(self.layout().runtime_dir());
        if let Some(cgroups) = self.cgroups() {
            cgroups.remove_parent(&self.servers.key);
        }
    }
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = kib.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_default() * 1024
}

/// The platform role's password of a machine without accounts.
fn ensure_secret(data_dir: &Path) -> Result<String> {
    let path = data_dir.join("platform.secret");
    if let Ok(text) = fs::read_to_string(&path) {
        return Ok(text);
    }
    let text = random_hex::<24>();
    write_durably(&path, text.as_bytes(), 0o600)?;
    Ok(text)
}

/// So many bytes that nobody guesses, in hexadecimal.
fn random_hex<const BYTES: usize>() -> String {
    let mut bytes = [0u8; BYTES];
    random::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

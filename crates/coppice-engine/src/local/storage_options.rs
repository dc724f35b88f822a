//! What an operator may choose about storage.

/// How a copy of a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// One snapshot of a btrfs subvolume.
    Btrfs,
    /// A clone of each file, which shares its blocks.
    Reflink,
    /// A copy of each file.
    Copy,
}

/// Whether the platform makes its own copy-on-write storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolMode {
    /// Where the file system under the data directory can't share blocks and
    /// this process may mount.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// What an operator may choose about storage.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Whether to make a pool.
    pub pool: PoolMode,
    /// Size of a new pool in bytes, where the host has room for that.
    pub pool_initial_bytes: u64,
    /// What the pool grows by, in bytes, when less than half of it is free in the pool.
    pub pool_step_bytes: u64,
    /// What the pool leaves free on the host's file system, in bytes.
    pub host_reserve_bytes: u64,
    /// The share of the room for volumes that their history may take, in percent.
    pub history_share: u8,
    /// Use this driver or fail.
    pub driver: Option<DriverKind>,
}

impl Default for StorageOptions {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            pool: PoolMode::Auto,
            pool_initial_bytes: 8 * GIB,
            pool_step_bytes: 8 * GIB,
            host_reserve_bytes: 4 * GIB,
            history_share: 25,
            driver: None,
        }
    }
}

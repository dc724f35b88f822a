//! What an instance has done so far, and what it is like now: plain numbers
//! as they are read, before anything is made of them.

use std::time::Duration;

/// Operations of one kind since the server began to count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operations {
    /// How many there were.
    pub count: f64,
    /// Bytes they moved.
    pub bytes: f64,
    /// How many of them were timed; their time is in `milliseconds`.
    pub timed: f64,
    /// How long the timed ones took together.
    pub milliseconds: f64,
}

/// What a server counts itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerStatistics {
    /// Changes when the server forgets its counters, as it does after one of
    /// its processes crashed.
    pub epoch: String,
    /// Client sessions that execute something.
    pub sessions_active: u32,
    /// Client sessions that wait for their client, in a transaction or not.
    pub sessions_idle: u32,
    /// Reads of data that asked the operating system.
    pub reads: Operations,
    /// Writes of data and WAL.
    pub writes: Operations,
    /// Synchronisations of the WAL with the disk; they move no bytes.
    pub wal_syncs: Operations,
    /// How far a replica is behind its primary; none for a primary.
    pub replication_lag: Option<Duration>,
    /// Where the WAL ends; grows with everything that is written.
    pub wal_position: f64,
}

/// What one look at an instance found. What could not be read is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceStatistics {
    /// Changes when another server process serves the instance: every counter
    /// of the one before is history.
    pub process: String,
    /// CPU time used by its processes, those that ended included.
    pub cpu_used: Option<Duration>,
    /// Memory that can't be taken from it without swapping.
    pub memory_bytes: Option<u64>,
    /// Size of the data directory.
    pub disk_bytes: Option<u64>,
    /// What the server itself tells.
    pub server: Option<ServerStatistics>,
}

/// Bytes that clients moved through the gateway, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTraffic {
    /// From clients to their servers.
    pub from_clients: u64,
    /// From servers to their clients.
    pub to_clients: u64,
}

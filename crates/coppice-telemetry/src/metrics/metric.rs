//! Which metrics there are.

/// How many metrics there are.
pub const METRICS: usize = 15;

/// What is measured of an instance.
///
/// The metastore keeps values by their place in [`Metric::ALL`]: new metrics
/// are added at the end, and none moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Use of its CPU share.
    Cpu,
    /// Memory it can't do without.
    Memory,
    /// Size of its data directory.
    Disk,
    /// Sessions that execute something.
    ConnectionsActive,
    /// Sessions that wait for their client.
    ConnectionsIdle,
    /// Bytes from clients.
    NetworkIngress,
    /// Bytes to clients.
    NetworkEgress,
    /// Reads that asked the operating system.
    IopsRead,
    /// Writes that asked the operating system.
    IopsWrite,
    /// How long a read took.
    LatencyRead,
    /// How long a write took.
    LatencyWrite,
    /// Bytes read.
    ThroughputRead,
    /// Bytes written.
    ThroughputWrite,
    /// How long a synchronisation of the WAL took.
    WalSyncTime,
    /// How far a replica is behind.
    ReplicationLagTime,
}

use Metric::{
    ConnectionsActive, ConnectionsIdle, Cpu, Disk, IopsRead, IopsWrite, LatencyRead, LatencyWrite, Memory,
    NetworkEgress, NetworkIngress, ReplicationLagTime, ThroughputRead, ThroughputWrite, WalSyncTime,
};

impl Metric {
    /// Every metric.
    pub const ALL: [Self; METRICS] = [
        Cpu,
        Memory,
        Disk,
        ConnectionsActive,
        ConnectionsIdle,
        NetworkIngress,
        NetworkEgress,
        IopsRead,
        IopsWrite,
        LatencyRead,
        LatencyWrite,
        ThroughputRead,
        ThroughputWrite,
        WalSyncTime,
        ReplicationLagTime,
    ];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Cpu => "cpu",
            Memory => "memory",
            Disk => "disk",
            ConnectionsActive => "connections_active",
            ConnectionsIdle => "connections_idle",
            NetworkIngress => "network_ingress",
            NetworkEgress => "network_egress",
            IopsRead => "iops_read",
            IopsWrite => "iops_write",
            LatencyRead => "latency_read",
            LatencyWrite => "latency_write",
            ThroughputRead => "throughput_read",
            ThroughputWrite => "throughput_write",
            WalSyncTime => "wal_sync_time",
            ReplicationLagTime => "replication_lag_time",
        }
    }

    /// The metric with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Cpu => "percentage",
            Memory | Disk => "bytes",
            ConnectionsActive | ConnectionsIdle => "connections",
            NetworkIngress | NetworkEgress | ThroughputRead | ThroughputWrite => "bytes/s",
            IopsRead | IopsWrite => "iops",
            LatencyRead | LatencyWrite | WalSyncTime => "ms",
            ReplicationLagTime => "s",
        }
    }

    /// Its place in [`Metric::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What becomes of the samples of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Their mean.
    Avg,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Aggregation {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avg => "avg",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// The aggregation with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Avg, Self::Max, Self::Min].into_iter().find(|aggregation| aggregation.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_found_by_its_name_and_stands_at_its_place() {
        for (index, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!((Metric::parse(metric.name()), metric.index()), (Some(metric), index));
        }
        assert_eq!(Metric::parse("Cpu"), None);
    }
}

//! What instances of a branch did.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Body of branchMetrics.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BranchMetricsRequest {
    /// First instant. Points stand at multiples of a step that grows with the time asked for: one minute below a day, 15 minutes below 3 days, 30 minutes below 7 days, an hour below 30 days, 6 hours up to 180 days, whole days beyond.
    #[schema(format = DateTime, example = "2026-01-02T03:00:00Z")]
    pub start: String,
    /// Last instant, not before the first.
    #[schema(format = DateTime, example = "2026-01-02T04:00:00Z")]
    pub end: String,
    /// What to answer; repeated names are answered once.
    #[schema(min_items = 1, max_items = 15)]
    pub metrics: Vec<MetricName>,
    /// Ids, of 1 to 256 characters, of the instances; all of the branch when absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100, min_length = 1, max_length = 256)]
    pub instances: Option<Vec<String>>,
    /// What becomes of the values of a step; each makes a series of its own. The mean when absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100)]
    pub aggregations: Option<Vec<MetricAggregation>>,
}

/// What is measured of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricName {
    /// Use of its CPU share, 0 to 100.
    Cpu,
    /// Memory it can't do without.
    Memory,
    /// Size of its data directory.
    Disk,
    /// Sessions that execute something.
    ConnectionsActive,
    /// Sessions that wait for their client.
    ConnectionsIdle,
    /// Bytes from clients, per second.
    NetworkIngress,
    /// Bytes to clients, per second.
    NetworkEgress,
    /// Reads that asked the operating system, per second.
    IopsRead,
    /// Writes that asked the operating system, per second.
    IopsWrite,
    /// How long such a read took.
    LatencyRead,
    /// How long such a write took.
    LatencyWrite,
    /// Bytes of such reads, per second.
    ThroughputRead,
    /// Bytes of such writes, per second.
    ThroughputWrite,
    /// How long a synchronisation of the WAL with the disk took.
    WalSyncTime,
    /// How far a replica is behind its primary.
    ReplicationLagTime,
}

/// What becomes of the values of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricAggregation {
    /// Their mean.
    Avg,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Answer of branchMetrics.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BranchMetrics {
    /// As it was asked for.
    #[schema(format = DateTime, example = "2026-01-02T03:00:00Z")]
    pub start: String,
    /// As it was asked for.
    #[schema(format = DateTime, example = "2026-01-02T04:00:00Z")]
    pub end: String,
    /// One for each metric, in the order of the request.
    pub results: Vec<MetricResult>,
}

/// One metric of the instances asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MetricResult {
    /// Which metric.
    pub metric: MetricName,
    /// The unit of its values.
    #[schema(example = "percentage")]
    pub unit: String,
    /// Ordered by instance, then as the aggregations of the request.
    pub series: Vec<MetricSeries>,
}

/// One metric of one instance over time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MetricSeries {
    /// The instance.
    #[serde(rename = "instanceID")]
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0-1")]
    pub instance_id: String,
    /// What became of the values of a step.
    pub aggregation: MetricAggregation,
    /// Oldest first; steps in which nothing was measured are left out.
    pub values: Vec<MetricValue>,
}

/// A point of a series.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct MetricValue {
    /// When its step began.
    pub timestamp: Timestamp,
    /// In the unit of the metric.
    pub value: f64,
}

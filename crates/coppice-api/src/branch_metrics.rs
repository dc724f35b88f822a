//! What instances of a branch did.

use coppice_app::{Access, App, InstanceSeries, MetricsRequest};
use coppice_core::Result;
use coppice_core::operation::BRANCH_METRICS;
use coppice_core::target::InBranch;
use coppice_telemetry::metrics::{Aggregation, Metric, points};
use coppice_wire as wire;

use crate::endpoint::{Body, Endpoint, Shown, post};
use crate::time::{AskedTime, check_range};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Metrics";
    vec![
        post("/metrics", &BRANCH_METRICS)
            .says(AREA, "Show what a branch did", "CPU, memory, disk, sessions, network, I/O and WAL of its instances over time, kept for 180 days. Asking wakes nobody.")
            .answers("One result for each metric.")
            .runs(branch_metrics),
    ]
}

async fn branch_metrics(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::BranchMetricsRequest>,
) -> Result<Shown<wire::BranchMetrics>> {
    let asked = Asked::read(asked)?;
    let request =
        MetricsRequest { start: asked.start.at, end: asked.end.at, instances: asked.instances.clone() };
    let instances = app.metrics.of_branch(&access, &request).await?;
    let results = asked.metrics.iter().map(|metric| asked.result(*metric, &instances));
    Ok(Shown(wire::BranchMetrics {
        results: results.collect(),
        start: asked.start.said,
        end: asked.end.said,
    }))
}

/// A request as it was understood.
struct Asked {
    start: AskedTime,
    end: AskedTime,
    instances: Vec<String>,
    metrics: Vec<wire::MetricName>,
    aggregations: Vec<wire::MetricAggregation>,
}

impl Asked {
    fn read(asked: wire::BranchMetricsRequest) -> Result<Self> {
        let (start, end) = (AskedTime::of(asked.start)?, AskedTime::of(asked.end)?);
        check_range(start.at, end.at)?;
        let mut aggregations = each_once(asked.aggregations.unwrap_or_default());
        if aggregations.is_empty() {
            aggregations.push(wire::MetricAggregation::Avg);
        }
        let (metrics, instances) = (each_once(asked.metrics), asked.instances.unwrap_or_default());
        Ok(Self { start, end, instances, metrics, aggregations })
    }

    fn result(&self, name: wire::MetricName, instances: &[InstanceSeries]) -> wire::MetricResult {
        let metric = metric_of(name);
        let series = instances.iter().flat_map(|instance| {
            self.aggregations.iter().map(move |aggregation| wire::MetricSeries {
                instance_id: instance.instance.to_string(),
                aggregation: *aggregation,
                values: points(&instance.steps, metric, aggregation_of(*aggregation))
                    .into_iter()
                    .map(|point| wire::MetricValue {
                        timestamp: wire::Timestamp(point.at),
                        value: point.value,
                    })
                    .collect(),
            })
        });
        wire::MetricResult { metric: name, unit: metric.unit().to_owned(), series: series.collect() }
    }
}

/// A list in its order; what is repeated counts once.
fn each_once<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut found = vec![];
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn aggregation_of(aggregation: wire::MetricAggregation) -> Aggregation {
    match aggregation {
        wire::MetricAggregation::Avg => Aggregation::Avg,
        wire::MetricAggregation::Max => Aggregation::Max,
        wire::MetricAggregation::Min => Aggregation::Min,
    }
}

fn metric_of(name: wire::MetricName) -> Metric {
    use wire::MetricName as Name;
    match name {
        Name::Cpu => Metric::Cpu,
        Name::Memory => Metric::Memory,
        Name::Disk => Metric::Disk,
        Name::ConnectionsActive => Metric::ConnectionsActive,
        Name::ConnectionsIdle => Metric::ConnectionsIdle,
        Name::NetworkIngress => Metric::NetworkIngress,
        Name::NetworkEgress => Metric::NetworkEgress,
        Name::IopsRead => Metric::IopsRead,
        Name::IopsWrite => Metric::IopsWrite,
        Name::LatencyRead => Metric::LatencyRead,
        Name::LatencyWrite => Metric::LatencyWrite,
        Name::ThroughputRead => Metric::ThroughputRead,
        Name::ThroughputWrite => Metric::ThroughputWrite,
        Name::WalSyncTime => Metric::WalSyncTime,
        Name::ReplicationLagTime => Metric::ReplicationLagTime,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_the_same_name_everywhere() {
        for metric in Metric::ALL {
            let name = serde_json::from_value(serde_json::json!(metric.name())).expect("a name");
            assert_eq!(metric_of(name), metric);
        }
    }
}

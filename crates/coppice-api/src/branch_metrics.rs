//! What instances of a branch did.

use axum::Json;
use axum::extract::State;
use coppice_app::{App, InstanceSeries, MetricsRequest};
use coppice_core::operation::BRANCH_METRICS;
use coppice_core::{Error, Result};
use coppice_telemetry::metrics::{Aggregation, METRICS, Metric, points};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::request::{Call, InBranch};
use crate::time::{AskedTime, check_range};

/// Instances of one request.
const INSTANCES_MAX: usize = 100;
/// Characters of an instance's id.
const INSTANCE_LENGTH_MAX: usize = 256;
/// Aggregations of one request; more can only be repetitions.
const AGGREGATIONS_MAX: usize = 100;

/// Show what a branch did
///
/// CPU, memory, disk, sessions, network, I/O and WAL of its instances over time, kept for 180 days. Asking wakes nobody.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}/metrics",
    operation_id = "branchMetrics", tag = "Metrics", params(InBranch),
    request_body = wire::BranchMetricsRequest,
    responses((status = 200, description = "One result for each metric.", body = wire::BranchMetrics))
)]
pub(crate) async fn branch_metrics(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::BranchMetrics>, BodyError> {
    let access = call.authorize(&app, &BRANCH_METRICS).await?;
    let asked = body.read(Asked::read).await?;
    let request =
        MetricsRequest { start: asked.start.at, end: asked.end.at, instances: asked.instances.clone() };
    let instances = app.branch_metrics(&access, &request).await?;
    let results = asked.metrics.iter().map(|metric| asked.result(*metric, &instances));
    Ok(Json(wire::BranchMetrics { results: results.collect(), start: asked.start.said, end: asked.end.said }))
}

/// A request as it was understood.
struct Asked {
    start: AskedTime,
    end: AskedTime,
    instances: Vec<String>,
    metrics: Vec<Metric>,
    aggregations: Vec<Aggregation>,
}

impl Asked {
    fn read(fields: &Fields) -> Result<Self> {
        let (start, end) = (fields.required_time("start")?, fields.required_time("end")?);
        let metrics = fields.texts("metrics", METRICS)?.ok_or_else(|| fields.missing("metrics"))?;
        if metrics.is_empty() {
            return Err(Error::invalid_field("metrics", "must name at least one metric"));
        }
        let metrics = each_once(&metrics, |name| {
            let names = Metric::ALL.map(Metric::name).join(", ");
            Metric::parse(name)
                .ok_or_else(|| Error::invalid_field("metrics", format_args!("each must be one of {names}")))
        })?;
        let aggregations = fields.texts("aggregations", AGGREGATIONS_MAX)?.unwrap_or_default();
        let mut aggregations = each_once(&aggregations, |name| {
            Aggregation::parse(name)
                .ok_or_else(|| Error::invalid_field("aggregations", "each must be avg, max or min"))
        })?;
        if aggregations.is_empty() {
            aggregations.push(Aggregation::Avg);
        }
        let instances = fields.texts("instances", INSTANCES_MAX)?.unwrap_or_default();
        if instances.iter().any(|id| !(1..=INSTANCE_LENGTH_MAX).contains(&id.chars().count())) {
            return Err(Error::invalid_field(
                "instances",
                format_args!("each must have 1 to {INSTANCE_LENGTH_MAX} characters"),
            ));
        }
        check_range(start.at, end.at)?;
        Ok(Self { start, end, instances, metrics, aggregations })
    }

    fn result(&self, metric: Metric, instances: &[InstanceSeries]) -> wire::MetricResult {
        let series = instances.iter().flat_map(|instance| {
            self.aggregations.iter().map(move |aggregation| wire::MetricSeries {
                instance_id: instance.instance.to_string(),
                aggregation: wire_aggregation(*aggregation),
                values: points(&instance.steps, metric, *aggregation)
                    .into_iter()
                    .map(|point| wire::MetricValue {
                        timestamp: wire::Timestamp(point.at),
                        value: point.value,
                    })
                    .collect(),
            })
        });
        wire::MetricResult {
            metric: wire_metric(metric),
            unit: metric.unit().to_owned(),
            series: series.collect(),
        }
    }
}

/// Reads a list in its order; what is repeated counts once.
fn each_once<T: PartialEq>(texts: &[String], read: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let mut found = vec![];
    for text in texts {
        let one = read(text)?;
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(found)
}

fn wire_aggregation(aggregation: Aggregation) -> wire::MetricAggregation {
    match aggregation {
        Aggregation::Avg => wire::MetricAggregation::Avg,
        Aggregation::Max => wire::MetricAggregation::Max,
        Aggregation::Min => wire::MetricAggregation::Min,
    }
}

fn wire_metric(metric: Metric) -> wire::MetricName {
    use wire::MetricName as Name;
    match metric {
        Metric::Cpu => Name::Cpu,
        Metric::Memory => Name::Memory,
        Metric::Disk => Name::Disk,
        Metric::ConnectionsActive => Name::ConnectionsActive,
        Metric::ConnectionsIdle => Name::ConnectionsIdle,
        Metric::NetworkIngress => Name::NetworkIngress,
        Metric::NetworkEgress => Name::NetworkEgress,
        Metric::IopsRead => Name::IopsRead,
        Metric::IopsWrite => Name::IopsWrite,
        Metric::LatencyRead => Name::LatencyRead,
        Metric::LatencyWrite => Name::LatencyWrite,
        Metric::ThroughputRead => Name::ThroughputRead,
        Metric::ThroughputWrite => Name::ThroughputWrite,
        Metric::WalSyncTime => Name::WalSyncTime,
        Metric::ReplicationLagTime => Name::ReplicationLagTime,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_the_same_name_everywhere() {
        for metric in Metric::ALL {
            let name = serde_json::to_value(wire_metric(metric)).expect("JSON");
            assert_eq!(name, metric.name());
        }
    }
}

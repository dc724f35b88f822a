//! What instances did, as clients ask for it.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use coppice_core::error::excerpt;
use coppice_core::target::InBranch;
use coppice_core::{Error, ErrorCode, InstanceId, Result};
use coppice_store::Store;
use coppice_telemetry::metrics::{Bucket, Plan};
use futures_util::future::try_join_all;

use crate::Access;
use crate::rows::find_branch;

/// Which history is asked for.
#[derive(Clone, Debug)]
pub struct MetricsRequest {
    /// First instant.
    pub start: DateTime<Utc>,
    /// Last instant; not before the first.
    pub end: DateTime<Utc>,
    /// Of which instances; none of them means all.
    pub instances: Vec<String>,
}

/// The history of one instance.
#[derive(Clone, Debug)]
pub struct InstanceSeries {
    /// The instance.
    pub instance: InstanceId,
    /// What was recorded in each step, oldest first.
    pub steps: Vec<Bucket>,
}

/// What was measured of branches.
#[derive(Clone)]
pub struct BranchMetrics {
    store: Store,
}

impl BranchMetrics {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// What was recorded of a branch's instances, in the order of their ids.
    /// Nothing is woken for it.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `invalid_instance`
    pub async fn of_branch(
        &self,
        access: &Access<InBranch>,
        request: &MetricsRequest,
    ) -> Result<Vec<InstanceSeries>> {
        let branch = find_branch(&self.store, access).await?;
        let history = self.store.metric_history(&branch.id).await?;
        let known: BTreeSet<_> =
            history.instances.iter().chain(history.series.iter().map(|(_, id)| id)).collect();
        let unknown = request.instances.iter().find(|id| !known.iter().any(|known| known.as_str() == **id));
        if let Some(id) = unknown {
            return Err(Error::invalid(
                ErrorCode::InvalidInstance,
                format!("invalid instance {}", excerpt(id)),
            ));
        }
        let is_asked = |id: &InstanceId| {
            request.instances.is_empty() || request.instances.iter().any(|asked| asked == id.as_str())
        };
        let series: BTreeMap<i32, &InstanceId> =
            history.series.iter().filter(|(_, id)| is_asked(id)).map(|(series, id)| (*series, id)).collect();
        let plan = Plan::new(request.start, request.end, Utc::now(), &history.progress);
        let ids: Vec<_> = series.keys().copied().collect();
        let reads = plan.pieces.iter().map(|piece| self.store.metric_read(&ids, piece));
        let pieces = if ids.is_empty() { vec![] } else { try_join_all(reads).await? };
        let mut recorded = BTreeMap::<&InstanceId, Vec<Bucket>>::new();
        for (series_id, bucket) in pieces.into_iter().flatten() {
            if let Some(id) = series.get(&series_id) {
                recorded.entry(id).or_default().push(bucket);
            }
        }
        // A removed instance is shown if it was asked for by name, or has samples.
        for id in known.into_iter().filter(|id| is_asked(id)) {
            if !request.instances.is_empty() || history.instances.contains(id) {
                recorded.entry(id).or_default();
            }
        }
        let answer = recorded.into_iter().map(|(instance, buckets)| InstanceSeries {
            instance: instance.clone(),
            steps: plan.steps(buckets),
        });
        Ok(answer.collect())
    }
}

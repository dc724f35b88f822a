//! Metrics of instances.
//!
//! A look at an instance gives counters; two looks give a [`Sample`]
//! (`sample.rs`). Samples are kept for days, and merged into buckets that are
//! kept longer (`level.rs`). A request chooses a step and the levels to read
//! (`plan.rs`), and what was read becomes series (`series.rs`).

mod level;
mod metric;
mod plan;
mod sample;
mod series;

pub use level::{Level, Progress, floor};
pub use metric::{Aggregation, METRICS, Metric};
pub use plan::{Piece, Plan};
pub use sample::{Look, Sample};
pub use series::{Bucket, Merged, Point, points};

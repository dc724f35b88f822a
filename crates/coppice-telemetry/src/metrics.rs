//! Metrics of instances: from counters to series.

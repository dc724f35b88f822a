//! From what was recorded to points.

use chrono::{DateTime, Utc};

use super::{Aggregation, METRICS, Metric, Plan};

/// Samples of one metric, merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merged {
    /// How many there are; never zero.
    pub count: u32,
    /// Their sum.
    pub sum: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Merged {
    /// One sample.
    fn one(value: f64) -> Self {
        Self { count: 1, sum: value, min: value, max: value }
    }

    fn merge(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    fn value(&self, aggregation: Aggregation) -> f64 {
        match aggregation {
            // Rounding must not put a mean beyond what was measured.
            Aggregation::Avg => (self.sum / f64::from(self.count)).clamp(self.min, self.max),
            Aggregation::Max => self.max,
            Aggregation::Min => self.min,
        }
    }
}

/// What was recorded of an instance at one time, or from one time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// When.
    pub at: DateTime<Utc>,
    /// By [`Metric::index`]; none where nothing was measured.
    pub values: [Option<Merged>; METRICS],
}

impl Bucket {
    /// A bucket of one sample, whose readings are in the order of
    /// [`Metric::index`]; an older one may lack the last.
    pub fn of_readings(at: DateTime<Utc>, readings: impl IntoIterator<Item = Option<f64>>) -> Self {
        let mut bucket = Self { at, values: [None; METRICS] };
        for (value, reading) in bucket.values.iter_mut().zip(readings) {
            *value = reading.map(Merged::one);
        }
        bucket
    }

    fn merge(&mut self, other: &Self) {
        for (own, other) in self.values.iter_mut().zip(other.values) {
            *own = match (*own, other) {
                (Some(own), Some(other)) => Some(own.merge(other)),
                (own, other) => own.or(other),
            };
        }
    }
}

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When its step began.
    pub at: DateTime<Utc>,
    /// In the unit of the metric.
    pub value: f64,
}

impl Plan {
    /// Merges the buckets of one instance into the steps of a request, oldest
    /// first.
    pub fn steps(&self, buckets: impl IntoIterator<Item = Bucket>) -> Vec<Bucket> {
        let mut steps: Vec<Bucket> = vec![];
        for mut bucket in buckets {
            bucket.at = self.point_of(bucket.at);
            // Nearly always they come in order.
            let index = match steps.last() {
                Some(last) if last.at < bucket.at => Err(steps.len()),
                Some(last) if last.at == bucket.at => Ok(steps.len() - 1),
                _ => steps.binary_search_by_key(&bucket.at, |step| step.at),
            };
            match index {
                Ok(index) => steps[index].merge(&bucket),
                Err(index) => steps.insert(index, bucket),
            }
        }
        steps
    }
}

/// One series of an instance's steps.
pub fn points(steps: &[Bucket], metric: Metric, aggregation: Aggregation) -> Vec<Point> {
    let point = |step: &Bucket| {
        let value = step.values[metric.index()]?.value(aggregation);
        Some(Point { at: step.at, value })
    };
    steps.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::metrics::{Level, Progress, Sample};

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).expect("a time")
    }

    /// What the metastore does with samples: merged by the width of a level.
    fn merged(
        samples: &[(i64, f64)],
        level: Level,
        from: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Vec<Bucket> {
        let mut buckets = BTreeMap::<_, Bucket>::new();
        for (second, value) in samples {
            let mut sample = Sample::default();
            sample.0[Metric::Cpu.index()] = Some(*value);
            let time = match level {
                Level::Sample => at(*second),
                Level::Quarter | Level::Hour => super::super::level::floor(at(*second), level.width()),
            };
            if time < from || time >= until {
                continue;
            }
            let bucket = Bucket::of_readings(time, sample.0);
            buckets.entry(time).and_modify(|known| known.merge(&bucket)).or_insert(bucket);
        }
        buckets.into_values().collect()
    }

    /// The same answer by the definition alone: every sample belongs to the
    /// point at which its step, or the request, began.
    fn model(samples: &[(i64, f64)], start: i64, end: i64, step: i64) -> BTreeMap<i64, Vec<f64>> {
        let mut points = BTreeMap::<i64, Vec<f64>>::new();
        for (second, value) in samples.iter().filter(|(second, _)| (start..=end).contains(second)) {
            points.entry((second.div_euclid(step) * step).max(start)).or_default().push(*value);
        }
        points
    }

    const NOW: i64 = 1_800_000_000;

    proptest! {
        #[test]
        fn series_are_what_their_definition_says(
            ages in prop::collection::vec((0..40_i64 * 86_400, 0_f64..1e6), 0..200),
            length in 1..38_i64,
            hours_ago in 0..30_i64,
            lag in 0..4_i64,
        ) {
            let mut samples: Vec<_> = ages.into_iter().map(|(age, value)| (NOW - age, value)).collect();
            samples.sort_by_key(|(second, _)| *second);
            samples.dedup_by_key(|(second, _)| *second);
            // On hours, so that whole buckets are asked for; not in the future.
            let end = NOW / 3600 * 3600 - hours_ago * 3600 - 1;
            let start = end + 1 - length * 3600 * 9;
            let quarters = at(NOW / 900 * 900 - lag * 900);
            let hours = super::super::level::floor(quarters, TimeDelta::hours(1));
            let plan = Plan::new(at(start), at(end), at(NOW), &Progress { quarters, hours });
            let buckets = plan.pieces.iter().flat_map(|piece| merged(&samples, piece.level, piece.from, piece.until));
            let steps = plan.steps(buckets);
            let expected = model(&samples, start, end, plan.step.num_seconds());
            let is_fine = plan.pieces.iter().all(|piece| piece.level.width() <= plan.step);
            if is_fine {
                let times: Vec<_> = expected.keys().map(|second| at(*second)).collect();
                let of = |aggregation| points(&steps, Metric::Cpu, aggregation);
                prop_assert_eq!(of(Aggregation::Max).iter().map(|point| point.at).collect::<Vec<_>>(), times);
                for (values, (min, (max, avg))) in expected.values().zip(
                    of(Aggregation::Min).into_iter().zip(of(Aggregation::Max).into_iter().zip(of(Aggregation::Avg)))
                ) {
                    prop_assert_eq!(min.value, values.iter().copied().fold(f64::MAX, f64::min));
                    prop_assert_eq!(max.value, values.iter().copied().fold(f64::MIN, f64::max));
                    let mean = values.iter().sum::<f64>() / values.len() as f64;
                    prop_assert!((avg.value - mean).abs() <= mean.abs() * 1e-12);
                }
            }
            // Coarse or not, every sample is counted once, within what was asked for.
            let counted: u32 = steps.iter().filter_map(|step| step.values[0]).map(|merged| merged.count).sum();
            prop_assert_eq!(counted as usize, expected.values().map(Vec::len).sum::<usize>());
            for pair in steps.windows(2) {
                prop_assert!(pair[0].at < pair[1].at);
            }
            for step in &steps {
                prop_assert!(step.at >= at(start) && step.at <= at(end));
                let is_multiple = step.at.timestamp() % plan.step.num_seconds() == 0;
                prop_assert!(is_multiple || step.at == at(start));
            }
            prop_assert!(steps.len() <= 1500);
        }

        #[test]
        fn any_request_is_read_without_overlap_and_gives_points_inside(
            start_age in 0..200_i64 * 86_400,
            length in 0..200_i64 * 86_400,
            quarters_age in 0..90_000_i64,
        ) {
            let (start, now) = (at(NOW - start_age), at(NOW));
            let end = start + TimeDelta::seconds(length);
            let quarters = super::super::level::floor(at(NOW - quarters_age), Level::Quarter.width());
            let hours = super::super::level::floor(quarters, Level::Hour.width());
            let plan = Plan::new(start, end, now, &Progress { quarters, hours });
            for pair in plan.pieces.windows(2) {
                prop_assert!(pair[0].until <= pair[1].from);
                prop_assert!(pair[0].level > pair[1].level);
            }
            for piece in &plan.pieces {
                prop_assert!(piece.from < piece.until);
                let point = plan.point_of(piece.from);
                prop_assert!(point >= start && point <= end.max(start));
            }
        }
    }

    #[test]
    fn a_step_that_began_before_the_request_stands_at_its_start() {
        let samples = [(NOW - 95, 1.0), (NOW - 40, 3.0)];
        let progress = Progress { quarters: at(NOW - 7200), hours: at(NOW - 7200) };
        let plan = Plan::new(at(NOW - 100), at(NOW), at(NOW), &progress);
        let buckets =
            plan.pieces.iter().flat_map(|piece| merged(&samples, piece.level, piece.from, piece.until));
        let steps = plan.steps(buckets);
        let found = points(&steps, Metric::Cpu, Aggregation::Avg);
        assert_eq!(found, [Point { at: at(NOW - 100), value: 1.0 }, Point { at: at(NOW - 60), value: 3.0 }]);
        assert_eq!(points(&steps, Metric::Memory, Aggregation::Avg), []);
    }
}

//! From two looks at an instance to one sample.
//!
//! Counters only grow while the same server counts. Whenever one is smaller
//! than before, or its server is another one, the difference would be a lie:
//! there is no value then, and the next look has something to compare with.

use std::time::Duration;

use coppice_core::statistics::{ClientTraffic, InstanceStatistics, Operations, ServerStatistics};

use super::{METRICS, Metric};

/// One look at an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// When, by a clock that nobody sets.
    pub at: Duration,
    /// What the instance tells.
    pub instance: InstanceStatistics,
    /// What its clients moved.
    pub traffic: ClientTraffic,
}

/// The metrics of an instance at one time; one that can't be told is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample(pub [Option<f64>; METRICS]);

/// No server counts this far; one that says so would make the sums of all
/// branches overflow.
const READING_MAX: f64 = 1e30;

impl Sample {
    /// What the look `now` says after the look `before`, for an instance that
    /// may use `cpu_millis` thousandths of a CPU.
    pub fn between(before: Option<&Look>, now: &Look, cpu_millis: u32) -> Self {
        let mut sample = Self::default();
        sample.set(Metric::Memory, now.instance.memory_bytes.map(|bytes| bytes as f64));
        sample.set(Metric::Disk, now.instance.disk_bytes.map(|bytes| bytes as f64));
        if let Some(server) = &now.instance.server {
            sample.set(Metric::ConnectionsActive, Some(server.sessions_active.into()));
            sample.set(Metric::ConnectionsIdle, Some(server.sessions_idle.into()));
            sample.set(Metric::ReplicationLagTime, server.replication_lag.map(|lag| lag.as_secs_f64()));
        }
        let Some(before) = before else { return sample };
        let Some(elapsed) = now.at.checked_sub(before.at).filter(|elapsed| !elapsed.is_zero()) else {
            return sample;
        };
        let rate = |before: f64, now: f64| growth(before, now).map(|growth| growth / elapsed.as_secs_f64());
        sample.set(
            Metric::NetworkIngress,
            rate(before.traffic.from_clients as f64, now.traffic.from_clients as f64),
        );
        sample.set(
            Metric::NetworkEgress,
            rate(before.traffic.to_clients as f64, now.traffic.to_clients as f64),
        );
        if before.instance.process != now.instance.process {
            return sample;
        }
        let cpu_used = before.instance.cpu_used.zip(now.instance.cpu_used);
        sample.set(Metric::Cpu, cpu_used.and_then(|used| cpu_percentage(used, elapsed, cpu_millis)));
        if let (Some(before), Some(now)) = (&before.instance.server, &now.instance.server) {
            sample.set_operations(before, now, &rate);
        }
        sample
    }

    fn set_operations(
        &mut self,
        before: &ServerStatistics,
        now: &ServerStatistics,
        rate: &dyn Fn(f64, f64) -> Option<f64>,
    ) {
        if before.epoch != now.epoch {
            return;
        }
        self.set(Metric::IopsRead, rate(before.reads.count, now.reads.count));
        self.set(Metric::IopsWrite, rate(before.writes.count, now.writes.count));
        self.set(Metric::ThroughputRead, rate(before.reads.bytes, now.reads.bytes));
        self.set(Metric::ThroughputWrite, rate(before.writes.bytes, now.writes.bytes));
        self.set(Metric::LatencyRead, mean_time(&before.reads, &now.reads));
        self.set(Metric::LatencyWrite, mean_time(&before.writes, &now.writes));
        self.set(Metric::WalSyncTime, mean_time(&before.wal_syncs, &now.wal_syncs));
    }

    fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric.index()] = value.filter(|value| value.abs() <= READING_MAX);
    }

    /// The value of a metric.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric.index()]
    }
}

/// How much a counter grew; none when it went back.
fn growth(before: f64, now: f64) -> Option<f64> {
    (now >= before).then_some(now - before)
}

fn cpu_percentage((before, now): (Duration, Duration), elapsed: Duration, cpu_millis: u32) -> Option<f64> {
    let share = elapsed.as_secs_f64() * f64::from(cpu_millis.max(1)) / 1000.0;
    let used = now.checked_sub(before)?.as_secs_f64();
    // Where nothing limits an instance, and within one period of the kernel's
    // bookkeeping where something does, it can use more than its share.
    Some((used / share * 100.0).min(100.0))
}

/// Milliseconds per operation; none when there was none, or none was timed.
fn mean_time(before: &Operations, now: &Operations) -> Option<f64> {
    let timed = growth(before.timed, now.timed)?;
    let milliseconds = growth(before.milliseconds, now.milliseconds)?;
    (timed > 0.0 && milliseconds > 0.0).then(|| milliseconds / timed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seconds: u64, change: impl FnOnce(&mut Look)) -> Look {
        let server = ServerStatistics { epoch: "e".to_owned(), ..ServerStatistics::default() };
        let instance = InstanceStatistics {
            process: "1".to_owned(),
            cpu_used: Some(Duration::ZERO),
            server: Some(server),
            ..InstanceStatistics::default()
        };
        let mut look = Look { at: Duration::from_secs(seconds), instance, traffic: ClientTraffic::default() };
        change(&mut look);
        look
    }

    fn server(look: &mut Look) -> &mut ServerStatistics {
        look.instance.server.as_mut().expect("it has one")
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = look(10, |_| {});
        let now = look(20, |look| {
            look.instance.cpu_used = Some(Duration::from_secs(5));
            look.traffic = ClientTraffic { from_clients: 1000, to_clients: 5000 };
            server(look).reads = Operations { count: 50.0, bytes: 8192.0, timed: 50.0, milliseconds: 25.0 };
        });
        let sample = Sample::between(Some(&before), &now, 2000);
        assert_eq!(sample.get(Metric::Cpu), Some(25.0), "5 of 20 CPU seconds");
        assert_eq!(sample.get(Metric::NetworkIngress), Some(100.0));
        assert_eq!(sample.get(Metric::NetworkEgress), Some(500.0));
        assert_eq!(sample.get(Metric::IopsRead), Some(5.0));
        assert_eq!(sample.get(Metric::ThroughputRead), Some(819.2));
        assert_eq!(sample.get(Metric::LatencyRead), Some(0.5));
        assert_eq!(sample.get(Metric::IopsWrite), Some(0.0));
        assert_eq!(sample.get(Metric::LatencyWrite), None, "the mean of nothing is nothing");
    }

    #[test]
    fn the_first_look_tells_only_what_is_now() {
        let now = look(20, |look| server(look).sessions_active = 3);
        let sample = Sample::between(None, &now, 1000);
        assert_eq!(sample.get(Metric::ConnectionsActive), Some(3.0));
        assert!([Metric::Cpu, Metric::NetworkIngress, Metric::IopsWrite].map(|m| sample.get(m)) == [None; 3]);
    }

    #[test]
    fn another_server_process_starts_every_counter_anew() {
        let before = look(10, |look| look.instance.cpu_used = Some(Duration::from_secs(1)));
        let now = look(20, |look| {
            look.instance.process = "2".to_owned();
            look.instance.cpu_used = Some(Duration::from_secs(9));
            server(look).writes = Operations { count: 1e9, bytes: 1e12, timed: 1e9, milliseconds: 1.0 };
        });
        let sample = Sample::between(Some(&before), &now, 1000);
        assert_eq!([Metric::Cpu, Metric::IopsWrite, Metric::LatencyWrite].map(|m| sample.get(m)), [None; 3]);
        assert_eq!(sample.get(Metric::NetworkIngress), Some(0.0), "the gateway went on");
    }

    #[test]
    fn counters_that_a_server_forgot_start_anew_while_the_kernels_go_on() {
        let before = look(10, |look| server(look).reads.count = 7.0);
        let now = look(20, |look| {
            look.instance.cpu_used = Some(Duration::from_secs(1));
            server(look).epoch = "f".to_owned();
            server(look).reads.count = 1000.0;
        });
        let sample = Sample::between(Some(&before), &now, 1000);
        assert_eq!(sample.get(Metric::IopsRead), None);
        assert_eq!(sample.get(Metric::Cpu), Some(10.0));
    }

    #[test]
    fn a_counter_that_went_back_gives_no_value() {
        let before = look(10, |look| {
            look.instance.cpu_used = Some(Duration::from_secs(9));
            look.traffic.from_clients = 10;
            server(look).writes.bytes = 10.0;
        });
        let sample = Sample::between(Some(&before), &look(20, |_| {}), 1000);
        let gone = [Metric::Cpu, Metric::NetworkIngress, Metric::ThroughputWrite];
        assert_eq!(gone.map(|metric| sample.get(metric)), [None; 3]);
    }

    #[test]
    fn no_instance_uses_more_than_all_of_its_share() {
        let now = look(20, |look| look.instance.cpu_used = Some(Duration::from_secs(100)));
        let sample = Sample::between(Some(&look(10, |_| {})), &now, 1000);
        assert_eq!(sample.get(Metric::Cpu), Some(100.0));
    }
}

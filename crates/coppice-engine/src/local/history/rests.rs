//! Looks that read much in vain, or cost too much for what they are good for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use parking_lot::Mutex;

/// So much is read in vain at once however often one looks: the log ends somewhere in what is read.
const UNCOUNTED: u64 = 1 << 20;
/// Bytes a second that may be read in vain beyond that.
const BYTES_PER_SECOND: u64 = 16 << 20;

/// Volumes whose log is not read for a while. What is behind the end of a log is read again by each look until it is a
/// record: a GiB where a server never ends one, which it may write.
#[derive(Debug, Default)]
pub(super) struct Rests(Mutex<HashMap<VolumeId, Instant>>);

impl Rests {
    /// Whether a volume's log is not to be read yet.
    pub(super) fn has(&self, volume: &VolumeId, now: Instant) -> bool {
        self.0.lock().get(volume).is_some_and(|until| now < *until)
    }

    /// Lets one rest for as long as what was read of it in vain takes.
    pub(super) fn begin(&self, volume: &VolumeId, read_in_vain: u64, now: Instant) {
        if read_in_vain > UNCOUNTED {
            let rest = Duration::from_millis(read_in_vain.saturating_mul(1000) / BYTES_PER_SECOND);
            self.rest(volume, rest, now);
        }
    }

    /// Lets one rest for so long.
    pub(super) fn rest(&self, volume: &VolumeId, rest: Duration, now: Instant) {
        let mut rests = self.0.lock();
        // Those of volumes that are gone, too.
        rests.retain(|_, until| now < *until);
        rests.insert(volume.clone(), now + rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_rests_for_as_long_as_much_was_read_in_vain() {
        let (rests, now) = (Rests::default(), Instant::now());
        let [one, other] = ["vol_1", "vol_2"].map(VolumeId::from_trusted);
        let after = |milliseconds| now + Duration::from_millis(milliseconds);
        rests.begin(&one, UNCOUNTED, now);
        assert!(!rests.has(&one, now), "it ends somewhere");
        rests.begin(&one, 1 << 30, now);
        assert!(rests.has(&one, after(63_999)) && !rests.has(&one, after(64_000)));
        assert!(!rests.has(&other, now), "each by itself");
        rests.begin(&other, 8 << 20, now);
        assert!(rests.has(&other, after(499)) && !rests.has(&other, after(500)));
        rests.begin(&other, 0, after(1_000));
        assert!(!rests.has(&other, after(1_000)), "that is no reason to rest");
        rests.rest(&one, Duration::from_secs(90), after(1_000));
        assert!(rests.has(&one, after(90_999)) && rests.0.lock().len() == 1);
    }
}

//! What all volumes take, those that sleep included, and what they share.
//!
//! A volume is measured when it has changed, one at a time, and for a small part of
//! the time only: how long that takes is up to whoever writes to it.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_core::storage::VolumeBytes;
use parking_lot::Mutex;

use super::volumes::{Mark, Volumes};
use crate::Result;

/// One begins no more volumes after this time; the next turn goes on.
const TURN: Duration = Duration::from_secs(1);
/// Each is measured for at most one part in so many of the time,
const SHARE: u32 = 100;
/// and not again within this.
const PAUSE_MIN: Duration = Duration::from_secs(15);
/// For how long it counts that a volume was not changed, where what others do to
/// theirs changes what it shares.
const SURE_FOR: Duration = Duration::from_secs(3600);

struct Size {
    bytes: VolumeBytes,
    mark: Option<Mark>,
    measured: Instant,
    took: Duration,
}

impl Size {
    /// Whether it is to be measured again after so long, if the volume has this mark now.
    fn is_due(&self, mark: Option<Mark>, age: Duration) -> bool {
        let is_same = match mark {
            Some(Mark::Generation(_)) => self.mark == mark,
            Some(Mark::Checkpoint(_)) => self.mark == mark && age < SURE_FOR,
            None => false,
        };
        !is_same && age >= self.took.saturating_mul(SHARE).max(PAUSE_MIN)
    }
}

/// Sizes of volumes as they were last measured.
#[derive(Default)]
pub(super) struct Sizes {
    known: Mutex<HashMap<VolumeId, Size>>,
    /// Held while somebody measures.
    turn: Mutex<()>,
}

impl Sizes {
    pub(super) fn known(&self, volume: &VolumeId) -> Option<VolumeBytes> {
        self.known.lock().get(volume).map(|size| size.bytes)
    }

    /// Measures those that have changed, the ones first that were measured longest ago.
    /// Does nothing while another turn goes on. Blocks.
    pub(super) fn take_turn(self: &Arc<Self>, volumes: &Volumes) -> Result<()> {
        let Some(_turn) = self.turn.try_lock() else { return Ok(()) };
        let (began, ids) = (Instant::now(), volumes.ids()?);
        let there: HashSet<_> = ids.iter().collect();
        self.known.lock().retain(|volume, _| there.contains(volume));
        let mut due: Vec<_> = ids.iter().filter_map(|volume| self.due(volumes, volume)).collect();
        due.sort_unstable_by_key(|(age, ..)| Reverse(*age));
        for (_, volume, mark) in due {
            let started = Instant::now();
            if started.duration_since(began) > TURN {
                break;
            }
            // A volume that is gone was removed meanwhile.
            let Ok(bytes) = volumes.bytes(volume) else { continue };
            let size = Size { bytes, mark, measured: Instant::now(), took: started.elapsed() };
            self.known.lock().insert(volume.clone(), size);
        }
        Ok(())
    }

    /// A volume that is to be measured, with how long ago it was last, and what it is
    /// marked with now.
    fn due<'a>(
        &self,
        volumes: &Volumes,
        volume: &'a VolumeId,
    ) -> Option<(Duration, &'a VolumeId, Option<Mark>)> {
        let (mark, known) = (volumes.mark(volume), self.known.lock());
        match known.get(volume) {
            None => Some((Duration::MAX, volume, mark)),
            Some(size) => {
                let age = size.measured.elapsed();
                size.is_due(mark, age).then_some((age, volume, mark))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mark: Option<Mark>, took: Duration) -> Size {
        Size { bytes: VolumeBytes { total: 1, shared: None }, mark, measured: Instant::now(), took }
    }

    #[test]
    fn a_volume_is_measured_again_when_it_has_changed() {
        let now = |mark: Mark, later: Option<Mark>, seconds: u64| {
            measured(Some(mark), Duration::from_millis(1)).is_due(later, Duration::from_secs(seconds))
        };
        let (first, second) = (Mark::Generation(7), Mark::Generation(9));
        assert!(!now(first, Some(first), 1_000_000), "as btrfs says, nothing has happened");
        assert!(now(first, Some(second), 15) && !now(first, Some(second), 14));
        let (first, second) = (Mark::Checkpoint(7), Mark::Checkpoint(9));
        assert!(now(first, Some(second), 15) && !now(first, Some(first), 3599));
        assert!(now(first, Some(first), 3600), "others may share other blocks with it");
        assert!(now(first, None, 15), "who can't tell is looked at");
    }

    #[test]
    fn whatever_a_volume_takes_to_be_measured_it_is_a_small_part_of_the_time() {
        let size = measured(Some(Mark::Generation(7)), Duration::from_secs(60));
        let is_due = |seconds| size.is_due(Some(Mark::Generation(9)), Duration::from_secs(seconds));
        assert!(!is_due(5_999) && is_due(6_000));
    }
}

//! Calls on the same volume wait for each other.
//!
//! A caller may give up on a copy and start it again while the first attempt
//! is still at work in another thread; without this the second would delete
//! what the first is writing. A source is shared by its copies, and kept from
//! being removed while a copy reads it.
//!
//! Everything a call needs is taken at once, so no two calls can wait for each
//! other.

use std::collections::HashMap;

use coppice_core::VolumeId;
use parking_lot::{Condvar, Mutex, MutexGuard};

#[derive(Clone, Copy, Debug)]
enum Holders {
    Readers(u32),
    Writer,
}

/// Who works on which volume.
#[derive(Debug, Default)]
pub(super) struct VolumeLocks {
    held: Mutex<HashMap<VolumeId, Holders>>,
    released: Condvar,
}

/// Released when dropped.
#[derive(Debug)]
pub(super) struct Held<'a> {
    locks: &'a VolumeLocks,
    volume: VolumeId,
    source: Option<VolumeId>,
}

impl VolumeLocks {
    /// Waits until nobody else works on `volume`, nor changes `source`.
    pub(super) fn take(&self, volume: &VolumeId, source: Option<&VolumeId>) -> Held<'_> {
        let mut held = self.held.lock();
        while !is_free(&held, volume, source) {
            self.released.wait(&mut held);
        }
        self.enter(held, volume, source)
    }

    /// As [`take`](Self::take), but none where it would have to wait.
    pub(super) fn try_take(&self, volume: &VolumeId) -> Option<Held<'_>> {
        let held = self.held.lock();
        is_free(&held, volume, None).then(|| self.enter(held, volume, None))
    }

    fn enter(
        &self,
        mut held: MutexGuard<'_, HashMap<VolumeId, Holders>>,
        volume: &VolumeId,
        source: Option<&VolumeId>,
    ) -> Held<'_> {
        held.insert(volume.clone(), Holders::Writer);
        if let Some(source) = source {
            let readers = match held.get(source) {
                Some(Holders::Readers(count)) => *count,
                _ => 0,
            };
            held.insert(source.clone(), Holders::Readers(readers + 1));
        }
        Held { locks: self, volume: volume.clone(), source: source.cloned() }
    }
}

fn is_free(held: &HashMap<VolumeId, Holders>, volume: &VolumeId, source: Option<&VolumeId>) -> bool {
    let source_is_free = source.is_none_or(|source| !matches!(held.get(source), Some(Holders::Writer)));
    !held.contains_key(volume) && source_is_free
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        held.remove(&self.volume);
        if let Some(source) = &self.source {
            match held.get(source) {
                Some(Holders::Readers(count)) if *count > 1 => {
                    let rest = Holders::Readers(count - 1);
                    held.insert(source.clone(), rest);
                }
                _ => {
                    held.remove(source);
                }
            }
        }
        drop(held);
        self.locks.released.notify_all();
    }
}

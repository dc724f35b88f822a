//! Bases that are made or read, and what they need of others.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use coppice_core::VolumeId;
use coppice_core::organization::Holder;
use parking_lot::Mutex;

/// What is made or read now.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Of the next one.
    number: u64,
    uses: BTreeMap<u64, Use>,
}

#[derive(Debug)]
struct Use {
    /// Whose base is made; none where one is read.
    maker: Option<Holder>,
    /// Volumes whose bases it needs: its own first.
    volumes: Vec<VolumeId>,
    since: DateTime<Utc>,
}

/// What is in use until it is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    uses: Uses,
    number: u64,
}

/// What was in use at a time.
#[derive(Debug)]
pub(super) struct UsedNow {
    /// Volumes of which no base may be removed.
    pub(super) volumes: HashSet<VolumeId>,
    /// When the first of them began; none when there is none.
    pub(super) since: Option<DateTime<Utc>>,
}

impl Uses {
    pub(super) fn begin(&self, maker: Option<Holder>, volumes: Vec<VolumeId>) -> InUse {
        let mut state = self.0.lock();
        let number = state.number;
        state.number += 1;
        state.uses.insert(number, Use { maker, volumes, since: Utc::now() });
        InUse { uses: self.clone(), number }
    }

    pub(super) fn now(&self) -> UsedNow {
        let state = self.0.lock();
        UsedNow {
            volumes: state.uses.values().flat_map(|one| one.volumes.iter().cloned()).collect(),
            since: state.uses.values().map(|one| one.since).min(),
        }
    }

    /// Volumes of which a base is made, with whose they are.
    pub(super) fn made(&self) -> Vec<(Holder, VolumeId)> {
        let state = self.0.lock();
        let made =
            state.uses.values().filter_map(|one| Some((one.maker.clone()?, one.volumes.first()?.clone())));
        made.collect()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.uses.0.lock().uses.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_or_read_is_in_use_with_what_it_is_a_copy_of() {
        let [own, parent, other] = ["own", "parent", "other"].map(VolumeId::from_trusted);
        let (uses, holder) = (Uses::default(), Holder::from_trusted("holder"));
        assert!(uses.now().volumes.is_empty() && uses.now().since.is_none());
        let making = uses.begin(Some(holder.clone()), vec![own.clone(), parent.clone()]);
        let began = uses.now().since;
        let reading = uses.begin(None, vec![other.clone()]);
        assert_eq!(uses.made(), [(holder, own.clone())]);
        assert_eq!(uses.now().volumes, HashSet::from([own, parent, other.clone()]));
        assert!(began.is_some() && uses.now().since == began);
        drop(making);
        assert_eq!((uses.made(), uses.now().volumes), (vec![], HashSet::from([other])));
        drop(reading);
        assert!(uses.now().volumes.is_empty());
    }
}

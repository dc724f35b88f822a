//! Turns of those who share what one may have.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Turn, Turns};

/// So many turns of each owner at once. One goes to the part of the owner that has the fewest, so that
/// none waits behind all that another asks for.
#[derive(Debug)]
pub struct PartedTurns<K: Clone + Eq + Hash> {
    each: usize,
    owners: Mutex<HashMap<K, Turns<K>>>,
}

impl<K: Clone + Eq + Hash> PartedTurns<K> {
    /// So many of each owner at once, however many owners there are.
    #[must_use]
    pub fn of_each(each: usize) -> Self {
        Self { each, owners: Mutex::default() }
    }

    /// Waits for a turn of a part of an owner.
    pub async fn take(&self, of: &K, part: &K) -> Turn<K> {
        self.of(of).take(part).await
    }

    fn of(&self, of: &K) -> Turns<K> {
        let mut owners = self.owners.lock();
        if let Some(known) = owners.get(of) {
            return known.clone();
        }
        // Turns, and those that wait for one, hold what they are of.
        owners.retain(|_, turns| Arc::strong_count(&turns.0) > 1);
        owners.entry(of.clone()).or_insert_with(|| Turns::new(self.each, self.each)).clone()
    }

    #[cfg(test)]
    pub(crate) fn owners(&self) -> usize {
        self.owners.lock().len()
    }
}

//! What somebody works on already.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Things of which each is worked on once at a time; who finds one taken goes away.
#[derive(Debug)]
pub struct Busy<K: Clone + Eq + Hash>(Arc<Mutex<HashSet<K>>>);

/// Whoever holds it works on it until it is dropped, by a panic as well.
#[derive(Debug)]
pub struct Work<K: Clone + Eq + Hash> {
    of: K,
    busy: Busy<K>,
}

impl<K: Clone + Eq + Hash> Clone for Busy<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash> Default for Busy<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash> Busy<K> {
    /// None while somebody works on it.
    #[must_use]
    pub fn begin(&self, of: &K) -> Option<Work<K>> {
        let is_free = self.0.lock().insert(of.clone());
        is_free.then(|| Work { of: of.clone(), busy: self.clone() })
    }

    /// Whether somebody works on it.
    #[must_use]
    pub fn has(&self, of: &K) -> bool {
        self.0.lock().contains(of)
    }
}

impl<K: Clone + Eq + Hash> Drop for Work<K> {
    fn drop(&mut self) {
        self.busy.0.lock().remove(&self.of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_worked_on_once_at_a_time_and_free_again_after_a_panic() {
        let busy = Busy::default();
        let work = busy.begin(&"one").expect("nobody works on it");
        assert!(busy.begin(&"one").is_none());
        assert!(busy.begin(&"other").is_some());
        let panicking = std::thread::spawn(move || {
            let _work = work;
            panic!("it fails");
        });
        panicking.join().expect_err("it panics");
        assert!(!busy.has(&"one"));
        assert!(busy.begin(&"one").is_some());
    }
}

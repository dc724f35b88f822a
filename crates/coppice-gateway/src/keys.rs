//! The keys that clients cancel statements with.
//!
//! A client's key has a process id, which for a session of its own is the one
//! that its server tells, so SQL there knows it too. Servers of different
//! branches have the same ids, so it is the secret, which is ours, that says
//! which client a key is of.

use std::collections::HashMap;
use std::sync::Arc;

use coppice_core::random;
use coppice_pgwire::startup::CancelKey;
use parking_lot::Mutex;

use crate::Route;

/// The session that does what a client wants, and the key that cancels it; none
/// while no session does. Whoever passes a cancel request on keeps it locked,
/// so that the session can't be another client's before the request is there.
pub(crate) type Target = tokio::sync::Mutex<Option<Arc<Cancellable>>>;

/// A session of a server, as a cancel request finds it.
pub(crate) struct Cancellable {
    pub(crate) route: Route,
    pub(crate) key: CancelKey,
}

/// The keys of all clients, by process id.
#[derive(Default)]
pub(crate) struct Keys(Mutex<HashMap<u32, Vec<Known>>>);

type Known = (CancelKey, Arc<Target>);

/// A client's key, known as long as this lives.
pub(crate) struct KnownKey {
    keys: Arc<Keys>,
    pub(crate) key: CancelKey,
}

impl Keys {
    /// Makes a key with a secret of this length.
    pub(crate) fn make(
        self: &Arc<Self>,
        process_id: u32,
        secret_length: usize,
        target: Arc<Target>,
    ) -> KnownKey {
        let mut known = self.0.lock();
        let known = known.entry(process_id).or_default();
        loop {
            let mut secret = vec![0; secret_length];
            random::fill(&mut secret);
            let key = CancelKey { process_id, secret: secret.into() };
            // Four bytes are few enough for two of the same to happen.
            if !known.iter().any(|(other, _)| *other == key) {
                known.push((key.clone(), target));
                return KnownKey { keys: self.clone(), key };
            }
        }
    }

    /// What a key cancels.
    pub(crate) fn target(&self, key: &CancelKey) -> Option<Arc<Target>> {
        let known = self.0.lock();
        let (_, target) = known.get(&key.process_id)?.iter().find(|(known, _)| known.fits(key))?;
        Some(target.clone())
    }
}

impl Drop for KnownKey {
    fn drop(&mut self) {
        let mut known = self.keys.0.lock();
        if let Some(of_process) = known.get_mut(&self.key.process_id) {
            of_process.retain(|(key, _)| *key != self.key);
            if of_process.is_empty() {
                known.remove(&self.key.process_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coppice_core::BranchId;

    use super::*;

    fn target(number: u8) -> Arc<Target> {
        let branch = BranchId::generate();
        let route = Route::ready(&branch);
        let key = CancelKey { process_id: 71, secret: vec![number; 4].into() };
        Arc::new(Target::new(Some(Arc::new(Cancellable { route, key }))))
    }

    #[test]
    fn a_key_cancels_its_own_session_only_while_that_lives() {
        let (keys, target) = (Arc::<Keys>::default(), target(1));
        let known = keys.make(9, 4, target.clone());
        let found = keys.target(&known.key).expect("is known");
        assert!(Arc::ptr_eq(&found, &target));
        let mut secret = known.key.secret.to_vec();
        secret[0] ^= 1;
        let key = known.key.clone();
        assert!(keys.target(&CancelKey { secret: secret.into(), ..key.clone() }).is_none());
        drop(known);
        assert!(keys.target(&key).is_none());
        assert!(keys.0.lock().is_empty());
    }

    #[test]
    fn sessions_of_two_branches_with_the_same_process_id_are_told_apart() {
        let keys = Arc::<Keys>::default();
        // A secret of one byte meets itself among so many.
        let made: Vec<_> = (0..200).map(|number| (number, keys.make(71, 1, target(number)))).collect();
        for (number, known) in &made {
            let target = keys.target(&known.key).expect("is known");
            let held = target.try_lock().expect("nobody cancels");
            assert_eq!(held.as_ref().map(|session| session.key.secret[0]), Some(*number));
        }
    }
}

//! Open sessions, and the keys that cancel what they do.
//!
//! Clients get keys of ours: servers of different branches would hand out the
//! same ones, and a key has to say which server it is for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use aws_lc_rs::{constant_time, rand};
use coppice_core::BranchId;
use coppice_pgwire::startup::CancelKey;
use tokio::sync::watch;

use crate::Route;

/// Bytes that passed through the gateway's sessions since it started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) from_clients: AtomicU64,
    pub(crate) to_clients: AtomicU64,
}

/// All open sessions of a gateway.
#[derive(Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
    pub(crate) counters: Counters,
}

#[derive(Default)]
struct State {
    by_process_id: HashMap<u32, Target>,
    per_branch: HashMap<BranchId, usize>,
    /// When the last client of a branch without clients left.
    last_left: HashMap<BranchId, SystemTime>,
    /// Branches whose new clients wait. Dropping the sender lets them go on.
    held: HashMap<BranchId, watch::Sender<()>>,
    /// How often each branch was held, and let go, so far.
    holds: HashMap<BranchId, u64>,
}

/// A session can't begin: its branch is, or was meanwhile, about to sleep. The
/// client has to look again after the receiver closed.
pub(crate) struct Held(pub(crate) Option<watch::Receiver<()>>);

/// Keeps new clients of a branch waiting until it is dropped.
pub struct Hold {
    sessions: Arc<Sessions>,
    branch: BranchId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        state.held.remove(&self.branch);
        // Who looked the branch up during the hold may have seen it as it was before.
        *state.holds.entry(self.branch.clone()).or_default() += 1;
    }
}

/// What a cancel key of ours stands for.
struct Target {
    key: CancelKey,
    route: Route,
    /// None until the server has told.
    server_key: Option<CancelKey>,
}

/// Keeps a session in the list as long as it lives.
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    branch: BranchId,
    pub(crate) key: CancelKey,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of sessions that are open to a branch.
    pub(crate) fn open(&self, branch: &BranchId) -> usize {
        self.lock().per_branch.get(branch).copied().unwrap_or(0)
    }

    /// When the last client of a branch left; none while it has clients, or
    /// when it had none since the start.
    pub(crate) fn last_left(&self, branch: &BranchId) -> Option<SystemTime> {
        self.lock().last_left.get(branch).copied()
    }

    /// How often a branch was held and let go so far; to be asked before it is
    /// looked up.
    pub(crate) fn holds(&self, branch: &BranchId) -> u64 {
        self.lock().holds.get(branch).copied().unwrap_or(0)
    }

    /// Keeps new clients of a branch waiting; none when it has clients, or is
    /// held already.
    pub(crate) fn hold(self: &Arc<Self>, branch: &BranchId) -> Option<Hold> {
        let mut state = self.lock();
        if state.per_branch.contains_key(branch) || state.held.contains_key(branch) {
            return None;
        }
        state.held.insert(branch.clone(), watch::channel(()).0);
        *state.holds.entry(branch.clone()).or_default() += 1;
        Some(Hold { sessions: self.clone(), branch: branch.clone() })
    }

    /// Adds a session whose cancel key has a secret of this length, unless the
    /// branch was held since `holds_seen`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        branch: &BranchId,
        route: &Route,
        secret_length: usize,
        holds_seen: u64,
    ) -> Result<Session, Held> {
        let mut state = self.lock();
        if let Some(sender) = state.held.get(branch) {
            return Err(Held(Some(sender.subscribe())));
        }
        if state.holds.get(branch).copied().unwrap_or(0) != holds_seen {
            return Err(Held(None));
        }
        state.last_left.remove(branch);
        let mut process_id = new_process_id();
        while state.by_process_id.contains_key(&process_id) {
            process_id = new_process_id();
        }
        let mut secret = vec![0; secret_length];
        rand::fill(&mut secret).expect("the system random source works");
        let key = CancelKey { process_id, secret: secret.into() };
        let target = Target { key: key.clone(), route: route.clone(), server_key: None };
        state.by_process_id.insert(process_id, target);
        *state.per_branch.entry(branch.clone()).or_default() += 1;
        Ok(Session { sessions: self.clone(), branch: branch.clone(), key })
    }

    /// Where a cancel request with this key has to go, and the key to use there.
    pub(crate) fn target(&self, key: &CancelKey) -> Option<(Route, CancelKey)> {
        let state = self.lock();
        let target = state.by_process_id.get(&key.process_id)?;
        constant_time::verify_slices_are_equal(&target.key.secret, &key.secret).ok()?;
        Some((target.route.clone(), target.server_key.clone()?))
    }
}

/// Positive as a signed number: clients show it as one.
fn new_process_id() -> u32 {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).expect("the system random source works");
    (u32::from_be_bytes(bytes) >> 1).max(1)
}

impl Session {
    /// From now on, cancel requests are passed on.
    pub(crate) fn set_server_key(&self, server_key: CancelKey) {
        if let Some(target) = self.sessions.lock().by_process_id.get_mut(&self.key.process_id) {
            target.server_key = Some(server_key);
        }
    }

    pub(crate) fn count_from_client(&self, bytes: usize) {
        self.sessions.counters.from_clients.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_to_client(&self, bytes: usize) {
        self.sessions.counters.to_clients.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        state.by_process_id.remove(&self.key.process_id);
        if let Some(count) = state.per_branch.get_mut(&self.branch) {
            *count -= 1;
            if *count == 0 {
                state.per_branch.remove(&self.branch);
                state.last_left.insert(self.branch.clone(), SystemTime::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coppice_core::InstanceId;
    use coppice_core::branch::BranchState;

    use super::*;

    fn begin(sessions: &Arc<Sessions>, branch: &BranchId) -> Session {
        let begun = sessions.begin(branch, &route_to(branch), 4, sessions.holds(branch));
        begun.ok().expect("the branch is not held")
    }

    fn route_to(branch: &BranchId) -> Route {
        Route {
            instance: InstanceId::new(branch, 1),
            state: BranchState::Ready,
            message: String::new(),
            ip_filtering: Default::default(),
            sleeping_roles: None,
        }
    }

    #[test]
    fn a_branch_with_clients_is_not_held() {
        let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
        let session = begin(&sessions, &branch);
        assert!(sessions.hold(&branch).is_none());
        assert_eq!(sessions.last_left(&branch), None);
        drop(session);
        assert!(sessions.last_left(&branch).is_some());
        assert!(sessions.hold(&branch).is_some());
    }

    #[test]
    fn a_client_that_looked_before_the_hold_has_to_look_again() {
        let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
        let route = route_to(&branch);
        let seen = sessions.holds(&branch);
        let hold = sessions.hold(&branch).expect("nobody is there");
        let waits = |seen| sessions.begin(&branch, &route, 4, seen).err().expect("is held").0.is_some();
        assert!(waits(seen));
        drop(hold);
        assert!(!waits(seen), "it looked before");
        assert!(sessions.begin(&branch, &route, 4, sessions.holds(&branch)).is_ok());
    }

    #[test]
    fn a_session_is_counted_until_it_ends() {
        let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
        let (one, two) = (begin(&sessions, &branch), begin(&sessions, &branch));
        assert_eq!(sessions.open(&branch), 2);
        drop(one);
        assert_eq!(sessions.open(&branch), 1);
        drop(two);
        assert_eq!(sessions.open(&branch), 0);
        assert!(sessions.lock().per_branch.is_empty() && sessions.lock().by_process_id.is_empty());
    }

    #[test]
    fn a_key_cancels_its_own_session_only_while_that_lives() {
        let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
        let session = begin(&sessions, &branch);
        let server_key = CancelKey { process_id: 9, secret: vec![1; 4].into() };
        assert_eq!(sessions.target(&session.key).map(|target| target.1), None);
        session.set_server_key(server_key.clone());
        assert_eq!(sessions.target(&session.key).map(|target| target.1), Some(server_key));
        let mut secret = session.key.secret.to_vec();
        secret[0] ^= 1;
        let forged = CancelKey { secret: secret.into(), ..session.key.clone() };
        assert!(sessions.target(&forged).is_none());
        let key = session.key.clone();
        drop(session);
        assert!(sessions.target(&key).is_none());
    }
}

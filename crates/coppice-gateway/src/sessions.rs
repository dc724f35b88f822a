//! Open sessions, and the keys that cancel what they do.
//!
//! Clients get keys of ours: servers of different branches would hand out the
//! same ones, and a key has to say which server it is for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use aws_lc_rs::{constant_time, rand};
use coppice_core::BranchId;
use coppice_core::awake::NewUse;
use coppice_core::statistics::ClientTraffic;
use coppice_pgwire::startup::CancelKey;
use tokio::sync::watch;

use crate::usage::Usage;
use crate::{ClientInfo, Route};

/// Bytes that passed through the gateway's sessions since it started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) from_clients: AtomicU64,
    pub(crate) to_clients: AtomicU64,
}

/// All open sessions of a gateway.
#[derive(Default)]
pub struct Sessions {
    state: Mutex<State>,
    pub(crate) counters: Counters,
}

#[derive(Default)]
struct State {
    by_process_id: HashMap<u32, Target>,
    per_branch: HashMap<BranchId, usize>,
    /// When the last client of a branch without clients left.
    last_left: HashMap<BranchId, Instant>,
    /// Branches whose new clients wait. Dropping the sender lets them go on.
    held: HashMap<BranchId, watch::Sender<()>>,
    /// How often each branch was held, and let go, so far.
    holds: HashMap<BranchId, u64>,
    usage: Usage,
    /// Bytes by branch, of past sessions too.
    traffic: HashMap<BranchId, Arc<Counters>>,
    /// Clients that have no session yet.
    starting: usize,
}

/// Counts a client as starting until it is dropped, which is after its session
/// is in the list.
pub(crate) struct Starting(Arc<Sessions>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
    }
}

/// Every client of a gateway at one moment.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Those that have no session yet; which branches they will use is unknown.
    pub starting: usize,
    /// Open sessions by branch.
    pub sessions: HashMap<BranchId, Vec<OpenSession>>,
}

/// An open session, as it is told to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// Whose it is.
    pub client: ClientInfo,
    /// Since when it is open.
    pub since: SystemTime,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// A session can't begin: its branch is, or was meanwhile, about to sleep. The
/// client has to look again after the receiver closed.
pub(crate) struct Held(pub(crate) Option<watch::Receiver<()>>);

/// Keeps new clients of a branch waiting until it is dropped. They look the
/// branch up again then.
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
    branch: BranchId,
    session: OpenSession,
    /// None until the server has told.
    server_key: Option<CancelKey>,
}

/// Keeps a session in the list as long as it lives.
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    branch: BranchId,
    /// Under which it is counted.
    application: String,
    traffic: Arc<Counters>,
    pub(crate) key: CancelKey,
}

impl Counters {
    fn read(&self) -> ClientTraffic {
        ClientTraffic {
            from_clients: self.from_clients.load(Ordering::Relaxed),
            to_clients: self.to_clients.load(Ordering::Relaxed),
        }
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of sessions that are open to a branch, or about to be.
    pub fn count(&self, branch: &BranchId) -> usize {
        self.lock().per_branch.get(branch).copied().unwrap_or(0)
    }

    /// Number of sessions that are open, or about to be.
    pub fn open(&self) -> usize {
        self.lock().by_process_id.len()
    }

    /// Those of a branch one by one, oldest first.
    pub fn list(&self, branch: &BranchId) -> Vec<OpenSession> {
        let state = self.lock();
        let of_branch = state.by_process_id.values().filter(|target| target.branch == *branch);
        let mut open: Vec<_> = of_branch.map(|target| target.session.clone()).collect();
        open.sort_by_key(|session| session.since);
        open
    }

    /// Counts a client that has just come in.
    pub(crate) fn start(self: &Arc<Self>) -> Starting {
        self.lock().starting += 1;
        Starting(self.clone())
    }

    /// All clients.
    pub fn census(&self) -> Census {
        let state = self.lock();
        let mut sessions = HashMap::<_, Vec<_>>::new();
        for target in state.by_process_id.values() {
            sessions.entry(target.branch.clone()).or_default().push(target.session.clone());
        }
        Census { starting: state.starting, sessions }
    }

    /// Takes away what was noted of the use of branches since the last time.
    pub fn take_uses(&self) -> Vec<NewUse> {
        self.lock().usage.take(Instant::now())
    }

    /// Bytes that passed through the sessions of each branch that had one.
    pub fn traffic(&self) -> HashMap<BranchId, ClientTraffic> {
        self.lock().traffic.iter().map(|(branch, counters)| (branch.clone(), counters.read())).collect()
    }

    /// The same of one branch.
    pub fn traffic_of(&self, branch: &BranchId) -> ClientTraffic {
        self.lock().traffic.get(branch).map(|counters| counters.read()).unwrap_or_default()
    }

    /// When the last client of a branch left; none while it has clients, or
    /// when it had none since the start.
    pub fn last_left(&self, branch: &BranchId) -> Option<Instant> {
        self.lock().last_left.get(branch).copied()
    }

    /// How often a branch was held and let go so far; to be asked before it is
    /// looked up.
    pub(crate) fn holds(&self, branch: &BranchId) -> u64 {
        self.lock().holds.get(branch).copied().unwrap_or(0)
    }

    /// Keeps new clients of a branch waiting; none when it has clients, or is
    /// held already.
    pub fn hold(self: &Arc<Self>, branch: &BranchId) -> Option<Hold> {
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
        client: &ClientInfo,
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
        let application = state.usage.begin(branch, &client.application, Instant::now());
        let traffic = state.traffic.entry(branch.clone()).or_default().clone();
        let target = Target {
            key: key.clone(),
            route: route.clone(),
            branch: branch.clone(),
            session: OpenSession { client: client.clone(), since: SystemTime::now() },
            server_key: None,
        };
        state.by_process_id.insert(process_id, target);
        *state.per_branch.entry(branch.clone()).or_default() += 1;
        Ok(Session { sessions: self.clone(), branch: branch.clone(), application, traffic, key })
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
        for counters in [&self.sessions.counters, &*self.traffic] {
            counters.from_clients.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_to_client(&self, bytes: usize) {
        for counters in [&self.sessions.counters, &*self.traffic] {
            counters.to_clients.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        state.by_process_id.remove(&self.key.process_id);
        state.usage.end(&self.branch, &self.application, Instant::now());
        if let Some(count) = state.per_branch.get_mut(&self.branch) {
            *count -= 1;
            if *count == 0 {
                state.per_branch.remove(&self.branch);
                state.last_left.insert(self.branch.clone(), Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coppice_core::InstanceId;
    use coppice_core::branch::BranchState;
    use coppice_engine::KeptRole;

    use super::*;

    fn begin(sessions: &Arc<Sessions>, branch: &BranchId) -> Session {
        let begun = sessions.begin(branch, &route_to(branch), &somebody(), 4, sessions.holds(branch));
        begun.ok().expect("the branch is not held")
    }

    fn somebody() -> ClientInfo {
        ClientInfo { role: "app".to_owned(), application: "psql".to_owned(), address: [127, 0, 0, 1].into() }
    }

    fn route_to(branch: &BranchId) -> Route {
        Route {
            instance: InstanceId::new(branch, 1),
            state: BranchState::Ready,
            message: String::new(),
            ip_filtering: Default::default(),
            kept: KeptRole::Unknown,
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
        let waits =
            |seen| sessions.begin(&branch, &route, &somebody(), 4, seen).err().expect("is held").0.is_some();
        assert!(waits(seen));
        drop(hold);
        assert!(!waits(seen), "it looked before");
        assert!(sessions.begin(&branch, &route, &somebody(), 4, sessions.holds(&branch)).is_ok());
    }

    #[test]
    fn a_session_is_counted_until_it_ends() {
        let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
        let (one, two) = (begin(&sessions, &branch), begin(&sessions, &branch));
        assert_eq!(sessions.count(&branch), 2);
        assert_eq!(sessions.list(&branch).len(), 2);
        drop(one);
        assert_eq!(sessions.count(&branch), 1);
        drop(two);
        assert_eq!(sessions.count(&branch), 0);
        assert!(sessions.lock().per_branch.is_empty() && sessions.lock().by_process_id.is_empty());
    }

    #[test]
    fn bytes_count_to_the_branch_they_were_moved_for() {
        let sessions = Arc::<Sessions>::default();
        let (busy, other) = (BranchId::generate(), BranchId::generate());
        let (one, two, idle) = (begin(&sessions, &busy), begin(&sessions, &busy), begin(&sessions, &other));
        one.count_from_client(3);
        two.count_from_client(4);
        two.count_to_client(10);
        drop((one, two, idle));
        let traffic = sessions.traffic();
        assert_eq!(traffic[&busy], ClientTraffic { from_clients: 7, to_clients: 10 });
        assert_eq!(traffic[&other], ClientTraffic::default());
        assert_eq!(sessions.counters.read(), traffic[&busy]);
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

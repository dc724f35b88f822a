//! Open sessions, and the clients of pools that have none of their own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use coppice_core::BranchId;
use coppice_core::awake::NewUse;
use coppice_core::login::is_login;
use coppice_core::statistics::ClientTraffic;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ClientInfo;
use crate::keys::Keys;
use crate::usage::Usage;

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
    pub(crate) keys: Arc<Keys>,
}

#[derive(Default)]
struct State {
    /// By the number of each, which counts those that began.
    open: HashMap<u64, Open>,
    begun: u64,
    /// Clients of pools, likewise. They keep no branch awake.
    pooled: HashMap<u64, Open>,
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
        self.0.state.lock().starting -= 1;
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
/// client has to look again when that is over.
pub(crate) struct Held(Option<watch::Receiver<()>>);

impl Held {
    /// Returns when it is.
    pub(crate) async fn over(self) {
        if let Some(mut hold) = self.0 {
            // Nothing is sent; the sender goes.
            let _ = hold.changed().await;
        }
    }
}

/// Keeps new clients of a branch waiting until it is dropped. They look the
/// branch up again then.
pub struct Hold {
    sessions: Arc<Sessions>,
    branch: BranchId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.sessions.state.lock();
        state.held.remove(&self.branch);
        // Who looked the branch up during the hold may have seen it as it was before.
        *state.holds.entry(self.branch.clone()).or_default() += 1;
    }
}

/// A session, or a client of a pool, as the gateway knows it.
struct Open {
    branch: BranchId,
    session: OpenSession,
    /// Cancelled when its login is over; none where it is of another role.
    over: Option<CancellationToken>,
}

impl Open {
    fn now(branch: &BranchId, client: &ClientInfo) -> Self {
        let session = OpenSession { client: client.clone(), since: SystemTime::now() };
        let over = is_login(&client.role).then(CancellationToken::new);
        Self { branch: branch.clone(), session, over }
    }
}

/// Works until that has ended, or its login is over; none then.
pub(crate) async fn until_over<T>(
    over: Option<CancellationToken>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let Some(over) = over else { return Some(work.await) };
    tokio::select! {
        biased;
        () = over.cancelled() => None,
        done = work => Some(done),
    }
}

/// Keeps a session in the list as long as it lives.
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    branch: BranchId,
    /// Under which it is counted.
    application: String,
    traffic: Arc<Counters>,
    number: u64,
    /// Cancelled when its login is over.
    pub(crate) over: Option<CancellationToken>,
}

/// Keeps a client of a pool in the list as long as it lives.
pub(crate) struct Pooled {
    sessions: Arc<Sessions>,
    /// No other client has it.
    pub(crate) number: u64,
    /// Cancelled when its login is over.
    pub(crate) over: Option<CancellationToken>,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.sessions.state.lock().pooled.remove(&self.number);
    }
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
    /// Number of sessions that are open to a branch, or about to be.
    pub fn count(&self, branch: &BranchId) -> usize {
        self.state.lock().per_branch.get(branch).copied().unwrap_or(0)
    }

    /// Number of sessions that are open, or about to be.
    pub fn open(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Number of clients of pools, with or without a session at the moment.
    pub fn pooled(&self) -> usize {
        self.state.lock().pooled.len()
    }

    /// Those of a branch one by one, oldest first.
    pub fn list(&self, branch: &BranchId) -> Vec<OpenSession> {
        let state = self.state.lock();
        let of_branch = state.open.values().filter(|open| open.branch == *branch);
        let mut open: Vec<_> = of_branch.map(|open| open.session.clone()).collect();
        open.sort_by_key(|session| session.since);
        open
    }

    /// Counts a client that has just come in.
    pub(crate) fn start(self: &Arc<Self>) -> Starting {
        self.state.lock().starting += 1;
        Starting(self.clone())
    }

    /// All clients. One of a pool counts as a session: it may want one at any time.
    pub fn census(&self) -> Census {
        let state = self.state.lock();
        let mut sessions = HashMap::<_, Vec<_>>::new();
        for open in state.open.values().chain(state.pooled.values()) {
            sessions.entry(open.branch.clone()).or_default().push(open.session.clone());
        }
        Census { starting: state.starting, sessions }
    }

    /// Takes away what was noted of the use of branches since the last time.
    pub fn take_uses(&self) -> Vec<NewUse> {
        self.state.lock().usage.take(Instant::now())
    }

    /// Bytes that passed through the sessions of each branch that had one.
    pub fn traffic(&self) -> HashMap<BranchId, ClientTraffic> {
        self.state.lock().traffic.iter().map(|(branch, counters)| (branch.clone(), counters.read())).collect()
    }

    /// The same of one branch.
    pub fn traffic_of(&self, branch: &BranchId) -> ClientTraffic {
        self.state.lock().traffic.get(branch).map(|counters| counters.read()).unwrap_or_default()
    }

    /// When the last client of a branch left; none while it has clients, or
    /// when it had none since the start.
    pub fn last_left(&self, branch: &BranchId) -> Option<Instant> {
        self.state.lock().last_left.get(branch).copied()
    }

    /// How often a branch was held and let go so far; to be asked before it is
    /// looked up.
    pub(crate) fn holds(&self, branch: &BranchId) -> u64 {
        self.state.lock().holds.get(branch).copied().unwrap_or(0)
    }

    /// Keeps new clients of a branch waiting; none when it has clients, or is
    /// held already.
    pub fn hold(self: &Arc<Self>, branch: &BranchId) -> Option<Hold> {
        let mut state = self.state.lock();
        if state.per_branch.contains_key(branch) || state.held.contains_key(branch) {
            return None;
        }
        state.held.insert(branch.clone(), watch::channel(()).0);
        *state.holds.entry(branch.clone()).or_default() += 1;
        Some(Hold { sessions: self.clone(), branch: branch.clone() })
    }

    /// Adds a session, unless the branch was held since `holds_seen`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        branch: &BranchId,
        client: &ClientInfo,
        holds_seen: u64,
    ) -> Result<Session, Held> {
        let mut state = self.state.lock();
        if let Some(sender) = state.held.get(branch) {
            return Err(Held(Some(sender.subscribe())));
        }
        if state.holds.get(branch).copied().unwrap_or(0) != holds_seen {
            return Err(Held(None));
        }
        state.last_left.remove(branch);
        state.begun += 1;
        let number = state.begun;
        let application = state.usage.begin(branch, &client.application, Instant::now());
        let traffic = state.traffic.entry(branch.clone()).or_default().clone();
        let open = Open::now(branch, client);
        let over = open.over.clone();
        state.open.insert(number, open);
        *state.per_branch.entry(branch.clone()).or_default() += 1;
        Ok(Session { sessions: self.clone(), branch: branch.clone(), application, traffic, number, over })
    }

    /// Adds a client of a pool.
    pub(crate) fn attend(self: &Arc<Self>, branch: &BranchId, client: &ClientInfo) -> Pooled {
        let mut state = self.state.lock();
        state.begun += 1;
        let number = state.begun;
        let open = Open::now(branch, client);
        let over = open.over.clone();
        state.pooled.insert(number, open);
        Pooled { sessions: self.clone(), number, over }
    }

    /// The logins that have sessions or are clients of pools, each once.
    pub(crate) fn logins(&self) -> Vec<(BranchId, String)> {
        let state = self.state.lock();
        let open = state.open.values().chain(state.pooled.values()).filter(|open| open.over.is_some());
        let logins: HashSet<_> =
            open.map(|open| (open.branch.clone(), open.session.client.role.clone())).collect();
        logins.into_iter().collect()
    }

    /// Ends the sessions of a login.
    pub(crate) fn end_login(&self, branch: &BranchId, role: &str) {
        let state = self.state.lock();
        let open = state.open.values().chain(state.pooled.values());
        for open in open.filter(|open| open.branch == *branch && open.session.client.role == role) {
            if let Some(over) = &open.over {
                over.cancel();
            }
        }
    }
}

impl Session {
    /// Says whose it is from now on, where clients share it.
    pub(crate) fn set_client(&self, client: &ClientInfo) {
        if let Some(open) = self.sessions.state.lock().open.get_mut(&self.number) {
            open.session.client.clone_from(client);
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
        let mut state = self.sessions.state.lock();
        state.open.remove(&self.number);
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
#[path = "sessions_tests.rs"]
mod tests;

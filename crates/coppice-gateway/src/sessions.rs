//! Open sessions, and the clients of pools that have none of their own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

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

/// For how long a branch without clients is remembered: longer than any can be told
/// to stay awake without one, so that whoever asks whether it may sleep finds no difference.
const REMEMBERED: Duration = Duration::from_secs(8 * 24 * 3600);

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
    /// Branches that have clients, or had some not long ago.
    branches: HashMap<BranchId, Known>,
    /// Branches whose new clients wait. Dropping the sender lets them go on.
    held: HashMap<BranchId, watch::Sender<()>>,
    /// Which branch each look is at that nothing has made old so far. Looks are
    /// numbered, too.
    looks: HashMap<u64, BranchId>,
    looked: u64,
    usage: Usage,
    /// Clients that have no session yet.
    starting: usize,
}

/// What is known of a branch's clients.
#[derive(Default)]
struct Known {
    open: usize,
    /// When the last one left; none while there is one.
    last_left: Option<Instant>,
    /// Of past sessions too.
    traffic: Arc<Counters>,
}

impl Known {
    fn is_old(&self, now: Instant) -> bool {
        self.last_left.is_some_and(|left| now.duration_since(left) > REMEMBERED)
    }
}

impl State {
    /// Who looked the branch up so far may have seen it as it is no more.
    fn make_looks_old(&mut self, branch: &BranchId) {
        self.looks.retain(|_, looked_at| looked_at != branch);
    }

    /// Forgets branches that had no client for long. One of a pool may want a session
    /// at any time, whose bytes are told together with those before.
    fn forget_old(&mut self, now: Instant) {
        let Self { branches, pooled, .. } = self;
        let has_pooled = |branch: &BranchId| pooled.values().any(|client| client.branch == *branch);
        branches.retain(|branch, known| !known.is_old(now) || has_pooled(branch));
    }
}

/// A look at a branch that is about to be done. Its client begins a session with
/// it, unless the branch was held meanwhile.
pub(crate) struct Look {
    sessions: Arc<Sessions>,
    number: u64,
}

impl Drop for Look {
    fn drop(&mut self) {
        self.sessions.state.lock().looks.remove(&self.number);
    }
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
        // Also those that looked during the hold.
        state.make_looks_old(&self.branch);
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
        self.state.lock().branches.get(branch).map_or(0, |known| known.open)
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
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.forget_old(now);
        state.usage.take(now)
    }

    /// Bytes that passed through the sessions of each branch that had one. What is
    /// forgotten of a branch without clients begins anew.
    pub fn traffic(&self) -> HashMap<BranchId, ClientTraffic> {
        let state = self.state.lock();
        state.branches.iter().map(|(branch, known)| (branch.clone(), known.traffic.read())).collect()
    }

    /// The same of one branch.
    pub fn traffic_of(&self, branch: &BranchId) -> ClientTraffic {
        self.state.lock().branches.get(branch).map(|known| known.traffic.read()).unwrap_or_default()
    }

    /// When the last client of a branch left; none while it has clients, or when
    /// that is so long ago that it is forgotten, or it had none since the start.
    pub fn last_left(&self, branch: &BranchId) -> Option<Instant> {
        self.state.lock().branches.get(branch).and_then(|known| known.last_left)
    }

    /// To be called before a branch is looked up.
    pub(crate) fn look(self: &Arc<Self>, branch: &BranchId) -> Look {
        let mut state = self.state.lock();
        state.looked += 1;
        let number = state.looked;
        state.looks.insert(number, branch.clone());
        Look { sessions: self.clone(), number }
    }

    /// Keeps new clients of a branch waiting; none when it has clients, or is
    /// held already.
    pub fn hold(self: &Arc<Self>, branch: &BranchId) -> Option<Hold> {
        let mut state = self.state.lock();
        let has_clients = state.branches.get(branch).is_some_and(|known| known.open > 0);
        if has_clients || state.held.contains_key(branch) {
            return None;
        }
        state.held.insert(branch.clone(), watch::channel(()).0);
        state.make_looks_old(branch);
        Some(Hold { sessions: self.clone(), branch: branch.clone() })
    }

    /// Adds a session, unless the branch was held since that look at it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        branch: &BranchId,
        client: &ClientInfo,
        look: &Look,
    ) -> Result<Session, Held> {
        let mut state = self.state.lock();
        if let Some(sender) = state.held.get(branch) {
            return Err(Held(Some(sender.subscribe())));
        }
        if state.looks.get(&look.number) != Some(branch) {
            return Err(Held(None));
        }
        state.begun += 1;
        let number = state.begun;
        let application = state.usage.begin(branch, &client.application, Instant::now());
        let known = state.branches.entry(branch.clone()).or_default();
        known.open += 1;
        known.last_left = None;
        let traffic = known.traffic.clone();
        let open = Open::now(branch, client);
        let over = open.over.clone();
        state.open.insert(number, open);
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
        let (mut state, now) = (self.sessions.state.lock(), Instant::now());
        state.open.remove(&self.number);
        state.usage.end(&self.branch, &self.application, now);
        if let Some(known) = state.branches.get_mut(&self.branch) {
            known.open -= 1;
            known.last_left = (known.open == 0).then_some(now);
        }
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;

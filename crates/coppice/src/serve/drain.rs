//! What a process that has handed its work over still tells: which sessions it
//! serves. The one that works now asks before it calls a branch idle, and when
//! a client wants to cancel what it doesn't know.
//!
//! One question and one answer per connection, each a line of JSON, on a
//! socket named after the process in `drain/` of the runtime directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use coppice_core::BranchId;
use coppice_core::awake::ClientSession;
use coppice_core::statistics::ClientTraffic;
use coppice_gateway::{CancelKey, Gateway, OpenSession};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::handover::{bind, make_directory};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer; a session takes about 200 bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// How often a process that still has sessions is asked for them.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
enum Question {
    Census,
    Cancel { process_id: u32, secret: Vec<u8> },
}

/// The clients that are still served.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remaining {
    /// Clients without a session yet; which branches they will use is unknown.
    starting: usize,
    sessions: HashMap<String, Vec<ClientSession>>,
    /// Bytes moved by clients of each branch since the process began, from and
    /// to them.
    #[serde(default)]
    traffic: HashMap<String, (u64, u64)>,
}

/// What the processes before this one moved while this one looked.
#[derive(Default)]
struct Moved {
    /// What each process told last.
    told: HashMap<PathBuf, HashMap<String, (u64, u64)>>,
    since: HashMap<String, ClientTraffic>,
}

impl Moved {
    /// Adds what a process moved since it was last asked. What it moved before
    /// was measured while it worked itself.
    fn add(&mut self, socket: &Path, traffic: &HashMap<String, (u64, u64)>) {
        let is_new = !self.told.contains_key(socket);
        let told = self.told.entry(socket.to_owned()).or_default();
        for (branch, (from_clients, to_clients)) in traffic {
            let last = told.entry(branch.clone()).or_insert(if is_new {
                (*from_clients, *to_clients)
            } else {
                (0, 0)
            });
            let moved = self.since.entry(branch.clone()).or_default();
            // Answers may overtake each other.
            moved.from_clients += from_clients.saturating_sub(last.0);
            moved.to_clients += to_clients.saturating_sub(last.1);
            *last = (last.0.max(*from_clients), last.1.max(*to_clients));
        }
    }
}

fn directory(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("drain")
}

/// The pids of all processes that serve sessions and do nothing else.
pub(super) fn processes(runtime_dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(directory(runtime_dir)).into_iter().flatten().filter_map(Result::ok);
    // The kernel tells who listens: the name of a socket outlives its process.
    let open = entries.filter_map(|entry| std::os::unix::net::UnixStream::connect(entry.path()).ok());
    let peers = open.filter_map(|stream| rustix::net::sockopt::socket_peercred(&stream).ok());
    peers.filter_map(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok()).collect()
}

/// How a session of the gateway is told to others.
pub(super) fn client_session(session: OpenSession) -> ClientSession {
    ClientSession {
        role: session.client.role,
        application: session.client.application,
        address: session.client.address,
        since: session.since.into(),
    }
}

/// Tells about the sessions of this process until it is dropped.
pub(super) struct DrainServer {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for DrainServer {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

impl DrainServer {
    pub(super) fn start(runtime_dir: &Path, gateway: Arc<Gateway>) -> anyhow::Result<Self> {
        let directory = directory(runtime_dir);
        make_directory(&directory, 0o700)?;
        let path = directory.join(format!("{}.sock", std::process::id()));
        let listener = bind(&path)?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let gateway = gateway.clone();
                tokio::spawn(async move {
                    let answered = tokio::time::timeout(PATIENCE, answer(stream, &gateway)).await;
                    if let Ok(Err(error)) = answered {
                        tracing::debug!("a question about sessions was not answered: {error}");
                    }
                });
            }
        });
        Ok(Self { path, task })
    }
}

async fn answer(stream: UnixStream, gateway: &Gateway) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let text = match serde_json::from_str(&line)? {
        Question::Census => {
            let census = gateway.sessions().census();
            let told = census.sessions.into_iter().map(|(branch, sessions)| {
                (branch.to_string(), sessions.into_iter().map(client_session).collect())
            });
            let traffic =
                gateway.sessions().traffic().into_iter().map(|(branch, traffic)| {
                    (branch.to_string(), (traffic.from_clients, traffic.to_clients))
                });
            serde_json::to_string(&Remaining {
                starting: census.starting,
                sessions: told.collect(),
                traffic: traffic.collect(),
            })?
        }
        Question::Cancel { process_id, secret } => {
            let is_known = gateway.cancel(&CancelKey { process_id, secret: secret.into() }).await;
            serde_json::to_string(&is_known)?
        }
    };
    stream.write_all(format!("{text}\n").as_bytes()).await?;
    Ok(stream.flush().await?)
}

/// The processes before this one that still serve sessions.
pub(super) struct Predecessors {
    directory: PathBuf,
    /// When a session of a branch was last seen with one of them.
    last_seen: Mutex<HashMap<BranchId, Instant>>,
    moved: Mutex<Moved>,
}

impl Predecessors {
    pub(super) fn new(runtime_dir: &Path) -> Arc<Self> {
        let (last_seen, moved) = Default::default();
        Arc::new(Self { directory: directory(runtime_dir), last_seen, moved })
    }

    /// Keeps [`Predecessors::last_seen`] true until the last of them is gone.
    pub(super) async fn watch(&self) {
        while !self.sockets().is_empty() {
            if let Err(error) = self.remaining().await {
                tracing::warn!("asking the process before this one for its sessions: {error:#}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// When they last had a session of a branch.
    pub(super) fn last_seen(&self, branch: &BranchId) -> Option<Instant> {
        self.last_seen.lock().get(branch).copied()
    }

    /// Bytes that clients of a branch moved through them while this process
    /// looked.
    pub(super) fn traffic(&self, branch: &BranchId) -> ClientTraffic {
        let moved = self.moved.lock();
        moved.since.get(branch.as_str()).copied().unwrap_or_default()
    }

    /// Their sessions of a branch.
    pub(super) async fn sessions(&self, branch: &BranchId) -> anyhow::Result<Vec<ClientSession>> {
        let mut remaining = self.remaining().await?;
        let of_branch = remaining.iter_mut().filter_map(|each| each.sessions.remove(branch.as_str()));
        Ok(of_branch.flatten().collect())
    }

    /// Whether none of them has a client of a branch, or may get one. Once it is
    /// so it stays so: they take nobody in.
    pub(super) async fn have_left(&self, branch: &BranchId) -> anyhow::Result<bool> {
        let remaining = self.remaining().await?;
        Ok(remaining.iter().all(|each| each.starting == 0 && !each.sessions.contains_key(branch.as_str())))
    }

    /// Cancels what one of their sessions does; false when none has that key.
    pub(super) async fn cancel(&self, key: &CancelKey) -> bool {
        let question = Question::Cancel { process_id: key.process_id, secret: key.secret.to_vec() };
        for socket in self.sockets() {
            match ask::<bool>(&socket, &question).await {
                Ok(Some(true)) => return true,
                Ok(_) => {}
                Err(error) => tracing::warn!("passing a cancel request on: {error:#}"),
            }
        }
        false
    }

    async fn remaining(&self) -> anyhow::Result<Vec<Remaining>> {
        let mut all = vec![];
        for socket in self.sockets() {
            let Some(remaining) = ask::<Remaining>(&socket, &Question::Census).await? else { continue };
            let (now, mut last_seen) = (Instant::now(), self.last_seen.lock());
            for branch in remaining.sessions.keys() {
                last_seen.insert(BranchId::from_trusted(branch.as_str()), now);
            }
            drop(last_seen);
            self.moved.lock().add(&socket, &remaining.traffic);
            all.push(remaining);
        }
        Ok(all)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let own = format!("{}.sock", std::process::id());
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.path()).filter(|path| !path.ends_with(&own)).collect()
    }
}

/// Asks a process; none when it has ended, whose socket is then removed.
async fn ask<T: DeserializeOwned>(socket: &Path, question: &Question) -> anyhow::Result<Option<T>> {
    let asked = async {
        let mut stream = match UnixStream::connect(socket).await {
            Ok(stream) => stream,
            Err(error) => {
                use std::io::ErrorKind::{ConnectionRefused, NotFound};
                if matches!(error.kind(), ConnectionRefused | NotFound) {
                    let _ = std::fs::remove_file(socket);
                    return Ok(None);
                }
                return Err(error.into());
            }
        };
        stream.write_all(format!("{}\n", serde_json::to_string(question)?).as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut line).await?;
        Ok(Some(serde_json::from_str(&line)?))
    };
    tokio::time::timeout(PATIENCE, asked).await.context("no answer in time")?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(from_clients: u64, to_clients: u64) -> HashMap<String, (u64, u64)> {
        HashMap::from([("a".to_owned(), (from_clients, to_clients))])
    }

    #[test]
    fn what_an_earlier_process_moved_before_it_was_asked_is_not_counted_again() {
        let mut moved = Moved::default();
        let [first, second] = ["1.sock", "2.sock"].map(Path::new);
        moved.add(first, &told(1000, 5000));
        assert_eq!(moved.since["a"], ClientTraffic::default());
        moved.add(first, &told(1010, 5100));
        moved.add(second, &told(7, 7));
        // An answer that was overtaken.
        moved.add(first, &told(1005, 5050));
        moved.add(second, &told(8, 9));
        assert_eq!(moved.since["a"], ClientTraffic { from_clients: 11, to_clients: 102 });
    }

    #[test]
    fn a_branch_that_an_earlier_process_tells_of_later_counts_from_its_first_byte() {
        let mut moved = Moved::default();
        moved.add(Path::new("1.sock"), &HashMap::new());
        moved.add(Path::new("1.sock"), &told(3, 4));
        assert_eq!(moved.since["a"], ClientTraffic { from_clients: 3, to_clients: 4 });
    }
}

//! What lies between a control plane and its metastore: every statement waits
//! here until the history lets it through, so that one is carried out at a
//! time, in an order that the seed decides. A statement can be late, be lost,
//! or arrive after the process that sent it has died.

mod connection;

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::{Backend, message};
use crate::dice::Dice;
use crate::world::{Faults, ProcessId};

/// So much of a statement is told.
const STATEMENT_LENGTH: usize = 120;
/// Told of a statement that waits for a lock while another one waits, too. Whose turn it is then, the server decides by
/// its own clock, so that a history may go on otherwise when it is played again.
pub const WAITS_WITH_OTHERS: &str = ", and waits with others";
/// Sent in place of a message's type when a session begins.
const STARTUP: u8 = 0;

/// What a client sent until it waits for an answer.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    /// For people: its statement.
    what: String,
    /// From when on it can be carried out.
    due: Duration,
    fate: Fate,
}

impl Batch {
    /// Whether it may change rows, or make a change be seen.
    fn is_write(&self) -> bool {
        let is_question = self.what.starts_with("prepare ");
        !is_question
            && ["update ", "insert ", "delete ", "COMMIT"].iter().any(|word| self.what.contains(word))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    /// The connection is cut before it is carried out.
    IsLost,
    /// The connection is cut before its answer arrives.
    IsNotAnswered,
}

#[derive(Debug)]
struct Connection {
    number: u32,
    process: ProcessId,
    /// None once it is cut, or the process has died.
    client: Option<UnixStream>,
    inbox: Vec<u8>,
    backend: Option<Backend>,
    batches: VecDeque<Batch>,
    /// Whether the server has the first of them.
    is_asked: bool,
    /// Whether the server was seen to wait for a lock.
    is_blocked: bool,
    /// Prepared statements by name.
    prepared: BTreeMap<Vec<u8>, String>,
    notifications: VecDeque<Vec<u8>>,
    is_listening: bool,
}

/// What was carried out.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// For people.
    pub(crate) what: String,
    /// Whether rows may have changed.
    pub(crate) is_write: bool,
    /// Errors that no statement of the platform may cause.
    pub(crate) faults: Vec<String>,
}

/// Something of a connection that can happen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The connection's next statement is carried out.
    Statement(u32),
    /// The connection hears of a changed branch.
    Notification(u32),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    server: PathBuf,
    listeners: BTreeMap<ProcessId, UnixListener>,
    connections: Vec<Connection>,
    /// Sessions that nobody uses now, by how they were begun.
    spare: Vec<Backend>,
    count: u32,
}

impl Link {
    /// `spare` are sessions that an earlier history left.
    pub(crate) fn new(server: PathBuf, spare: Vec<Backend>) -> Self {
        Self { server, listeners: BTreeMap::new(), connections: vec![], spare, count: 0 }
    }

    /// Lets a process connect to a socket in this directory.
    pub(crate) fn listen(&mut self, process: ProcessId, directory: &Path) {
        std::fs::create_dir_all(directory).expect("a writable directory");
        let path = directory.join(".s.PGSQL.5432");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        self.listeners.insert(process, listener);
    }

    /// Takes in what was sent; whether there was anything.
    pub(crate) fn pump(&mut self, now: Duration, faults: &Faults, dice: &mut Dice) -> bool {
        let mut has_moved = false;
        for (process, listener) in &self.listeners {
            while let Ok((client, _)) = listener.accept() {
                client.set_nonblocking(true).expect("a socket");
                self.count += 1;
                self.connections.push(Connection::new(self.count, *process, client));
                has_moved = true;
            }
        }
        for connection in &mut self.connections {
            has_moved |= connection.receive();
            while let Some((bytes, what)) = connection.next_batch() {
                let (delay, fate) = faults.of_statement(dice);
                connection.batches.push_back(Batch { bytes, what, due: now + delay, fate });
            }
            connection.answer_pings();
        }
        self.retire();
        has_moved
    }

    /// What can happen at this time.
    pub(crate) fn turns(&self, now: Duration) -> Vec<Turn> {
        let due = |connection: &&Connection| {
            !connection.is_asked && connection.batches.front().is_some_and(|batch| batch.due <= now)
        };
        let statements = self.connections.iter().filter(due).map(|one| Turn::Statement(one.number));
        let told = |connection: &&Connection| !connection.notifications.is_empty();
        let notifications = self.connections.iter().filter(told).map(|one| Turn::Notification(one.number));
        statements.chain(notifications).collect()
    }

    /// The process that sent what a connection says next.
    pub(crate) fn sender(&self, number: u32) -> Option<ProcessId> {
        self.connections.iter().find(|one| one.number == number).map(|one| one.process)
    }

    /// Whether a statement waits to be carried out that begins like this.
    pub(crate) fn is_waiting_for(&self, statement: &str) -> bool {
        let next = self.connections.iter().filter(|one| !one.is_asked).filter_map(|one| one.batches.front());
        next.into_iter().any(|batch| batch.what.starts_with(statement))
    }

    /// A process has died; everything that it sent arrives at this time.
    pub(crate) fn kill_late(&mut self, process: ProcessId, due: Duration) {
        self.listeners.remove(&process);
        for connection in self.connections.iter_mut().filter(|one| one.process == process) {
            connection.cut();
            connection.batches.iter_mut().for_each(|batch| batch.due = due);
        }
    }

    /// Whether a process waits for the metastore.
    pub(crate) fn is_busy(&self) -> bool {
        self.connections.iter().any(|connection| !connection.batches.is_empty())
    }

    /// Tells a connection of a changed branch, or has that be lost with it.
    pub(crate) fn notify(&mut self, number: u32, is_lost: bool) {
        let Some(connection) = self.connections.iter_mut().find(|one| one.number == number) else { return };
        if is_lost {
            connection.client = None;
        } else if let Some(notification) = connection.notifications.pop_front() {
            connection.say(&notification);
        }
    }

    /// Carries the next statement of a connection out.
    pub(crate) fn deliver(&mut self, number: u32, admin: &mut Backend) -> Delivered {
        let mut delivered = Delivered { what: String::new(), is_write: false, faults: vec![] };
        let Some(at) = self.connections.iter().position(|one| one.number == number) else { return delivered };
        let connection = &mut self.connections[at];
        let Some(batch) = connection.batches.front() else { return delivered };
        delivered.what = format!("process {} says {}", connection.process.0, batch.what);
        if batch.fate == Fate::IsLost {
            connection.batches.clear();
            connection.client = None;
            delivered.what += ", and the connection is cut";
            return delivered;
        }
        if batch.bytes.first() == Some(&STARTUP) {
            let startup = connection.batches.pop_front().map(|batch| batch.bytes).unwrap_or_default();
            let known = self.spare.iter().position(|backend| backend.startup == startup);
            let backend = match known {
                Some(known) => self.spare.remove(known),
                None => Backend::begin(&self.server, &startup),
            };
            connection.say(&backend.greeting);
            connection.backend = Some(backend);
            return delivered;
        }
        let Some(backend) = connection.backend.as_mut() else {
            // A session that was never begun has nothing to say.
            connection.batches.clear();
            return delivered;
        };
        backend.send(&batch.bytes);
        connection.is_asked = true;
        self.finish_blocked(admin, &mut delivered);
        let is_blocked = self.connections[at].is_blocked;
        if is_blocked && self.connections.iter().filter(|one| one.is_blocked).count() > 1 {
            delivered.what += WAITS_WITH_OTHERS;
        }
        delivered
    }

    /// Takes the answers of statements that wait for no lock any more.
    fn finish_blocked(&mut self, admin: &mut Backend, delivered: &mut Delivered) {
        let mut has_finished = true;
        while has_finished {
            has_finished = false;
            for connection in self.connections.iter_mut().filter(|one| one.is_asked) {
                let is_write = connection.batches.front().is_some_and(Batch::is_write);
                let Some(answer) = connection.answer(admin) else { continue };
                has_finished = true;
                delivered.is_write |= is_write;
                delivered.faults.extend(
                    answer
                        .errors
                        .iter()
                        .filter(|(code, text)| is_fault(code, text))
                        .map(|(code, text)| format!("the metastore refused a statement: {code} {text}")),
                );
                if is_write && !connection.backend.as_ref().is_some_and(|one| one.is_in_transaction) {
                    self.tell_listeners();
                    break;
                }
            }
        }
    }

    /// A commit sends its notifications before it is answered; a session that
    /// listens has them at the latest when it is next asked something.
    fn tell_listeners(&mut self) {
        for connection in self.connections.iter_mut().filter(|one| one.is_listening && !one.is_asked) {
            let Some(backend) = connection.backend.as_mut() else { continue };
            backend.send(&message(b'Q', b"\0"));
            connection.notifications.extend(backend.wait().notifications);
        }
    }

    /// Ends a process: what it sent may still arrive, or not.
    pub(crate) fn kill(&mut self, process: ProcessId, now: Duration, dice: &mut Dice) {
        self.listeners.remove(&process);
        for connection in self.connections.iter_mut().filter(|one| one.process == process) {
            connection.cut();
            let sent = usize::from(connection.is_asked);
            let arrive = connection.batches.iter().skip(sent).take_while(|_| dice.happens(500)).count();
            connection.batches.truncate(sent + arrive);
            // By then another process may do its work.
            for batch in connection.batches.iter_mut().skip(sent) {
                batch.due = now + Duration::from_millis(dice.between(0, 60_000));
            }
        }
    }

    /// Lets go of connections that nobody waits for.
    fn retire(&mut self) {
        let (gone, rest) = std::mem::take(&mut self.connections)
            .into_iter()
            .partition(|one| one.client.is_none() && one.batches.is_empty() && !one.is_asked);
        self.connections = rest;
        self.spare.extend(gone.into_iter().filter_map(|one: Connection| one.backend).map(fresh));
    }

    /// Ends every connection, and gives the sessions to the next history: what a new
    /// one costs, which is a process that has to learn the schema, is most of all that
    /// a history takes.
    pub(crate) fn clear(mut self, admin: &mut Backend) -> Vec<Backend> {
        self.listeners.clear();
        for connection in &mut self.connections {
            connection.client = None;
            if connection.is_asked
                && let Some(backend) = &mut connection.backend
            {
                admin.query(&format!("select pg_cancel_backend({})", backend.pid));
                backend.wait();
            }
            connection.is_asked = false;
            connection.batches.clear();
        }
        self.retire();
        self.spare
    }
}

/// A session as it was when it began.
fn fresh(mut backend: Backend) -> Backend {
    if backend.is_in_transaction {
        backend.query("rollback");
    }
    backend.query("discard all");
    backend
}

/// Whether the platform may never cause an error: a deadlock, a row that the
/// schema forbids, one that is there already, a statement that makes no sense.
/// Owners choose names, and which are taken is found out by trying.
fn is_fault(code: &str, text: &str) -> bool {
    let is_repetition = code == "23505" && !text.contains("branches_name");
    is_repetition
        || code == "40P01"
        || code == "23514"
        || code == "23503"
        || code.starts_with("42")
        || code.starts_with("XX")
}

impl Faults {
    /// What becomes of a statement.
    fn of_statement(&self, dice: &mut Dice) -> (Duration, Fate) {
        let delay = match dice.happens(self.slow_statements) {
            true => Duration::from_millis(dice.between(1, 20_000)),
            false => Duration::ZERO,
        };
        let fate = match dice.happens(self.lost_statements) {
            true if dice.happens(500) => Fate::IsLost,
            true => Fate::IsNotAnswered,
            false => Fate::Arrives,
        };
        (delay, fate)
    }
}

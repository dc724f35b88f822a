//! What outlives a control plane: disks with volumes, machines with servers,
//! and what is known about both by nobody but the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coppice_core::volume::VolumeLabel;
use coppice_core::{BranchId, InstanceId, VolumeId};
use tokio::sync::{oneshot, watch};

use crate::dice::Dice;

/// One run of a control plane; a restart is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(pub(crate) u32);

/// How often things go wrong, of a thousand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) slow_statements: u32,
    pub(crate) lost_statements: u32,
    pub(crate) slow_steps: u32,
    pub(crate) failing_steps: u32,
    pub(crate) hanging_steps: u32,
    /// A start, or something that holds a role's row.
    pub(crate) failing_servers: u32,
}

/// The data of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    /// The volume that the first start was done for.
    pub(crate) first_start: Option<VolumeId>,
    /// Whether clients were let in since then.
    pub(crate) had_clients: bool,
    /// What clients wrote.
    pub(crate) rows: BTreeSet<u64>,
    /// The managed role's verifier.
    pub(crate) verifier: String,
    /// Where the WAL ends.
    pub(crate) wal: u64,
    /// Replicas that it is kept for, and whether it was too much to keep.
    pub(crate) slots: BTreeMap<InstanceId, bool>,
    /// Whether its server was stopped with a checkpoint.
    pub(crate) is_clean: bool,
}

/// A complete volume.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) label: VolumeLabel,
    pub(crate) data: Data,
}

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    /// It lets nobody in until then.
    Refuses(Duration),
    Hangs,
}

/// A server process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) volume: VolumeId,
    /// The instance that it follows, if it is a replica's.
    pub(crate) follows: Option<InstanceId>,
    /// When it takes sessions.
    pub(crate) ready_at: Duration,
    pub(crate) health: Health,
    pub(crate) settings: BTreeMap<String, String>,
    /// Dropped when it ends.
    pub(crate) life: watch::Sender<()>,
}

/// A machine with its disk.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) volumes: BTreeMap<VolumeId, Volume>,
    /// Volumes that are being made, by the label of whoever does it.
    pub(crate) staging: BTreeMap<VolumeId, VolumeLabel>,
    pub(crate) servers: BTreeMap<InstanceId, Server>,
    /// Instances with files outside their volume.
    pub(crate) instance_files: BTreeSet<InstanceId>,
}

/// A step of the engine that waits to go on.
#[derive(Debug)]
struct Gate {
    process: ProcessId,
    what: String,
    due: Duration,
    fails: bool,
    open: oneshot::Sender<bool>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    /// Since the history began.
    pub(crate) now: Duration,
    pub(crate) dice: Dice,
    pub(crate) faults: Faults,
    pub(crate) machines: Vec<Machine>,
    gates: Vec<Gate>,
    /// Steps whose description begins like this don't go on.
    pub(crate) withheld: Option<&'static str>,
    /// Steps whose description begins like this fail.
    pub(crate) refused: Option<&'static str>,
    /// There is no room to write the label of a volume.
    pub(crate) is_full: bool,
    /// Clients by branch, and by the process that serves them.
    pub(crate) sessions: Vec<(BranchId, ProcessId)>,
    /// Branches whose new clients have to wait.
    pub(crate) held: BTreeSet<BranchId>,
    /// The machine of each process, and the upper half of its claims.
    pub(crate) epochs: BTreeMap<ProcessId, (usize, u32)>,
    /// The process of each request that was not answered yet.
    pub(crate) requests: Vec<ProcessId>,
    /// How often each kind of request was answered with more than a refusal.
    pub(crate) done: BTreeMap<String, u32>,
    /// Branches that their owners were told of, with the machine that they are on.
    pub(crate) known: Vec<(BranchId, usize)>,
    /// Those of them that their owners deleted.
    pub(crate) deleted: BTreeSet<BranchId>,
    /// Rows that clients were told are written, by volume.
    pub(crate) written: BTreeMap<VolumeId, BTreeSet<u64>>,
    /// Volumes that are copies of others as those were at the last of so many rows, or later.
    pub(crate) promised: BTreeMap<VolumeId, u64>,
    pub(crate) next_row: u64,
    /// Volumes that were removed since somebody looked.
    pub(crate) removed: Vec<VolumeId>,
    /// What must never happen, and did.
    pub(crate) violations: Vec<String>,
    /// What happened, for people.
    pub(crate) log: Vec<String>,
}

/// A [`State`] that everybody shares.
#[derive(Clone, Debug)]
pub(crate) struct World(Arc<Mutex<State>>);

impl World {
    pub(crate) fn new(seed: u64, machines: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: Duration::ZERO,
            dice: Dice::new(seed),
            faults: Faults::default(),
            machines: (0..machines).map(|_| Machine::default()).collect(),
            gates: vec![],
            withheld: None,
            refused: None,
            is_full: false,
            sessions: vec![],
            held: BTreeSet::new(),
            epochs: BTreeMap::new(),
            requests: vec![],
            done: BTreeMap::new(),
            known: vec![],
            deleted: BTreeSet::new(),
            written: BTreeMap::new(),
            promised: BTreeMap::new(),
            next_row: 0,
            removed: vec![],
            violations: vec![],
            log: vec![],
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes what happened.
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        let now = self.now.as_millis();
        self.log.push(format!("{now:>8} {}", what.into()));
    }

    /// Notes what must never happen.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("VIOLATION {what}"));
        self.violations.push(what);
    }

    /// A place in a step at which it can be slow, fail, or be the last thing
    /// that its process does. The receiver says whether it goes well.
    pub(crate) fn wait(
        &mut self,
        process: ProcessId,
        what: String,
        at_least: Duration,
    ) -> oneshot::Receiver<bool> {
        let (open, opened) = oneshot::channel();
        let delay = match self.dice.below(1000) as u32 {
            roll if roll < self.faults.hanging_steps => self.dice.between(60_000, 600_000),
            roll if roll < self.faults.hanging_steps + self.faults.slow_steps => self.dice.between(1, 15_000),
            _ => 0,
        };
        let fails = self.dice.happens(self.faults.failing_steps);
        let due = self.now + at_least.max(Duration::from_millis(delay));
        self.gates.push(Gate { process, what, due, fails, open });
        opened
    }

    /// Whether a step waits whose description begins like this.
    pub(crate) fn is_waiting_for(&self, what: &str) -> bool {
        self.gates.iter().any(|gate| gate.what.starts_with(what))
    }

    /// The epoch of a process, if a later start has done anything on the same machine.
    pub(crate) fn epoch_of_older(&self, process: ProcessId) -> Option<u32> {
        let (machine, epoch) = *self.epochs.get(&process)?;
        let is_older = |(on, other): &(usize, u32)| *on == machine && *other > epoch;
        self.epochs.values().any(is_older).then_some(epoch)
    }

    fn may_go_on(&self, gate: &Gate) -> bool {
        gate.due <= self.now && self.withheld.is_none_or(|what| !gate.what.starts_with(what))
    }

    /// How many steps could go on now.
    pub(crate) fn gates_due(&mut self) -> usize {
        self.gates.retain(|gate| !gate.open.is_closed());
        self.gates.iter().filter(|gate| self.may_go_on(gate)).count()
    }

    fn gate_due(&self, number: usize) -> Option<usize> {
        let mut due = (0..self.gates.len()).filter(|at| self.may_go_on(&self.gates[*at]));
        due.nth(number)
    }

    /// Whose step one of those is, and what it does.
    pub(crate) fn step_due(&self, number: usize) -> Option<(ProcessId, String)> {
        let gate = &self.gates[self.gate_due(number)?];
        Some((gate.process, gate.what.clone()))
    }

    /// One of them will not go well.
    pub(crate) fn make_step_fail(&mut self, number: usize) {
        if let Some(at) = self.gate_due(number) {
            self.gates[at].fails = true;
        }
    }

    /// Lets one of the steps that could go on do so.
    pub(crate) fn open_gate(&mut self, number: usize) {
        let Some(at) = self.gate_due(number) else { return };
        let gate = self.gates.remove(at);
        let fails = gate.fails || self.refused.is_some_and(|what| gate.what.starts_with(what));
        let outcome = if fails { ": fails" } else { "" };
        self.note(format!("process {} goes on with {}{outcome}", gate.process.0, gate.what));
        let _ = gate.open.send(!fails);
    }

    /// Everything that a process waits for has come.
    pub(crate) fn open_gates_of(&mut self, process: ProcessId) {
        for gate in self.gates.extract_if(.., |gate| gate.process == process) {
            let _ = gate.open.send(true);
        }
    }

    /// Forgets whatever a process was doing.
    pub(crate) fn forget_process(&mut self, process: ProcessId) {
        self.gates.retain(|gate| gate.process != process);
        self.sessions.retain(|(_, server)| *server != process);
        self.requests.retain(|server| *server != process);
    }

    /// A client writes a row, if the server of the branch is still there.
    pub(crate) fn write_row(&mut self, branch: &BranchId) {
        self.next_row += 1;
        let (row, instance) = (self.next_row, InstanceId::primary(branch));
        for machine in 0..self.machines.len() {
            if let Some((server, data)) = self.serving(machine, &instance) {
                let volume = server.volume.clone();
                data.rows.insert(row);
                data.wal += 1;
                self.written.entry(volume).or_default().insert(row);
                return;
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        let servers = self.machines.iter_mut().flat_map(|machine| machine.servers.values_mut());
        for server in servers.filter(|one| matches!(one.health, Health::Refuses(until) if until <= now)) {
            server.health = Health::Well;
        }
    }

    /// The instance's server on a machine, and its data.
    pub(crate) fn serving(&mut self, machine: usize, instance: &InstanceId) -> Option<(&Server, &mut Data)> {
        let machine = &mut self.machines[machine];
        let server = machine.servers.get(instance)?;
        let volume = machine.volumes.get_mut(&server.volume)?;
        Some((server, &mut volume.data))
    }

    /// Ends a server; without a checkpoint, its data has to be recovered.
    pub(crate) fn end_server(&mut self, machine: usize, instance: &InstanceId, is_clean: bool) {
        let Some(server) = self.machines[machine].servers.remove(instance) else { return };
        let is_clean = is_clean && server.ready_at <= self.now && server.health == Health::Well;
        if let Some(volume) = self.machines[machine].volumes.get_mut(&server.volume) {
            volume.data.is_clean = is_clean;
        }
        self.note(format!("the server of {instance} has ended"));
    }

    /// Ends every server of a machine, and leaves its disk.
    pub(crate) fn end_machine(&mut self, machine: usize) {
        let servers: Vec<_> = self.machines[machine].servers.keys().cloned().collect();
        for instance in servers {
            self.end_server(machine, &instance, false);
        }
    }
}

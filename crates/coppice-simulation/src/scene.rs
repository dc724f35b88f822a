//! A history that a test writes instead of a seed: what once went wrong, again.

use std::time::Duration;

use coppice_core::{BranchId, InstanceId};

use crate::checks;
use crate::dice::Dice;
use crate::history::{History, Outcome, Weather};
use crate::metastore::Metastore;
use crate::owner::Action;
use crate::process::Process;
use crate::world::Health;

/// Chance has no say in what matters.
const SEED: u64 = 0;
/// Whatever is waited for comes within so many events.
const EVENTS_MAX: u32 = 10_000;
/// A step of time while nothing else happens.
const STEP: Duration = Duration::from_millis(50);
/// What goes wrong in one is to be told soon; nothing in it takes longer.
const QUIET: Duration = Duration::from_secs(300);

/// See the module.
pub struct Scene<'a>(History<'a>);

impl<'a> Scene<'a> {
    /// A platform of one process and one machine, on which nothing goes wrong
    /// by itself.
    ///
    /// # Panics
    /// When the metastore fails.
    pub fn begin(metastore: &'a mut Metastore) -> Self {
        let mut history = History::new(metastore, SEED, Dice::new(SEED), Weather::calm());
        history.begin();
        let mut scene = Self(history);
        scene.until_booted();
        scene
    }

    /// A platform on which so many branches are up.
    ///
    /// # Panics
    /// When the metastore fails, or they do not come up.
    pub fn with_branches(metastore: &'a mut Metastore, count: u32) -> Self {
        let mut scene = Self::begin(metastore);
        for _ in 0..count {
            scene.create_branch();
            scene.until_settled();
        }
        scene
    }

    /// Somebody asks for a branch.
    pub fn create_branch(&mut self) {
        self.0.names += 1;
        let name = format!("branch-{}", self.0.names);
        let action = Action::Create { name, inactivity_minutes: 1000 };
        assert!(self.0.ask(action, &[]), "a process can be asked");
    }

    /// Its owner asks for a child of it.
    pub fn copy_branch(&mut self) {
        self.0.names += 1;
        let name = format!("branch-{}", self.0.names);
        self.ask_of_branch(|parent| Action::Child { parent, name, lasts: None });
    }

    /// Its owner sets a parameter that takes a reload.
    pub fn configure_branch(&mut self) {
        self.ask_of_branch(|branch| Action::Configure(branch, 1, false));
    }

    /// Its owner puts it to sleep.
    pub fn hibernate_branch(&mut self) {
        self.ask_of_branch(Action::Hibernate);
    }

    /// Its owner wakes it.
    pub fn wake_branch(&mut self) {
        self.ask_of_branch(Action::Wake);
    }

    /// Its owner gives it so many replicas.
    pub fn replicate_branch(&mut self, count: u32) {
        self.ask_of_branch(|branch| Action::Replicate(branch, count));
    }

    /// Its owner asks for another password.
    pub fn rotate_branch(&mut self) {
        self.ask_of_branch(Action::Rotate);
    }

    /// Its owner makes it what the last one is that was made.
    pub fn reset_branch(&mut self) {
        let last = self.0.world.lock().known.last().map(|(id, _)| id.clone());
        self.ask_of_branch(|branch| Action::Reset(branch, last));
    }

    /// Its owner deletes it; its data waits in the trash.
    pub fn delete_branch(&mut self) {
        self.ask_of_branch(|branch| Action::Delete(branch, false));
    }

    /// Its owner brings it back from the trash.
    pub fn undelete_branch(&mut self) {
        self.ask_of_branch(Action::Undelete);
    }

    /// Its owner deletes it with its data.
    pub fn purge_branch(&mut self) {
        self.ask_of_branch(|branch| Action::Delete(branch, true));
    }

    fn ask_of_branch(&mut self, action: impl FnOnce(BranchId) -> Action) {
        let known = self.0.world.lock().known.clone();
        assert!(self.0.ask(action(self.branch()), &known), "a process can be asked");
    }

    /// The first that was made.
    fn branch(&self) -> BranchId {
        let state = self.0.world.lock();
        state.known.first().expect("a branch was made").0.clone()
    }

    /// Goes on until everything is as its owner wants it.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until_settled(&mut self) {
        for _ in 0..EVENTS_MAX {
            self.0.settle();
            let are_known = self.0.world.lock().known.len() == self.0.names as usize;
            if are_known && checks::unsettled(self.0.metastore, &self.0.world).is_empty() {
                return;
            }
            if !self.0.go_on() {
                self.0.advance(STEP);
            }
        }
        panic!("it does not settle");
    }

    /// Goes on until a step of the engine waits whose description begins like this.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until(&mut self, step: &str) {
        self.go_on_until(step, |history| history.world.lock().is_waiting_for(step));
    }

    /// Goes on until a step of the engine waits that does this to the files of the branch's
    /// primary.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until_primary(&mut self, step: &str) {
        self.until(&format!("{step} {}", InstanceId::primary(&self.branch())));
    }

    /// Goes on until a statement waits to be carried out that begins like this.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until_statement(&mut self, statement: &str) {
        self.go_on_until(statement, |history| history.link.is_waiting_for(statement));
    }

    /// The process dies, and another one starts; what it said last arrives so
    /// much later.
    pub fn replace_process(&mut self, late: Duration) {
        let due = self.0.now() + late;
        self.0.kill_late(0, due);
        self.0.start(0);
        self.until_booted();
    }

    /// The process stands still for long, and another one starts. What it waits for comes
    /// meanwhile, and is news to it when it goes on.
    pub fn pause_process(&mut self) {
        let process = self.0.processes.first_mut().expect("a process");
        process.is_paused = true;
        self.0.world.lock().open_gates_of(process.id);
        self.0.start(0);
    }

    /// It goes on.
    pub fn resume_process(&mut self) {
        self.0.processes[0].is_paused = false;
        self.0.settle();
    }

    /// The process hands over to another one, whatever is withheld.
    ///
    /// # Panics
    /// When that takes longer than `patience`.
    pub fn hand_over(&mut self, patience: Duration) {
        let last = self.0.now() + patience;
        self.0.processes.first_mut().expect("a process").hand_over();
        let is_so = |history: &History<'_>| history.processes.iter().all(Process::has_handed_over);
        self.go_on_until("it has handed over", is_so);
        assert!(self.0.now() <= last, "everybody waited for one step");
        self.0.start(0);
        self.until_booted();
    }

    fn until_booted(&mut self) {
        let is_so = |history: &History<'_>| history.processes.iter().all(|one| one.app().is_some());
        self.go_on_until("it has booted", is_so);
    }

    /// Steps of the engine whose description begins like this take as long as it pleases
    /// whoever writes the history.
    pub fn withhold(&mut self, step: Option<&'static str>) {
        self.0.world.lock().withheld = step;
    }

    /// Steps of the engine whose description begins like this fail.
    pub fn refuse(&mut self, step: Option<&'static str>) {
        self.0.world.lock().refused = step;
    }

    /// Goes on until so many volumes are on the machines.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until_volumes_are(&mut self, count: usize) {
        self.go_on_until(&format!("{count} volumes"), |history| {
            let state = history.world.lock();
            state.machines.iter().map(|machine| machine.volumes.len()).sum::<usize>() == count
        });
    }

    /// There is no room for the labels of volumes any more.
    pub fn fill(&mut self) {
        self.0.world.lock().is_full = true;
    }

    /// Goes on for so long with whatever can.
    pub fn pass(&mut self, time: Duration) {
        let end = self.0.now() + time;
        self.go_on_until("the time is over", |history| history.now() >= end);
    }

    /// Goes on until so many servers run.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until_servers_run(&mut self, count: usize) {
        self.go_on_until(&format!("{count} servers"), |history| {
            let state = history.world.lock();
            let servers = state.machines.iter().flat_map(|machine| machine.servers.values());
            servers.filter(|server| server.ready_at <= state.now).count() == count
        });
    }

    /// The server of the instance with this number of the branch ends by itself.
    pub fn end_server(&mut self, ordinal: u32) {
        let instance = InstanceId::new(&self.branch(), ordinal);
        self.0.world.lock().end_server(0, &instance, false);
    }

    /// The primary of the branch has not kept the log that its replicas lack.
    pub fn lose_log(&mut self) {
        let primary = InstanceId::primary(&self.branch());
        let mut state = self.0.world.lock();
        let (_, data) = state.serving(0, &primary).expect("its server runs");
        data.slots.values_mut().for_each(|is_lost| *is_lost = true);
    }

    /// Every server says nothing any more.
    pub fn hang_servers(&mut self) {
        self.make_servers(Health::Hangs);
    }

    /// Every server lets nobody in for this time.
    pub fn refuse_at_servers(&mut self, time: Duration) {
        self.make_servers(Health::Refuses(self.0.now() + time));
    }

    fn make_servers(&mut self, health: Health) {
        let mut state = self.0.world.lock();
        let servers = state.machines.iter_mut().flat_map(|machine| machine.servers.values_mut());
        servers.for_each(|server| server.health = health);
    }

    /// Waits until everything is settled, and compares.
    ///
    /// # Panics
    /// When something is not as it has to be.
    pub fn ends_well(self) {
        let Outcome { violations, log, .. } = self.0.outcome(SEED, QUIET);
        assert!(violations.is_empty(), "{}\n{violations:?}", log.join("\n"));
    }

    fn go_on_until(&mut self, what: &str, is_so: impl Fn(&History<'_>) -> bool) {
        for _ in 0..EVENTS_MAX {
            self.0.settle();
            if is_so(&self.0) {
                return;
            }
            if !self.0.go_on() {
                self.0.advance(STEP);
            }
        }
        panic!("{what}: it does not come");
    }
}

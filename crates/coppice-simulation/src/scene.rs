//! A history that a test writes instead of a seed: what once went wrong, again.

use std::time::Duration;

use coppice_core::BranchId;

use crate::checks;
use crate::dice::Dice;
use crate::history::{History, Outcome, Weather};
use crate::metastore::Metastore;
use crate::owner::Action;
use crate::world::Health;

/// Chance has no say in what matters.
const SEED: u64 = 0;
/// Whatever is waited for comes within so many events.
const EVENTS_MAX: u32 = 10_000;
/// A step of time while nothing else happens.
const STEP: Duration = Duration::from_millis(50);

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

    /// Somebody asks for a branch.
    pub fn create_branch(&mut self) {
        let action = Action::Create { name: "main".to_owned(), inactivity_minutes: 1000 };
        assert!(self.0.ask(action, &[]), "a process can be asked");
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

    /// Its owner deletes it; its data waits in the trash.
    pub fn delete_branch(&mut self) {
        self.ask_of_branch(|branch| Action::Delete(branch, false));
    }

    fn ask_of_branch(&mut self, action: impl FnOnce(BranchId) -> Action) {
        let known = self.0.world.lock().known.clone();
        let (branch, _) = known.first().expect("a branch was made").clone();
        assert!(self.0.ask(action(branch), &known), "a process can be asked");
    }

    /// Goes on until everything is as its owner wants it.
    ///
    /// # Panics
    /// When that does not come.
    pub fn until_settled(&mut self) {
        for _ in 0..EVENTS_MAX {
            self.0.settle();
            let is_known = !self.0.world.lock().known.is_empty();
            if is_known && checks::unsettled(self.0.metastore, &self.0.world).is_empty() {
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

    fn until_booted(&mut self) {
        let is_so = |history: &History<'_>| history.processes.iter().all(|one| one.app().is_some());
        self.go_on_until("it has booted", is_so);
    }

    /// Steps of the engine whose description begins like this take as long as it pleases
    /// whoever writes the history.
    pub fn withhold(&mut self, step: Option<&'static str>) {
        self.0.world.lock().withheld = step;
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
        let Outcome { violations, log, .. } = self.0.outcome(SEED);
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

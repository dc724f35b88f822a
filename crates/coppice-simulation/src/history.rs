//! A history: what happens to a platform, in an order that a seed decides,
//! until everything is quiet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};

use crate::checks;
use crate::dice::Dice;
use crate::link::{Link, Turn};
use crate::metastore::{Metastore, start_of_time};
use crate::owner::{KEY, ORGANIZATION, OWNER, PROJECT};
use crate::process::Process;
use crate::time::{self, Clocks};
use crate::world::{Faults, ProcessId, World};

/// Most things that can happen before it becomes quiet.
const EVENTS_MAX: u32 = 3000;
/// The quiet at its end lasts at most so long; whatever is not settled then is stuck.
const QUIET: Duration = Duration::from_secs(3600);
/// For how long the machines were up when it began.
const UPTIME: Duration = Duration::from_secs(1_000_000);
/// What owners do is chosen by a number below this.
pub(crate) const CHOICES: usize = 100;
/// So many kinds of steps and statements are told apart as places at which things go wrong.
const SPOTS: u32 = 24;
/// How often they do at the weak one, of a thousand.
const WEAKNESS: u32 = 250;
/// What happening takes, so that no two things have the same time.
const MOMENT: Duration = Duration::from_micros(1);

/// What came of a history.
#[derive(Debug)]
pub struct Outcome {
    /// What decided it.
    pub seed: u64,
    /// How many things happened.
    pub events: u32,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    /// How often each kind of request was answered with more than a refusal.
    pub done: BTreeMap<String, u32>,
    /// What happened, a line for each.
    pub log: Vec<String>,
}

/// Plays the history that a seed decides.
///
/// # Panics
/// When the metastore fails.
pub fn play(metastore: &mut Metastore, seed: u64) -> Outcome {
    let mut dice = Dice::new(seed);
    let weather = Weather::draw(&mut dice);
    let mut history = History::new(metastore, seed, dice, weather);
    history.begin();
    while history.actions_left > 0 && history.events < EVENTS_MAX && !history.has_gone_wrong() {
        history.step();
    }
    history.outcome(seed, QUIET)
}

pub(crate) struct History<'a> {
    pub(crate) metastore: &'a mut Metastore,
    pub(crate) world: World,
    pub(crate) link: Link,
    pub(crate) dice: Dice,
    pub(crate) processes: Vec<Process>,
    pub(crate) next_process: u32,
    pub(crate) directory: PathBuf,
    pub(crate) machines: usize,
    /// What the clock on the wall is off by.
    pub(crate) offset: TimeDelta,
    pub(crate) events: u32,
    pub(crate) actions_left: u32,
    /// Most requests that wait for their answers.
    pub(crate) requests_at_once: usize,
    /// How often something ends, of a thousand.
    pub(crate) crashes: u32,
    /// Steps and writes of this kind fail often, or are the last that their process does.
    pub(crate) weak_spot: Option<u32>,
    /// What is asked for over and over.
    pub(crate) habit: Option<usize>,
    pub(crate) names: u32,
}

/// What a history is like.
#[derive(Debug)]
pub(crate) struct Weather {
    machines: usize,
    faults: Faults,
    /// How often something ends, of a thousand.
    crashes: u32,
    weak_spot: Option<u32>,
    habit: Option<usize>,
    /// How much is asked for.
    actions: u32,
    /// How much of it at the same time.
    requests_at_once: usize,
}

impl Weather {
    /// Nothing goes wrong by itself.
    pub(crate) fn calm() -> Self {
        Self {
            machines: 1,
            faults: Faults::default(),
            crashes: 0,
            weak_spot: None,
            habit: None,
            actions: 0,
            requests_at_once: 0,
        }
    }

    fn draw(dice: &mut Dice) -> Self {
        let machines = if dice.happens(150) { 2 } else { 1 };
        let mut faults = Faults::default();
        if dice.happens(700) {
            faults = Faults {
                slow_statements: dice.below(40) as u32,
                lost_statements: dice.below(12) as u32,
                slow_steps: dice.below(200) as u32,
                failing_steps: dice.below(40) as u32,
                hanging_steps: dice.below(12) as u32,
                failing_servers: dice.below(60) as u32,
            };
        }
        let crashes = if dice.happens(800) { dice.below(12) as u32 } else { 0 };
        let weak_spot = dice.happens(500).then(|| dice.below(SPOTS as usize) as u32);
        let habit = dice.happens(500).then(|| dice.below(CHOICES));
        let (actions, requests_at_once) = (dice.between(6, 24) as u32, dice.between(1, 5) as usize);
        Self { machines, faults, crashes, weak_spot, habit, actions, requests_at_once }
    }
}

impl<'a> History<'a> {
    pub(crate) fn new(metastore: &'a mut Metastore, seed: u64, dice: Dice, weather: Weather) -> Self {
        metastore.clear();
        coppice_core::random::seed_on_this_thread(Some(seed));
        let Weather { machines, faults, crashes, weak_spot, habit, actions, requests_at_once } = weather;
        let world = World::new(seed ^ 0x5EED, machines);
        world.lock().faults = faults;
        let link = Link::new(metastore.socket(), std::mem::take(&mut metastore.spare));
        let directory = metastore.link_directory();
        Self {
            metastore,
            world,
            link,
            dice,
            processes: vec![],
            next_process: 0,
            directory,
            machines,
            offset: TimeDelta::zero(),
            events: 0,
            actions_left: actions,
            requests_at_once,
            crashes,
            weak_spot,
            habit,
            names: 0,
        }
    }

    /// Ends it after so much quiet at most, and gives the thread its clocks and its chance back.
    pub(crate) fn outcome(mut self, seed: u64, quiet: Duration) -> Outcome {
        self.end(quiet);
        let events = self.events;
        let world = self.finish();
        coppice_core::random::seed_on_this_thread(None);
        time::set_on_this_thread(None);
        let mut state = world.lock();
        let (violations, log) = (std::mem::take(&mut state.violations), std::mem::take(&mut state.log));
        Outcome { seed, events, violations, done: std::mem::take(&mut state.done), log }
    }

    pub(crate) fn begin(&mut self) {
        self.tell_time();
        self.metastore.admin.query(&format!(
            "insert into organizations (id, name) values ('{ORGANIZATION}', 'simulated');
             insert into users (id, email, name) values ('{OWNER}', 'owner@example.com', '');
             insert into members (organization_id, user_id, role) values ('{ORGANIZATION}', '{OWNER}', 'owner');
             insert into api_keys (id, user_id, name, preview, hash, scopes, projects, branches)
             values ('{KEY}', '{OWNER}', '', '', '', '{{}}', '{{}}', '{{}}');
             insert into projects (id, organization_id, name, base_scale_to_zero, base_inactivity_minutes,
                 child_scale_to_zero, child_inactivity_minutes, ip_filtering_enabled, ip_ranges)
             values ('{PROJECT}', '{ORGANIZATION}', 'simulated', true, 5, true, 1, false, '[]')"
        ));
        for machine in 0..self.machines {
            self.start(machine);
        }
    }

    /// Starts a control plane on a machine.
    pub(crate) fn start(&mut self, machine: usize) {
        self.next_process += 1;
        let id = ProcessId(self.next_process);
        let directory = self.directory.join(id.0.to_string());
        self.link.listen(id, &directory);
        self.world.lock().note(format!("process {} starts on machine {machine}", id.0));
        let options = self.metastore.options(&directory);
        self.processes.push(Process::start(&self.world, id, machine, options));
    }

    /// Ends a process wherever it is.
    pub(crate) fn kill(&mut self, at: usize) {
        let (id, now) = (self.drop_process(at), self.now());
        self.link.kill(id, now, &mut self.dice);
        self.world.lock().forget_process(id);
    }

    /// Ends a process wherever it is; what it said arrives at this time.
    pub(crate) fn kill_late(&mut self, at: usize, due: Duration) {
        let id = self.drop_process(at);
        self.link.kill_late(id, due);
        self.world.lock().forget_process(id);
    }

    fn drop_process(&mut self, at: usize) -> ProcessId {
        let process = self.processes.remove(at);
        self.world.lock().note(format!("process {} is killed", process.id.0));
        let id = process.id;
        drop(process);
        self.link.pump(self.now(), &Faults::default(), &mut self.dice);
        id
    }

    pub(crate) fn now(&self) -> Duration {
        self.world.lock().now
    }

    pub(crate) fn has_gone_wrong(&self) -> bool {
        !self.world.lock().violations.is_empty()
    }

    /// Tells everybody what time it is.
    pub(crate) fn tell_time(&self) {
        let now = self.now();
        let time = start_of_time() + TimeDelta::from_std(now).unwrap_or_default() + self.offset;
        self.metastore.set_clock(time);
        let calendar = (time - DateTime::UNIX_EPOCH).to_std().unwrap_or_default();
        time::set_on_this_thread(Some(Clocks { monotonic: UPTIME + now, calendar }));
    }

    /// Lets everybody run until they all wait for something.
    pub(crate) fn settle(&mut self) {
        let (now, faults) = {
            let state = self.world.lock();
            (state.now, state.faults.clone())
        };
        loop {
            let before = self.world.lock().log.len();
            for process in &self.processes {
                process.run();
            }
            let has_moved = self.link.pump(now, &faults, &mut self.dice);
            if !has_moved && self.world.lock().log.len() == before {
                break;
            }
        }
        checks::removals(self.metastore, &self.world);
    }

    /// One thing happens.
    fn step(&mut self) {
        self.settle();
        self.events += 1;
        self.replace_processes();
        let roll = self.dice.below(1000) as u32;
        if roll < self.crashes {
            self.mishap();
        } else if self.dice.happens(60) && self.may_act() {
            self.act();
        } else if self.dice.happens(980) && self.go_on() {
            // Something went on.
        } else {
            let time = match self.dice.below(20) {
                0 => self.dice.between(5_000, 90_000),
                1..6 => self.dice.between(500, 6_000),
                _ => self.dice.between(1, 500),
            };
            self.advance(Duration::from_millis(time));
        }
    }

    /// Lets a statement, a notification or a step of the engine go on; false
    /// when there is none.
    pub(crate) fn go_on(&mut self) -> bool {
        let turns = self.link.turns(self.now());
        let gates = self.world.lock().gates_due();
        if turns.len() + gates == 0 {
            return false;
        }
        self.advance(MOMENT);
        let chosen = self.dice.below(turns.len() + gates);
        match turns.get(chosen) {
            Some(Turn::Statement(connection)) => self.carry_out(*connection),
            Some(Turn::Notification(connection)) => {
                let is_lost = self.dice.happens(self.world.lock().faults.lost_statements);
                self.link.notify(*connection, is_lost);
            }
            None => self.let_step_go_on(chosen - turns.len()),
        }
        true
    }

    /// The next statement of a connection is carried out.
    fn carry_out(&mut self, connection: u32) {
        let sender = self.link.sender(connection);
        let older = sender.and_then(|process| self.world.lock().epoch_of_older(process));
        let before = older.map(|epoch| checks::fenced(self.metastore, epoch));
        let delivered = self.link.deliver(connection, &mut self.metastore.admin);
        let after = older.map(|epoch| checks::fenced(self.metastore, epoch));
        let has_changed = before.zip(after).is_some_and(|(before, after)| {
            before.iter().any(|(branch, row)| after.get(branch).is_some_and(|now| now != row))
        });
        let is_last = delivered.is_write && self.is_weak(&delivered.what);
        {
            let mut state = self.world.lock();
            state.note(delivered.what);
            delivered.faults.into_iter().for_each(|fault| state.violation(fault));
            if has_changed {
                state.violation("an older claim has changed what a newer one found");
            }
        }
        if delivered.is_write {
            checks::rows(self.metastore, &self.world);
        }
        if let Some(sender) = sender.filter(|_| is_last) {
            self.kill_if_there(sender);
        }
    }

    /// A step of the engine does, or fails, or never does.
    fn let_step_go_on(&mut self, number: usize) {
        let due = self.world.lock().step_due(number);
        let Some((process, what)) = due else { return };
        if self.is_weak(&what) {
            match self.dice.happens(500) {
                true => return self.kill_if_there(process),
                false => self.world.lock().make_step_fail(number),
            }
        }
        self.world.lock().open_gate(number);
    }

    /// Whether things go wrong at what is of this kind, this time.
    fn is_weak(&mut self, what: &str) -> bool {
        self.weak_spot == Some(spot_of(what)) && self.dice.happens(WEAKNESS)
    }

    fn kill_if_there(&mut self, process: ProcessId) {
        if let Some(at) = self.processes.iter().position(|one| one.id == process) {
            self.kill(at);
        }
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.world.lock().pass(time);
        self.tell_time();
    }

    /// A control plane runs on every machine, sooner or later; one that could
    /// not boot is another one's turn.
    fn replace_processes(&mut self) {
        while let Some(at) = self.processes.iter().position(|process| process.has_failed().is_some()) {
            let why = self.processes[at].has_failed().unwrap_or_default().to_owned();
            self.world.lock().note(format!("process {} can't boot: {why}", self.processes[at].id.0));
            self.kill(at);
        }
        for machine in 0..self.machines {
            let mut of_machine = self.processes.iter().filter(|process| process.machine == machine);
            if of_machine.all(Process::has_handed_over) && self.dice.happens(50) {
                self.start(machine);
            }
        }
    }
}

/// The kind of something that happens: the words of what is told of it, without names.
fn spot_of(what: &str) -> u32 {
    let words = what.split(' ').filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
    words.flat_map(str::bytes).fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % SPOTS
}

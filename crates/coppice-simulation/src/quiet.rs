//! The end of a history: nothing goes wrong any more, and after a while
//! everything has to be what its owner wants.

use std::time::Duration;

use crate::checks;
use crate::history::History;
use crate::world::{Faults, World};

/// So many things happen in it at most: what is tried over and over does not come to rest, either.
const EVENTS_MAX: u32 = 200_000;
/// A step of time in it.
const STEP: Duration = Duration::from_secs(2);
/// Once everything is settled it stays so for this time.
const STAYS_SETTLED: Duration = Duration::from_secs(15);

impl History<'_> {
    /// Waits until everything is settled, for so long at most, and compares.
    pub(crate) fn end(&mut self, quiet: Duration) {
        self.world.lock().note("it is quiet from here");
        self.world.lock().faults = Faults::default();
        self.weak_spot = None;
        self.leave_one_process_to_each_machine();
        let (began, last) = (self.now(), self.events + EVENTS_MAX);
        let mut settled_since = None;
        while !self.has_gone_wrong() {
            self.settle();
            if self.events < last && self.go_on() {
                self.events += 1;
                continue;
            }
            if self.processes.iter().any(|process| process.has_failed().is_some()) {
                self.leave_one_process_to_each_machine();
                continue;
            }
            let problems = checks::unsettled(self.metastore, &self.world);
            if problems.is_empty() {
                let since = *settled_since.get_or_insert(self.now());
                if self.now() - since >= STAYS_SETTLED && (!self.link.is_busy() || self.events >= last) {
                    break;
                }
            } else {
                settled_since = None;
                if self.now() - began > quiet || self.events >= last {
                    let mut state = self.world.lock();
                    problems.into_iter().for_each(|problem| state.violation(format!("stuck: {problem}")));
                    break;
                }
            }
            self.advance(STEP);
        }
    }

    fn leave_one_process_to_each_machine(&mut self) {
        for machine in 0..self.machines {
            let is_here = |one: &crate::process::Process| one.machine == machine;
            while let Some(at) = self
                .processes
                .iter()
                .position(|one| is_here(one) && (one.is_leaving() || one.has_failed().is_some()))
            {
                self.kill(at);
            }
            if !self.processes.iter().any(is_here) {
                self.start(machine);
            }
        }
    }

    /// Ends what is left of it; returns what it left behind.
    pub(crate) fn finish(mut self) -> World {
        while !self.processes.is_empty() {
            self.kill(0);
        }
        self.metastore.spare = self.link.clear(&mut self.metastore.admin);
        self.world
    }
}

//! What is asked of the platform, and of which of its processes.

use std::time::Duration;

use coppice_core::BranchId;

use crate::history::{CHOICES, History};
use crate::owner::{Action, carry_out};
use crate::process::Process;

/// How often owners do what they always do, and to their first branch, of a thousand.
const HABIT: u32 = 400;

impl History<'_> {
    /// Somebody does something.
    pub(crate) fn act(&mut self) {
        let known = self.world.lock().known.clone();
        let action = self.draw_action(&known);
        if self.ask(action, &known) {
            self.actions_left -= 1;
        }
    }

    /// Whether owners ask for more before they are answered; for a first branch they wait.
    pub(crate) fn may_act(&self) -> bool {
        let state = self.world.lock();
        let at_once = if state.known.is_empty() { 1 } else { self.requests_at_once };
        state.requests.len() < at_once
    }

    /// Asks a process for something; false when none can be asked.
    pub(crate) fn ask(&mut self, action: Action, known: &[(BranchId, usize)]) -> bool {
        // Data is copied where it is, and clients come to where their server is.
        let place = match &action {
            Action::Child { parent: branch, .. } | Action::Connect(branch, _) | Action::Reset(branch, _) => {
                known.iter().find(|(id, _)| id == branch).map(|(_, machine)| *machine)
            }
            _ => None,
        };
        let is_able = |process: &&Process| {
            !process.is_leaving()
                && process.app().is_some()
                && place.is_none_or(|place| place == process.machine)
        };
        let able: Vec<_> = self.processes.iter().filter(is_able).collect();
        if able.is_empty() {
            return false;
        }
        let process = able[self.dice.below(able.len())];
        let Some(app) = process.app() else { return false };
        {
            let mut state = self.world.lock();
            state.note(format!("{action:?} is asked of process {}", process.id.0));
            state.requests.push(process.id);
        }
        let place = (process.id, process.machine);
        process.spawn(carry_out(action, app.clone(), self.world.clone(), place));
        true
    }

    fn draw_action(&mut self, known: &[(BranchId, usize)]) -> Action {
        let habit = self.habit.filter(|_| self.dice.happens(HABIT));
        let chosen = if known.is_empty() { 0 } else { habit.unwrap_or_else(|| self.dice.below(CHOICES)) };
        self.names += 1;
        let name = format!("branch-{}", self.names);
        if chosen < 12 {
            let inactivity_minutes = self.dice.between(1, 3) as u32;
            return Action::Create { name, inactivity_minutes };
        }
        let (deleted, living): (Vec<_>, Vec<_>) = {
            let state = self.world.lock();
            known.iter().map(|(id, _)| id).partition(|id| state.deleted.contains(id))
        };
        let is_back = (78..83).contains(&chosen) && !deleted.is_empty();
        let among = if is_back || living.is_empty() { deleted } else { living };
        let is_first = self.habit.is_some() && self.dice.happens(HABIT);
        let branch = among[if is_first { 0 } else { self.dice.below(among.len()) }].clone();
        match chosen {
            12..28 => {
                let lasts = self.dice.happens(300).then(|| Duration::from_secs(self.dice.between(1, 90)));
                Action::Child { parent: branch, name, lasts }
            }
            28..40 => Action::Hibernate(branch),
            40..50 => Action::Wake(branch),
            50..60 => Action::Rotate(branch),
            60..70 => Action::Configure(branch, self.dice.below(1000) as u32, self.dice.happens(500)),
            78..82 if is_back => Action::Undelete(branch),
            82..83 if is_back => Action::Purge(branch),
            70..83 => Action::Delete(branch, self.dice.happens(300)),
            83..90 => {
                let machine = known.iter().find(|(one, _)| *one == branch).map(|(_, machine)| *machine);
                let is_beside = |(id, on): &&(BranchId, usize)| *id != branch && Some(*on) == machine;
                let beside: Vec<_> = known.iter().filter(is_beside).collect();
                let is_source = !beside.is_empty() && self.dice.happens(700);
                let source = is_source.then(|| beside[self.dice.below(beside.len())].0.clone());
                Action::Reset(branch, source)
            }
            90..96 => Action::Replicate(branch, self.dice.below(3) as u32),
            _ => Action::Connect(branch, Duration::from_millis(self.dice.between(1, 90_000))),
        }
    }
}

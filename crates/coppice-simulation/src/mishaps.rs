//! What happens to machines and processes without anybody asking for it.

use std::time::Duration;

use chrono::TimeDelta;
use coppice_core::InstanceId;

use crate::history::History;
use crate::world::Health;

impl History<'_> {
    /// Something ends, hangs, or is set to another time.
    pub(crate) fn mishap(&mut self) {
        match self.dice.below(12) {
            0..4 => self.kill_one(),
            4 => self.end_machine(),
            5..7 => self.hand_over(),
            7..9 => self.end_server(),
            9 => self.make_server_hang(),
            10 => self.make_server_refuse(),
            _ => self.set_clock(),
        }
    }

    fn kill_one(&mut self) {
        if !self.processes.is_empty() {
            let at = self.dice.below(self.processes.len());
            self.kill(at);
        }
    }

    /// Nothing that ran on the machine does; its disk is as it was.
    fn end_machine(&mut self) {
        let machine = self.dice.below(self.machines);
        while let Some(at) = self.processes.iter().position(|process| process.machine == machine) {
            self.kill(at);
        }
        self.world.lock().end_machine(machine);
    }

    fn hand_over(&mut self) {
        let Some(process) = self.processes.iter_mut().find(|one| one.app().is_some() && !one.is_leaving())
        else {
            return;
        };
        self.world.lock().note(format!("process {} hands over", process.id.0));
        process.hand_over();
    }

    fn draw_server(&mut self) -> Option<(usize, InstanceId)> {
        let state = self.world.lock();
        let servers: Vec<_> = (0..self.machines)
            .flat_map(|machine| state.machines[machine].servers.keys().map(move |id| (machine, id.clone())))
            .collect();
        drop(state);
        (!servers.is_empty()).then(|| servers[self.dice.below(servers.len())].clone())
    }

    fn end_server(&mut self) {
        if let Some((machine, instance)) = self.draw_server() {
            self.world.lock().end_server(machine, &instance, false);
        }
    }

    fn make_server_hang(&mut self) {
        self.make_server(Health::Hangs);
    }

    fn make_server_refuse(&mut self) {
        let until = self.now() + Duration::from_millis(self.dice.between(100, 40_000));
        self.make_server(Health::Refuses(until));
    }

    fn make_server(&mut self, health: Health) {
        let Some((machine, instance)) = self.draw_server() else { return };
        let mut state = self.world.lock();
        state.note(format!("the server of {instance} is {health:?}"));
        if let Some(server) = state.machines[machine].servers.get_mut(&instance) {
            server.health = health;
        }
    }

    /// Somebody sets the clock on the wall.
    fn set_clock(&mut self) {
        let seconds = i64::try_from(self.dice.between(0, 14_400)).unwrap_or_default() - 7_200;
        self.offset += TimeDelta::seconds(seconds);
        self.world.lock().note(format!("the clock is set by {seconds} s"));
        self.tell_time();
    }
}

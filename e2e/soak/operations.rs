//! What can happen to branches.

use coppice_test_support::psql;
use serde_json::{Value, json};

use super::interruptions::{Request, Strike};
use super::model::{Branch, Contents, TABLE};
use super::{BRANCHES_MAX, Soak};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    /// A transaction that is rolled back, by its owner or by an error.
    RollBack,
    /// Something ends a client in the middle of its writes.
    Lose(Strike),
    MakeChild,
    MakeChildOfBusyParent,
    /// Its parent is put to sleep while it is made.
    MakeChildOfTiredParent,
    MakeBase,
    Hibernate,
    /// Back again before it is asleep.
    HibernateAndWake,
    Wake,
    Connect,
    Describe,
    SetScaleToZero,
    Rename,
    Delete,
    /// It becomes what its parent is.
    Reset,
    /// It becomes what it was.
    GoBack,
    MakeChildOfPast,
    Promote,
    /// Out of the trash.
    BringBack,
    /// The control plane is killed while it works on a request.
    CutRequest,
    /// It ends as a service manager ends it, and starts again.
    RestartControlPlane,
}

/// How often each of them is in a deck.
pub(super) const DECK: [(Operation, u64); 26] = [
    (Operation::Write, 9),
    (Operation::RollBack, 1),
    (Operation::Lose(Strike::Postmaster), 2),
    (Operation::Lose(Strike::Backend), 1),
    (Operation::Lose(Strike::ControlPlane), 1),
    (Operation::Lose(Strike::Power), 1),
    (Operation::Lose(Strike::Hibernation), 1),
    (Operation::MakeChild, 3),
    (Operation::MakeChildOfBusyParent, 2),
    (Operation::MakeChildOfTiredParent, 1),
    (Operation::MakeBase, 1),
    (Operation::Hibernate, 4),
    (Operation::HibernateAndWake, 1),
    (Operation::Wake, 1),
    (Operation::Connect, 4),
    (Operation::Describe, 1),
    (Operation::SetScaleToZero, 3),
    (Operation::Rename, 1),
    (Operation::Delete, 3),
    (Operation::Reset, 3),
    (Operation::GoBack, 3),
    (Operation::MakeChildOfPast, 2),
    (Operation::Promote, 2),
    (Operation::BringBack, 2),
    (Operation::CutRequest, 2),
    (Operation::RestartControlPlane, 1),
];

impl Soak {
    /// Does one operation to a random branch.
    pub(super) fn perform(&mut self, operation: Operation) {
        self.done += 1;
        let is_full = self.branches.len() >= BRANCHES_MAX;
        let operation = match operation {
            Operation::MakeChild
            | Operation::MakeChildOfBusyParent
            | Operation::MakeChildOfTiredParent
            | Operation::MakeBase
            | Operation::MakeChildOfPast
                if is_full =>
            {
                Operation::Delete
            }
            Operation::Delete if self.branches.len() == 1 => Operation::MakeChild,
            other => other,
        };
        match operation {
            Operation::MakeChildOfBusyParent | Operation::MakeChildOfTiredParent | Operation::Lose(_) => {
                let index = self.any_awake_branch();
                self.tell(operation, index);
                match operation {
                    Operation::Lose(strike) => self.lose(index, strike),
                    Operation::MakeChildOfTiredParent => self.make_child_of_tired_parent(index),
                    _ => self.make_child_of_busy_parent(index),
                }
            }
            Operation::Delete => {
                let index = 1 + self.below(self.branches.len() as u64 - 1) as usize;
                self.tell(operation, index);
                self.delete(index);
            }
            _ => {
                let index = self.any_branch();
                self.tell(operation, index);
                self.perform_on(operation, index);
            }
        }
    }

    fn tell(&self, operation: Operation, index: usize) {
        let Branch { name, id, is_asleep, .. } = &self.branches[index];
        let state = if *is_asleep { "asleep" } else { "awake" };
        println!("soak: {:3} {operation:?} {name} {id} ({state})", self.done);
    }

    fn perform_on(&mut self, operation: Operation, index: usize) {
        match operation {
            Operation::Write => self.write(index),
            Operation::RollBack => self.roll_back(index),
            Operation::MakeChild => self.make_child(index),
            Operation::MakeBase => self.make_base(),
            Operation::Hibernate => {
                self.hibernate(index);
                self.wait_until_settled(index);
            }
            Operation::HibernateAndWake => {
                self.hibernate(index);
                self.wake(index);
            }
            Operation::Wake => {
                self.wake(index);
                self.wait_until_settled(index);
            }
            Operation::Connect if self.branches[index].takes_connections() => self.read(index),
            Operation::Connect => self.is_refused(index, "SELECT 1"),
            Operation::Describe => {
                let description = format!("after {}", self.done);
                self.change(index, &json!({ "description": description }));
                self.branches[index].description = description;
            }
            Operation::SetScaleToZero => self.set_scale_to_zero(index),
            Operation::Rename => {
                let name = self.new_name();
                self.change(index, &json!({ "name": name }));
                self.branches[index].name = name;
            }
            Operation::Reset => self.reset(index),
            Operation::GoBack => self.go_back(index),
            Operation::MakeChildOfPast => self.make_child_of_past(index),
            Operation::Promote => self.promote(index),
            Operation::BringBack => self.bring_back(),
            Operation::CutRequest => self.cut_request(index),
            Operation::RestartControlPlane => {
                assert_eq!(self.coppice.terminate(), Some(0));
                self.start_control_plane();
            }
            Operation::Lose(_)
            | Operation::MakeChildOfBusyParent
            | Operation::MakeChildOfTiredParent
            | Operation::Delete => unreachable!("these choose their branch themselves"),
        }
    }

    pub(super) fn start_control_plane(&mut self) {
        assert!(!self.coppice.log().contains("panicked at"), "the control plane panicked");
        self.coppice.spawn();
        self.coppice.wait_ready();
    }

    fn write(&mut self, index: usize) {
        let transaction = self.transaction();
        let changes: Vec<_> = transaction.iter().map(|change| change.sql()).collect();
        let sql = format!("BEGIN; {}; COMMIT", changes.join(";"));
        if !self.branches[index].takes_connections() {
            return self.is_refused(index, &sql);
        }
        self.sql(index, &sql);
        self.branches[index].contents.commit(&transaction);
    }

    fn roll_back(&mut self, index: usize) {
        let changes: Vec<_> = self.transaction().iter().map(|change| change.sql()).collect();
        if !self.branches[index].takes_connections() {
            return self.is_refused(index, "SELECT 1");
        }
        let changes = changes.join(";");
        self.sql(index, &format!("BEGIN; {changes}; ROLLBACK"));
        let failed = psql(&self.branches[index].url, &format!("BEGIN; {changes}; SELECT 1 / 0; COMMIT"));
        assert!(failed.err.contains("division by zero"), "{}", failed.err);
    }

    pub(super) fn hibernate(&mut self, index: usize) {
        self.change(index, &json!({ "hibernate": true }));
        self.branches[index].is_asleep = true;
    }

    pub(super) fn wake(&mut self, index: usize) {
        self.change(index, &json!({ "hibernate": false }));
        self.branches[index].is_asleep = false;
    }

    /// The period is so long that nothing falls asleep by itself meanwhile.
    fn set_scale_to_zero(&mut self, index: usize) {
        let (is_enabled, minutes) = (self.below(3) > 0, 5000 + self.below(5000));
        let body = json!({ "scaleToZero": { "enabled": is_enabled, "inactivityPeriodMinutes": minutes } });
        self.change(index, &body);
        self.branches[index].is_sleepy = is_enabled;
        self.branches[index].inactivity_minutes = minutes;
    }

    /// What makes a child of a branch.
    pub(super) fn child_request(&mut self, index: usize) -> Value {
        let (is_enabled, minutes) = (self.below(2) == 0, 5000 + self.below(5000));
        json!({
            "mode": "inherit",
            "name": self.new_name(),
            "description": format!("child of {}", self.branches[index].name),
            "parentID": self.branches[index].id,
            "scaleToZero": { "enabled": is_enabled, "inactivityPeriodMinutes": minutes },
        })
    }

    /// Adds a branch that was made by this request.
    pub(super) fn add(&mut self, request: &Value, made: &Value, contents: Contents) {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let scale_to_zero = &request["scaleToZero"];
        self.branches.push(Branch {
            id: text(&made["id"]),
            name: text(&request["name"]),
            description: text(&request["description"]),
            parent: request["parentID"].as_str().map(str::to_owned),
            url: self.coppice.connection_string(&text(&request["name"])),
            is_sleepy: scale_to_zero["enabled"].as_bool().expect("a boolean"),
            inactivity_minutes: scale_to_zero["inactivityPeriodMinutes"].as_u64().expect("a number"),
            is_asleep: false,
            contents,
            places: vec![],
            pasts: vec![],
            former_parent: None,
        });
        self.wait_until_settled(self.branches.len() - 1);
    }

    pub(super) fn make(&mut self, request: &Value, contents: Contents) {
        let made = self.call("POST", &format!("{}/branches", self.project), Some(request), 201);
        self.add(request, &made, contents);
    }

    pub(super) fn make_child(&mut self, index: usize) {
        self.settle_for_copy(index);
        let request = self.child_request(index);
        let contents = self.branches[index].contents.clone();
        self.make(&request, contents);
        self.wait_until_settled(index);
    }

    /// Otherwise a branch and its copy could be found different, and both be right.
    pub(super) fn settle_for_copy(&mut self, index: usize) {
        self.wait_until_settled(index);
        if !self.branches[index].contents.is_certain() && !self.branches[index].is_asleep {
            self.read(index);
        }
    }

    /// The child holds the beginning of what its parent gets meanwhile.
    fn make_child_of_busy_parent(&mut self, index: usize) {
        self.wait_until_settled(index);
        self.read(index);
        let before = self.branches[index].contents.clone();
        let request = self.child_request(index);
        let writer = self.start_writing(index);
        self.pause(150);
        let made = self.call("POST", &format!("{}/branches", self.project), Some(&request), 201);
        let (transactions, acknowledged, complaint) = writer.finish();
        assert_eq!(acknowledged, transactions.len(), "{complaint}");
        transactions.iter().for_each(|transaction| self.branches[index].contents.commit(transaction));
        self.add(&request, &made, before.at_some_moment_of(&transactions));
        let child = self.branches.len() - 1;
        self.read(child);
        self.read(index);
    }

    fn make_child_of_tired_parent(&mut self, index: usize) {
        self.wait_until_settled(index);
        self.read(index);
        let request = self.child_request(index);
        let (client, path, body) =
            (self.coppice.client(), format!("{}/branches", self.project), request.clone());
        let asked = std::thread::spawn(move || client.call("POST", &path, Some(&body)).expect("an answer"));
        self.pause(60);
        self.hibernate(index);
        let (status, mut made) = asked.join().expect("a thread");
        self.wait_until_settled(index);
        if status == 412 {
            // The parent was first.
            made = self.call("POST", &format!("{}/branches", self.project), Some(&request), 201);
        } else {
            assert_eq!(status, 201, "{made}");
        }
        let contents = self.branches[index].contents.clone();
        self.add(&request, &made, contents);
        self.read(self.branches.len() - 1);
    }

    fn make_base(&mut self) {
        let major = if self.below(2) == 0 { 15 } else { 17 };
        let (is_enabled, minutes) = (self.below(2) == 0, 5000 + self.below(5000));
        let request = json!({
            "mode": "custom",
            "name": self.new_name(),
            "description": "",
            "scaleToZero": { "enabled": is_enabled, "inactivityPeriodMinutes": minutes },
            "configuration": {
                "region": "local",
                "instanceType": "micro",
                "image": format!("postgres:{major}"),
            },
        });
        self.make(&request, Contents::empty());
        let index = self.branches.len() - 1;
        self.sql(index, TABLE);
    }

    pub(super) fn delete(&mut self, index: usize) {
        self.call("DELETE", &self.path(index), None, 204);
        self.put_away(index);
    }

    /// The kind of request that a kill of the control plane cuts short.
    pub(super) fn request_to_cut(&mut self, index: usize) -> Request {
        match self.below(5) {
            0 if self.branches.len() < BRANCHES_MAX => Request::MakeChild(self.child_request(index)),
            1 if index > 0 => Request::Delete,
            2 => Request::Rename(self.new_name()),
            3 if self.parent_of(index).is_some() => Request::Reset,
            _ if self.branches[index].is_asleep => Request::Wake,
            _ => Request::Hibernate,
        }
    }
}

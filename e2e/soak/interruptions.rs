//! Writes and requests that are cut short. Whoever sent them does not know
//! what came of them.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Signal, signal};
use serde_json::{Value, json};

use super::Soak;
use super::model::Change;

/// Transactions of a client that is going to be cut.
const TRANSACTIONS: usize = 120;

/// What ends a client in the middle of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    /// `kill -9` of the branch's postmaster.
    Postmaster,
    /// `kill -9` of the client's own backend.
    Backend,
    /// `kill -9` of the control plane.
    ControlPlane,
    /// Everything that runs is gone at once.
    Power,
    /// Its owner puts the branch to sleep.
    Hibernation,
}

/// A request that is cut short.
#[derive(Clone, Debug)]
pub(super) enum Request {
    MakeChild(Value),
    Delete,
    Rename(String),
    /// To its parent.
    Reset,
    Hibernate,
    Wake,
}

/// A client that writes one transaction after the other.
pub(super) struct Writer {
    transactions: Vec<Vec<Change>>,
    client: Child,
}

impl Writer {
    /// Waits for the client's end; returns its transactions, how many of them
    /// were acknowledged, and what it complained about.
    pub(super) fn finish(self) -> (Vec<Vec<Change>>, usize, String) {
        let output = self.client.wait_with_output().expect("psql ends");
        let acknowledged = String::from_utf8_lossy(&output.stdout).matches("acknowledged").count();
        (self.transactions, acknowledged, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Soak {
    /// Waits up to so many milliseconds, so that what comes next finds
    /// something in progress.
    pub(super) fn pause(&mut self, milliseconds: u64) {
        let pause = self.below(milliseconds);
        std::thread::sleep(Duration::from_millis(pause));
    }

    /// Starts a client of a branch that is awake.
    pub(super) fn start_writing(&mut self, index: usize) -> Writer {
        let transactions: Vec<_> = (0..TRANSACTIONS).map(|_| self.transaction()).collect();
        let mut script = String::new();
        for transaction in &transactions {
            let changes: Vec<_> = transaction.iter().map(|change| change.sql()).collect();
            script.push_str(&format!("BEGIN;\n{};\nCOMMIT;\n\\echo acknowledged\n", changes.join(";\n")));
        }
        let mut client = Command::new("psql")
            .args([&self.branches[index].url, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"])
            .env("PGCONNECT_TIMEOUT", "60")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql runs");
        let mut input = client.stdin.take().expect("a pipe");
        // psql may be cut before it has read everything.
        std::thread::spawn(move || drop(input.write_all(script.as_bytes())));
        Writer { transactions, client }
    }

    /// Cuts a client off while it writes. What was acknowledged must be there,
    /// the transaction after that may be, nothing else must.
    pub(super) fn lose(&mut self, index: usize, strike: Strike) {
        self.sql(index, "SELECT 1");
        let id = self.branches[index].id.clone();
        let writer = self.start_writing(index);
        self.pause(300);
        match strike {
            Strike::Postmaster => kill_process(self.coppice.postmaster(&id)),
            Strike::Backend => {
                client_backends(self.coppice.postmaster(&id)).into_iter().for_each(kill_process)
            }
            Strike::ControlPlane => {
                self.coppice.kill();
                self.start_control_plane();
            }
            Strike::Power => {
                self.coppice.cut_power();
                self.start_control_plane();
            }
            Strike::Hibernation => self.hibernate(index),
        }
        let (transactions, acknowledged, complaint) = writer.finish();
        println!("soak:     {acknowledged} of {} acknowledged: {}", transactions.len(), complaint.trim());
        self.branches[index].contents.commit_until_cut(&transactions, acknowledged);
        if strike == Strike::Hibernation {
            // A client that was late has woken the branch, if it may.
            self.wake(index);
        }
        self.wait_until_back(index);
    }

    /// Kills the control plane while it works on a request. Who sent it sends
    /// it again, and then it is done.
    pub(super) fn cut_request(&mut self, index: usize) {
        self.wait_until_settled(index);
        let request = self.request_to_cut(index);
        if let (Request::Reset, Some(parent)) = (&request, self.parent_of(index)) {
            self.settle_for_copy(parent);
        }
        println!("soak:     {request:?}");
        let (method, path, body) = self.message(&request, index);
        let client = self.coppice.client();
        let sent = std::thread::spawn({
            let (method, path, body) = (method, path.clone(), body.clone());
            move || client.call(method, &path, body.as_ref()).map(|(status, _)| status)
        });
        self.pause(200);
        self.coppice.kill();
        let answer = sent.join().expect("a thread");
        println!("soak:     {answer:?}");
        self.start_control_plane();
        self.send_again(&request, index);
    }

    fn message(&self, request: &Request, index: usize) -> (&'static str, String, Option<Value>) {
        let path = self.path(index);
        match request {
            Request::MakeChild(body) => ("POST", format!("{}/branches", self.project), Some(body.clone())),
            Request::Delete => ("DELETE", path, None),
            Request::Reset => ("POST", format!("{path}/reset"), Some(json!({}))),
            Request::Rename(name) => ("PATCH", path, Some(json!({ "name": name }))),
            Request::Hibernate => ("PATCH", path, Some(json!({ "hibernate": true }))),
            Request::Wake => ("PATCH", path, Some(json!({ "hibernate": false }))),
        }
    }

    fn send_again(&mut self, request: &Request, index: usize) {
        let (method, path, body) = self.message(request, index);
        match request {
            Request::MakeChild(body) => {
                self.wait_until_settled(index);
                let list = self.call("GET", &path, None, 200);
                let mut listed = list["branches"].as_array().expect("branches").iter();
                let made = match listed.find(|branch| branch["name"] == body["name"]) {
                    Some(made) => made.clone(),
                    None => self.call(method, &path, Some(body), 201),
                };
                let contents = self.branches[index].contents.clone();
                self.add(body, &made, contents);
            }
            Request::Delete => {
                let (status, answer) = self.coppice.call(method, &path, None);
                assert!(status == 204 || status == 404, "{status} {answer}");
                self.put_away(index);
            }
            Request::Reset => {
                // What was begun is done first.
                self.wait_until_settled(index);
                let parent = self.parent_of(index).expect("a parent");
                let contents = self.branches[parent].contents.clone();
                self.call(method, &path, body.as_ref(), 200);
                self.wait_until_settled(index);
                self.note_replaced(index, contents);
            }
            Request::Rename(name) => {
                self.call(method, &path, body.as_ref(), 200);
                self.branches[index].name.clone_from(name);
            }
            Request::Hibernate | Request::Wake => {
                self.call(method, &path, body.as_ref(), 200);
                self.branches[index].is_asleep = matches!(request, Request::Hibernate);
            }
        }
    }
}

/// The backends of a server's clients.
fn client_backends(postmaster: u32) -> Vec<u32> {
    let children =
        std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    pids.filter(|pid| {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&title).starts_with("postgres: app ")
    })
    .collect()
}

fn kill_process(pid: u32) {
    // It may have ended by itself.
    let _ = signal(pid, Signal::KILL);
}

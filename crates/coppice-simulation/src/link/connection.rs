//! One connection of a control plane: what it said, and what it is told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::{Connection, Fate, STATEMENT_LENGTH};
use crate::backend::{Answer, Backend, first_message, message};
use crate::world::ProcessId;

impl Connection {
    pub(super) fn new(number: u32, process: ProcessId, client: UnixStream) -> Self {
        Self {
            number,
            process,
            client: Some(client),
            inbox: vec![],
            backend: None,
            batches: VecDeque::new(),
            is_asked: false,
            is_blocked: false,
            prepared: BTreeMap::new(),
            notifications: VecDeque::new(),
            is_listening: false,
        }
    }

    /// Nobody is there any more to be told anything.
    pub(super) fn cut(&mut self) {
        self.client = None;
        self.is_listening = false;
        self.notifications.clear();
    }

    pub(super) fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        let mut has_moved = false;
        while let Some(client) = &mut self.client {
            match client.read(&mut buffer) {
                Ok(length) if length > 0 => self.inbox.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // It has gone.
                Ok(_) | Err(_) => self.client = None,
            }
            has_moved = true;
        }
        has_moved
    }

    /// Takes from the inbox what the client waits for an answer to.
    pub(super) fn next_batch(&mut self) -> Option<(Vec<u8>, String)> {
        if self.backend.is_none() && self.batches.is_empty() {
            let length = u32::from_be_bytes(self.inbox.get(..4)?.try_into().ok()?) as usize;
            let startup: Vec<u8> = self.inbox.get(..length)?.to_owned();
            self.inbox.drain(..length);
            return Some((startup, "hello".to_owned()));
        }
        let (mut length, mut what) = (0, "ping".to_owned());
        while let Some((kind, whole)) = first_message(&self.inbox[length..]) {
            length += whole.len();
            match kind {
                b'P' => {
                    let mut parts = whole[5..].split(|byte| *byte == 0);
                    let (name, text) = (parts.next()?, parts.next()?);
                    let text = one_line(text);
                    what = format!("prepare {text}");
                    self.prepared.insert(name.to_owned(), text);
                }
                b'B' => {
                    let name = whole[5..].split(|byte| *byte == 0).nth(1)?;
                    what = self.prepared.get(name).cloned().unwrap_or_default();
                }
                b'Q' => what = one_line(&whole[5..whole.len() - 1]),
                _ => {}
            }
            match kind {
                b'X' => {
                    self.inbox.clear();
                    self.client = None;
                    return None;
                }
                b'S' | b'Q' => {
                    self.is_listening |= what.starts_with("LISTEN");
                    return Some((self.inbox.drain(..length).collect(), what));
                }
                _ => {}
            }
        }
        None
    }

    /// sqlx asks whether a session is there before and after each use; the server
    /// would say so, and nothing else.
    pub(super) fn answer_pings(&mut self) {
        while !self.is_asked
            && let Some(backend) = &self.backend
            && self.batches.pop_front_if(|batch| batch.what == "ping").is_some()
        {
            let status = if backend.is_in_transaction { b"T" } else { b"I" };
            self.say(&message(b'Z', status));
        }
    }

    /// The answer to the statement that the server has; none while it waits for
    /// a lock of somebody else.
    pub(super) fn answer(&mut self, admin: &mut Backend) -> Option<Answer> {
        let backend = self.backend.as_mut()?;
        let waits = format!("select cardinality(pg_blocking_pids({}))", backend.pid);
        if self.is_blocked && admin.number(&waits) > 0 {
            return None;
        }
        let mut answer = loop {
            if let Some(answer) = backend.poll() {
                break answer;
            }
            if admin.number(&waits) > 0 {
                self.is_blocked = true;
                return None;
            }
        };
        self.is_blocked = false;
        self.is_asked = false;
        self.notifications.extend(std::mem::take(&mut answer.notifications));
        let fate = self.batches.pop_front().map(|batch| batch.fate);
        if fate == Some(Fate::IsNotAnswered) {
            self.client = None;
            self.batches.clear();
        }
        self.say(&answer.bytes);
        Some(answer)
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        let Some(client) = &mut self.client else { return };
        if client.write_all(bytes).is_err() {
            self.client = None;
        }
    }
}

/// The beginning of a statement.
fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(STATEMENT_LENGTH)]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

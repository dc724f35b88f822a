//! A session of the metastore's server, spoken to in its own protocol
//! (PostgreSQL manual, chapter "Frontend/Backend Protocol").

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer is read at a time.
const READ_PATIENCE: Duration = Duration::from_millis(3);
/// Length of a message's type and its length.
const HEADER: usize = 5;

/// One message: its type, and all its bytes.
pub(crate) type Message<'a> = (u8, &'a [u8]);

/// The first whole message of some bytes.
pub(crate) fn first_message(bytes: &[u8]) -> Option<Message<'_>> {
    let length = u32::from_be_bytes(bytes.get(1..HEADER)?.try_into().ok()?) as usize;
    Some((bytes[0], bytes.get(..=length)?))
}

/// A message with this type and content.
pub(crate) fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 4).expect("a short message");
    [&[kind], length.to_be_bytes().as_slice(), content].concat()
}

/// What a server said until it was ready again.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// All of it but notifications.
    pub(crate) bytes: Vec<u8>,
    /// What it told about others meanwhile.
    pub(crate) notifications: Vec<Vec<u8>>,
    /// SQLSTATE and text of errors.
    pub(crate) errors: Vec<(String, String)>,
    rows: Vec<Vec<Option<String>>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Backend {
    stream: UnixStream,
    /// What the session was begun with.
    pub(crate) startup: Vec<u8>,
    /// What the server answered to that.
    pub(crate) greeting: Vec<u8>,
    /// The server's process.
    pub(crate) pid: u32,
    /// Whether a transaction is open.
    pub(crate) is_in_transaction: bool,
    /// Names of what the simulation itself has prepared.
    prepared: BTreeSet<&'static str>,
    unread: Vec<u8>,
    answer: Answer,
}

impl Backend {
    /// Begins a session with a client's startup message.
    pub(crate) fn begin(socket: &Path, startup: &[u8]) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(READ_PATIENCE)).expect("a timeout that is not zero");
        let mut new = Self {
            stream,
            startup: startup.to_owned(),
            greeting: vec![],
            pid: 0,
            is_in_transaction: false,
            prepared: BTreeSet::new(),
            unread: vec![],
            answer: Answer::default(),
        };
        new.send(startup);
        let answer = new.wait();
        assert!(answer.errors.is_empty(), "{:?}", answer.errors);
        let mut rest = answer.bytes.as_slice();
        while let Some((kind, whole)) = first_message(rest) {
            if kind == b'K' {
                new.pid = u32::from_be_bytes(whole[HEADER..HEADER + 4].try_into().expect("four bytes"));
            }
            rest = &rest[whole.len()..];
        }
        new.greeting = answer.bytes;
        new
    }

    /// A session of the simulation's own.
    pub(crate) fn of_superuser(socket: &Path, database: &str) -> Self {
        let parameters = format!("user\0postgres\0database\0{database}\0\0");
        let length = u32::try_from(parameters.len() + 8).expect("a short message");
        let startup = [&length.to_be_bytes(), &196_608_u32.to_be_bytes(), parameters.as_bytes()].concat();
        Self::begin(socket, &startup)
    }

    /// Sends whole messages.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The answer, if it comes within a moment.
    pub(crate) fn poll(&mut self) -> Option<Answer> {
        let mut buffer = [0; 16 << 10];
        loop {
            while let Some((kind, whole)) = first_message(&self.unread) {
                let whole = whole.to_owned();
                self.unread.drain(..whole.len());
                self.take(kind, &whole);
                if kind == b'Z' {
                    self.is_in_transaction = whole[HEADER] != b'I';
                    return Some(std::mem::take(&mut self.answer));
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the server ended a session: {:?}", self.answer.errors),
                Ok(length) => self.unread.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("reading from the server: {error}"),
            }
        }
    }

    /// The answer, however long it takes.
    pub(crate) fn wait(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.poll() {
                return answer;
            }
        }
    }

    fn take(&mut self, kind: u8, whole: &[u8]) {
        match kind {
            b'A' => return self.answer.notifications.push(whole.to_owned()),
            b'D' => self.answer.rows.push(columns(&whole[HEADER..])),
            b'E' => {
                let field = |name: u8| {
                    let fields = whole[HEADER..].split(|byte| *byte == 0);
                    let found = fields.into_iter().find(|field| field.first() == Some(&name));
                    found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
                };
                self.answer.errors.push((field(b'C'), field(b'M')));
            }
            _ => {}
        }
        self.answer.bytes.extend_from_slice(whole);
    }

    /// Carries out statements of the simulation's own; rows as text.
    pub(crate) fn query(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.send(&message(b'Q', &[sql.as_bytes(), &[0]].concat()));
        let answer = self.wait();
        assert!(answer.errors.is_empty(), "{sql}: {:?}", answer.errors);
        answer.rows
    }

    /// As [`Backend::query`], for what is asked so often that planning it counts; under a name.
    pub(crate) fn query_often(&mut self, name: &'static str, sql: &str) -> Vec<Vec<Option<String>>> {
        if self.prepared.insert(name) {
            self.query(&format!("prepare {name} as {sql}"));
        }
        self.query(&format!("execute {name}"))
    }

    /// As [`Backend::query`], for one number.
    pub(crate) fn number(&mut self, sql: &str) -> i64 {
        let rows = self.query(sql);
        rows[0][0].as_deref().and_then(|text| text.parse().ok()).expect("a number")
    }
}

fn columns(mut content: &[u8]) -> Vec<Option<String>> {
    let mut take = |length: usize| {
        let (taken, rest) = content.split_at(length);
        content = rest;
        taken
    };
    let count = u16::from_be_bytes(take(2).try_into().expect("two bytes"));
    let mut column = || {
        let length = i32::from_be_bytes(take(4).try_into().expect("four bytes"));
        let length = usize::try_from(length).ok()?;
        Some(String::from_utf8_lossy(take(length)).into_owned())
    };
    (0..count).map(|_| column()).collect()
}

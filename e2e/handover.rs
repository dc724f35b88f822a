//! One process takes the place of another, and clients notice nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use coppice_test_support::{Platform, Signal, psql, signal, wait_for};
use serde_json::json;

use crate::branches::{change, describe, path};
use crate::setup::platform;

const PATIENCE: Duration = Duration::from_secs(60);
/// Less than requests have to end.
const REQUESTS_MAX: Duration = Duration::from_secs(25);

/// A psql that stays connected; gone with the value.
struct Session {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Session {
    fn open(coppice: &Platform) -> Self {
        let mut child = Command::new("psql")
            .args([&coppice.connection_string("main"), "-XAtq"])
            .env("PGAPPNAME", "shop")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql runs");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        let mut session = Self { child, answers };
        assert_eq!(session.ask("SELECT 1"), "1");
        session
    }

    fn tell(&mut self, sql: &str) {
        writeln!(self.child.stdin.as_mut().expect("its input"), "{sql};").expect("it listens");
    }

    fn ask(&mut self, sql: &str) -> String {
        self.tell(sql);
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that asks for more than its connection holds, and takes none of it. It is nobody's.
fn ask_and_read_nothing(coppice: &Platform) -> TcpStream {
    let address = coppice.api().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("GET /openapi.json HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.repeat(50).as_bytes()).expect("it listens");
    let mut first = [0; 1];
    stream.peek(&mut first).expect("it is answered");
    stream
}

#[test]
fn an_upgrade_refuses_no_connection_and_cuts_none() {
    let mut coppice = platform();
    let url = coppice.connection_string("main");
    let mut session = Session::open(&coppice);
    assert_eq!(session.ask("CREATE TEMP TABLE kept AS SELECT 7 AS i; SELECT i FROM kept"), "7");
    let (is_over, asked) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let said = psql(&url, "SELECT 1");
                    assert_eq!(said.out, "1", "{}", said.err);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..2 {
            let _unread = ask_and_read_nothing(&coppice);
            let (before, begun) = (asked.load(Ordering::Relaxed), Instant::now());
            coppice.take_over();
            assert!(begun.elapsed() < REQUESTS_MAX, "nobody waits for who reads nothing");
            wait_for("clients are served", PATIENCE, || {
                (asked.load(Ordering::Relaxed) > before + 6).then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(session.ask("SELECT i FROM kept"), "7", "its session went on");
    // The second process had no session that is still open.
    assert_eq!(coppice.wait_for_earlier(), Some(0));

    // A cancel request comes to the new process; the session is with the first.
    session.tell("SELECT pg_sleep(600)");
    wait_for("it sleeps", PATIENCE, || {
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        (coppice.sql("main", asleep) == "1").then_some(())
    });
    signal(session.child.id(), Signal::INT).expect("a signal");
    // A psql without a terminal ends with a cancelled statement.
    let mut said = String::new();
    session.child.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    assert!(said.contains("canceling statement due to user request"), "{said}");
    drop(session);
    assert_eq!(coppice.wait_for_earlier(), Some(0), "it ends with its last session");
}

#[test]
fn sessions_of_an_earlier_process_keep_a_branch_awake() {
    let mut coppice = platform();
    let main = path(&coppice, "main");
    let sleepy = json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 1 } });
    change(&coppice, &main, &sleepy);
    let session = Session::open(&coppice);
    coppice.take_over();
    let message = |coppice: &Platform| {
        describe(coppice, &main)["status"]["message"].as_str().expect("a message").to_owned()
    };
    let said = message(&coppice);
    assert!(said.contains("kept awake by 1 session: shop (app from 127.0.0.1, since "), "{said}");
    drop(session);
    assert_eq!(coppice.wait_for_earlier(), Some(0));
    let said = message(&coppice);
    assert!(said.contains("sleeps at "), "{said}");
}

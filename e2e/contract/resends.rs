//! Invitations that are sent again by several at once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use coppice_test_support::wait_for;
use serde_json::json;

use super::shared;
use crate::http::{Http, text_of};
use crate::people::in_metastore;

/// A session on the metastore, which keeps what it locks until it commits or
/// goes.
struct Session {
    psql: Child,
    said: BufReader<ChildStdout>,
}

impl Session {
    fn start(http: &Http) -> Self {
        let mut psql = Command::new("psql")
            .args([&http.platform.metastore_url(), "-XAtq"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql runs");
        let said = BufReader::new(psql.stdout.take().expect("a pipe"));
        Self { psql, said }
    }

    /// Runs statements that answer with one line.
    fn ask(&mut self, sql: &str) -> String {
        writeln!(self.psql.stdin.as_mut().expect("a pipe"), "{sql};").expect("it listens");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

#[test]
fn resends_that_meet_all_succeed_and_the_later_expiry_wins() {
    let http = shared();
    let organization = http.new_organization("sent twice");
    let path = format!("/organizations/{organization}/invitations");
    let made = http.post(&path, &json!({ "email": "ada@example.com" })).expect(201);
    let id = text_of(&made["id"]);
    let resend = format!("{path}/{id}/resend");
    let began = Utc::now();
    for answer in http.send_together((0..6).map(|_| http.request("POST", &resend)).collect()) {
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
    let renewed = http.get(&format!("{path}/{id}")).expect(200);
    let expires_at: DateTime<Utc> = text_of(&renewed["expires_at"]).parse().expect("a time");
    // It is told to the millisecond.
    assert!(expires_at >= began + TimeDelta::days(7) - TimeDelta::milliseconds(1), "{renewed}");
    assert_ne!(renewed["invite_link"], made["invite_link"]);

    // One that came first and has to wait for one that came later.
    std::thread::scope(|scope| {
        let mut later = Session::start(&http);
        let held = format!("select 'held' from organizations where id = '{organization}' for no key update");
        assert_eq!(later.ask(&format!("begin; {held}")), "held");
        let waiting = scope.spawn(|| http.send(http.request("POST", &resend)));
        let pid = later.ask("select pg_backend_pid()");
        let waiters =
            format!("select count(*) from pg_stat_activity where {pid} = any(pg_blocking_pids(pid))");
        wait_for("it waits", Duration::from_secs(60), || {
            (in_metastore(&http, &waiters) == "1").then_some(())
        });
        let renewed = later.ask(&format!(
            "update invitations set expires_at = clock_timestamp() + interval '7 days' where id = '{id}'
             returning expires_at; commit"
        ));
        assert_eq!(waiting.join().expect("an answer").status, 204);
        let kept = format!("select expires_at >= '{renewed}' from invitations where id = '{id}'");
        assert_eq!(in_metastore(&http, &kept), "t", "it took nothing back");
    });
}

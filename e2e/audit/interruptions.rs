//! Interruptions: what the log says of a change that did not end as it should.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::{Value, json};

use super::{lines, shared};
use crate::http::Http;
use crate::setup::{arm, platform};

/// So many changes are made by clients that go away.
const CHANGES: usize = 5;

#[test]
fn a_crash_leaves_a_line_whose_result_nobody_knows() {
    let mut http = Http::new(platform());
    for (step, is_made) in [("audit.begun", false), ("audit.ending", true)] {
        let organization = http.new_organization(step);
        http.platform.kill();
        arm(&mut http.platform, step);
        http.platform.spawn();
        http.platform.wait_ready();
        let projects = format!("/organizations/{organization}/projects");
        let cut = http.platform.client().call("POST", &projects, Some(&json!({ "name": "p" })));
        assert!(cut.is_err(), "{step}: the process died: {cut:?}");
        http.platform.wait_end();
        arm(&mut http.platform, "");
        http.platform.spawn();
        http.platform.wait_ready();
        let made = http.get(&projects).expect(200)["projects"].as_array().map(Vec::len);
        assert_eq!(made, Some(usize::from(is_made)), "{step}");
        let line = &lines(&http, &organization, "?action=createProject")[0];
        let told = json!([line["result"], line["status"], line["ended_at"], line["created_id"]]);
        assert_eq!(told, json!(["unknown", null, null, null]), "{step}");
    }
}

#[test]
fn a_client_that_goes_away_does_not_leave_its_change_half_told() {
    let http = shared();
    let organization = http.new_organization("gone");
    let projects =
        || http.get(&format!("/organizations/{organization}/projects")).expect(200)["projects"].take();
    let count = || projects().as_array().expect("a list").len();
    // A client may be gone before its request is looked at, and then nothing is begun.
    for round in (0..200).take_while(|_| count() < CHANGES) {
        let body = json!({ "name": format!("p{round}") }).to_string();
        let host = http.platform.api().trim_start_matches("http://").to_owned();
        let mut stream = std::net::TcpStream::connect(&host).expect("connects");
        let request = format!(
            "POST /organizations/{organization}/projects HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
             content-length: {}\r\n\r\n{body}",
            http.admin(),
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(round % 5));
        drop(stream);
    }
    let values = |list: &Value, field: &str| -> BTreeSet<String> {
        list.as_array().expect("a list").iter().map(|item| item[field].to_string()).collect()
    };
    wait_for("every project has a line with its end", Duration::from_secs(60), || {
        let made = projects();
        let told = json!(lines(&http, &organization, "?action=createProject"));
        let is_done = values(&told, "result") == BTreeSet::from([json!("succeeded").to_string()]);
        let created = values(&told, "created_id");
        (is_done && created.len() >= CHANGES && created == values(&made, "id")).then_some(())
    });
}

//! What happens, told to those who ask and to those who are sent it. Receivers
//! here are real ones on this machine; what they got is verified by published
//! libraries.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::{Map, Value, json};

use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, arm, options};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a receiver does with its nth request: answers with this, or never.
type Answers = Arc<dyn Fn(usize) -> Option<String> + Send + Sync>;

/// A receiver of webhooks.
struct Receiver {
    url: String,
    /// What came: headers and body.
    got: Arc<Mutex<Vec<(Value, String)>>>,
}

fn status(line: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"))
}

impl Receiver {
    fn start(answers: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> Self {
        let answers: Answers = Arc::new(answers);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let got = Arc::<Mutex<Vec<_>>>::default();
        let shared = got.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (got, answers) = (shared.clone(), answers.clone());
                std::thread::spawn(move || receive(stream, &got, &answers));
            }
        });
        Self { url, got }
    }

    fn got(&self) -> Vec<(Value, String)> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests about events of a type.
    fn about(&self, kind: &str) -> Vec<(Value, String)> {
        let mut got = self.got();
        got.retain(|(_, body)| body.contains(&format!(r#""type":"{kind}""#)));
        got
    }

    /// Waits for the first request about an event of a type.
    fn wait(&self, kind: &str) -> (Value, String) {
        wait_for(&format!("{kind} is sent"), PATIENCE, || self.about(kind).into_iter().next())
    }
}

/// Reads one request, notes it, and answers.
fn receive(stream: TcpStream, got: &Mutex<Vec<(Value, String)>>, answers: &Answers) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut headers, mut length) = (Map::new(), 0);
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some((name, value)) = line.split_once(": ") {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
            headers.insert(name.to_lowercase(), json!(value.trim()));
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let nth = {
        let mut got = got.lock().unwrap_or_else(PoisonError::into_inner);
        got.push((Value::Object(headers), String::from_utf8(body).ok()?));
        got.len()
    };
    match answers(nth) {
        Some(answer) => (&stream).write_all(answer.as_bytes()).ok(),
        // Until the other side has had enough.
        None => reader.read(&mut [0]).ok().map(drop),
    }
}

/// Has published libraries verify deliveries: headers, body, and the secrets.
fn verify(deliveries: &[(Value, String, Vec<&str>)]) {
    let list: Vec<_> = deliveries
        .iter()
        .map(|(headers, body, secrets)| json!({ "headers": headers, "body": body, "secrets": secrets }))
        .collect();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = repository.join("target/python/bin/python").display().to_string();
    for (program, script) in [("node", "verify.mjs"), (&python, "verify.py")] {
        let mut child = Command::new(program)
            .arg(script)
            .current_dir(repository.join("e2e/webhooks"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs: `make setup` installs it");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(json!(list).to_string().as_bytes()).expect("it reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = format!("{} deliveries are genuine", list.len());
        assert!(output.status.success() && said.contains(&expected), "{script}: {said}");
    }
}

fn create(platform: &Platform, receiver: &Receiver, more: &[&str]) -> (String, String) {
    let made = platform.cli(&[&["webhook", "create", &receiver.url], more].concat());
    (text_of(&made["id"]), text_of(&made["secret"]))
}

fn new_key(platform: &Platform, name: &str) -> Value {
    let (status, made) =
        platform.call("POST", "/organizations/{org}/api-keys", Some(&json!({ "name": name })));
    assert_eq!(status, 201, "{made}");
    made["key"].clone()
}

/// The first delivery to a webhook, once it is in this state and got this answer.
fn first_delivery(platform: &Platform, webhook: &str, state: &str, status: u16) -> Value {
    wait_for(&format!("the delivery to {webhook} is {state}"), PATIENCE, || {
        let listed = platform.cli(&["webhook", "deliveries", webhook]);
        let first = listed["deliveries"][0].clone();
        (first["state"] == state && first["status"] == status).then_some(first)
    })
}

#[test]
fn what_happens_is_told_in_order_and_sent_to_webhooks_at_least_once() {
    let flags = ["--webhook-ranges", "127.0.0.0/8"].map(str::to_owned).to_vec();
    let mut platform = Platform::start(PROGRAM, Options { flags, ..options() });
    let good = Receiver::start(|_| status("204 No Content"));
    let flaky = Receiver::start(|nth| status(if nth == 1 { "500 Oh" } else { "200 OK" }));
    let gone = Receiver::start(|_| status("410 Gone"));
    let hanging = Receiver::start(|_| None);
    let inner = Receiver::start(|_| status("200 OK"));
    let location = inner.url.clone();
    let leading = Receiver::start(move |_| status(&format!("302 Found\r\nlocation: {location}")));
    let (id, secret) = create(&platform, &good, &[]);
    let only = ["--type", "key.created"];
    let (flaky_id, flaky_secret) = create(&platform, &flaky, &only);
    let (gone_id, _) = create(&platform, &gone, &only);
    let (hanging_id, _) = create(&platform, &hanging, &only);
    let (leading_id, _) = create(&platform, &leading, &only);
    let refused = platform.run(&["webhook", "create", "http://10.0.0.1/", "--json"]);
    assert!(!refused.status.success(), "no range of the operator's");

    // What happens to a branch, and to its password.
    let password = text_of(&platform.cli(&["credentials", "show", "main"])["password"]);
    let rotated = platform.cli(&["credentials", "rotate", "main", "--yes"]);
    let next_password = text_of(&rotated["password"]);
    platform.cli(&["branch", "hibernate", "main", "--yes"]);
    good.wait("branch.hibernated");
    platform.cli(&["branch", "wake", "main"]);
    let (_, woken) = good.wait("branch.woken");
    assert_eq!(serde_json::from_str::<Value>(&woken).expect("JSON")["data"]["name"], "main");
    platform.cli(&["branch", "create", "short", "--parent", "main", "--expires", "2h"]);
    good.wait("branch.expiring");
    good.wait("branch.ready");
    platform.cli(&["branch", "delete", "short", "--yes"]);
    good.wait("branch.deleted");

    // Receivers that fail in each way keep nobody waiting.
    let key = new_key(&platform, "planted");
    good.wait("key.created");
    wait_for("the flaky one took it the second time", PATIENCE, || (flaky.got().len() == 2).then_some(()));
    let twice = flaky.got();
    assert_eq!(twice[0].0["webhook-id"], twice[1].0["webhook-id"]);
    let delivery = first_delivery(&platform, &flaky_id, "delivered", 200);
    assert_eq!(delivery["attempts"], 2);
    first_delivery(&platform, &gone_id, "failed", 410);
    let shown = platform.cli(&["webhook", "get", &gone_id]);
    assert_eq!((&shown["enabled"], &shown["gone"]), (&json!(false), &json!(true)));
    assert!(!hanging.got().is_empty());
    first_delivery(&platform, &leading_id, "pending", 302);
    assert_eq!(inner.got(), [], "nobody followed");

    // A replaced secret signs beside the new one.
    let next_secret = text_of(&platform.cli(&["webhook", "rotate", &id])["secret"]);
    let last = new_key(&platform, "planted again");
    let last_id = text_of(&last["id"]);
    let both = wait_for("the second key is told", PATIENCE, || {
        good.about("key.created").into_iter().find(|(_, body)| body.contains(&last_id))
    });

    for id in [&hanging_id, &leading_id] {
        platform.cli(&["webhook", "update", id, "--enabled", "off"]);
    }
    is_sent_although_the_platform_is_killed(&mut platform, &good, &key["id"]);

    // The same events, in their order, are there for whoever asks.
    let listed = platform.cli(&["event", "list", "-n", "200"])["events"].clone();
    let listed = listed.as_array().expect("events");
    for (headers, body) in good.got() {
        let event = listed.iter().find(|event| event["id"] == headers["webhook-id"]).expect("it is listed");
        let sent: Value = serde_json::from_str(&body).expect("JSON");
        let shown = json!({ "type": event["type"], "timestamp": event["timestamp"], "data": event["data"] });
        assert_eq!(sent, shown);
    }
    platform.cli(&["webhook", "resend", &flaky_id, &text_of(&delivery["id"])]);
    let again = wait_for("it is sent again", PATIENCE, || {
        flaky.got().into_iter().filter(|(headers, _)| headers["webhook-id"] == delivery["event_id"]).nth(2)
    });

    // Everything is genuine, and no secret is in any of it.
    let mut deliveries: Vec<_> = good
        .about("branch.woken")
        .into_iter()
        .map(|(headers, body)| (headers, body, vec![&*secret]))
        .collect();
    deliveries.push((both.0, both.1, vec![&next_secret, &secret]));
    deliveries.push((again.0, again.1, vec![&flaky_secret]));
    verify(&deliveries);
    let token = text_of(&key["token"]);
    let planted = [&password, &next_password, &secret, &next_secret, &flaky_secret, &token];
    let sent: String = [&good, &flaky, &gone, &hanging, &leading]
        .iter()
        .flat_map(|receiver| receiver.got())
        .map(|(headers, body)| headers.to_string() + &body)
        .collect();
    for secret in planted {
        assert!(!sent.contains(secret) && !platform.log().contains(secret), "a secret is told");
    }
    sees_what_is_about_its_branch(platform);
}

/// What was written down is sent by the next process, where one ends before it sends it and one before it notes that.
fn is_sent_although_the_platform_is_killed(platform: &mut Platform, good: &Receiver, key: &Value) {
    // Nobody else gets it meanwhile, for all that is known.
    let is_due = |platform: &Platform| {
        let sql = "update webhook_deliveries set due_at = now() where due_at is not null";
        assert!(psql(&platform.metastore_url(), sql).is_ok);
    };
    arm(platform, "webhook.claimed");
    platform.restart();
    let (status, _) =
        platform.call("DELETE", "/organizations/{org}/api-keys", Some(&json!({ "ids": [key] })));
    assert_eq!(status, 204);
    platform.wait_end();
    assert_eq!(good.about("key.deleted").len(), 0);
    is_due(platform);
    arm(platform, "webhook.tried");
    platform.spawn();
    platform.wait_end();
    is_due(platform);
    arm(platform, "");
    platform.restart();
    let twice = wait_for("it is sent again", PATIENCE, || {
        Some(good.about("key.deleted")).filter(|sent| sent.len() == 2)
    });
    assert_eq!(twice[0].0["webhook-id"], twice[1].0["webhook-id"]);
}

/// A key for one branch.
fn sees_what_is_about_its_branch(platform: Platform) {
    let http = Http::new(platform);
    let id = http.platform.branch_id("main");
    let key = http.new_token("/api-keys", json!({ "branches": [id] }));
    let seen = http.as_key(&key, "GET", "/organizations/{org}/events?limit=200", None).expect(200);
    let seen = seen["events"].as_array().expect("events").clone();
    assert!(seen.len() > 3 && seen.iter().all(|event| event["data"]["branch_id"] == id), "{seen:?}");
}

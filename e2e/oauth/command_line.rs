//! What the command line makes of a server that is up to no good.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::setup::PROGRAM;

/// A server that says that it is `issuer`, and answers a sign-in with this
/// address and this code; where it is, which `{url}` stands for. It lasts as
/// long as the tests.
fn impostor(issuer: &str, address: &str, code: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let description = json!({
        "issuer": issuer.replace("{url}", &url),
        "device_authorization_endpoint": format!("{url}/device"),
        "token_endpoint": format!("{url}/token"),
        "revocation_endpoint": format!("{url}/revoke"),
    });
    let answer = json!({
        "device_code": "d", "user_code": code, "expires_in": 600, "interval": 1,
        "verification_uri_complete": address.replace("{url}", &url),
    });
    std::thread::spawn(move || {
        for client in listener.incoming() {
            serve(&client.expect("a client"), &description, &answer);
        }
    });
    url
}

fn serve(client: &TcpStream, description: &Value, answer: &Value) {
    let mut reader = BufReader::new(client);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 || line == "\r\n" {
            break;
        }
        lines.push(line.to_ascii_lowercase());
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or_default();
    let _ = reader.take(length).read_to_end(&mut Vec::new());
    let is_first = lines.first().is_some_and(|line| line.starts_with("get "));
    let body = if is_first { description } else { answer }.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    // The client may have gone.
    let _ = write!({ client }, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
}

#[test]
fn nothing_is_shown_or_opened_that_a_server_made_up() {
    for (issuer, address, code, why) in [
        (
            "{url}",
            "https://elsewhere.example.com/oauth/device",
            "BCDF-GHJK",
            "it is at https://elsewhere.example.com",
        ),
        ("{url}", "file:///etc/passwd", "BCDF-GHJK", "is no page of the web"),
        ("{url}", "http://127.0.0.1:1/\u{1b}]0;owned\u{7}", "BCDF-GHJK", "it has control characters"),
        ("{url}", "{url}/oauth/device", "\u{1b}[2Jowned", "a code that can't be shown"),
        // What a person allows there would be this server's.
        (
            "https://db.example.com",
            "https://db.example.com/oauth/device",
            "BCDF-GHJK",
            "login https://db.example.com`",
        ),
    ] {
        let url = impostor(issuer, address, code);
        let output = Command::new(PROGRAM)
            .args(["login", &url, "--no-browser"])
            .stdin(Stdio::null())
            .output()
            .expect("the executable runs");
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success(), "{said}");
        assert!(told.contains(why), "{told}");
        assert!(!format!("{said}{told}").contains(['\u{1b}', '\u{7}']), "{said}{told}");
    }
}

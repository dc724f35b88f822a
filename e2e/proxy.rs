//! Clients that come through a proxy: to PostgreSQL with a PROXY header, to
//! the API with `X-Forwarded-For`.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use coppice_test_support::{Options, Platform, psql};
use serde_json::json;

use crate::http::Http;
use crate::setup::{PROGRAM, options};

/// Starts a proxy on this machine that names `client`; returns where it is. It
/// lasts as long as the tests.
fn proxy(gateway: (&str, u16), client: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let header = format!("PROXY TCP4 {client} 127.0.0.1 50000 {}\r\n", gateway.1);
    let gateway = (gateway.0.to_owned(), gateway.1);
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let from = from.expect("a client");
            let mut to = TcpStream::connect(&gateway).expect("the gateway");
            to.write_all(header.as_bytes()).expect("the gateway listens");
            for (mut from, mut to) in [(clone(&from), clone(&to)), (to, from)] {
                std::thread::spawn(move || {
                    // Either side may leave as it likes.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a second descriptor")
}

fn trusting_this_machine() -> Platform {
    let flags = vec!["--trusted-proxies".to_owned(), "192.0.2.0/24,127.0.0.1".to_owned()];
    Platform::start(PROGRAM, Options { flags, ..options() })
}

#[test]
fn a_filter_admits_who_the_proxy_says_is_behind_it() {
    let coppice = trusting_this_machine();
    let branch = coppice.branch_id("main");
    let projects = coppice.cli(&["project", "list"]);
    let project = projects["projects"][0]["id"].as_str().expect("an id");
    let project = format!("/organizations/{{org}}/projects/{project}");
    let branch = format!("{project}/branches/{branch}");
    let change = |path: &str, body: serde_json::Value| {
        let (status, answer) = coppice.call("PATCH", path, Some(&body));
        assert_eq!(status, 200, "{answer}");
    };
    let url = coppice.connection_string("main");
    let (host, port) = coppice.gateway();
    let through = |proxy: SocketAddr| {
        let moved = url.replace(&format!("{host}:{port}"), &proxy.to_string());
        assert_ne!(moved, url);
        psql(&moved, "SELECT 1")
    };
    let (friend, stranger) = (proxy((host, port), "203.0.113.7"), proxy((host, port), "203.0.113.8"));

    let only = json!({ "enabled": true, "cidr": [{ "cidr": "203.0.113.7/32" }] });
    change(&project, json!({ "configuration": { "ipFiltering": only } }));
    let said = through(friend);
    assert_eq!(said.out, "1", "{}", said.err);
    let said = through(stranger);
    assert!(said.err.contains("connections from 203.0.113.8 are not allowed"), "{}", said.err);
    let said = psql(&url, "SELECT 1");
    assert!(said.err.contains("connections from 127.0.0.1 are not allowed"), "{}", said.err);

    change(&branch, json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 60 } }));
    coppice.cli(&["branch", "hibernate", "main", "--yes"]);
    assert!(through(stranger).err.contains("are not allowed"));
    assert_eq!(through(friend).out, "1");
    let (_, details) = coppice.call("GET", &branch, None);
    let woken_by = details["status"]["message"].as_str().expect("a message");
    assert!(woken_by.contains("a connection of app from 203.0.113.7"), "{woken_by}");
}

#[test]
fn the_rate_of_strangers_is_that_of_who_is_behind_the_proxy() {
    let http = Http::new(trusting_this_machine());
    let as_client = |client: &str| http.anonymous("GET", "/user").header("X-Forwarded-For", client);
    let status_of = |client: &str| http.send(as_client(client)).status;
    let all = (0..300).map(|_| as_client("203.0.113.99, 203.0.113.7")).collect();
    let answers = http.send_together(all);
    assert!(answers.iter().any(|answer| answer.status == 429), "many at once are too many");
    assert_eq!(status_of("203.0.113.8"), 401, "another client is not affected");
    assert_eq!(status_of("203.0.113.99"), 401, "nor one that was only claimed");
    assert_eq!(http.send(http.anonymous("GET", "/user")).status, 401, "nor the proxy itself");
}

#[test]
fn a_network_of_ipv6_has_one_rate() {
    let http = Http::new(trusting_this_machine());
    let from = |client: &str| http.anonymous("GET", "/user").header("X-Forwarded-For", client);
    let all = (0..300).map(|host| from(&format!("2001:db8:1:2::{host:x}"))).collect();
    let answers = http.send_together(all);
    assert!(answers.iter().any(|answer| answer.status == 429), "many at once are too many");
    assert_eq!(http.send(from("2001:db8:1:3::1")).status, 401, "another network is not affected");
}

#[test]
fn devices_of_one_network_ask_only_so_often() {
    let mut platform = trusting_this_machine();
    platform.add_flags(&["--address-requests-per-second", "1000"]);
    platform.restart();
    let http = Http::new(platform);
    let ask = |client: &str| {
        let request = http.anonymous("POST", "/oauth/device_authorization");
        let request = request.header("X-Forwarded-For", client);
        http.send(request.form(&[("client_id", "coppice-cli")]))
    };
    for host in 1..=100 {
        assert_eq!(ask(&format!("2001:db8:1:2::{host:x}")).status, 200, "{host}");
    }
    let refused = ask("2001:db8:1:2:1::");
    assert_eq!((refused.status, &refused.json()["error"]), (429, &json!("temporarily_unavailable")));
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(ask("2001:db8:1:3::1").status, 200, "another network is not affected");
}

#[test]
fn who_is_no_address_is_no_proxy() {
    let output = std::process::Command::new(PROGRAM)
        .args([
            "serve",
            "--trusted-proxies",
            "10.0.0.0/8,proxy.example",
            "--data-dir",
            "/nonexistent/coppice",
        ])
        .output()
        .expect("the executable runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("`proxy.example` among the trusted proxies is neither an address nor"), "{said}");
}

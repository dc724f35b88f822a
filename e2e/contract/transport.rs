//! What holds for every request, whatever it asks for.

use std::io::{Read, Write};
use std::net::TcpStream;

use coppice_test_support::{Options, Platform, wait_for};
use serde_json::{Value, json};

use super::shared;
use crate::http::Http;
use crate::setup::{PROGRAM, options};

#[test]
fn a_request_id_is_kept_when_it_is_usable_and_made_otherwise() {
    let http = shared();
    let id_for = |sent: Option<&str>| {
        let mut request = http.anonymous("GET", "/healthz");
        if let Some(sent) = sent {
            request = request.header("x-request-id", sent);
        }
        http.send(request).header("x-request-id").to_owned()
    };
    let longest = "x".repeat(100);
    for kept in ["a", "with blanks inside", "~!@#", &longest] {
        assert_eq!(id_for(Some(kept)), kept);
    }
    let too_long = "x".repeat(101);
    for replaced in [None, Some(too_long.as_str()), Some("é"), Some("")] {
        assert!(id_for(replaced).starts_with("req_"), "{replaced:?}");
    }
    for path in ["/nowhere", "/organizations", "/openapi.yaml"] {
        assert!(http.send(http.anonymous("GET", path)).header("x-request-id").starts_with("req_"), "{path}");
    }
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let http = shared();
    for (method, path, allowed) in [
        ("PATCH", "/organizations", &["GET", "HEAD", "POST"][..]),
        ("POST", "/user", &["GET", "HEAD", "PATCH"]),
        ("PUT", "/organizations/{org}/projects/x/branches/y", &["GET", "HEAD", "PATCH", "DELETE"]),
        ("DELETE", "/healthz", &["GET", "HEAD"]),
        ("POST", "/openapi.json", &["GET", "HEAD"]),
    ] {
        let answer = http.send(http.anonymous(method, path));
        answer.expect_error(405, "method_not_allowed");
        let mut told: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
        let mut allowed = allowed.to_vec();
        told.sort_unstable();
        allowed.sort_unstable();
        assert_eq!(told, allowed, "{method} {path}");
    }
    http.get("/nowhere").expect_error(404, "route_not_found");
}

#[test]
fn head_is_get_without_a_body() {
    let http = shared();
    for (path, status) in
        [("/organizations", 200), ("/organizations/org_nowhere", 403), ("/nowhere", 404), ("/healthz", 200)]
    {
        let answer = http.send(http.request("HEAD", path));
        assert_eq!((answer.status, answer.bytes.len()), (status, 0), "{path}");
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
    }
}

#[test]
fn browsers_may_call_from_anywhere() {
    let http = shared();
    for path in ["/organizations", "/organizations/{org}/projects/x", "/nowhere"] {
        let request = http
            .anonymous("OPTIONS", path)
            .header("origin", "https://example.com")
            .header("access-control-request-method", "DELETE")
            .header("access-control-request-headers", "authorization, x-vendor");
        let answer = http.send(request);
        assert_eq!((answer.status, answer.bytes.len()), (204, 0), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-allow-headers"), "authorization, x-vendor");
        assert_eq!(answer.header("access-control-max-age"), "7200");
        assert_eq!(answer.header("content-type"), "");
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            assert!(answer.header("access-control-allow-methods").contains(method), "{method}");
        }
    }
    let plain = http.send(http.anonymous("OPTIONS", "/organizations"));
    assert_eq!((plain.status, plain.bytes.len(), plain.header("content-type")), (204, 0, ""));
    let answer = http.send(http.anonymous("GET", "/organizations").header("origin", "https://example.com"));
    answer.expect_error(401, "missing_token");
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    for exposed in ["x-request-id", "retry-after", "ratelimit-remaining", "deprecation", "sunset"] {
        assert!(answer.header("access-control-expose-headers").contains(exposed), "{exposed}");
    }
}

#[test]
fn answers_are_compressed_when_asked_for() {
    let http = shared();
    let answer = http.send(http.anonymous("GET", "/openapi.json").header("accept-encoding", "gzip"));
    assert_eq!(answer.header("content-encoding"), "gzip");
    assert_eq!(answer.bytes[..2], [0x1f, 0x8b]);
    let plain = http.send(http.anonymous("GET", "/openapi.json"));
    assert_eq!(plain.header("content-encoding"), "");
    assert!(plain.bytes.len() > answer.bytes.len());
}

#[test]
fn bodies_are_json_of_a_bounded_size() {
    let http = shared();
    let path = "/organizations/{org}/projects";
    let send = |content_type: Option<&str>, encoding: Option<&str>, body: String| {
        let mut request = http.request("POST", path).body(body);
        if let Some(name) = content_type {
            request = request.header("content-type", name);
        }
        if let Some(name) = encoding {
            request = request.header("content-encoding", name);
        }
        http.send(request)
    };
    let body = || json!({ "name": "typed" }).to_string();
    send(None, None, body()).expect(201);
    send(Some("application/json; charset=utf-8"), None, body()).expect(201);
    send(Some("APPLICATION/JSON"), Some("identity"), body()).expect(201);
    for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        send(Some(other), None, body()).expect_error(415, "unsupported_media_type");
    }
    for encoding in ["gzip", "br"] {
        send(None, Some(encoding), body()).expect_error(415, "unsupported_media_type");
    }
    let padded = |size: usize| {
        let body = json!({ "name": "padded", "padding": "" }).to_string();
        body.replace("\"\"", &format!("\"{}\"", "x".repeat(size - body.len())))
    };
    send(None, None, padded(1 << 20)).expect(201);
    let message = send(None, None, padded((1 << 20) + 1)).expect_error(413, "body_too_large");
    assert_eq!(message, "request body is larger than 1048576 bytes");
    // Who calls comes first.
    http.send(http.anonymous("POST", path).body(padded(2 << 20))).expect_error(401, "missing_token");
    // A type without a body is fine, also where no body belongs.
    let typed = http.request("GET", path).header("content-type", "application/json");
    http.send(typed).expect(200);
}

#[test]
fn a_refused_body_does_not_cost_the_connection() {
    let http = shared();
    let address = http.platform.api().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).expect("a connection");
    let size = 8 << 20;
    let head = format!("POST /organizations HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("a head sent");
    stream.write_all(&vec![b' '; size]).expect("a body sent");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("a request sent");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("both answers");
    assert!(answers.starts_with("HTTP/1.1 401 "), "{answers}");
    assert!(answers.contains("HTTP/1.1 200 OK"), "{answers}");
}

#[test]
fn what_is_no_request_is_refused_with_an_id() {
    let http = shared();
    let address = http.platform.api().trim_start_matches("http://").to_owned();
    let answer_to = |request: String| {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert_eq!(
            answer.matches("x-request-id: req_").count(),
            answer.matches("HTTP/1.1 ").count(),
            "{answer}"
        );
        answer
    };
    let asked = "GET /healthz HTTP/1.1\r\nHost: x\r\n";
    let padded = |padding| format!("{asked}Connection: close\r\nX-Padding: {}\r\n\r\n", "x".repeat(padding));
    let answer = answer_to(padded(31 << 10));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = answer_to(padded(33 << 10));
    assert!(answer.starts_with("HTTP/1.1 431") && answer.contains("connection: close"), "{answer}");
    let answer = answer_to("nonsense\r\n\r\n".to_owned());
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let answer = answer_to(format!("{asked}\r\n{asked}no header\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("HTTP/1.1 400"), "{answer}");
}

#[test]
fn one_trailing_slash_is_ignored() {
    let http = shared();
    http.get("/organizations/").expect(200);
    http.get("/organizations/{org}/").expect(200);
    http.get("/organizations/{org}/projects/?x=1").expect(200);
    for path in ["/Organizations", "/organizations//", "//organizations", "/organizations//{org}"] {
        http.get(path).expect_error(404, "route_not_found");
    }
}

#[test]
fn health_is_told_to_everybody() {
    let http = shared();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http.send(http.anonymous("GET", path)).expect(200), json!({ "status": "ok" }));
    }
    let yaml = http.send(http.anonymous("GET", "/openapi.yaml"));
    assert!(yaml.text().starts_with("openapi: 3.1"), "{}", yaml.text());
}

/// Texts that programs stumble over.
const HOSTILE: [&str; 9] = [
    r#""\u0000""#,
    r#""a\u0000b""#,
    r#""\ud800""#,
    r#""\udc00\ud800""#,
    r#""\uffff""#,
    r#""\u202e""#,
    r#""'; drop table branches; --""#,
    "1e999",
    "18446744073709551616",
];

fn hostile_bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = ["", "{", "[]", "null", "\"x\"", "{\"name\":}", "\u{feff}{}"]
        .map(|text| text.as_bytes().to_vec())
        .into();
    bodies.push(vec![b'{', b'"', 0xff, b'"', b':', b'1', b'}']);
    bodies.push("[".repeat(100_000).into_bytes());
    for text in HOSTILE {
        for body in [
            r#"{"name": T}"#,
            r#"{"name": "x", "description": T}"#,
            r#"{"name": "x", "mode": T}"#,
            r#"{"name": "x", "mode": "inherit", "parentID": T}"#,
            r#"{"name": "x", "mode": "custom", "configuration": {"region": T, "instanceType": T, "image": T}}"#,
            r#"{"name": "x", "mode": "custom", "configuration": {"region": "local", "instanceType": T, "image": T}}"#,
            r#"{"name": "x", "mode": "custom", "configuration": {"region": "local", "instanceType": "micro", "image": T}}"#,
            r#"{"name": "x", "mode": "custom", "configuration": {"region": "local", "instanceType": "micro", "image": "postgres:17", "postgresConfigurationParameters": {"work_mem": T}}}"#,
            r#"{"name": "x", "mode": "custom", "configuration": {"region": "local", "instanceType": "micro", "image": "postgres:17", "preloadLibraries": [T]}}"#,
            r#"{"name": "x", "expiry": T}"#,
            r#"{"name": "x", "scopes": [T], "projects": [T], "branches": [T]}"#,
            r#"{"name": "x", "scopes": [T]}"#,
            r#"{"ids": [T]}"#,
            r#"{"id": T}"#,
            r#"{"configuration": {"ipFiltering": {"cidr": [{"cidr": T, "description": T}]}}}"#,
            r#"{"configuration": {"ipFiltering": {"cidr": [{"cidr": "::1", "description": T}]}}}"#,
            r#"{"scaleToZero": {"enabled": T}}"#,
            r#"{T: 1}"#,
        ] {
            bodies.push(body.replace('T', text).into_bytes());
        }
    }
    bodies
}

#[test]
fn no_body_and_no_query_is_a_fault_of_the_server() {
    let http = shared();
    let project = http.new_project("hostile");
    let organization = http.new_organization("hostile");
    let places = [
        ("POST", "/organizations".to_owned()),
        ("PUT", format!("/organizations/{organization}")),
        ("PATCH", "/user".to_owned()),
        ("POST", "/api-keys".to_owned()),
        ("DELETE", "/api-keys".to_owned()),
        ("DELETE", format!("/organizations/{organization}/api-keys")),
        ("POST", format!("/organizations/{organization}/projects")),
        ("PATCH", project.clone()),
        ("POST", format!("{project}/branches")),
    ];
    for body in hostile_bodies() {
        for (method, path) in &places {
            let answer = http.send(http.request(method, path).body(body.clone()));
            let said = String::from_utf8_lossy(&body);
            assert!(answer.status < 500, "{method} {path} {said:.200}: {}", answer.text());
        }
    }
    for path in [
        "/organizations/{org}/extensions?image=%00",
        "/organizations/{org}/extensions?image=postgres:17&region=%00",
        "/organizations/{org}/extensions?image=%ff%fe",
        "/organizations/{org}/instanceTypes?region=%00",
        "/organizations/{org}/images?region=%27",
        "/organizations/%00",
        "/organizations/%ff%fe/projects",
        "/organizations/{org}/projects/%00",
        "/organizations/{org}/projects/x/branches/%00/credentials",
    ] {
        let answer = http.get(path);
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
    }
}

#[test]
fn a_credential_has_a_rate_and_is_told_of_it() {
    let flags = ["--requests-per-second", "5"].map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let repeated = || {
        let request = http.request("POST", "/organizations").header("idempotency-key", "again");
        request.json(&json!({ "name": "once" }))
    };
    http.send(repeated()).expect(201);
    let answer = http.get("/organizations");
    answer.expect(200);
    assert_eq!(answer.header("ratelimit-limit"), "25");
    let left: u32 = answer.header("ratelimit-remaining").parse().expect("a number");
    assert!(left < 25, "{left}");
    assert!(answer.header("ratelimit-reset").parse::<u32>().expect("a number") >= 1);

    let answers = http.send_together((0..60).map(|_| http.request("GET", "/organizations")).collect());
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty(), "the burst ends");
    for answer in refused {
        assert_eq!(answer.expect_error(429, "rate_limited"), "too many requests");
        assert_eq!((answer.header("ratelimit-limit"), answer.header("ratelimit-remaining")), ("25", "0"));
        assert!(answer.header("retry-after").parse::<u32>().expect("whole seconds") >= 1);
    }
    // What is only repeated counts too.
    let answers = http.send_together((0..60).map(|_| repeated()).collect());
    assert!(answers.iter().any(|answer| answer.status == 429), "repetitions have the same rate");
    let healthz = http.send(http.anonymous("GET", "/healthz"));
    assert_eq!((healthz.status, healthz.header("ratelimit-limit")), (200, ""));
    let served = || Some(http.get("/organizations")).filter(|answer| answer.status == 200);
    wait_for("who waits is served again", std::time::Duration::from_secs(60), served);
}

#[test]
fn a_stranger_has_a_small_rate() {
    let http = Http::new(crate::setup::platform());
    let answers = http.send_together((0..200).map(|_| http.anonymous("GET", "/organizations")).collect());
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert!(count(401) >= 100 && count(429) > 0, "{} and {}", count(401), count(429));
    assert_eq!(count(401) + count(429), 200);
    let refused = answers.iter().find(|answer| answer.status == 429).expect("one");
    assert!(refused.header("retry-after").parse::<u32>().expect("whole seconds") >= 1);
    // Who has a credential is not affected by strangers of the same address.
    http.get("/organizations").expect(200);
    // With one that is good for reading only, changes are a stranger's questions.
    let reading = http.new_token("/api-keys", json!({ "scopes": ["org:read"] }));
    let change = || http.anonymous("PUT", "/organizations/{org}").bearer_auth(&reading).json(&json!({}));
    let answers = http.send_together((0..200).map(|_| change()).collect());
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert!(count(403) >= 100 && count(429) > 0, "{} and {}", count(403), count(429));
    assert_eq!(count(403) + count(429), 200);
    http.as_key(&reading, "GET", "/organizations", None).expect(200);
    let _: Value = http.send(http.anonymous("GET", "/healthz")).expect(200);
}

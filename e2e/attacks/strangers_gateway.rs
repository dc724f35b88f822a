//! Strangers at the gateway: what they learn, what they use up, and how often
//! they may guess.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

use crate::branches::{change, path, status};
use crate::setup::{PROGRAM, postgres_dir};

const PATIENCE: Duration = Duration::from_secs(120);
const HERE: u8 = 1;
/// An address of this machine that no filter of these stories admits.
const ELSEWHERE: u8 = 9;
/// No answer tells more exactly how long it took to find the verifier.
const STEP: Duration = Duration::from_millis(2);
const SILENT: usize = 10_000;

/// A platform with PostgreSQL 15 and 18.
fn platform(flags: &[&str]) -> Platform {
    let releases = std::fs::read_dir(postgres_dir()).expect("releases");
    let mut releases = releases.map(|entry| entry.expect("an entry").path());
    let newest = releases
        .find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"18.")));
    let environment =
        vec![("COPPICE_POSTGRES_DIRS".to_owned(), newest.expect("PostgreSQL 18").display().to_string())];
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    Platform::start(PROGRAM, Options { environment, flags, ..Options::default() })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn connect_from(last: u8, to: SocketAddr) -> std::io::Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
    socket.connect(to).await
}

fn address(coppice: &Platform) -> SocketAddr {
    let (host, port) = coppice.gateway();
    format!("{host}:{port}").parse().expect("an address")
}

/// Signs in from an address of this machine; what is said when that fails.
fn sign_in_from(coppice: &Platform, last: u8, user: &str, password: &str) -> Result<(), String> {
    let mut config = tokio_postgres::Config::new();
    config.user(user).password(password).dbname("app");
    runtime().block_on(async {
        let stream = connect_from(last, address(coppice)).await.map_err(|error| error.to_string())?;
        let connected = config.connect_raw(stream, tokio_postgres::NoTls).await;
        let said = |error: tokio_postgres::Error| match error.as_db_error() {
            Some(said) => format!("{} {}", said.code().code(), said.message()),
            None => error.to_string(),
        };
        connected.map(drop).map_err(said)
    })
}

/// Everything that a client without the password is answered.
#[derive(Debug)]
struct Exchange {
    /// Messages without what has to differ: nonce, salt and the name that was sent.
    answers: Vec<(u8, String)>,
    salt: String,
    /// From the question who it is to the challenge.
    took: Duration,
}

fn message(tag: &[u8], body: &[u8]) -> Vec<u8> {
    [tag, &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn read_message(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a whole message");
    Some((head[0], body))
}

/// Signs in with a wrong proof, by hand.
fn exchange(coppice: &Platform, last: u8, user: &str) -> Exchange {
    let stream = runtime().block_on(async { connect_from(last, address(coppice)).await?.into_std() });
    let mut stream = stream.expect("the gateway listens");
    stream.set_nonblocking(false).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let first = b"SCRAM-SHA-256\0\0\0\0\x18n,,n=,r=aaaaaaaaaaaaaaaa";
    let startup = [&[0, 3, 0, 0][..], b"user\0", user.as_bytes(), b"\0database\0app\0\0"].concat();
    let began = Instant::now();
    stream.write_all(&[message(b"", &startup), message(b"p", first)].concat()).expect("sent");
    let mut seen = Exchange { answers: vec![], salt: String::new(), took: Duration::ZERO };
    while let Some((tag, body)) = read_message(&mut stream) {
        let text = String::from_utf8_lossy(&body).into_owned();
        let Some(challenge) = text.split_once("r=").map(|(_, rest)| rest.to_owned()) else {
            seen.answers.push((tag, text.replace(user, "<user>")));
            continue;
        };
        seen.took = began.elapsed();
        let parts: Vec<_> = challenge.split(',').collect();
        let [nonce, salt, iterations] = parts[..] else { panic!("{challenge}") };
        seen.answers.push((tag, format!("{} {} {iterations}", nonce.len(), salt.len())));
        seen.salt = salt.to_owned();
        let proof = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let last = format!("c=biws,r={nonce},p={proof}");
        stream.write_all(&message(b"p", last.as_bytes())).expect("sent");
    }
    seen
}

fn hibernate(coppice: &Platform, branch: &str) {
    let branch = path(coppice, branch);
    let sleepy = json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 60 } });
    change(coppice, &branch, &sleepy);
    change(coppice, &branch, &json!({ "hibernate": true }));
    wait_for("it sleeps", PATIENCE, || (status(coppice, &branch) == "STATUS_TYPE_HIBERNATED").then_some(()));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

const ROLES: &str = "CREATE ROLE ada LOGIN PASSWORD 'secret';
    CREATE ROLE locked NOLOGIN PASSWORD 'secret';
    CREATE ROLE silent LOGIN;
    CREATE ROLE old LOGIN;";

#[test]
fn answers_and_their_time_tell_a_stranger_nothing() {
    let coppice = platform(&["--gateway-failures-per-minute", "100000"]);
    coppice.cli(&["branch", "create", "v15", "--image", "postgres:15"]);
    coppice.cli(&["branch", "create", "asleep", "--parent", "main"]);
    for branch in ["main", "v15", "asleep"] {
        coppice.sql(branch, ROLES);
        let hash = format!("ALTER ROLE old PASSWORD 'md5{}'", "0".repeat(32));
        coppice.sql(branch, &hash);
    }
    let sleeping = path(&coppice, "asleep");
    hibernate(&coppice, "asleep");
    let [main, v15, asleep] = ["main", "v15", "asleep"].map(|name| coppice.branch_id(name));
    let password = coppice.connection_string("main");
    let password = password.split(['/', ':', '@']).nth(4).expect("a password").to_owned();
    let (project, _) = sleeping.split_once("/branches").expect("a path");
    let only_here = json!({ "enabled": true, "cidr": [{ "cidr": "127.0.0.1/32" }] });
    change(&coppice, project, &json!({ "configuration": { "ipFiltering": only_here } }));

    let nobody = "n".repeat(26);
    let unknown = exchange(&coppice, HERE, &format!("app.{nobody}"));
    assert_eq!(unknown.answers.len(), 3, "{unknown:?}");
    let [long, longest] = [64, 4000].map(|length| "a".repeat(length));
    for branch in [&main, &v15, &asleep] {
        for role in
            ["app", "ada", "locked", "silent", "old", "nobody", "platform", "postgres", &long, &longest]
        {
            for from in [HERE, ELSEWHERE] {
                let user = format!("{role}.{branch}");
                let seen = exchange(&coppice, from, &user);
                assert_eq!(seen.answers, unknown.answers, "{user} from {from}");
                assert_eq!(seen.salt, exchange(&coppice, from, &user).salt, "{user}: it is not made up anew");
            }
        }
    }
    let is_inherited = |number: &u32| {
        let salt_on = |branch: &str| exchange(&coppice, HERE, &format!("nobody{number}.{branch}")).salt;
        salt_on(&main) == salt_on(&asleep)
    };
    assert!((0..16).filter(is_inherited).count() > 4, "a copy has the salts of its parent's roles");
    for branch in ["main", "v15"] {
        let logged = coppice.run(&["logs", branch]);
        let logged = String::from_utf8_lossy(&logged.stdout).into_owned();
        assert!(!logged.contains("identifier too long") && !logged.contains("aaaaaaaa"), "{logged}");
    }

    // One after the other, so that all see the same machine.
    let cases = [
        ("unknown branch", HERE, format!("app.{nobody}")),
        ("running, unknown role", HERE, format!("nobody.{main}")),
        ("running, known role", HERE, format!("app.{main}")),
        ("sleeping, known role", HERE, format!("app.{asleep}")),
        ("running, refused address", ELSEWHERE, format!("app.{main}")),
        ("running, long role", HERE, format!("{long}.{main}")),
    ];
    let mut times = cases.each_ref().map(|_| vec![]);
    for _ in 0..200 {
        for (index, (_, from, user)) in cases.iter().enumerate() {
            times[index].push(exchange(&coppice, *from, user).took);
        }
    }
    for ((name, ..), times) in cases.iter().zip(times) {
        let earliest = *times.iter().min().expect("times");
        println!("strangers: {name}: median {:?}, earliest {earliest:?}", median(times));
        assert!(earliest >= STEP, "{name}: after {earliest:?}");
    }
    assert_eq!(status(&coppice, &sleeping), "STATUS_TYPE_HIBERNATED", "strangers wake nothing");

    // Who has the password learns why it does not help.
    let refused = sign_in_from(&coppice, ELSEWHERE, &format!("app.{main}"), &password).expect_err("refused");
    assert_eq!(refused, "28000 connections from 127.0.0.9 are not allowed");
    let refused = sign_in_from(&coppice, HERE, &format!("locked.{main}"), "secret").expect_err("refused");
    assert!(refused.contains("is not permitted to log in"), "{refused}");
    assert_eq!(sign_in_from(&coppice, HERE, &format!("app.{main}"), &password), Ok(()));
    assert_eq!(sign_in_from(&coppice, HERE, &format!("ada.{asleep}"), "secret"), Ok(()));
}

/// The most memory that the control plane had since this was last reset.
fn peak_memory_kib(coppice: &Platform) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", coppice.pid())).expect("a process");
    let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn what_a_role_keeps_of_its_password_costs_nothing_before_sign_in() {
    let coppice = platform(&[]);
    coppice.cli(&["branch", "create", "v15", "--image", "postgres:15"]);
    let id = coppice.branch_id("v15");
    // PostgreSQL 18 itself refuses these.
    let key = "A".repeat(43) + "=";
    let large = |role: &str| {
        format!(
            "CREATE ROLE {role} LOGIN; DO $$ BEGIN EXECUTE format('ALTER ROLE {role} PASSWORD %L',
                 'SCRAM-SHA-256$4096:' || repeat('AAAA', 350000) || '${key}:{key}'); END $$;"
        )
    };
    let said = coppice.psql("main", &large("large0"));
    assert!(said.err.contains("encrypted password is too long"), "{}", said.err);
    coppice.sql("v15", &(0..16).map(|number| large(&format!("large{number}"))).collect::<String>());
    coppice.sql("v15", "CREATE ROLE ada LOGIN PASSWORD 'secret'");
    let refused = sign_in_from(&coppice, HERE, &format!("large1.{id}"), "secret").expect_err("refused");
    assert!(refused.starts_with("28P01"), "{refused}");
    hibernate(&coppice, "v15");

    std::fs::write(format!("/proc/{}/clear_refs", coppice.pid()), "5").expect("the peak is reset");
    let before = peak_memory_kib(&coppice);
    std::thread::scope(|scope| {
        for stranger in 0..8 {
            let (coppice, user) = (&coppice, format!("large{stranger}.{id}"));
            scope.spawn(move || {
                let refused = sign_in_from(coppice, HERE, &user, "wrong").expect_err("refused");
                assert!(refused.starts_with("28P01"), "{refused}");
            });
        }
    });
    let grown = peak_memory_kib(&coppice) - before;
    println!("strangers: eight of them raised the peak by {grown} KiB");
    assert!(grown < 32 << 10, "{grown} KiB");
    assert_eq!(status(&coppice, &path(&coppice, "v15")), "STATUS_TYPE_HIBERNATED");
    assert_eq!(sign_in_from(&coppice, HERE, &format!("ada.{id}"), "secret"), Ok(()), "others wake it");
    assert_eq!(coppice.sql("v15", "SELECT 1"), "1");
}

/// How long each of some sign-ins takes.
fn sign_ins(url: &str) -> Vec<Duration> {
    let mut times: Vec<_> = (0..40)
        .map(|_| {
            let began = Instant::now();
            let said = psql(url, "SELECT 1");
            assert_eq!(said.out, "1", "{}", said.err);
            began.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn page(coppice: &Platform) -> String {
    let url = format!("{}/metrics", coppice.api());
    runtime().block_on(async { reqwest::get(url).await.expect("an answer").text().await.expect("a page") })
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series} is missing"))
}

#[test]
fn neither_silence_nor_guesses_of_one_address_keep_others_out() {
    let coppice = platform(&["--gateway-failures-per-minute", "2"]);
    let url = coppice.connection_string("main");
    let quiet = sign_ins(&url);

    let runtime = runtime();
    let silent: Vec<_> = runtime.block_on(async {
        let mut silent = vec![];
        for _ in 0..SILENT {
            silent.push(connect_from(2, address(&coppice)).await.expect("the gateway listens"));
        }
        silent
    });
    let crowded = sign_ins(&url);
    let of = |times: &[Duration]| (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "strangers: median and longest sign-in {:?}, with {SILENT} silent {:?}",
        of(&quiet),
        of(&crowded)
    );
    let page_now = page(&coppice);
    assert!(value(&page_now, "coppice_gateway_connections_starting") <= 256.0);
    let sent_away = value(&page_now, "coppice_gateway_refused_total{reason=\"too_many\"}");
    assert!(sent_away >= (SILENT - 1000) as f64, "{sent_away}");
    assert!(!page_now.contains("127.0.0"), "nobody's address is on the page");
    drop(silent);

    let id = coppice.branch_id("main");
    let user = format!("app.{id}");
    let password = url.split(['/', ':', '@']).nth(4).expect("a password");
    for guess in 0..2 {
        let wrong = sign_in_from(&coppice, 3, &user, &format!("guess{guess}")).expect_err("a wrong one");
        assert!(wrong.starts_with("28P01"), "{guess}: {wrong}");
    }
    let refused = sign_in_from(&coppice, 3, &user, password).expect_err("too many guesses");
    assert!(refused.starts_with("28000 too many failed sign-ins from this address, wait "), "{refused}");
    assert_eq!(sign_in_from(&coppice, 4, &user, password), Ok(()), "the owner, from elsewhere");
    assert_eq!(sign_in_from(&coppice, HERE, &user, password), Ok(()));
    assert_eq!(value(&page(&coppice), "coppice_gateway_refused_total{reason=\"throttled\"}"), 1.0);
}

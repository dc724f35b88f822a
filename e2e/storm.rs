//! Many clients of branches that are put to sleep all the time, while servers
//! and the control plane die.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coppice_test_support::{Leftovers, Platform, Signal, psql, signal, wait_for};
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::setup::{PROGRAM, fixed_gateway, options, pooled_url};

const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: u64 = 24;
/// So many of them keep their connections, which are pooled.
const POOLED: u64 = 8;
/// For so long such a client says nothing, at most: often its branch sleeps meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(2);
const BRANCHES: [&str; 4] = ["main", "one", "two", "three"];

/// What happens, each as often as it is here, in random order.
const EVENTS: [(Event, usize); 5] = [
    (Event::Sleep, 10),
    (Event::KillServer, 3),
    (Event::Upgrade, 2),
    (Event::Restart, 1),
    (Event::KillControlPlane, 2),
];

#[derive(Clone, Copy, Debug)]
enum Event {
    Sleep,
    KillServer,
    Upgrade,
    Restart,
    KillControlPlane,
}

/// Whether something is going on, and how often it was: odd while it is.
#[derive(Default)]
struct Trouble(AtomicU64);

impl Trouble {
    fn begin(&self) -> TroubleEnd<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        TroubleEnd(self)
    }

    fn mark(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn is_on(&self) -> bool {
        !self.mark().is_multiple_of(2)
    }

    /// Whether any of it was at or after the mark.
    fn was_since(&self, mark: u64) -> bool {
        !mark.is_multiple_of(2) || self.mark() != mark
    }
}

struct TroubleEnd<'a>(&'a Trouble);

impl Drop for TroubleEnd<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A branch as clients know it.
struct Target {
    id: String,
    url: String,
    pooled_url: String,
    /// Its server is stopped or killed.
    trouble: Trouble,
}

/// What one client did.
#[derive(Default)]
struct Diary {
    /// Rows by the number of their branch, that must be there.
    acknowledged: BTreeSet<(usize, String)>,
    /// Rows that may be there.
    lost: BTreeSet<(usize, String)>,
}

/// An end of a session that its client is to expect: the server, or the control
/// plane with its gateway, ended while the session was open.
fn is_cut(err: &str) -> bool {
    let is_connected = !err.contains("connection to server at");
    let words = [
        "terminating connection due to administrator command",
        "terminating connection due to unexpected postmaster exit",
        "SSL connection has been closed unexpectedly",
        "SSL SYSCALL error: EOF detected",
        "SSL SYSCALL error: Connection reset by peer",
        "server closed the connection unexpectedly",
    ];
    is_connected && words.iter().any(|word| err.contains(word))
}

/// Tolerated while no control plane listens, because one ended before the next
/// was started.
fn is_refused_between_control_planes(err: &str) -> bool {
    let is_connecting = err.contains("connection to server at");
    let words = [
        "Connection refused",
        "server closed the connection unexpectedly",
        "SSL connection has been closed unexpectedly",
        "SSL SYSCALL error: EOF detected",
        "Connection reset by peer",
    ];
    is_connecting && words.iter().any(|word| err.contains(word))
}

/// Ends the clients also when the story fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects to random branches and writes a row each time, until it is over.
fn be_client(number: u64, targets: &[Target], control_plane: &Trouble, is_over: &AtomicBool) -> Diary {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut diary = Diary::default();
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let branch = random.random_range(0..targets.len() as u64) as usize;
        let target = &targets[branch];
        let row = (branch, format!("{number}-{round}"));
        let (mark, control_plane_mark) = (target.trouble.mark(), control_plane.mark());
        let said = psql(&target.url, &format!("INSERT INTO storm VALUES ('{}')", row.1));
        if said.is_ok {
            diary.acknowledged.insert(row);
            continue;
        }
        let (was_hit, was_down) =
            (target.trouble.was_since(mark), control_plane.was_since(control_plane_mark));
        let is_expected = (is_cut(&said.err) && (was_hit || was_down))
            || (is_refused_between_control_planes(&said.err) && was_down);
        assert!(
            is_expected,
            "client {number}, server hit {was_hit}, control plane down {was_down}: {}",
            said.err
        );
        diary.lost.insert(row);
    }
    diary
}

/// A pooled connection with a statement that was prepared when it began.
struct Kept {
    client: tokio_postgres::Client,
    insert: tokio_postgres::Statement,
}

impl Kept {
    async fn connect(url: &str) -> Result<Self, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(async move {
            // What the gateway says to a client that asks for nothing is said here.
            if let Err(error) = connection.await {
                println!("storm: a pooled connection ended: {error}");
            }
        });
        let insert = client.prepare("INSERT INTO storm VALUES ($1)").await?;
        Ok(Self { client, insert })
    }
}

/// Keeps a connection to each branch, on which it writes a row now and then,
/// until it is over. Only what happens while it writes may end a connection.
fn be_pooled_client(number: u64, targets: &[Target], control_plane: &Trouble, is_over: &AtomicBool) -> Diary {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut diary = Diary::default();
    let mut kept: Vec<Option<Kept>> = targets.iter().map(|_| None).collect();
    let mut down_since_connected = vec![control_plane.mark(); targets.len()];
    for round in 0.. {
        std::thread::sleep(SILENCE_MAX.mul_f64(random.random_range(0.0..1.0)));
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // A control plane that ends waits for its clients to leave.
        if control_plane.is_on() {
            kept.iter_mut().for_each(|kept| *kept = None);
            continue;
        }
        let branch = random.random_range(0..targets.len() as u64) as usize;
        let target = &targets[branch];
        let row = (branch, format!("{number}-{round}"));
        let mark = target.trouble.mark();
        if kept[branch].is_none() {
            down_since_connected[branch] = control_plane.mark();
        }
        let written = runtime.block_on(async {
            if kept[branch].is_none() {
                kept[branch] = Some(Kept::connect(&target.pooled_url).await?);
            }
            let Kept { client, insert } = kept[branch].as_ref().expect("it is connected");
            client.execute(insert, &[&row.1]).await
        });
        let Err(error) = written else {
            diary.acknowledged.insert(row);
            continue;
        };
        kept[branch] = None;
        // The control plane's end is the end of all its connections.
        let is_expected =
            target.trouble.was_since(mark) || control_plane.was_since(down_since_connected[branch]);
        assert!(is_expected, "pooled client {number}: {error:?}");
        diary.lost.insert(row);
    }
    diary
}

fn path_of(coppice: &Platform, id: &str) -> String {
    let project = coppice.cli(&["project", "list"])["projects"][0]["id"].as_str().expect("an id").to_owned();
    format!("/organizations/{{org}}/projects/{project}/branches/{id}")
}

/// Does something to the platform, and waits until it is over.
fn happen(coppice: &mut Platform, event: Event, target: &Target, path: &str, control_plane: &Trouble) {
    match event {
        Event::Sleep => {
            let _trouble = target.trouble.begin();
            let before = coppice.postmaster(&target.id);
            let (status, answer) = coppice.call("PATCH", path, Some(&json!({ "hibernate": true })));
            assert_eq!(status, 200, "{answer}");
            wait_for_another_server(coppice, &target.id, before, path);
        }
        Event::KillServer => {
            let _trouble = target.trouble.begin();
            let before = coppice.postmaster(&target.id);
            let _ = signal(before, Signal::KILL);
            wait_for_another_server(coppice, &target.id, before, path);
        }
        // No trouble for anybody.
        Event::Upgrade => coppice.take_over(),
        Event::Restart => {
            let _trouble = control_plane.begin();
            assert_eq!(coppice.terminate(), Some(0));
            coppice.spawn();
            coppice.wait_ready();
        }
        Event::KillControlPlane => {
            let _trouble = control_plane.begin();
            coppice.restart();
        }
    }
}

/// Its clients wake it, or the platform brings it back.
fn wait_for_another_server(coppice: &Platform, id: &str, before: u32, path: &str) {
    wait_for("another server is up", PATIENCE, || {
        let is_healthy =
            || coppice.call("GET", path, None).1["status"]["statusType"] == "STATUS_TYPE_HEALTHY";
        (coppice.postmaster(id) != before && is_healthy()).then_some(())
    });
}

#[test]
fn a_storm_of_clients_notices_nothing_but_time_and_loses_nothing() {
    let mut options = options();
    options.flags.extend(fixed_gateway());
    let mut coppice = Platform::start(PROGRAM, options);
    coppice.sql("main", "CREATE TABLE storm (row text PRIMARY KEY)");
    BRANCHES[1..].iter().for_each(|name| drop(coppice.cli(&["branch", "create", name, "--parent", "main"])));
    let targets = BRANCHES.map(|name| Target {
        id: coppice.branch_id(name),
        url: coppice.connection_string(name),
        pooled_url: pooled_url(&coppice, name),
        trouble: Trouble::default(),
    });
    let paths: Vec<_> = targets.iter().map(|target| path_of(&coppice, &target.id)).collect();
    for path in &paths {
        let sleepy = json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 60 } });
        assert_eq!(coppice.call("PATCH", path, Some(&sleepy)).0, 200);
    }
    let mut random = ChaCha8Rng::seed_from_u64(24);
    let mut events: Vec<_> =
        EVENTS.into_iter().flat_map(|(event, count)| std::iter::repeat_n(event, count)).collect();
    events.shuffle(&mut random);

    let (control_plane, is_over) = (Trouble::default(), AtomicBool::new(false));
    let diaries: Vec<Diary> = std::thread::scope(|scope| {
        let (targets, control_plane, is_over) = (&targets, &control_plane, &is_over);
        let over = Over(is_over);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    // One that fails ends the story.
                    let _ended = Over(is_over);
                    match number < POOLED {
                        true => be_pooled_client(number, targets, control_plane, is_over),
                        false => be_client(number, targets, control_plane, is_over),
                    }
                })
            })
            .collect();
        for event in events {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let branch = random.random_range(0..targets.len() as u64) as usize;
            println!("storm: {event:?} {}", BRANCHES[branch]);
            happen(&mut coppice, event, &targets[branch], &paths[branch], control_plane);
        }
        drop(over);
        clients.into_iter().map(|client| client.join().expect("a client without an error")).collect()
    });

    assert!(diaries.iter().all(|diary| !diary.acknowledged.is_empty()), "every client got through");
    for (branch, target) in targets.iter().enumerate() {
        let read = psql(&target.url, "SELECT row FROM storm");
        assert!(read.is_ok, "{}", read.err);
        let found: BTreeSet<_> = read.out.lines().map(|row| (branch, row.to_owned())).collect();
        let of_branch = |rows: fn(&Diary) -> &BTreeSet<(usize, String)>| {
            let all = diaries.iter().flat_map(rows).filter(|(of, _)| *of == branch);
            all.cloned().collect::<BTreeSet<_>>()
        };
        let must = of_branch(|diary| &diary.acknowledged);
        let may: BTreeSet<_> = of_branch(|diary| &diary.lost).union(&must).cloned().collect();
        println!(
            "storm: {} rows in {}, {} more may be",
            must.len(),
            BRANCHES[branch],
            may.len() - must.len()
        );
        assert_eq!(must.difference(&found).count(), 0, "acknowledged and lost");
        assert_eq!(found.difference(&may).count(), 0, "out of nowhere");
    }
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

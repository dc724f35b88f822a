//! Logs of real servers, of every release that is installed here.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coppice_core::lsn::Lsn;
use coppice_wal::{Ended, Log, PAGE, Page, Pages, Place, Segment};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// The first file of a new server's log.
const BEGINNING: Place = Place { at: Lsn(16 << 20), previous: None };

/// Directories of programs, each of another release.
fn installed() -> Vec<PathBuf> {
    let system = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let more = std::env::var_os("COPPICE_POSTGRES_DIRS").map(|dirs| std::env::split_paths(&dirs).collect());
    let more: Vec<PathBuf> = more.unwrap_or_default();
    let more = more.into_iter().flat_map(|directory| fs::read_dir(directory).into_iter().flatten());
    let found = system.chain(more).filter_map(Result::ok).map(|entry| entry.path().join("bin"));
    found.filter(|bin| bin.join("initdb").exists() && bin.join("psql").exists()).collect()
}

/// PostgreSQL refuses to run as root.
fn program(path: &Path) -> Command {
    if fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) != 0) {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(path);
    command
}

struct Server {
    bin: PathBuf,
    home: TempDir,
    process: Child,
}

fn launch(bin: &Path, home: &Path) -> Child {
    let mut command = program(&bin.join("postgres"));
    command.arg("-D").arg(home.join("data")).args([
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
        "-c",
        "wal_keep_size=1GB",
        "-c",
    ]);
    command.arg(format!("unix_socket_directories={}", home.display()));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("postgres runs")
}

impl Server {
    fn start(bin: &Path) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::chown(home.path(), uid_of_postgres(), None).expect("given away");
        let mut initdb = program(&bin.join("initdb"));
        initdb
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--pgdata"])
            .arg(home.path().join("data"));
        let output = initdb.output().expect("initdb runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let process = launch(bin, home.path());
        Self { bin: bin.to_owned(), home, process }
    }

    /// What a statement answers, as soon as the server answers.
    fn ask(&self, statement: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut psql = Command::new(self.bin.join("psql"));
            psql.args(["-XAtq", "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-c", statement, "-h"]);
            let output = psql.arg(self.home.path()).arg("postgres").output().expect("psql runs");
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).trim().to_owned();
            }
            assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends all processes as a crash does, and starts anew.
    fn crash(&mut self) {
        self.end();
        self.process = launch(&self.bin, self.home.path());
    }

    fn end(&mut self) {
        let _ = Command::new("kill").arg("-QUIT").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }

    fn wal(&self) -> PathBuf {
        self.home.path().join("data/pg_wal")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn uid_of_postgres() -> Option<u32> {
    let me = fs::metadata("/proc/self").map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).ok()?;
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let line = accounts.lines().find(|line| line.starts_with("postgres:"))?;
    line.split(':').nth(2)?.parse().ok().filter(|_| me == 0)
}

/// Files in a directory.
struct Files {
    log: Log,
    directory: PathBuf,
    page: Page,
}

impl Pages for Files {
    fn page(&mut self, place: Lsn) -> io::Result<Option<&Page>> {
        let number = place.0 / Segment::USUAL.bytes;
        let Ok(file) = File::open(self.directory.join(self.log.file_name(number))) else { return Ok(None) };
        file.read_exact_at(&mut self.page, place.0 % Segment::USUAL.bytes)?;
        Ok(Some(&self.page))
    }
}

/// Where the next record would be, in the words of the walk: a page's beginning
/// for what is behind its header.
fn without_header(place: Lsn) -> Lsn {
    let offset = place.0 % PAGE as u64;
    if offset == 24 || (offset == 40 && (place.0 - offset).is_multiple_of(Segment::USUAL.bytes)) {
        return Lsn(place.0 - offset);
    }
    place
}

/// Walks a server's log and compares where it ends; nothing else writes meanwhile.
fn compare(server: &Server, log: Log, from: Place) -> Place {
    let mut files = Files { log, directory: server.wal(), page: [0; PAGE] };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = || server.ask("SELECT pg_current_wal_insert_lsn()").parse().map(without_header);
        let before = told().expect("a place");
        let walked = log.walk(from, None, &mut files).expect("read");
        assert_eq!(walked.ended, Ended::Valid);
        // What a server's own processes write comes to the disk a little later.
        if walked.place.at == before && told() == Ok(before) {
            return walked.place;
        }
        assert!(Instant::now() < deadline, "{walked:?}, and the server is at {before}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Compares each record with what the server's own reader of its log says, where there
/// is one.
fn compare_records(server: &Server, log: Log, from: Place, to: Place) {
    let reader = "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_walinspect'";
    if server.ask(reader) == "0" {
        return;
    }
    server.ask("CREATE EXTENSION pg_walinspect");
    let records = format!(
        "SELECT start_lsn, end_lsn, prev_lsn FROM pg_get_wal_records_info('{}', '{}')",
        from.at, to.at
    );
    let mut files = Files { log, directory: server.wal(), page: [0; PAGE] };
    let (mut place, mut count) = (from, 0);
    for record in server.ask(&records).lines() {
        let places: Vec<Lsn> = record.split('|').map(|place| place.parse().expect("a place")).collect();
        let [start, end, previous] = places[..] else { panic!("{record}") };
        assert!(place.previous.is_none_or(|found| found == previous), "{record}: {place:?}");
        place = log.walk(place, Some(end), &mut files).expect("read").place;
        assert_eq!(place, Place { at: without_header(end), previous: Some(start) }, "{record}");
        count += 1;
    }
    assert!(count > 1000 && place == to, "{count} records, {place:?} and {to:?}");
}

#[test]
fn a_walk_ends_where_servers_of_every_release_say_that_their_log_does() {
    let releases = installed();
    assert!(!releases.is_empty(), "PostgreSQL is installed");
    for bin in releases {
        let mut server = Server::start(&bin);
        let major: u32 = server.ask("SHOW server_version_num").parse::<u32>().expect("a number") / 10_000;
        let system =
            server.ask("SELECT system_identifier FROM pg_control_system()").parse().expect("a number");
        let log = Log::of(major, system, 1, Segment::USUAL).expect("a known release");
        let new = compare(&server, log, BEGINNING);
        server.ask(
            "CREATE TABLE t AS SELECT n, repeat(md5(n::text), 60) AS text FROM generate_series(1, 2000) n",
        );
        let big = "SELECT pg_logical_emit_message(false, 'x', repeat('x', 300000))";
        server.ask(big);
        let written = compare(&server, log, new);
        compare_records(&server, log, BEGINNING, written);
        server.ask("SELECT pg_switch_wal()");
        server.ask("CHECKPOINT");
        server.crash();
        server.ask("UPDATE t SET text = '' WHERE n % 3 = 0");
        compare(&server, log, written);
    }
}

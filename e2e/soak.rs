//! Everything that can happen to branches, in an order that a seed decides;
//! nothing that was committed is ever lost, and nothing is left over.
//!
//! The operations are done one after the other, and which comes next depends on
//! the seed alone, so a failure can be replayed; it says how. `make soak` goes
//! on for as long as it is told to.

mod checks;
mod interruptions;
mod losses;
mod model;
mod operations;
mod pasts;

use std::time::{Duration, Instant};

use coppice_test_support::{Leftovers, Options, Platform, wait_for};
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::drivers::options_for;
use crate::setup::{PROGRAM, fixed_gateway};
use model::{Branch, Change, Contents, TABLE};
use operations::{DECK, Operation};

const PATIENCE: Duration = Duration::from_secs(120);
/// Branches at the same time; a deletion comes instead of a further one.
const BRANCHES_MAX: usize = 6;
/// After so many operations everything is compared.
const CHECK_EVERY: u64 = 12;
/// Ids of rows are drawn from these, so that most are changed several times.
const ROWS: u64 = 60;

#[test]
fn btrfs_loses_nothing() {
    soak("btrfs", 1);
}

#[test]
#[ignore = "takes long, see `make long`"]
fn reflink_loses_nothing() {
    soak("reflink", 2);
}

#[test]
#[ignore = "takes long, see `make long`"]
fn copy_loses_nothing() {
    soak("copy", 3);
}

#[test]
fn btrfs_comes_back_from_its_store_with_all_that_was_there() {
    let (seed, seconds) = chosen(4);
    println!("soak: lost machines, seed {seed}");
    let time = Duration::from_secs(seconds.unwrap_or_default());
    let rounds = number("COPPICE_SOAK_ROUNDS").unwrap_or(1) as usize;
    losses::come_back(seed, time, rounds, number("COPPICE_SOAK_INTERVAL").unwrap_or(1));
}

/// What the environment says, if anything.
fn number(name: &str) -> Option<u64> {
    let set = std::env::var(name).ok().filter(|text| !text.is_empty());
    set.map(|text| text.parse().expect("a whole number"))
}

/// The seed, and for how many seconds to go on: as the environment says.
fn chosen(seed: u64) -> (u64, Option<u64>) {
    let seconds = number("COPPICE_SOAK_SECONDS");
    let random_seed = || {
        let since = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
        u64::from(since.subsec_nanos()) ^ since.as_secs()
    };
    let seed =
        number("COPPICE_SOAK_SEED").unwrap_or_else(|| if seconds.is_some() { random_seed() } else { seed });
    (seed, seconds)
}

/// One deck of operations with this seed, or as the environment says.
fn soak(driver: &'static str, seed: u64) {
    let (seed, seconds) = chosen(seed);
    let started = Instant::now();
    let replay = Replay { driver, seed, started };
    println!("soak: driver {driver}, seed {seed}");

    let (mut options, _file_system) = options_for(driver);
    options.flags.extend(fixed_gateway());
    options.flags.extend(["--branches-per-hour", "1000000"].map(str::to_owned));
    let mut soak = Soak::start(options, seed, driver == "btrfs");
    let is_over = |soak: &Soak| match seconds {
        Some(seconds) => started.elapsed() >= Duration::from_secs(seconds),
        None => soak.done >= DECK.iter().map(|(_, count)| *count).sum(),
    };
    while !is_over(&soak) {
        for operation in soak.shuffled_deck() {
            soak.perform(operation);
            if soak.done.is_multiple_of(CHECK_EVERY) {
                soak.check_everything();
            }
            if is_over(&soak) {
                break;
            }
        }
    }
    let done = soak.done;
    soak.finish();
    println!("soak: {done} operations in {} s", started.elapsed().as_secs());
    drop(replay);
}

/// Says how to have the same again.
struct Replay {
    driver: &'static str,
    seed: u64,
    started: Instant,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { driver, seed, started } = self;
            let seconds = started.elapsed().as_secs() * 2 + 60;
            eprintln!("--- to replay: make soak DRIVER={driver} SEED={seed} SECONDS={seconds}");
        }
    }
}

/// A platform under test, and what it must hold.
struct Soak {
    coppice: Platform,
    /// The API's path of the project.
    project: String,
    random: ChaCha8Rng,
    /// Whether it can be gone back to places of a log.
    keeps_history: bool,
    /// `main` comes first and stays.
    branches: Vec<Branch>,
    /// What was deleted.
    trash: Vec<Branch>,
    /// Operations so far.
    done: u64,
    next_value: u64,
    next_name: u64,
}

impl Soak {
    fn start(options: Options, seed: u64, keeps_history: bool) -> Self {
        let coppice = Platform::start(PROGRAM, options);
        let list = coppice.cli(&["project", "list"]);
        let project = list["projects"][0]["id"].as_str().expect("an id");
        let project = format!("/organizations/{{org}}/projects/{project}");
        let main = Branch {
            id: coppice.branch_id("main"),
            name: "main".to_owned(),
            description: String::new(),
            parent: None,
            url: coppice.connection_string("main"),
            is_sleepy: false,
            inactivity_minutes: 30,
            is_asleep: false,
            contents: Contents::empty(),
            places: vec![],
            pasts: vec![],
            former_parent: None,
        };
        coppice.sql("main", TABLE);
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self {
            coppice,
            project,
            random,
            keeps_history,
            branches: vec![main],
            trash: vec![],
            done: 0,
            next_value: 1,
            next_name: 1,
        }
    }

    /// Every operation as often as the deck has it, so that even a short run
    /// does all of them.
    fn shuffled_deck(&mut self) -> Vec<Operation> {
        let mut deck: Vec<_> = DECK
            .into_iter()
            .flat_map(|(operation, count)| std::iter::repeat_n(operation, count as usize))
            .collect();
        deck.shuffle(&mut self.random);
        deck
    }

    /// A random number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn any_branch(&mut self) -> usize {
        self.below(self.branches.len() as u64) as usize
    }

    /// A branch that clients get into, awake.
    fn any_awake_branch(&mut self) -> usize {
        let index = self.any_branch();
        if self.branches[index].is_asleep {
            self.wake(index);
        }
        index
    }

    fn new_name(&mut self) -> String {
        self.next_name += 1;
        format!("branch-{}", self.next_name)
    }

    /// A transaction of a few changes; its values occur nowhere else.
    fn transaction(&mut self) -> Vec<Change> {
        let length = 1 + self.below(5);
        (0..length)
            .map(|_| {
                let id = self.below(ROWS);
                self.next_value += 1;
                let value = self.next_value;
                if self.below(4) == 0 { Change::Remove { id } } else { Change::Put { id, value } }
            })
            .collect()
    }

    fn path(&self, index: usize) -> String {
        format!("{}/branches/{}", self.project, self.branches[index].id)
    }

    /// Sends a request that must be answered with `expected`.
    fn call(&self, method: &str, path: &str, body: Option<&Value>, expected: u16) -> Value {
        let (status, answer) = self.coppice.call(method, path, body);
        assert_eq!(status, expected, "{method} {path} {body:?}: {answer}");
        answer
    }

    fn change(&self, index: usize, body: &Value) {
        self.call("PATCH", &self.path(index), Some(body), 200);
    }

    fn status(&self, index: usize) -> String {
        let answer = self.call("GET", &self.path(index), None, 200);
        answer["status"]["statusType"].as_str().expect("a status").to_owned()
    }

    /// Waits until a branch is asleep or awake, as it should be.
    fn wait_until_settled(&self, index: usize) {
        let branch = &self.branches[index];
        let wanted = if branch.is_asleep { "STATUS_TYPE_HIBERNATED" } else { "STATUS_TYPE_HEALTHY" };
        let mut seen = String::new();
        wait_for(&format!("{} is {wanted}", branch.name), PATIENCE, || {
            seen = self.status(index);
            (seen == wanted).then_some(())
        });
    }

    /// Deletes everything but `main`, and proves that nothing is left.
    fn finish(&mut self) {
        self.check_everything();
        while self.branches.len() > 1 {
            let last = self.branches.len() - 1;
            self.delete(last);
        }
        crate::orphans::wait_until_explained(&self.coppice);
        self.check_everything();
        assert_eq!(self.coppice.stop_all(), Leftovers::default());
    }
}

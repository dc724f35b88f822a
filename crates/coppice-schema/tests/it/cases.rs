//! See [`crate`].

use coppice_schema::{Change, NotCompared, diff};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;

use crate::mutations::mutate;
use crate::server::{Server, releases};

const SCHEMAS: &[(&str, &str)] = &[
    ("forum", include_str!("schemas/forum.sql")),
    ("shop", include_str!("schemas/shop.sql")),
    ("booking", include_str!("schemas/booking.sql")),
    ("queue", include_str!("schemas/queue.sql")),
    ("wiki", include_str!("schemas/wiki.sql")),
    ("ledger", include_str!("schemas/ledger.sql")),
    ("school", include_str!("schemas/school.sql")),
    ("fleet", include_str!("schemas/fleet.sql")),
    ("news", include_str!("schemas/news.sql")),
    ("tenants", include_str!("schemas/tenants.sql")),
    ("names", include_str!("schemas/names.sql")),
];

/// By how many statements each schema is changed.
const MUTATIONS: usize = 5;

/// Other histories: `COPPICE_SCHEMA_SEED`, `COPPICE_SCHEMA_ROUNDS` and, for one schema, `COPPICE_SCHEMA_ONLY`.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_leave_no_difference_on_the_oldest_release() {
    leave_no_difference(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_leave_no_difference_on_the_newest_release() {
    leave_no_difference(1).await;
}

async fn leave_no_difference(release: usize) {
    let Some(bin) = releases().into_iter().nth(release) else { return };
    let server = Server::start(&bin);
    server.create("nothing");
    let seed = number("COPPICE_SCHEMA_SEED", 1);
    let only = std::env::var("COPPICE_SCHEMA_ONLY").unwrap_or_default();
    for (name, sql) in SCHEMAS.iter().filter(|(name, _)| name.contains(&only)) {
        let (one, other) = (format!("{name}_one"), format!("{name}_other"));
        server.create(&one);
        server.create(&other);
        server.run("app", &one, sql).unwrap_or_else(|error| panic!("{name}: {error}"));
        let beginning = server.read(&one).await;
        server.sync(&other, beginning, &format!("{name} from nothing")).await;
        for round in 0..number("COPPICE_SCHEMA_ROUNDS", 1) {
            let mut dice = ChaCha8Rng::seed_from_u64(seed * 1000 + round);
            let done = mutate(&server.client("app", &one).await, &mut dice, MUTATIONS).await;
            let story = format!("{} {name}, seed {seed}, round {round}\n{}", bin.display(), done.join("\n"));
            let beginning = server.read(&other).await;
            let changed = server.read(&one).await;
            server.sync(&other, changed, &story).await;
            if round % 2 == 0 {
                server.sync(&one, beginning, &format!("{story}\nand back")).await;
            }
        }
        let nothing = server.read("nothing").await;
        server.sync(&one, nothing, &format!("{name}, seed {seed}, to nothing")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_stay_where_they_can_and_what_they_lose_is_said() {
    let Some(bin) = releases().into_iter().next() else { return };
    let server = Server::start(&bin);
    server.create("old");
    server.create("new");
    let old = "CREATE TYPE mood AS ENUM ('bad', 'so so', 'good', 'unused');
        CREATE TABLE people (id int PRIMARY KEY, mood mood DEFAULT 'good', moods mood[], age int, gone text);
        CREATE INDEX good ON people (id) WHERE mood = 'good';
        CREATE VIEW happy AS SELECT id, mood, age FROM people WHERE mood > 'bad';
        INSERT INTO people VALUES (1, 'good', '{bad,good}', 7, 'x'), (2, 'bad', '{}', 8, 'y')";
    let new = "CREATE TYPE mood AS ENUM ('good', 'so so', 'bad');
        CREATE TABLE people (id bigint PRIMARY KEY, mood mood DEFAULT 'so so', moods mood[], age text, since date NOT NULL DEFAULT '2020-01-01');
        CREATE INDEX good ON people (id) WHERE mood = 'good';
        CREATE VIEW happy AS SELECT id, mood, age FROM people WHERE mood > 'bad'";
    server.run("app", "old", old).expect("a schema");
    server.run("app", "new", new).expect("a schema");
    let found = diff(server.read("old").await.schema(), server.read("new").await.schema());
    let losing: Vec<_> =
        found.statements.iter().filter(|statement| statement.loses_data).map(|of| of.sql.as_str()).collect();
    assert!(losing.contains(&"ALTER TABLE public.people DROP COLUMN gone"), "{losing:?}");
    assert!(losing.iter().any(|sql| sql.contains("ALTER COLUMN age TYPE text")), "{losing:?}");
    let wanted = server.read("new").await;
    server.sync("old", wanted, "with rows").await;
    let client = server.client("app", "old").await;
    let rows = client.query("SELECT p::text FROM people p ORDER BY id", &[]).await.expect("rows");
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, ["(1,good,\"{bad,good}\",7,2020-01-01)", "(2,bad,{},8,2020-01-01)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_has_to_do_is_said_and_what_is_not_compared_is_counted() {
    let Some(bin) = releases().into_iter().next() else { return };
    let server = Server::start(&bin);
    server.create("old");
    server.create("new");
    server.run("app", "old", "CREATE TABLE days (day date)").expect("a schema");
    let new = "CREATE TABLE days (day date) PARTITION BY RANGE (day);
        CREATE AGGREGATE longest (text) (sfunc = textcat, stype = text)";
    server.run("app", "new", new).expect("a schema");
    let old = server.read("old").await;
    let found = diff(old.schema(), server.read("new").await.schema());
    let manual: Vec<_> = found.statements.iter().filter(|of| of.manual).map(|of| of.sql.as_str()).collect();
    assert_eq!(
        manual,
        ["-- The TABLE public.days is partitioned in another way: make a new one and move its rows."]
    );
    assert_eq!(found.not_compared, [NotCompared { kind: "aggregate".to_owned(), from: 0, to: 1 }]);
    assert!(found.objects.iter().any(|of| of.name == "public.days" && of.change == Change::Changed));
}

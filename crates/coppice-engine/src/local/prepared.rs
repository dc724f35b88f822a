//! Prepared transactions, which outlive their sessions and their server.
//!
//! They can be ended only from inside their database, which may take no
//! connections. `ALTER DATABASE` can't be counted on to change that: it waits
//! for a transaction that has changed the database's row, maybe the same. Such
//! ones are ended while the server is stopped: without its state file a
//! prepared transaction is one that never came to an end, as after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use tokio_postgres::Row;

use super::connecting::Address;
use super::many::Many;
use super::own_relations::LOCKS_OWN_RELATION;
use super::session::{Named, Patience, Session, column, named};
use super::states::{self, STATES_MAX};
use super::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// More than any server is allowed to have.
const MAX: usize = 10_000;
/// Databases that are opened to end some, and how long that may take altogether. What is left has the
/// server stopped.
const DATABASES_MAX: usize = 100;
const PATIENCE: Duration = Duration::from_secs(10);
const REMOVING: &str = "removing prepared transactions";

/// What is in the way of the platform's work at each start of a server, until it is ended
/// while that is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) enum InTheWay {
    /// Transactions that hold relations of PostgreSQL's own: nobody can begin a session, or
    /// change anything. And those that are beyond what is looked through ([`states::holding`]).
    OwnRelations,
    /// The transaction that has most locks: there is hardly room for others.
    MostLocks,
}

/// A prepared transaction.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    transaction: u32,
    /// Its identifier as an SQL literal.
    identifier: String,
    /// Where it can be ended; none when that takes no connections, or none by a
    /// name in UTF-8.
    database: Option<String>,
}

/// What a query for [`Prepared`] selects from `pg_prepared_xacts p` and
/// `pg_database d`.
pub(super) const COLUMNS: &str =
    "p.transaction::text::bigint, p.gid, p.database::text, coalesce(d.datallowconn, false)";

impl Prepared {
    /// From a row of [`COLUMNS`].
    pub(super) fn of(row: &Row) -> Result<Self> {
        let (Named(identifier), takes_connections) = (column(row, 1)?, column(row, 3)?);
        Ok(Self {
            transaction: column::<i64>(row, 0)? as u32,
            identifier: literal(identifier),
            database: named(row, 2)?.filter(|_| takes_connections),
        })
    }
}

/// An SQL literal of bytes in the encoding of whatever database it is sent to.
fn literal(bytes: &[u8]) -> String {
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("E'{escaped}'")
}

/// All of a server.
///
/// # Errors
/// When it does not answer.
pub(super) async fn all(session: &Session) -> Result<Vec<Prepared>> {
    let query = format!(
        "SELECT {COLUMNS} FROM pg_catalog.pg_prepared_xacts p
         LEFT JOIN pg_catalog.pg_database d ON d.datname = p.database LIMIT {MAX}"
    );
    let rows = session.query("listing prepared transactions", &query, &[]).await?;
    rows.iter().take(MAX).map(Prepared::of).collect()
}

/// Those that hold relations of PostgreSQL's own.
///
/// # Errors
/// When it does not answer.
pub(super) async fn holding_own_relations(session: &Session) -> Result<Vec<Prepared>> {
    let query = format!(
        "WITH locks AS MATERIALIZED (SELECT * FROM pg_catalog.pg_lock_status()),
         p AS (SELECT x.transaction, x.gid, d.datname AS database, x.dbid
               FROM pg_catalog.pg_prepared_xact() x LEFT JOIN pg_catalog.pg_database d ON d.oid = x.dbid)
         SELECT {COLUMNS} FROM p LEFT JOIN pg_catalog.pg_database d ON d.oid = p.dbid
         WHERE p.transaction IN (
             SELECT transactionid FROM locks WHERE granted AND pid IS NULL AND locktype = 'transactionid'
               AND virtualtransaction IN (SELECT virtualtransaction FROM locks
                                          WHERE granted AND pid IS NULL AND {LOCKS_OWN_RELATION}))
         LIMIT {MAX}"
    );
    let rows = session.query("looking for who holds PostgreSQL's own relations", &query, &[]).await?;
    rows.iter().take(MAX).map(Prepared::of).collect()
}

/// Rolls them back.
///
/// # Errors
/// [`EngineError::Held`] names those for which the server has to be stopped.
pub(super) async fn roll_back(address: &Address, major: u32, transactions: &[Prepared]) -> Result<()> {
    let mut by_database: BTreeMap<Option<&str>, Vec<&Prepared>> = BTreeMap::new();
    for prepared in transactions {
        by_database.entry(prepared.database.as_deref()).or_default().push(prepared);
    }
    let (mut held, mut why) = (vec![], Many::default());
    let deadline = Instant::now() + PATIENCE;
    for (number, (database, transactions)) in by_database.into_iter().enumerate() {
        let done = match database {
            _ if number >= DATABASES_MAX || Instant::now() > deadline => {
                Err(EngineError::Other("there are too many".to_owned()))
            }
            Some(database) => roll_back_inside(address, major, database, &transactions, deadline).await,
            None => Err(EngineError::Other(
                "its database takes no connections, or has a name that is no UTF-8".to_owned(),
            )),
        };
        if let Err(error) = done {
            why.note(|| error.chain());
            held.extend(transactions.iter().map(|prepared| prepared.transaction));
        }
    }
    if let Some(why) = why.told() {
        let (instance, count) = (&address.instance, held.len());
        tracing::warn!(%instance, count, "instance {instance} can't end {count} prepared transactions: {why}");
    }
    if held.is_empty() {
        return Ok(());
    }
    Err(EngineError::Held { instance: address.instance.clone(), transactions: held })
}

async fn roll_back_inside(
    address: &Address,
    major: u32,
    database: &str,
    transactions: &[&Prepared],
    deadline: Instant,
) -> Result<()> {
    let inside = address.open_inside(database, major, Patience::QUESTION).await?;
    for prepared in transactions {
        if Instant::now() > deadline {
            return Err(EngineError::no_answer());
        }
        let statement = format!("ROLLBACK PREPARED {}", prepared.identifier);
        inside.execute("rolling back a prepared transaction", &statement).await?;
    }
    Ok(())
}

/// Whether the data of a server has the state of any. Blocks.
///
/// # Errors
/// When the directory can't be read.
pub(super) fn has_state(data: &UntrustedPath) -> Result<bool> {
    let look = || -> io::Result<bool> {
        let states = data.require()?.directory("pg_twophase")?;
        states.map_or(Ok(false), |states| Ok(!states.names(1)?.is_empty()))
    };
    look().map_err(EngineError::io("looking for prepared transactions"))
}

/// Removes the state of transactions from the data of a server that was stopped
/// cleanly, so that their state is nowhere else. Blocks.
///
/// # Errors
/// When the directory can't be read or changed.
pub(super) fn remove_state(data: &UntrustedPath, transactions: &[u32]) -> Result<()> {
    // A server that lies has as many as it likes, and its directory as many files.
    let transactions: BTreeSet<_> = transactions.iter().copied().collect();
    let remove = || -> io::Result<()> {
        let Some(states) = data.require()?.directory("pg_twophase")? else { return Ok(()) };
        for name in states.names(STATES_MAX)? {
            if is_state_of(&name.to_string_lossy(), &transactions) {
                states.unlink(&name)?;
            }
        }
        Ok(())
    };
    remove().map_err(EngineError::io(REMOVING))
}

/// Whether the data of a server has states that are removed as [`InTheWay::OwnRelations`]. Blocks.
///
/// # Errors
/// When the directory can't be read.
pub(super) fn hold_own_relations(data: &UntrustedPath) -> Result<bool> {
    let look = || -> io::Result<bool> {
        let Some(directory) = data.require()?.directory("pg_twophase")? else { return Ok(false) };
        Ok(!states::holding(&directory)?.is_empty())
    };
    look().map_err(EngineError::io("looking through prepared transactions"))
}

/// Removes the state of what is in the way from the data of a server that was stopped
/// cleanly, or that follows another one. False when there is none. Blocks.
///
/// # Errors
/// As [`remove_state`].
pub(super) fn remove(data: &UntrustedPath, what: InTheWay) -> Result<bool> {
    match what {
        InTheWay::OwnRelations => remove_holding(data),
        InTheWay::MostLocks => remove_largest_state(data),
    }
}

fn remove_holding(data: &UntrustedPath) -> Result<bool> {
    let remove = || -> io::Result<bool> {
        let Some(directory) = data.require()?.directory("pg_twophase")? else { return Ok(false) };
        let mut is_any_removed = false;
        for name in states::holding(&directory)? {
            is_any_removed |= directory.unlink(&name)?;
        }
        Ok(is_any_removed)
    };
    remove().map_err(EngineError::io(REMOVING))
}

/// The same of the one whose state is largest: a part of it is a list of its locks.
/// False when there is none.
///
/// # Errors
/// As [`remove_state`].
fn remove_largest_state(data: &UntrustedPath) -> Result<bool> {
    let remove = || -> io::Result<bool> {
        let Some(states) = data.require()?.directory("pg_twophase")? else { return Ok(false) };
        let mut largest = None;
        for name in states.names(STATES_MAX)? {
            largest = largest.max(Some((states.stat(&name)?.st_size, name)));
        }
        largest.map_or(Ok(false), |(_, name)| states.unlink(&name))
    };
    remove().map_err(EngineError::io(REMOVING))
}

/// Names are transaction ids in eight hexadecimal digits, since PostgreSQL 17
/// with eight digits of the epoch before them (`TwoPhaseFilePath` in
/// src/backend/access/transam/twophase.c).
fn is_state_of(name: &str, transactions: &BTreeSet<u32>) -> bool {
    let digits = name.len().checked_sub(8).and_then(|start| name.get(start..));
    let id = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    id.is_some_and(|id| transactions.contains(&id))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::states::tests::state;
    use super::*;

    fn data() -> (tempfile::TempDir, UntrustedPath) {
        let home = tempfile::tempdir().expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        fs::create_dir(data.host_path()).expect("a directory");
        (home, data)
    }

    #[test]
    fn an_identifier_is_sent_as_it_is_whatever_bytes_it_has() {
        assert_eq!(literal(b"a'\\\xff"), r"E'\141\047\134\377'");
    }

    #[test]
    fn only_the_named_transactions_lose_their_state() {
        let (_home, data) = data();
        let directory = data.host_path().join("pg_twophase");
        fs::create_dir(&directory).expect("a directory");
        for name in ["000002D8", "00000001000002D9", "000002DA", "0000000000000FFF", "x"] {
            fs::write(directory.join(name), "").expect("a file");
        }
        remove_state(&data, &[0x2d8, 0x2d9]).expect("it can be changed");
        let mut left: Vec<_> = fs::read_dir(&directory)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["0000000000000FFF", "000002DA", "x"]);
        fs::write(directory.join("000002DA"), "locks").expect("a file");
        assert!(remove_largest_state(&data).expect("it can be changed"));
        assert!(!directory.join("000002DA").exists() && directory.join("x").exists());
        assert!(has_state(&data).expect("it can be read"));
        while remove_largest_state(&data).expect("it can be changed") {}
        assert!(!has_state(&data).expect("it can be read"));
    }

    #[test]
    fn whoever_has_a_relation_of_postgres_to_itself_loses_its_state_and_nobody_else() {
        let (_home, data) = data();
        let directory = data.host_path().join("pg_twophase");
        fs::create_dir(&directory).expect("a directory");
        // Changes in a catalogue; a transaction's own number; a table that others made.
        let innocent = [(2609, 0, 3), (1262, 0, 1), (724, 5, 7), (16_384, 0, 8)];
        fs::write(directory.join("000002D4"), state(&innocent)).expect("a file");
        assert!(!hold_own_relations(&data).expect("it can be read"));
        assert!(!remove(&data, InTheWay::OwnRelations).expect("it can be changed"));
        for (number, lock) in [(1260, 0, 8), (11_992, 0, 8), (1260, 0, 5)].into_iter().enumerate() {
            let path = directory.join(format!("000000000000030{number}"));
            fs::write(&path, state(&[&innocent[..], &[lock]].concat())).expect("a file");
            assert!(hold_own_relations(&data).expect("it can be read"), "{lock:?}");
            assert!(remove(&data, InTheWay::OwnRelations).expect("it can be changed"));
            assert!(!path.exists(), "{lock:?}");
        }
        assert!(directory.join("000002D4").exists());
    }

    #[test]
    fn however_many_a_server_says_there_are_their_state_is_soon_removed() {
        let (_home, data) = data();
        let directory = data.host_path().join("pg_twophase");
        fs::create_dir(&directory).expect("a directory");
        for id in 0..10_000 {
            fs::write(directory.join(format!("{id:08X}")), "").expect("a file");
        }
        let said: Vec<_> = (9_999..1_000_000).collect();
        let began = Instant::now();
        remove_state(&data, &said).expect("it can be changed");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 9_999);
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        let ((_home, data), elsewhere) = (data(), tempfile::tempdir().expect("another"));
        fs::write(elsewhere.path().join("000002D8"), "").expect("a file");
        std::os::unix::fs::symlink(elsewhere.path(), data.host_path().join("pg_twophase")).expect("a link");
        assert!(remove_state(&data, &[0x2d8]).is_err());
        assert!(elsewhere.path().join("000002D8").exists());
    }
}

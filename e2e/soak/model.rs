//! What every branch must hold, kept beside the platform.

use std::collections::BTreeMap;

/// The rows of a branch: values by id.
pub(super) type Rows = BTreeMap<u64, u64>;

/// A change of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put { id: u64, value: u64 },
    Remove { id: u64 },
}

impl Change {
    fn apply(self, rows: &mut Rows) {
        match self {
            Self::Put { id, value } => drop(rows.insert(id, value)),
            Self::Remove { id } => drop(rows.remove(&id)),
        }
    }

    /// The statement that does it.
    pub(super) fn sql(self) -> String {
        match self {
            Self::Put { id, value } => format!(
                "INSERT INTO soak (id, value, body) VALUES ({id}, {value}, repeat('{value} ', 60))
                 ON CONFLICT (id) DO UPDATE SET value = excluded.value, body = excluded.body"
            ),
            Self::Remove { id } => format!("DELETE FROM soak WHERE id = {id}"),
        }
    }
}

/// Makes the table that the statements of [`Change::sql`] are about.
pub(super) const TABLE: &str =
    "CREATE TABLE soak (id bigint PRIMARY KEY, value bigint NOT NULL, body text NOT NULL)";

/// Prints every row, and fails on one whose body is not what was written.
pub(super) const READ: &str = "SELECT id || ' ' || value FROM soak
     WHERE 1 / (body = repeat(value || ' ', 60))::int = 1 ORDER BY id";

/// What [`READ`] printed.
pub(super) fn parse(printed: &str) -> Rows {
    let pair = |line: &str| {
        let (id, value) = line.split_once(' ').expect("an id and a value");
        (id.parse().expect("an id"), value.parse().expect("a value"))
    };
    printed.lines().map(pair).collect()
}

/// What the table of a branch may hold: exactly one of these, more than one
/// only after an answer was lost. What is in all of them must be there, what is
/// in none must not, what is in some may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    possible: Vec<Rows>,
}

impl Contents {
    pub(super) fn empty() -> Self {
        Self { possible: vec![Rows::new()] }
    }

    pub(super) fn is_certain(&self) -> bool {
        self.possible.len() == 1
    }

    /// A transaction that was committed.
    pub(super) fn commit(&mut self, transaction: &[Change]) {
        for rows in &mut self.possible {
            transaction.iter().for_each(|change| change.apply(rows));
        }
        self.forget_doubles();
    }

    /// Transactions that were sent one after the other, each after the answer
    /// to the one before; the answer to the first that is not acknowledged was
    /// lost, so it may have been committed, and the others were never sent.
    pub(super) fn commit_until_cut(&mut self, transactions: &[Vec<Change>], acknowledged: usize) {
        let (done, rest) = transactions.split_at(acknowledged);
        done.iter().for_each(|transaction| self.commit(transaction));
        if let Some(lost) = rest.first() {
            let mut with = self.clone();
            with.commit(lost);
            self.possible.extend(with.possible);
            self.forget_doubles();
        }
    }

    /// As after any number of these transactions, in this order: what a copy
    /// holds that was made meanwhile.
    pub(super) fn at_some_moment_of(mut self, transactions: &[Vec<Change>]) -> Self {
        let mut now = self.clone();
        for transaction in transactions {
            now.commit(transaction);
            self.possible.extend(now.possible.iter().cloned());
        }
        self.forget_doubles();
        self
    }

    /// Compares with what was read, which is certain from then on.
    pub(super) fn settle(&mut self, seen: Rows) -> Result<(), String> {
        if self.possible.contains(&seen) {
            self.possible = vec![seen];
            return Ok(());
        }
        let differences = |rows: &Rows| {
            let (seen, rows) = (rows_as_set(&seen), rows_as_set(rows));
            let missing: Vec<_> = rows.difference(&seen).copied().collect();
            let unexpected: Vec<_> = seen.difference(&rows).copied().collect();
            format!("missing (id, value) {missing:?}, not expected {unexpected:?}")
        };
        let each: Vec<_> = self.possible.iter().map(differences).collect();
        Err(format!("the rows are none of the {} that they may be:\n{}", each.len(), each.join("\n")))
    }

    fn forget_doubles(&mut self) {
        self.possible.sort();
        self.possible.dedup();
    }
}

fn rows_as_set(rows: &Rows) -> std::collections::BTreeSet<(u64, u64)> {
    rows.iter().map(|(id, value)| (*id, *value)).collect()
}

/// A branch as it must be.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
    /// None for a base branch, and when the parent was deleted.
    pub(super) parent: Option<String>,
    /// For psql.
    pub(super) url: String,
    /// Whether a connection wakes it.
    pub(super) is_sleepy: bool,
    pub(super) inactivity_minutes: u64,
    pub(super) is_asleep: bool,
    pub(super) contents: Contents,
    /// Places in the log, and what was in it there.
    pub(super) places: Vec<(String, Contents)>,
    /// What it was before it was reset, and is kept.
    pub(super) pasts: Vec<Past>,
    /// Whose child it was until that one was deleted, or it was.
    pub(super) former_parent: Option<String>,
}

/// What a branch was until it was reset.
#[derive(Clone, Debug)]
pub(super) struct Past {
    /// That of the version.
    pub(super) id: String,
    pub(super) contents: Contents,
    /// Places in its log, and what was in it there.
    pub(super) places: Vec<(String, Contents)>,
}

impl Branch {
    /// Whether a client gets in.
    pub(super) fn takes_connections(&self) -> bool {
        !self.is_asleep || self.is_sleepy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(id: u64) -> Vec<Change> {
        vec![Change::Put { id, value: id * 10 }]
    }

    fn rows(ids: &[u64]) -> Rows {
        ids.iter().map(|id| (*id, id * 10)).collect()
    }

    fn admits(contents: &Contents, ids: &[u64]) -> bool {
        contents.clone().settle(rows(ids)).is_ok()
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_nothing_else() {
        let mut contents = Contents::empty();
        contents.commit(&put(1));
        contents.commit(&put(2));
        assert!(admits(&contents, &[1, 2]));
        assert!(!admits(&contents, &[1]), "a lost row");
        assert!(!admits(&contents, &[1, 2, 3]), "a row out of nowhere");
        assert!(contents.settle([(1, 10), (2, 21)].into()).is_err(), "another value");
    }

    #[test]
    fn of_transactions_that_were_cut_short_one_may_be_there() {
        let mut contents = Contents::empty();
        contents.commit_until_cut(&[put(1), put(2), put(3)], 1);
        assert!(admits(&contents, &[1]) && admits(&contents, &[1, 2]));
        assert!(!admits(&contents, &[]) && !admits(&contents, &[2]) && !admits(&contents, &[1, 2, 3]));
        contents.settle(rows(&[1, 2])).expect("one of the possible");
        assert!(!admits(&contents, &[1]), "what was seen once stays");
    }

    #[test]
    fn a_copy_made_meanwhile_holds_the_beginning() {
        let copy = Contents::empty().at_some_moment_of(&[put(1), put(2)]);
        assert!(admits(&copy, &[]) && admits(&copy, &[1]) && admits(&copy, &[1, 2]));
        assert!(!admits(&copy, &[2]));
    }
}

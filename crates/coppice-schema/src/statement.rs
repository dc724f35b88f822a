//! A step from one schema to the other.

/// Bytes of statements after which no more are made.
pub const STATEMENTS_BYTES_MAX: usize = 16 << 20;

/// What decides how a text is read and by whom it is carried out, as it was looked at.
///
/// It stands before each statement, in a line of its own: whatever is evaluated by one, like the default of a column
/// or the constraint of a domain, sets what it likes for those that follow, and psql reads a whole line by what is set
/// when the line begins. `pg_temp` is named so that nothing in it comes before what is PostgreSQL's. What else can be set
/// changes at most what values are, and so does what is evaluated itself.
///
/// `\restrict` would have psql refuse every command to itself, and end any that does not know it yet.
pub(crate) const AS_LOOKED_AT: &str = "SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; \
    SET search_path = pg_catalog, pg_temp; RESET ROLE;\n";
/// What follows a script finds the session as it began.
pub(crate) const AS_IT_BEGAN: &str =
    "RESET standard_conforming_strings; RESET client_encoding; RESET search_path; RESET ROLE;\n";

/// How much was made of what there may be.
#[derive(Default)]
pub(crate) struct Made {
    bytes: usize,
}

impl Made {
    pub(crate) fn add(&mut self, text: &str) {
        self.bytes += text.len();
    }

    /// Whether no more is to be made.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > STATEMENTS_BYTES_MAX
    }
}

/// Statements of one object, without those after so many that all of them together are too many.
#[derive(Default)]
pub(crate) struct Cut {
    pub(crate) statements: Vec<String>,
    made: Made,
}

impl Cut {
    /// As many of these as are made.
    pub(crate) fn of(statements: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut cut = Self::default();
        let mut statements = statements.into_iter();
        while !cut.is_full()
            && let Some(statement) = statements.next()
        {
            cut.push(statement);
        }
        cut.statements
    }

    pub(crate) fn is_full(&self) -> bool {
        self.made.is_full()
    }

    /// Adds one, unless there are too many.
    pub(crate) fn push(&mut self, statement: String) {
        if !self.is_full() {
            self.made.add(&statement);
            self.statements.push(statement);
        }
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Without the semicolon; a comment where a person has to do it.
    pub sql: String,
    /// Whether data is gone by it, or is converted.
    pub loses_data: bool,
    /// Whether a person has to do it.
    pub manual: bool,
    /// Whether it has to be carried out for itself, before the others.
    pub before_transaction: bool,
}

impl Statement {
    /// Writes it as a part of a script.
    pub(crate) fn write(&self, out: &mut String) {
        if self.manual {
            out.push_str("-- By hand:\n");
            out.push_str(&self.sql);
            out.push('\n');
            return;
        }
        out.push_str(AS_LOOKED_AT);
        if self.loses_data {
            out.push_str("-- Data is lost or converted by this:\n");
        }
        out.push_str(&self.sql);
        out.push_str(";\n");
    }
}

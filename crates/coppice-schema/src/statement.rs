//! A step from one schema to the other.

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
        if self.loses_data {
            out.push_str("-- Data is lost or converted by this:\n");
        }
        out.push_str(&self.sql);
        out.push_str(";\n");
    }
}

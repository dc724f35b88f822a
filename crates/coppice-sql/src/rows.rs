//! A result while it is written: its columns, rows, and what was done.

use std::collections::HashSet;

use bytes::Bytes;
use coppice_pgwire::statement;
use serde_json::Value;

use crate::Failure;
use crate::output::Piece;
use crate::value::{self, Kind};

/// See the module.
pub(crate) struct Rows {
    is_array: bool,
    is_raw: bool,
    columns: Vec<Written>,
    /// Whether the server told the columns.
    is_begun: bool,
    is_first: bool,
}

/// How the values of a column are written.
struct Written {
    kind: Kind,
    /// Its name as a key of JSON; none where a later column has the same.
    key: Option<Vec<u8>>,
}

impl Rows {
    pub(crate) fn new(is_array: bool, is_raw: bool) -> Self {
        Self { is_array, is_raw, columns: vec![], is_begun: false, is_first: true }
    }

    /// With the body of RowDescription.
    pub(crate) fn begin(&mut self, body: Bytes, out: &mut Piece) -> Result<(), Failure> {
        if self.is_begun {
            return Err(Failure::Protocol("a statement has the columns of its rows twice"));
        }
        let columns = statement::columns(body)?;
        let mut seen = HashSet::new();
        self.is_begun = true;
        out.add(br#"{"fields":["#);
        for (number, column) in columns.iter().enumerate() {
            let field = serde_json::json!({
                "name": column.name,
                "tableID": column.table_id,
                "columnID": column.column_id,
                "dataTypeID": column.type_id,
                "dataTypeSize": column.type_size,
                "dataTypeModifier": column.type_modifier,
                "format": "text",
            });
            if number > 0 {
                out.add(b",");
            }
            out.add(field.to_string().as_bytes());
        }
        out.add(br#"],"rows":["#);
        // Of equal names the last counts.
        let written = columns.iter().rev().map(|column| Written {
            kind: if self.is_raw { Kind::Text } else { Kind::of(column.type_id) },
            key: seen.insert(&column.name).then(|| {
                let mut key = vec![];
                value::string(&mut key, &column.name);
                key.push(b':');
                key
            }),
        });
        self.columns = written.collect();
        self.columns.reverse();
        Ok(())
    }

    /// With the body of DataRow.
    pub(crate) fn add(&mut self, body: &[u8], out: &mut Piece) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_first) {
            out.add(b",");
        }
        let (open, close) = if self.is_array { (b"[", b"]") } else { (b"{", b"}") };
        out.add(open);
        let mut is_first = true;
        for (column, text) in self.columns.iter().zip(statement::values(body)?) {
            let text = text?;
            let key: &[u8] = match &column.key {
                _ if self.is_array => b"",
                Some(key) => key,
                None => continue,
            };
            if !std::mem::take(&mut is_first) {
                out.add(b",");
            }
            out.add(key);
            match text {
                Some(text) => value::write(out, column.kind, &String::from_utf8_lossy(text)),
                None => out.add(b"null"),
            }
        }
        out.add(close);
        Ok(())
    }

    /// With what else the result says.
    pub(crate) fn end(self, mut rest: Value, out: &mut Piece) {
        if !self.is_begun {
            out.add(br#"{"fields":[],"rows":["#);
        }
        rest["rowAsArray"] = self.is_array.into();
        out.add(b"],");
        // The rest of an object without its brace.
        out.add(&rest.to_string().as_bytes()[1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_the_columns_of_its_rows_once() {
        let none = || Bytes::from_static(&[0, 0]);
        let (mut rows, mut out) = (Rows::new(true, false), Piece::new(1 << 20));
        assert!(rows.begin(none(), &mut out).is_ok());
        assert!(matches!(rows.begin(none(), &mut out), Err(Failure::Protocol(_))));
    }
}

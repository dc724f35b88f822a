//! What the body of a request says. It is read where it lies: only texts with
//! escapes are copied.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::aside::aside;

/// Most statements of a batch.
pub const STATEMENTS_MAX: usize = 100;
/// Most parameters of a statement, as the protocol has it.
const PARAMETERS_MAX: usize = 65_535;

/// A body that says nothing that can be done, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub Cow<'static, str>);

/// A statement, or several in one transaction.
#[derive(Debug)]
pub enum Request<'a> {
    /// One.
    Single(Statement<'a>),
    /// All or none.
    Batch(Vec<Statement<'a>>),
}

/// A statement with its parameters.
#[derive(Debug)]
pub struct Statement<'a> {
    /// SQL.
    pub query: Cow<'a, str>,
    pub(crate) parameters: Vec<&'a RawValue>,
    /// Whether rows are arrays; else as the request says.
    pub array_mode: Option<bool>,
}

/// How isolated the transaction of a batch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// As read committed.
    ReadUncommitted,
    /// PostgreSQL's default.
    #[default]
    ReadCommitted,
    /// Sees one state.
    RepeatableRead,
    /// As if nobody else were there.
    Serializable,
}

/// What the transaction of a batch is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// How isolated it is.
    pub isolation: Isolation,
    /// Whether it changes nothing.
    pub is_read_only: bool,
    /// Whether it waits for a state that it can't fail in.
    pub is_deferrable: bool,
}

impl Transaction {
    pub(crate) fn begin(self) -> String {
        let isolation = match self.isolation {
            Isolation::ReadUncommitted => "READ UNCOMMITTED",
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        };
        let read_only = if self.is_read_only { " READ ONLY" } else { "" };
        let deferrable = if self.is_deferrable { " DEFERRABLE" } else { "" };
        format!("BEGIN ISOLATION LEVEL {isolation}{read_only}{deferrable}")
    }
}

impl<'a> Statement<'a> {
    /// One without parameters.
    pub fn plain(query: &'a str) -> Self {
        Self { query: Cow::Borrowed(query), parameters: vec![], array_mode: None }
    }
}

#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(serde::Deserialize)]
struct RawStatement<'a> {
    #[serde(borrow)]
    query: Option<Text<'a>>,
    #[serde(borrow)]
    params: Option<AtMost<&'a RawValue, PARAMETERS_MAX>>,
    #[serde(rename = "arrayMode")]
    array_mode: Option<bool>,
}

#[derive(serde::Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    query: Option<Text<'a>>,
    #[serde(borrow)]
    params: Option<AtMost<&'a RawValue, PARAMETERS_MAX>>,
    #[serde(rename = "arrayMode")]
    array_mode: Option<bool>,
    #[serde(borrow)]
    queries: Option<AtMost<RawStatement<'a>, STATEMENTS_MAX>>,
}

/// A list that is refused at its first item too many.
struct AtMost<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
    type Value = AtMost<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut read = vec![];
        while let Some(item) = items.next_element()? {
            if read.len() == MAX {
                return Err(A::Error::custom(format_args!("an array has more than {MAX} items")));
            }
            read.push(item);
        }
        Ok(AtMost(read))
    }
}

impl<'a> Request<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// When it is no JSON, has no query, or has too many.
    pub fn parse(body: &'a [u8]) -> Result<Self, BadRequest> {
        aside(body.len(), || Self::read(body))
    }

    fn read(body: &'a [u8]) -> Result<Self, BadRequest> {
        if body.trim_ascii_start().starts_with(b"[") {
            let AtMost(statements): AtMost<RawStatement<'_>, STATEMENTS_MAX> = read(body)?;
            return batch(statements);
        }
        let RawObject { query, params, array_mode, queries } = read(body)?;
        match (query, queries) {
            (Some(_), Some(_)) => Err(BadRequest("send query or queries, not both".into())),
            (None, None) => Err(BadRequest("query is required".into())),
            (None, Some(AtMost(statements))) => batch(statements),
            (query, None) => RawStatement { query, params, array_mode }.read().map(Self::Single),
        }
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BadRequest> {
    // What serde says may repeat a part of the body; where it is wrong is enough.
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        if error.is_data() {
            let text = error.to_string();
            let is_count = text.starts_with("an array has more than");
            let what =
                if is_count { text.split(" at line").next().unwrap_or_default() } else { "a wrong type" };
            return BadRequest(format!("invalid body: {what} (line {line}, column {column})").into());
        }
        BadRequest(format!("request body is not valid JSON (line {line}, column {column})").into())
    })
}

fn batch(statements: Vec<RawStatement<'_>>) -> Result<Request<'_>, BadRequest> {
    let statements = statements.into_iter().map(RawStatement::read).collect::<Result<Vec<_>, _>>()?;
    if statements.iter().any(|statement| statement.query.trim().is_empty()) {
        return Err(BadRequest("a query of the batch is empty".into()));
    }
    Ok(Request::Batch(statements))
}

impl<'a> RawStatement<'a> {
    fn read(self) -> Result<Statement<'a>, BadRequest> {
        let Text(query) = self.query.ok_or(BadRequest("query is required".into()))?;
        if query.contains('\0') {
            return Err(BadRequest("a query has a NUL character".into()));
        }
        let parameters = self.params.map(|AtMost(parameters)| parameters).unwrap_or_default();
        Ok(Statement { query, parameters, array_mode: self.array_mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> String {
        Request::parse(body.as_bytes()).expect_err(body).to_string()
    }

    #[test]
    fn a_body_is_one_statement_or_a_batch() {
        let body = br#" {"query": "select $1", "params": [1, null], "arrayMode": true, "more": [1]} "#;
        let Ok(Request::Single(one)) = Request::parse(body) else { panic!("a statement") };
        assert_eq!((&*one.query, one.parameters.len(), one.array_mode), ("select $1", 2, Some(true)));
        let body = br#"{"query": "select 'a\"b'", "params": null, "arrayMode": null}"#;
        let Ok(Request::Single(one)) = Request::parse(body) else { panic!("a statement") };
        assert_eq!((&*one.query, one.parameters.len(), one.array_mode), ("select 'a\"b'", 0, None));
        for body in
            [&br#"{"queries": [{"query": "a"}, {"query": "b"}]}"#[..], br#"[{"query":"a"},{"query":"b"}]"#]
        {
            assert!(matches!(Request::parse(body), Ok(Request::Batch(all)) if all.len() == 2));
        }
        assert!(matches!(Request::parse(b"[]"), Ok(Request::Batch(all)) if all.is_empty()));
    }

    #[test]
    fn a_body_that_says_nothing_is_refused_with_what_is_wrong() {
        assert_eq!(refused("{}"), "query is required");
        assert_eq!(refused(r#"{"query": null}"#), "query is required");
        assert_eq!(refused(r#"{"queries": [{}]}"#), "query is required");
        assert_eq!(refused(r#"{"queries": [{"query": " "}]}"#), "a query of the batch is empty");
        assert_eq!(refused(r#"{"query": "a", "queries": []}"#), "send query or queries, not both");
        assert_eq!(refused("{\"query\": \"a\\u0000b\"}"), "a query has a NUL character");
        assert_eq!(refused("select 1"), "request body is not valid JSON (line 1, column 1)");
        assert_eq!(refused(""), "request body is not valid JSON (line 1, column 0)");
        assert_eq!(refused(r#"{"query": 7}"#), "invalid body: a wrong type (line 1, column 11)");
        assert_eq!(refused("7"), "invalid body: a wrong type (line 1, column 1)");
        let many = format!("[{}{}]", r#"{"query":"a"},"#.repeat(STATEMENTS_MAX), r#"{"query":"a"}"#);
        assert!(refused(&many).contains("more than 100 items"), "{}", refused(&many));
        let many = format!(r#"{{"query":"a","params":[{}1]}}"#, "1,".repeat(PARAMETERS_MAX));
        assert!(refused(&many).contains("more than 65535 items"), "{}", refused(&many));
    }

    #[test]
    fn nothing_of_a_secret_is_repeated() {
        for body in [r#"{"query": {"secret": 1}}"#, r#"{"params": "secret"}"#, r#"{"query": secret}"#] {
            assert!(!refused(body).contains("secret"), "{}", refused(body));
        }
    }

    #[test]
    fn a_transaction_begins_as_it_was_asked_for() {
        assert_eq!(Transaction::default().begin(), "BEGIN ISOLATION LEVEL READ COMMITTED");
        let strict =
            Transaction { isolation: Isolation::Serializable, is_read_only: true, is_deferrable: true };
        assert_eq!(strict.begin(), "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE");
    }
}

//! In what form callers would have their answers.

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, IF_NONE_MATCH};

/// The media type of tables.
pub(crate) const TABLE: &str = "text/csv";

/// What a request says of the form of its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// Tags of answers that the caller has.
    pub(crate) known_tag: Option<String>,
    /// Whether it would rather have a table.
    pub(crate) likes_tables: bool,
}

impl Wishes {
    /// As the headers say.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let is_table = |kinds: &str| kinds.split([',', ';']).next().is_some_and(|kind| kind.trim() == TABLE);
        Self {
            known_tag: text(IF_NONE_MATCH).map(str::to_owned),
            likes_tables: text(ACCEPT).is_some_and(is_table),
        }
    }
}

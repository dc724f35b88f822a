//! `Accept` and `If-None-Match`: in what form callers would have their answers.

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, IF_NONE_MATCH};

/// What a request says of the form of its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// Tags of answers that the caller has.
    pub(crate) known_tag: Option<String>,
    /// The media type that it names first.
    pub(crate) kind: Option<String>,
}

impl Wishes {
    /// As the headers say.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let first = |kinds: &str| kinds.split([',', ';']).next().map(|kind| kind.trim().to_ascii_lowercase());
        Self { known_tag: text(IF_NONE_MATCH).map(str::to_owned), kind: text(ACCEPT).and_then(first) }
    }
}

//! The page about the clients that act for a person.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Form, page, rights};

/// A client that a person let act for them.
#[derive(Debug)]
pub(crate) struct KnownClient<'a> {
    /// Its name; none where it is no client here any more.
    pub(crate) name: Option<&'a str>,
    /// Whether somebody else than the client itself says that it is this one.
    pub(crate) is_vouched: bool,
    /// The day since when.
    pub(crate) since: String,
    /// Names of the scopes that it has.
    pub(crate) scopes: Vec<&'a str>,
    /// How often it is signed in.
    pub(crate) sessions: i64,
    /// Whether it stays signed in when the person signs out.
    pub(crate) is_offline: bool,
    /// Where that is taken back.
    pub(crate) end: Form<'a>,
}

impl KnownClient<'_> {
    fn title(&self) -> &str {
        self.name.unwrap_or("A program that is no longer known here")
    }

    fn rights(&self) -> Vec<&'static str> {
        rights::in_words(&self.scopes)
    }
}

/// Lists the clients that act for a person, or may without a question.
#[derive(Debug, Template)]
#[template(path = "allowed_clients.html")]
pub(crate) struct AllowedClientsPage<'a> {
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// The clients.
    pub(crate) known: &'a [KnownClient<'a>],
}

/// The page about the clients that act for a person.
pub(crate) fn allowed_clients(content: &AllowedClientsPage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

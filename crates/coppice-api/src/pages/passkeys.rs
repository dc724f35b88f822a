//! The page about a person's passkeys.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Form, page_with_script};

/// A passkey that a person has.
#[derive(Debug)]
pub(crate) struct KnownPasskey<'a> {
    /// What they call it.
    pub(crate) name: &'a str,
    /// The day it was added.
    pub(crate) added: String,
    /// The day it was last used.
    pub(crate) used: Option<String>,
    /// Where it is removed.
    pub(crate) remove: Form<'a>,
}

/// How a passkey is added; fields `name` and `passkey`.
#[derive(Debug)]
pub(crate) struct NewPasskey<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// What they wanted to call it.
    pub(crate) name: &'a str,
    /// What the browser asks a device for, as JSON.
    pub(crate) options: &'a str,
}

/// Lists the passkeys of a person, and asks for another one.
#[derive(Debug, Template)]
#[template(path = "passkeys.html")]
pub(crate) struct PasskeysPage<'a> {
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// Those that they have.
    pub(crate) known: &'a [KnownPasskey<'a>],
    /// Whether the one that they have is their only second factor.
    pub(crate) is_only: bool,
    /// None where no other one can be added.
    pub(crate) new: Option<NewPasskey<'a>>,
    /// Whether another one would be their first second factor.
    pub(crate) is_first: bool,
    /// Whether browsers have passkeys for this site.
    pub(crate) are_possible: bool,
    /// Where the page about their second factor is.
    pub(crate) second_factor: &'a str,
    /// What was wrong with the last attempt.
    pub(crate) problem: Option<&'a str>,
}

/// The page about passkeys: 200, or 400 when the last attempt failed.
pub(crate) fn passkeys(content: &PasskeysPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page_with_script(status, content, None)
}

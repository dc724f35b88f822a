//! The page to change one's password.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Form, Message, message, page};

/// A field of the pages that set a password, with what was wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// `name`: of a new person.
    Name,
    /// `password`: the one until now.
    Current,
    /// `new_password`.
    New,
    /// `repeated_password`.
    Repeated,
}

/// Asks for the current and the new password; fields `password`,
/// `new_password`, `repeated_password`.
#[derive(Debug, Template)]
#[template(path = "password.html")]
pub(crate) struct PasswordPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// Whether they have no password yet; then the current one is not asked.
    pub(crate) is_first: bool,
    /// Where the page about their second factor is.
    pub(crate) second_factor: &'a str,
    /// Which field of the last attempt was wrong, and why.
    pub(crate) problem: Option<(Field, &'a str)>,
}

impl PasswordPage<'_> {
    fn title(&self) -> &'static str {
        if self.is_first { "Set a password" } else { "Change your password" }
    }

    fn at(&self, field: Field) -> Option<&str> {
        self.problem.filter(|(at, _)| *at == field).map(|(_, text)| text)
    }
}

/// The page to change one's password: 200, or 400 when the last attempt failed.
pub(crate) fn password(content: &PasswordPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page(status, content, content.form.leads_to)
}

/// The page after the change.
pub(crate) fn password_changed() -> Response {
    message(&Message {
        title: "Password changed",
        what: "The new password counts from now on. Everywhere else you have been signed out.",
        ..Message::default()
    })
}

//! The page to sign in.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Form, page};

/// Signing in at somebody else's server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideLink<'a> {
    /// Where the button leads.
    pub(crate) href: &'a str,
    /// Name of that server, as people know it.
    pub(crate) name: &'a str,
}

/// Asks for email and password; fields `email` and `password`.
#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub(crate) struct SignInPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Name of the client that the person comes from, if any.
    pub(crate) client: Option<&'a str>,
    /// What is in the field already.
    pub(crate) email: &'a str,
    /// What was wrong with the last attempt.
    pub(crate) problem: Option<&'a str>,
    /// Whether passwords are accepted at all.
    pub(crate) with_password: bool,
    /// The other way to sign in, if there is one.
    pub(crate) outside: Option<OutsideLink<'a>>,
}

/// The page to sign in: 200, or 401 when the last attempt failed.
pub(crate) fn sign_in(content: &SignInPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    page(status, content, content.form.leads_to)
}

//! The page that says how to go on to who has just become a member.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::page;

/// Says whose member somebody is now, and how to go on.
#[derive(Debug, Template)]
#[template(path = "welcome.html")]
pub(crate) struct WelcomePage<'a> {
    /// Name of the organization.
    pub(crate) organization: &'a str,
    /// Name of the role.
    pub(crate) role: &'a str,
    /// The public URL.
    pub(crate) url: &'a str,
}

/// The page after an invitation.
pub(crate) fn welcome(content: &WelcomePage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

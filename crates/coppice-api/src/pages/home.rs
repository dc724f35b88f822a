//! Pages that say how to go on: for who opens the address of the installation,
//! and for who has just become a member.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::page;

/// Says what this is, and how to go on.
#[derive(Debug, Template)]
#[template(path = "home.html")]
pub(crate) struct HomePage<'a> {
    /// The public URL.
    pub(crate) url: &'a str,
}

/// The page at the address of the installation.
pub(crate) fn home(content: &HomePage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

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

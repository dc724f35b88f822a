//! The pages on which somebody says what a subscription at AWS Marketplace pays for.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Form, OutsideLink, page};

/// How who has no account gets one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Newcomer<'a> {
    /// By signing in there.
    Outside(OutsideLink<'a>),
    /// By an invitation.
    Invited,
    /// By who runs the platform.
    Nobody,
}

/// Thanks somebody for a subscription who is not signed in.
#[derive(Debug, Template)]
#[template(path = "bought.html")]
pub(crate) struct BoughtPage<'a> {
    /// The account at AWS that pays.
    pub(crate) aws_account: &'a str,
    /// Where to sign in and come back.
    pub(crate) sign_in: &'a str,
    /// For who has no account.
    pub(crate) newcomer: Newcomer<'a>,
}

/// The page for who comes from AWS Marketplace and is not signed in.
pub(crate) fn bought(content: &BoughtPage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

/// Asks for the fields `organization`, empty for a new one, and its `name`.
#[derive(Debug, Template)]
#[template(path = "subscription.html")]
pub(crate) struct SubscriptionPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// The account at AWS that pays.
    pub(crate) aws_account: &'a str,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// Where to sign in as somebody else and come back.
    pub(crate) other_account: &'a str,
    /// Ids and names of organizations that may be chosen.
    pub(crate) organizations: &'a [(&'a str, &'a str)],
    /// What is in the field for the name already.
    pub(crate) name: &'a str,
    /// Why the last attempt failed.
    pub(crate) problem: Option<&'a str>,
}

/// The page of a subscription.
pub(crate) fn subscription(content: &SubscriptionPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page(status, content, None)
}

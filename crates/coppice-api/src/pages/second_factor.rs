//! The pages of the second factor: showing it, adding it, and what can be done
//! with it.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::qr::Qr;
use super::{Form, Link, Message, message, page, page_with_script};

/// Asks for the second factor after the first; fields `code` and `passkey`.
#[derive(Debug, Template)]
#[template(path = "second_step.html")]
pub(crate) struct SecondStepPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Email of the person who is about to sign in.
    pub(crate) account: &'a str,
    /// What the browser asks a device to sign, as JSON, if they have a passkey.
    pub(crate) passkey: Option<&'a str>,
    /// Whether they have an app that makes codes.
    pub(crate) has_app: bool,
    /// What was wrong with the last attempt.
    pub(crate) problem: Option<&'a str>,
}

impl SecondStepPage<'_> {
    fn hint(&self) -> &'static str {
        match self.has_app {
            true => "The six digits that your authenticator app shows, or one of your recovery codes.",
            false => "One of your recovery codes.",
        }
    }
}

/// The page that asks for the second factor: 200, or 401 when the last attempt failed.
pub(crate) fn second_step(content: &SecondStepPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    with_passkey(status, content, content.passkey, content.form.leads_to)
}

/// A page has our script where there is a passkey to be used.
fn with_passkey(
    status: StatusCode,
    content: &impl Template,
    passkey: Option<&str>,
    leads_to: Option<&str>,
) -> Response {
    match passkey {
        Some(_) => page_with_script(status, content, leads_to),
        None => page(status, content, leads_to),
    }
}

/// Gives an app what it makes codes with, and asks for one; field `code`.
#[derive(Template)]
#[template(path = "second_factor_new.html")]
pub(crate) struct EnrolmentPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// What is typed into an app that can't read the picture.
    pub(crate) secret: &'a str,
    /// What an app reads from the picture.
    pub(crate) address: &'a str,
    /// Where a passkey can be added instead, if it is the first second factor.
    pub(crate) passkeys_page: Option<&'a str>,
    /// What was wrong with the last code.
    pub(crate) problem: Option<&'a str>,
}

impl EnrolmentPage<'_> {
    fn title(&self) -> &'static str {
        if self.passkeys_page.is_some() { "Add a second factor" } else { "Add an authenticator app" }
    }

    fn qr(&self) -> Qr {
        Qr::of(self.address)
    }
}

/// The page to add an app: 200, or 400 when the last attempt failed.
pub(crate) fn enrolment(content: &EnrolmentPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page(status, content, content.form.leads_to)
}

/// A field of the page about a second factor, with what was wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FactorField {
    /// `code`, for new recovery codes.
    RenewCode,
    /// `password`, to remove it.
    Password,
    /// `code`, to remove it.
    RemoveCode,
}

/// Tells of the second factor, and asks for `code` or `passkey` to give new
/// recovery codes, and for `password` too to remove it.
#[derive(Debug, Template)]
#[template(path = "second_factor.html")]
pub(crate) struct SecondFactorPage<'a> {
    /// Where new recovery codes are asked for.
    pub(crate) renew: Form<'a>,
    /// Where it is removed.
    pub(crate) remove: Form<'a>,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// Whether they have an app that makes codes.
    pub(crate) has_app: bool,
    /// How many passkeys they have.
    pub(crate) passkeys: i64,
    /// What the browser asks a device to sign, as JSON, if they have a passkey.
    pub(crate) passkey: Option<&'a str>,
    /// Where the page about passkeys is.
    pub(crate) passkeys_page: &'a str,
    /// Where an app is added.
    pub(crate) app_page: &'a str,
    /// How many recovery codes are left.
    pub(crate) recovery_codes: i64,
    /// Whether they have a password.
    pub(crate) with_password: bool,
    /// Which field of the last attempt was wrong, and why.
    pub(crate) problem: Option<(FactorField, &'a str)>,
}

impl SecondFactorPage<'_> {
    fn hint(&self) -> &'static str {
        if self.has_app { "Of the app, or a recovery code." } else { "One of your recovery codes." }
    }

    fn at(&self, field: FactorField) -> Option<&str> {
        self.problem.filter(|(at, _)| *at == field).map(|(_, text)| text)
    }
}

/// The page about a second factor: 200, or 400 when the last attempt failed.
pub(crate) fn second_factor(content: &SecondFactorPage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    with_passkey(status, content, content.passkey, content.renew.leads_to)
}

/// Shows recovery codes, once.
#[derive(Template)]
#[template(path = "recovery_codes.html")]
pub(crate) struct RecoveryCodesPage<'a> {
    /// Whether the second factor was just added.
    pub(crate) is_first: bool,
    /// The codes.
    pub(crate) codes: &'a [&'a str],
}

/// The page with recovery codes.
pub(crate) fn recovery_codes(content: &RecoveryCodesPage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

/// The page after a second factor was removed.
pub(crate) fn second_factor_removed(sign_in: &str) -> Response {
    message(&Message {
        title: "Second factor removed",
        what: "Your password alone signs you in from now on. You have been signed out everywhere.",
        link: Some(Link { href: sign_in, text: "Sign in" }),
        ..Message::default()
    })
}

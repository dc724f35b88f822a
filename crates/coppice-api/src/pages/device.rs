//! The pages that connect a device without a browser of its own.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Form, Message, message, page, rights};

/// Asks for the code on the device; field `user_code`.
#[derive(Debug, Template)]
#[template(path = "device_code.html")]
pub(crate) struct DeviceCodePage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// What is in the field already.
    pub(crate) user_code: &'a str,
    /// What was wrong with the last code.
    pub(crate) problem: Option<&'a str>,
}

/// The page that asks for the code: 200, or 400 when the last one was wrong.
pub(crate) fn device_code(content: &DeviceCodePage<'_>) -> Response {
    let status = if content.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page(status, content, content.form.leads_to)
}

/// Asks whether the device may use the account; the field
/// [`super::ANSWER_FIELD`] is `allow` or `deny`.
#[derive(Debug, Template)]
#[template(path = "device_confirmation.html")]
pub(crate) struct DeviceConfirmationPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Name of the client on the device.
    pub(crate) client: &'a str,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// The code, as the device shows it.
    pub(crate) user_code: &'a str,
    /// Network address that the device asked from.
    pub(crate) address: &'a str,
    /// Whether somebody else than the client itself says that it is this one.
    pub(crate) is_vouched: bool,
    /// Names of the scopes that will be granted.
    pub(crate) scopes: &'a [&'a str],
}

impl DeviceConfirmationPage<'_> {
    fn rights(&self) -> Vec<&'static str> {
        rights::in_words(self.scopes)
    }
}

/// The page that asks whether the device may use the account.
pub(crate) fn device_confirmation(content: &DeviceConfirmationPage<'_>) -> Response {
    page(StatusCode::OK, content, content.form.leads_to)
}

/// The page after the answer.
pub(crate) fn device_done(client: &str, is_allowed: bool) -> Response {
    let connected = format!("{client} can use your account now.");
    let denied = format!("{client} got no access to your account.");
    message(&match is_allowed {
        true => Message {
            title: "Device connected",
            what: &connected,
            next: "You can close this page and go on at the device.",
            ..Message::default()
        },
        false => Message {
            title: "Device refused",
            what: &denied,
            next: "If you did not start this, nothing more is to be done. You can close this page.",
            ..Message::default()
        },
    })
}

//! Pages that tell something, and those that ask before signing in by a link and
//! signing out.

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::{Form, page};
use crate::context::request_id;

/// A way on from a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link<'a> {
    /// Where it leads.
    pub(crate) href: &'a str,
    /// What it says.
    pub(crate) text: &'a str,
}

/// Tells what happened and what to do next.
#[derive(Debug, Default, Template)]
#[template(path = "message.html")]
pub(crate) struct Message<'a> {
    /// In a few words.
    pub(crate) title: &'a str,
    /// What happened.
    pub(crate) what: &'a str,
    /// What to do next, if anything.
    pub(crate) next: &'a str,
    /// The way on, if there is one.
    pub(crate) link: Option<Link<'a>>,
    /// Id of the request, for who looks into the log.
    pub(crate) request: Option<&'a str>,
}

/// A page about something that went well.
pub(crate) fn message(content: &Message<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

/// A page about something that went wrong; a fault of ours names its request.
pub(crate) fn error(status: StatusCode, content: &Message<'_>) -> Response {
    let id = request_id();
    let request = (status.is_server_error() && !id.is_empty()).then_some(id.as_str());
    let Message { title, what, next, link, .. } = *content;
    page(status, &Message { title, what, next, link, request }, None)
}

/// The page for who failed to sign in too often.
pub(crate) fn too_many_attempts(retry_after_seconds: u64) -> Response {
    let next = format!("Wait {}, then try again.", in_words(retry_after_seconds));
    let content = Message {
        title: "Too many attempts",
        what: "There were too many attempts in a short time, so this is paused for a while.",
        next: &next,
        ..Message::default()
    };
    paused(&content, retry_after_seconds)
}

/// The page for who shows a code of an app while those of the account are not
/// looked at; a recovery code can be typed at `place`.
pub(crate) fn codes_paused(retry_after_seconds: u64, place: &str) -> Response {
    let next = format!(
        "Use one of your recovery codes: after it, codes of the app are taken again. Without one, wait {}, \
         or ask the operator of this installation to remove the second factor.",
        in_words(retry_after_seconds)
    );
    let content = Message {
        title: "Codes of your app are paused",
        what: "Too many wrong ones were tried for this account within a day, by you or by somebody else.",
        next: &next,
        link: Some(Link { href: place, text: "Use a recovery code" }),
        ..Message::default()
    };
    paused(&content, retry_after_seconds)
}

fn paused(content: &Message<'_>, retry_after_seconds: u64) -> Response {
    let mut response = page(StatusCode::TOO_MANY_REQUESTS, content, None);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds.max(1)));
    response
}

/// At least so long, in words.
fn in_words(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".to_owned(),
        minutes @ 2..=120 => format!("{minutes} minutes"),
        minutes => format!("{} hours", minutes.div_ceil(60)),
    }
}

/// The page after signing out.
pub(crate) fn signed_out(link: Option<Link<'_>>) -> Response {
    message(&Message {
        title: "Signed out",
        what: "You are signed out of Coppice in this browser.",
        link,
        ..Message::default()
    })
}

/// Asks whether to sign in by a link.
#[derive(Debug, Template)]
#[template(path = "sign_in_link.html")]
pub(crate) struct SignInLinkPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Email of whom the link signs in.
    pub(crate) account: &'a str,
}

/// The page that asks whether to sign in by a link.
pub(crate) fn sign_in_link(content: &SignInLinkPage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

/// Asks whether to sign in as who somebody is at Vercel.
#[derive(Debug, Template)]
#[template(path = "from_vercel.html")]
pub(crate) struct FromVercelPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Email of who is signed in already.
    pub(crate) account: Option<&'a str>,
}

/// The page that asks whether to sign in as who somebody is at Vercel.
pub(crate) fn from_vercel(content: &FromVercelPage<'_>) -> Response {
    page(StatusCode::OK, content, None)
}

/// Asks whether to sign out.
#[derive(Debug, Template)]
#[template(path = "sign_out.html")]
pub(crate) struct SignOutPage<'a> {
    /// Where it is posted; `leads_to` is where the client wants the person back.
    pub(crate) form: Form<'a>,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
}

/// The page that asks whether to sign out.
pub(crate) fn sign_out(content: &SignOutPage<'_>) -> Response {
    page(StatusCode::OK, content, content.form.leads_to)
}

//! What comes of showing who one is, and being asked to.

use axum::http::StatusCode;
use axum::response::Response;
use coppice_app::{App, BrowserSession, SignIn};

use super::browser::Browser;
use super::{places, redirect};
use crate::pages::{self, Message};

/// Sends a person who showed who they are on to `next`, a path of ours, or
/// first to the page that asks for their second factor.
pub(super) fn go_on(browser: &Browser, next: &str, begun: &SignIn) -> Response {
    let to = match begun {
        SignIn::Half(_) => places::second_step(browser, next),
        _ => browser.path(next),
    };
    keep(browser, redirect(&to), begun)
}

/// Lets the browser keep what it was given.
pub(super) fn keep(browser: &Browser, response: Response, begun: &SignIn) -> Response {
    match begun {
        SignIn::Done(secret) => browser.signed_in(response, secret),
        SignIn::Half(secret) => browser.half_signed_in(response, secret),
        SignIn::Wrong | SignIn::TooOften(_) => response,
    }
}

/// Lets somebody say anew who they are before they go on at `next`, where they
/// change how they sign in.
pub(super) fn ask_anew(app: &App, browser: &Browser, session: &BrowserSession, next: &str) -> Response {
    let sign_in = places::sign_in(browser, next);
    let Some(name) = app.outside.name().filter(|_| !session.was_asked) else { return redirect(&sign_in) };
    let what = format!("You are signed in because {name} knew you from earlier. That is not enough here.");
    let next = format!("Sign in again. If {name} lets you in without asking, sign out there first.");
    pages::error(
        StatusCode::FORBIDDEN,
        &Message {
            title: "Show who you are first",
            what: &what,
            next: &next,
            link: Some(pages::Link { href: &sign_in, text: "Sign in again" }),
            ..Message::default()
        },
    )
}

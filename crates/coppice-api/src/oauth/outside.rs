//! To an outside provider and back, as the browser goes.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use coppice_app::{App, Holdings, OutsideAnswer, OutsideAttempt, OutsideError, OutsideRefusal, OutsideUser};

use super::body::PageQuery;
use super::browser::{ANEW, Browser, NEXT, own_path};
use super::showing::{go_on, keep};
use super::{cookies, error, places, redirect};
use crate::metrics;
use crate::pages::{self, Link, Message};

const CALLBACK: &str = "/oauth/outside/callback";
/// Longest value that browsers keep, with room for the rest of the cookie.
const COOKIE_LENGTH_MAX: usize = 3800;
/// Attempts of one browser at the same time.
const ATTEMPTS_MAX: usize = 4;

pub(super) fn routes() -> Router<App> {
    Router::new().route(places::OUTSIDE, get(begin)).route(CALLBACK, get(finish))
}

/// `GET /oauth/outside?next=…`
async fn begin(
    State(app): State<App>,
    browser: Browser,
    headers: HeaderMap,
    PageQuery(params): PageQuery,
) -> Response {
    let next = params.get(NEXT).and_then(own_path).unwrap_or("/");
    let Some(name) = app.outside.name() else { return no_provider() };
    let beginning = match app.outside.begin(next, params.get(ANEW).is_some()).await {
        Ok(Some(beginning)) => beginning,
        Ok(None) => return no_provider(),
        Err(error) => return refusal(name, Some(&browser.path(next)), OutsideRefusal::Provider(error)),
    };
    if beginning.sealed.len() > COOKIE_LENGTH_MAX {
        return pages::error(
            StatusCode::BAD_REQUEST,
            &Message {
                title: "This request is too long",
                what: "What is to go on after signing in is too long to be carried to another site and back.",
                next: "Tell the people who make the program that sent you here to use a shorter state.",
                ..Message::default()
            },
        );
    }
    let mut response = redirect(&beginning.address);
    let (name, age) = (cookie(&app, &beginning.label), OutsideAttempt::lifetime_seconds());
    cookies::set(&app, &mut response, &name, &beginning.sealed, Some(age));
    for label in forgotten(&app, &headers) {
        cookies::forget(&app, &mut response, &cookie(&app, label));
    }
    response
}

/// Labels of attempts that were begun in this browser and probably given up:
/// their cookies would in time be more than a request may carry.
fn forgotten<'h>(app: &App, headers: &'h HeaderMap) -> Vec<&'h str> {
    let prefix = cookie(app, "");
    let mut labels: Vec<_> = cookies::all(headers)
        .filter_map(|(name, _)| OutsideAttempt::label(name.strip_prefix(&prefix)?))
        .collect();
    // Browsers send what they got first, first.
    labels.truncate(labels.len().saturating_sub(ATTEMPTS_MAX - 1));
    labels
}

/// `GET /oauth/outside/callback`
async fn finish(
    State(app): State<App>,
    browser: Browser,
    headers: HeaderMap,
    PageQuery(params): PageQuery,
) -> Response {
    let Some(name) = app.outside.name() else { return no_provider() };
    let text = |name: &str| params.get(name).map(str::to_owned);
    let state = text("state").unwrap_or_default();
    let cookie = OutsideAttempt::label(&state).map(|label| cookie(&app, label));
    let sealed = cookie.as_ref().and_then(|name| cookies::find(&headers, name));
    let attempt = sealed.and_then(|sealed| app.outside.attempt(sealed));
    let (Some(cookie), Some(attempt)) = (cookie, attempt) else {
        let foreign = OutsideError::Foreign("it brings no attempt with this state".to_owned());
        return refusal(name, None, OutsideRefusal::Provider(foreign));
    };
    let answer =
        OutsideAnswer { code: text("code"), state: state.clone(), issuer: text("iss"), error: text("error") };
    let then = browser.path(&attempt.then);
    let mut response = match app.outside.finish(&attempt, &answer, &browser.origin).await {
        Ok(Some(user)) => signed_in(&app, &browser, &user, &attempt.then).await,
        Ok(None) => no_provider(),
        Err(error) => {
            if !matches!(
                error,
                OutsideRefusal::Provider(OutsideError::Unreachable(_)) | OutsideRefusal::Fault(_)
            ) {
                metrics::authentication_failed();
            }
            refusal(name, Some(&then), error)
        }
    };
    // Whatever came of it, the attempt is over.
    cookies::forget(&app, &mut response, &cookie);
    response
}

async fn signed_in(app: &App, browser: &Browser, who: &OutsideUser, then: &str) -> Response {
    let replaced = browser.session.as_ref();
    let begun = app
        .identity
        .begin_browser_session(&who.user, who.was_asked, &who.methods, &browser.origin, replaced)
        .await;
    match begun {
        Ok(begun) => match &who.taken {
            Some(taken) => keep(browser, tell_taken(taken, &browser.path(then)), &begun),
            None => go_on(browser, then, &begun),
        },
        Err(failed) => error::page(&failed),
    }
}

/// Tells somebody of the account that was made at their address, from which they go on.
fn tell_taken(taken: &Holdings, then: &str) -> Response {
    let what = format!(
        "There was an account with your address already, but whoever made it did not show that the address is \
         theirs. You have, so it is yours. What let them in is gone: {taken}."
    );
    let next = taken.membership().map(|membership| {
        format!(
            "It is still {membership}. If you did not make it, look at their members and keys before you put \
             anything in, and leave or delete what you don't know."
        )
    });
    pages::message(&Message {
        title: "This account is yours now",
        what: &what,
        next: next.as_deref().unwrap_or_default(),
        link: Some(Link { href: then, text: "Go on" }),
        ..Message::default()
    })
}

/// Name of the cookie with an attempt. Each attempt has its own, so that a
/// person may sign in from two windows at once.
fn cookie(app: &App, label: &str) -> String {
    cookies::name(app, &format!("coppice-outside-{label}"))
}

fn no_provider() -> Response {
    pages::error(
        StatusCode::NOT_FOUND,
        &Message {
            title: "There is no such way to sign in",
            what: "Nobody else's accounts are accepted here.",
            next: "Sign in with your email address and password.",
            ..Message::default()
        },
    )
}

/// The page of a refusal, from which the person may begin again at `then`.
fn refusal(name: &str, then: Option<&str>, refusal: OutsideRefusal) -> Response {
    let (title, what);
    let (status, title, what, next) = match refusal {
        OutsideRefusal::Provider(OutsideError::Unreachable(cause)) => {
            tracing::warn!("signing in at {name}: {cause}");
            title = format!("{name} does not answer");
            let what = "So nobody can be signed in there at the moment.";
            (StatusCode::BAD_GATEWAY, title.as_str(), what, "Try again in a minute.")
        }
        OutsideRefusal::Provider(OutsideError::Broken(cause)) => {
            tracing::warn!("signing in at {name}: {cause}");
            what = format!(
                "{name} gave an answer that can't be accepted. The log of this installation says why."
            );
            let next = "Try again; if that does not help, tell the operator of this installation.";
            (StatusCode::BAD_GATEWAY, "Signing in did not work", what.as_str(), next)
        }
        OutsideRefusal::Provider(OutsideError::Refused(code)) => {
            tracing::info!("signing in at {name} was refused there: {code:?}");
            what = format!("{name} refused, or you went back from there.");
            (StatusCode::FORBIDDEN, "You are not signed in", what.as_str(), "You can try again.")
        }
        OutsideRefusal::Provider(OutsideError::Foreign(cause)) => {
            tracing::info!("signing in at {name}: {cause}");
            let what = "It was begun in another browser, or too long ago, or it is completed already.";
            let next = match then {
                Some(_) => "Begin again.",
                None => "Go back to where you wanted to sign in, and begin again there.",
            };
            (StatusCode::BAD_REQUEST, "This sign-in can't be completed", what, next)
        }
        OutsideRefusal::Provider(OutsideError::Unverified) => {
            what = format!("{name} does not vouch for your email address, so you can't be recognised by it.");
            let next = "Have the address verified there, then sign in again.";
            (StatusCode::FORBIDDEN, "Your email address is not verified", what.as_str(), next)
        }
        OutsideRefusal::NoAccount { email, may_be_invited } => {
            what = format!("You are signed in at {name} as {email}. No account here has this address.");
            let next = match may_be_invited {
                true => "Ask somebody in your organization to invite this address.",
                false => "Ask the operator of this installation for an account with this address.",
            };
            (StatusCode::FORBIDDEN, "You have no account here", what.as_str(), next)
        }
        OutsideRefusal::Disabled => {
            let next = "Ask the operator of this installation.";
            (StatusCode::FORBIDDEN, "Your account is disabled", "It can't be used to sign in.", next)
        }
        OutsideRefusal::Fault(error) => return error::page(&error),
    };
    let link = then.map(|href| Link { href, text: "Begin again" });
    pages::error(status, &Message { title, what, next, link, ..Message::default() })
}

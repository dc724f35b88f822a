//! The page about one's own passkeys: adding and removing them.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use coppice_app::{App, BrowserSession, Enrolment, PasskeyRemoved};
use coppice_core::Error;
use coppice_core::name::is_unseen;

use super::body::Posted;
use super::browser::Browser;
use super::places::{self, PASSKEYS};
use super::second_factor::{PASSKEY, show_codes};
use super::showing::ask_anew;
use super::{error, redirect};
use crate::pages::{self, Form, KnownPasskey, NewPasskey, PasskeysPage};

const REMOVE: &str = "/account/passkeys/remove";
/// Field with which passkey is meant.
const ID: &str = "id";
/// Longest name of one, in characters.
const NAME_MAX: usize = 64;

pub(super) fn routes() -> Router<App> {
    Router::new().route(PASSKEYS, get(show).post(add)).route(REMOVE, post(remove))
}

/// `GET /account/passkeys`
async fn show(State(app): State<App>, browser: Browser) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, PASSKEYS)) };
    page(&app, &browser, session, "", None).await
}

async fn page(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    name: &str,
    problem: Option<&str>,
) -> Response {
    let page = try_page(app, browser, session, name, problem).await;
    page.unwrap_or_else(|failed| error::page(&failed))
}

async fn try_page(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    name: &str,
    problem: Option<&str>,
) -> Result<Response, Error> {
    if !app.identity.was_just_asked(session) {
        return Ok(ask_anew(app, browser, session, PASSKEYS));
    }
    let options = app.identity.ask_for_passkey(session).await?.map(|options| options.to_string());
    let have = app.identity.passkeys(&session.user).await?;
    let factor = app.identity.second_factor(&session.user).await?;
    let has_app = factor.as_ref().is_some_and(|factor| factor.totp_sealed.is_some());
    let (add, remove) = (browser.path(PASSKEYS), browser.path(REMOVE));
    let (add_csrf, remove_csrf) = (browser.form_token(PASSKEYS), browser.form_token(REMOVE));
    let hidden: Vec<_> = have.iter().map(|passkey| [(ID, passkey.id.as_str())]).collect();
    let known = have.iter().zip(&hidden).map(|(passkey, hidden)| KnownPasskey {
        name: &passkey.name,
        added: passkey.created_at.format("%Y-%m-%d").to_string(),
        used: passkey.last_used_at.map(|at| at.format("%Y-%m-%d").to_string()),
        remove: Form { action: &remove, csrf: &remove_csrf, hidden, leads_to: None },
    });
    let known: Vec<_> = known.collect();
    let new = options.as_deref().map(|options| NewPasskey {
        form: Form { action: &add, csrf: &add_csrf, hidden: &[], leads_to: None },
        name,
        options,
    });
    Ok(browser.with_form(pages::passkeys(&PasskeysPage {
        account: &session.email,
        is_only: known.len() == 1 && !has_app,
        known: &known,
        new,
        is_first: factor.is_none(),
        are_possible: app.identity.has_passkeys(),
        second_factor: &browser.path(places::SECOND_FACTOR),
        problem,
    })))
}

fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.chars().count() > NAME_MAX {
        return Some("Give the passkey a name of 1 to 64 characters.");
    }
    name.contains(is_unseen).then_some(
        "The name has a character that can't be seen or turns the text around it. Type it without.",
    )
}

/// `POST /account/passkeys`
async fn add(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, PASSKEYS)) };
    if !browser.made(&form, PASSKEYS) {
        return error::stale_form();
    }
    let name = form.get("name").unwrap_or_default().trim();
    if let Some(problem) = name_problem(name) {
        return page(&app, &browser, session, name, Some(problem)).await;
    }
    let answer = form.get(PASSKEY).unwrap_or_default();
    match app.identity.add_passkey(session, name, answer, &browser.origin).await {
        Ok(Enrolment::First { codes, secret }) => browser.signed_in(show_codes(&codes, true), &secret),
        Ok(Enrolment::Another) => redirect(&browser.path(PASSKEYS)),
        Ok(Enrolment::Wrong) => {
            let problem = "What your device sent is no answer to what it was asked, or it came too late. \
                           Try again.";
            page(&app, &browser, session, name, Some(problem)).await
        }
        Ok(Enrolment::Stale) => page(&app, &browser, session, name, None).await,
        Ok(Enrolment::TooOften(seconds)) => pages::too_many_attempts(seconds.into()),
        Err(failed) => error::page(&failed),
    }
}

/// `POST /account/passkeys/remove`
async fn remove(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, PASSKEYS)) };
    if !browser.made(&form, REMOVE) {
        return error::stale_form();
    }
    let id = form.get(ID).unwrap_or_default();
    match app.identity.remove_passkey(session, id, &browser.origin).await {
        Ok(PasskeyRemoved::Done(secret)) => browser.signed_in(redirect(&browser.path(PASSKEYS)), &secret),
        Ok(PasskeyRemoved::Absent) => redirect(&browser.path(PASSKEYS)),
        Ok(PasskeyRemoved::Last) => {
            let problem = "This is your only second factor by now. Add another one first.";
            page(&app, &browser, session, "", Some(problem)).await
        }
        Ok(PasskeyRemoved::Stale) => ask_anew(&app, &browser, session, PASSKEYS),
        Err(failed) => error::page(&failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passkey_has_a_name_that_people_can_read() {
        for name in ["", "Phone\u{202e}", &"a".repeat(65)] {
            assert!(name_problem(name).is_some(), "{name:?}");
        }
        assert_eq!(name_problem("Key on my chain"), None);
    }
}

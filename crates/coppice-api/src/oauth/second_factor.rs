//! The page about one's own second factor: adding it, other recovery codes,
//! removing it.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use coppice_app::{App, BrowserSession, Enrolment, NewRecoveryCodes, RecoveryCodes, SecondFactorRemoval};
use coppice_core::Error;

use super::account::{ask_anew, secret};
use super::body::PageForm;
use super::browser::Browser;
use super::{error, redirect, sign_in};
use crate::pages::{self, EnrolmentPage, FactorField, Form, RecoveryCodesPage, SecondFactorPage};

pub(super) const PATH: &str = "/account/second-factor";
const RENEW: &str = "/account/second-factor/recovery-codes";
const REMOVE: &str = "/account/second-factor/remove";
/// Field with what an app is given, which the form's token holds for this
/// session: nothing of it is kept before it counts.
const SECRET: &str = "secret";
const BAD_CODE: &str = "This code is not right, or it was used before. The app shows a new one soon.";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(show).post(add)).route(RENEW, post(renew)).route(REMOVE, post(remove))
}

fn purpose(secret: &str) -> String {
    format!("second factor\n{secret}")
}

/// `GET /account/second-factor`
async fn show(State(app): State<App>, browser: Browser) -> Response {
    let Some(session) = &browser.session else { return redirect(&sign_in::address(&browser, PATH)) };
    page(&app, &browser, session, None).await.unwrap_or_else(|failed| error::page(&failed))
}

/// What there is, or else the page to add it.
async fn page(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    problem: Option<(FactorField, &str)>,
) -> Result<Response, Error> {
    let Some(factor) = app.second_factor(&session.user).await? else {
        return match app.was_just_asked(session) {
            true => enrolment(app, browser, session, None, None),
            false => Ok(ask_anew(app, browser, session, PATH)),
        };
    };
    let (renew, remove) = (browser.path(RENEW), browser.path(REMOVE));
    let form = |action, csrf| Form { action, csrf, hidden: &[], leads_to: None };
    Ok(browser.with_form(pages::second_factor(&SecondFactorPage {
        renew: form(&renew, &browser.form_token(RENEW)),
        remove: form(&remove, &browser.form_token(REMOVE)),
        account: &session.email,
        recovery_codes: factor.recovery_codes,
        with_password: app.has_password(&session.user).await?,
        problem,
    })))
}

/// The page to add a second factor: with this secret, or a new one.
fn enrolment(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    secret: Option<&str>,
    problem: Option<&str>,
) -> Result<Response, Error> {
    let factor = app.new_factor(&session.email, secret)?;
    let form = Form {
        action: &browser.path(PATH),
        csrf: &browser.form_token(&purpose(&factor.secret)),
        hidden: &[(SECRET, &factor.secret)],
        leads_to: None,
    };
    Ok(browser.with_form(pages::enrolment(&EnrolmentPage {
        form,
        account: &session.email,
        secret: &in_groups(&factor.secret),
        address: &factor.address,
        problem,
    })))
}

/// As people type it best.
fn in_groups(secret: &str) -> String {
    let letters: Vec<char> = secret.chars().collect();
    letters.chunks(4).map(String::from_iter).collect::<Vec<_>>().join(" ")
}

fn show_codes(codes: &RecoveryCodes, is_first: bool) -> Response {
    let codes: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    pages::recovery_codes(&RecoveryCodesPage { is_first, codes: &codes })
}

/// `POST /account/second-factor`
async fn add(State(app): State<App>, browser: Browser, PageForm(form): PageForm) -> Response {
    let Some(session) = &browser.session else { return redirect(&sign_in::address(&browser, PATH)) };
    let secret = form.get(SECRET).unwrap_or_default();
    if !browser.made(&form, &purpose(secret)) {
        return error::stale_form();
    }
    let code = form.get("code").unwrap_or_default();
    let outcome = match app.add_second_factor(session, secret, code, &browser.origin).await {
        Ok(Enrolment::Done { codes, secret }) => Ok(browser.signed_in(show_codes(&codes, true), &secret)),
        Ok(Enrolment::Wrong) => {
            let problem = "The app shows another code for this account. Is the clock of your phone right?";
            enrolment(&app, &browser, session, Some(secret), Some(problem))
        }
        Ok(Enrolment::Stale) => page(&app, &browser, session, None).await,
        Ok(Enrolment::TooOften(seconds)) => Ok(pages::too_many_attempts(seconds.into())),
        Err(failed) => Err(failed),
    };
    outcome.unwrap_or_else(|failed| error::page(&failed))
}

/// `POST /account/second-factor/recovery-codes`
async fn renew(State(app): State<App>, browser: Browser, PageForm(form): PageForm) -> Response {
    let Some(session) = &browser.session else { return redirect(&sign_in::address(&browser, PATH)) };
    if !browser.made(&form, RENEW) {
        return error::stale_form();
    }
    let code = form.get("code").unwrap_or_default();
    let outcome = match app.renew_recovery_codes(session, code, &browser.origin).await {
        Ok(NewRecoveryCodes::Done(codes)) => Ok(show_codes(&codes, false)),
        Ok(NewRecoveryCodes::Wrong) => {
            page(&app, &browser, session, Some((FactorField::RenewCode, BAD_CODE))).await
        }
        Ok(NewRecoveryCodes::TooOften(seconds)) => Ok(pages::too_many_attempts(seconds.into())),
        Ok(NewRecoveryCodes::CodesPaused(seconds)) => {
            Ok(pages::codes_paused(seconds.into(), &browser.path(PATH)))
        }
        Err(failed) => Err(failed),
    };
    outcome.unwrap_or_else(|failed| error::page(&failed))
}

/// `POST /account/second-factor/remove`
async fn remove(State(app): State<App>, browser: Browser, PageForm(form): PageForm) -> Response {
    let Some(session) = &browser.session else { return redirect(&sign_in::address(&browser, PATH)) };
    if !browser.made(&form, REMOVE) {
        return error::stale_form();
    }
    let (password, code) = (secret(&form, "password"), form.get("code").unwrap_or_default());
    let problem = match app.remove_second_factor(session, password, code, &browser.origin).await {
        Ok(SecondFactorRemoval::Done) => {
            let sign_in = sign_in::address(&browser, PATH);
            return browser.signed_out(pages::second_factor_removed(&sign_in));
        }
        Ok(SecondFactorRemoval::WrongPassword) => (FactorField::Password, "This is not your password."),
        Ok(SecondFactorRemoval::WrongCode) => (FactorField::RemoveCode, BAD_CODE),
        Ok(SecondFactorRemoval::Stale) => return ask_anew(&app, &browser, session, PATH),
        Ok(SecondFactorRemoval::TooOften(seconds)) => return pages::too_many_attempts(seconds.into()),
        Ok(SecondFactorRemoval::CodesPaused(seconds)) => {
            return pages::codes_paused(seconds.into(), &browser.path(PATH));
        }
        Err(failed) => return error::page(&failed),
    };
    let page = page(&app, &browser, session, Some(problem)).await;
    page.unwrap_or_else(|failed| error::page(&failed))
}

//! The pages about one's own second factor: an authenticator app, other recovery
//! codes, removing it.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use coppice_app::{
    App, BrowserSession, Enrolment, NewRecoveryCodes, Proof, RecoveryCodes, SecondFactorRemoval,
};
use coppice_core::Error;
use coppice_oauth::params::Params;

use super::body::{Posted, secret};
use super::browser::Browser;
use super::places::{self, AUTHENTICATOR, SECOND_FACTOR};
use super::showing::ask_anew;
use super::{error, redirect};
use crate::pages::{self, EnrolmentPage, FactorField, Form, RecoveryCodesPage, SecondFactorPage};

const RENEW: &str = "/account/second-factor/recovery-codes";
const REMOVE: &str = "/account/second-factor/remove";
/// Field with what an app is given, which the form's token holds for this
/// session: nothing of it is kept before it counts.
const SECRET: &str = "secret";
/// Field with what the browser says that a passkey answered.
pub(super) const PASSKEY: &str = "passkey";
const BAD_CODE: &str = "This code is not right, or it was used before. The app shows a new one soon.";
const BAD_PASSKEY: &str = "This passkey was not accepted, or it answered too late. Try again, or use a code.";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route(SECOND_FACTOR, get(show))
        .route(AUTHENTICATOR, get(show_app).post(add))
        .route(RENEW, post(renew))
        .route(REMOVE, post(remove))
}

/// What a form brings to show a second factor.
pub(super) fn proof(form: &Params) -> Proof<'_> {
    Proof { code: form.get("code").unwrap_or_default(), passkey: form.get(PASSKEY).unwrap_or_default() }
}

/// What to say of a proof that was not accepted.
pub(super) fn refusal(proof: Proof<'_>) -> &'static str {
    if proof.passkey.is_empty() { BAD_CODE } else { BAD_PASSKEY }
}

fn purpose(secret: &str) -> String {
    format!("second factor\n{secret}")
}

/// `GET /account/second-factor`
async fn show(State(app): State<App>, browser: Browser) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, SECOND_FACTOR)) };
    page(&app, &browser, session, None).await.unwrap_or_else(|failed| error::page(&failed))
}

/// The page with the second factors of the person, or to add an app where there are none.
async fn page(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    problem: Option<(FactorField, &str)>,
) -> Result<Response, Error> {
    let Some(factor) = app.identity.second_factor(&session.user).await? else {
        return enrolment(app, browser, session, None, None).await;
    };
    let asked =
        app.identity.ask_to_sign(&session.user, &session.id_hash).await?.map(|options| options.to_string());
    let (renew, remove) = (browser.path(RENEW), browser.path(REMOVE));
    let form = |action, csrf| Form { action, csrf, hidden: &[], leads_to: None };
    Ok(browser.with_form(pages::second_factor(&SecondFactorPage {
        renew: form(&renew, &browser.form_token(RENEW)),
        remove: form(&remove, &browser.form_token(REMOVE)),
        account: &session.email,
        has_app: factor.totp_sealed.is_some(),
        passkeys: factor.passkeys,
        passkey: asked.as_deref(),
        passkeys_page: &browser.path(places::PASSKEYS),
        app_page: &browser.path(AUTHENTICATOR),
        recovery_codes: factor.recovery_codes,
        with_password: app.identity.has_password(&session.user).await?,
        problem,
    })))
}

/// `GET /account/second-factor/app`
async fn show_app(State(app): State<App>, browser: Browser) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, AUTHENTICATOR)) };
    let page = enrolment(&app, &browser, session, None, None).await;
    page.unwrap_or_else(|failed| error::page(&failed))
}

/// The page to add an app, with this secret or a new one, for who has none and
/// has shown just now who they are.
async fn enrolment(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    secret: Option<&str>,
    problem: Option<&str>,
) -> Result<Response, Error> {
    let known = app.identity.second_factor(&session.user).await?;
    if known.as_ref().is_some_and(|known| known.totp_sealed.is_some()) {
        return Ok(redirect(&browser.path(SECOND_FACTOR)));
    }
    if !app.identity.was_just_asked(session) {
        return Ok(ask_anew(app, browser, session, AUTHENTICATOR));
    }
    let factor = app.identity.new_factor(&session.email, secret)?;
    let passkeys = browser.path(places::PASSKEYS);
    let form = Form {
        action: &browser.path(AUTHENTICATOR),
        csrf: &browser.form_token(&purpose(&factor.secret)),
        hidden: &[(SECRET, &factor.secret)],
        leads_to: None,
    };
    Ok(browser.with_form(pages::enrolment(&EnrolmentPage {
        form,
        account: &session.email,
        secret: &in_groups(&factor.secret),
        address: &factor.address,
        passkeys_page: known.is_none().then_some(passkeys.as_str()),
        problem,
    })))
}

/// As people type it best.
fn in_groups(secret: &str) -> String {
    let letters: Vec<char> = secret.chars().collect();
    letters.chunks(4).map(String::from_iter).collect::<Vec<_>>().join(" ")
}

pub(super) fn show_codes(codes: &RecoveryCodes, is_first: bool) -> Response {
    let codes: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    pages::recovery_codes(&RecoveryCodesPage { is_first, codes: &codes })
}

/// `POST /account/second-factor/app`
async fn add(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, AUTHENTICATOR)) };
    let secret = form.get(SECRET).unwrap_or_default();
    if !browser.made(&form, &purpose(secret)) {
        return error::stale_form();
    }
    let code = form.get("code").unwrap_or_default();
    let outcome = match app.identity.add_second_factor(session, secret, code, &browser.origin).await {
        Ok(Enrolment::First { codes, secret }) => Ok(browser.signed_in(show_codes(&codes, true), &secret)),
        Ok(Enrolment::Another) => Ok(redirect(&browser.path(SECOND_FACTOR))),
        Ok(Enrolment::Wrong) => {
            let problem = "The app shows another code for this account. Is the clock of your phone right?";
            enrolment(&app, &browser, session, Some(secret), Some(problem)).await
        }
        Ok(Enrolment::Stale) => enrolment(&app, &browser, session, None, None).await,
        Ok(Enrolment::TooOften(seconds)) => Ok(pages::too_many_attempts(seconds.into())),
        Err(failed) => Err(failed),
    };
    outcome.unwrap_or_else(|failed| error::page(&failed))
}

/// `POST /account/second-factor/recovery-codes`
async fn renew(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, SECOND_FACTOR)) };
    if !browser.made(&form, RENEW) {
        return error::stale_form();
    }
    let proof = proof(&form);
    let outcome = match app.identity.renew_recovery_codes(session, proof, &browser.origin).await {
        Ok(NewRecoveryCodes::Done(codes)) => Ok(show_codes(&codes, false)),
        Ok(NewRecoveryCodes::Wrong) => {
            page(&app, &browser, session, Some((FactorField::RenewCode, refusal(proof)))).await
        }
        Ok(NewRecoveryCodes::TooOften(seconds)) => Ok(pages::too_many_attempts(seconds.into())),
        Ok(NewRecoveryCodes::CodesPaused(seconds)) => {
            Ok(pages::codes_paused(seconds.into(), &browser.path(SECOND_FACTOR)))
        }
        Err(failed) => Err(failed),
    };
    outcome.unwrap_or_else(|failed| error::page(&failed))
}

/// `POST /account/second-factor/remove`
async fn remove(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, SECOND_FACTOR)) };
    if !browser.made(&form, REMOVE) {
        return error::stale_form();
    }
    let (password, proof) = (secret(&form, "password"), proof(&form));
    let problem = match app.identity.remove_second_factor(session, password, proof, &browser.origin).await {
        Ok(SecondFactorRemoval::Done) => {
            let sign_in = places::sign_in(&browser, SECOND_FACTOR);
            return browser.signed_out(pages::second_factor_removed(&sign_in));
        }
        Ok(SecondFactorRemoval::WrongPassword) => (FactorField::Password, "This is not your password."),
        Ok(SecondFactorRemoval::WrongProof) => (FactorField::RemoveCode, refusal(proof)),
        Ok(SecondFactorRemoval::Stale) => return ask_anew(&app, &browser, session, SECOND_FACTOR),
        Ok(SecondFactorRemoval::TooOften(seconds)) => return pages::too_many_attempts(seconds.into()),
        Ok(SecondFactorRemoval::CodesPaused(seconds)) => {
            return pages::codes_paused(seconds.into(), &browser.path(SECOND_FACTOR));
        }
        Err(failed) => return error::page(&failed),
    };
    let page = page(&app, &browser, session, Some(problem)).await;
    page.unwrap_or_else(|failed| error::page(&failed))
}

//! The page that asks for the second factor after the first, and what a
//! browser keeps meanwhile.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use coppice_app::{App, HalfSignIn, SecondStep, SignIn};
use coppice_core::Error;
use coppice_oauth::params::Params;

use super::body::{PageForm, PageQuery};
use super::browser::{Browser, NEXT, own_path};
use super::second_factor::{proof, refusal};
use super::{error, redirect, sign_in};
use crate::metrics;
use crate::pages::{self, Form, SecondStepPage};

const PATH: &str = "/oauth/sign-in/second-step";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(show).post(posted))
}

/// Sends a person who showed who they are on to `next`, a path of ours, or
/// first to the page that asks for their second factor.
pub(super) fn go_on(browser: &Browser, next: &str, begun: &SignIn) -> Response {
    let to = match begun {
        SignIn::Half(_) => address(browser, next),
        _ => browser.path(next),
    };
    keep(browser, redirect(&to), begun)
}

fn address(browser: &Browser, next: &str) -> String {
    browser.path(&format!("{PATH}?{}", Params::default().with(NEXT, next).encode()))
}

/// Lets the browser keep what it was given.
pub(super) fn keep(browser: &Browser, response: Response, begun: &SignIn) -> Response {
    match begun {
        SignIn::Done(secret) => browser.signed_in(response, secret),
        SignIn::Half(secret) => browser.half_signed_in(response, secret),
        SignIn::Wrong | SignIn::TooOften(_) => response,
    }
}

fn purpose(half: &HalfSignIn, next: &str) -> String {
    format!("second step\n{}\n{next}", half.id_hash)
}

/// `GET /oauth/sign-in/second-step?next=…`
async fn show(State(app): State<App>, browser: Browser, PageQuery(params): PageQuery) -> Response {
    let next = params.get(NEXT).and_then(own_path).unwrap_or("/");
    match browser.half_sign_in().await {
        Ok(Some(half)) => page(&app, &browser, &half, next, None).await,
        Ok(None) => redirect(&sign_in::address(&browser, next)),
        Err(failed) => error::page(&failed),
    }
}

async fn page(
    app: &App,
    browser: &Browser,
    half: &HalfSignIn,
    next: &str,
    problem: Option<&str>,
) -> Response {
    let page = try_page(app, browser, half, next, problem).await;
    page.unwrap_or_else(|failed| error::page(&failed))
}

async fn try_page(
    app: &App,
    browser: &Browser,
    half: &HalfSignIn,
    next: &str,
    problem: Option<&str>,
) -> Result<Response, Error> {
    let asks = sign_in::asked(app, next).await?;
    let factor = app.second_factor(&half.user).await?;
    let passkey = app.ask_to_sign(&half.user, &half.id_hash).await?.map(|options| options.to_string());
    let form = Form {
        action: &browser.path(PATH),
        csrf: &browser.form_token(&purpose(half, next)),
        hidden: &[(NEXT, next)],
        leads_to: asks.as_ref().map(|asks| asks.request.destination.redirect_uri.as_str()),
    };
    Ok(browser.with_form(pages::second_step(&SecondStepPage {
        form,
        account: &half.email,
        passkey: passkey.as_deref(),
        has_app: factor.is_some_and(|factor| factor.totp_sealed.is_some()),
        problem,
    })))
}

/// `POST /oauth/sign-in/second-step`
async fn posted(State(app): State<App>, browser: Browser, PageForm(form): PageForm) -> Response {
    let outcome = finish(&app, &browser, &form).await;
    outcome.unwrap_or_else(|failed| error::page(&failed))
}

async fn finish(app: &App, browser: &Browser, form: &Params) -> Result<Response, Error> {
    let next = form.get(NEXT).and_then(own_path).unwrap_or("/");
    let Some(half) = browser.half_sign_in().await? else { return Ok(too_late(app, browser, next).await) };
    if !browser.made(form, &purpose(&half, next)) {
        let problem = "The page was out of date. Please try again.";
        return Ok(page(app, browser, &half, next, Some(problem)).await);
    }
    let proof = proof(form);
    let step = app.finish_sign_in(&half, proof, &browser.origin, browser.session.as_ref()).await?;
    Ok(match step {
        SecondStep::Done(secret) => go_on(browser, next, &SignIn::Done(secret)),
        SecondStep::Wrong => {
            metrics::authentication_failed();
            page(app, browser, &half, next, Some(refusal(proof))).await
        }
        SecondStep::Over => too_late(app, browser, next).await,
        SecondStep::TooOften(seconds) => pages::too_many_attempts(seconds.into()),
        SecondStep::CodesPaused(seconds) => pages::codes_paused(seconds.into(), &address(browser, next)),
    })
}

async fn too_late(app: &App, browser: &Browser, next: &str) -> Response {
    let problem = "That took too long, or your account has changed. Please begin again.";
    sign_in::page(app, browser, next, "", Some(problem)).await
}

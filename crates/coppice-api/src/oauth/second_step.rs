//! The page that asks for the second factor after the first, and what a
//! browser keeps meanwhile.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use coppice_app::{App, HalfSignIn, SecondStep, SignIn};
use coppice_core::Error;
use coppice_oauth::params::Params;

use super::body::{PageQuery, Posted};
use super::browser::{Browser, NEXT, own_path};
use super::places::{self, SECOND_STEP};
use super::second_factor::{proof, refusal};
use super::showing::go_on;
use super::{error, redirect, sign_in};
use crate::metrics;
use crate::pages::{self, Form, SecondStepPage};

pub(super) fn routes() -> Router<App> {
    Router::new().route(SECOND_STEP, get(show).post(posted))
}

fn purpose(half: &HalfSignIn, next: &str) -> String {
    format!("second step\n{}\n{next}", half.id_hash)
}

/// `GET /oauth/sign-in/second-step?next=…`
async fn show(State(app): State<App>, browser: Browser, PageQuery(params): PageQuery) -> Response {
    let next = params.get(NEXT).and_then(own_path).unwrap_or("/");
    match browser.half_sign_in().await {
        Ok(Some(half)) => page(&app, &browser, &half, next, None).await,
        Ok(None) => redirect(&places::sign_in(&browser, next)),
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
    let factor = app.identity.second_factor(&half.user).await?;
    let passkey =
        app.identity.ask_to_sign(&half.user, &half.id_hash).await?.map(|options| options.to_string());
    let form = Form {
        action: &browser.path(SECOND_STEP),
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
async fn posted(State(app): State<App>, Posted(browser, form): Posted) -> Response {
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
    let step = app.identity.finish_sign_in(&half, proof, &browser.origin, browser.session.as_ref()).await?;
    Ok(match step {
        SecondStep::Done(secret) => go_on(browser, next, &SignIn::Done(secret)),
        SecondStep::Wrong => {
            metrics::authentication_failed();
            page(app, browser, &half, next, Some(refusal(proof))).await
        }
        SecondStep::Over => too_late(app, browser, next).await,
        SecondStep::TooOften(seconds) => pages::too_many_attempts(seconds.into()),
        SecondStep::CodesPaused(seconds) => {
            pages::codes_paused(seconds.into(), &places::second_step(browser, next))
        }
    })
}

async fn too_late(app: &App, browser: &Browser, next: &str) -> Response {
    let problem = "That took too long, or your account has changed. Please begin again.";
    sign_in::page(app, browser, next, "", Some(problem)).await
}

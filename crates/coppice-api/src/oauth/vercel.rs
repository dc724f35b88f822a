//! Where Vercel leads people who look at a database there and want to go on
//! here. They press a button first: a link alone, which anybody can send, signs
//! nobody in.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use coppice_app::{App, VercelArrival};
use coppice_core::Error;

use super::body::{PageQuery, Posted};
use super::browser::Browser;
use super::showing::go_on;
use super::{error, places};
use crate::metrics;
use crate::pages::{self, Form, Message};

const CODE: &str = "code";
const STATE: &str = "state";
const RESOURCE: &str = "resource_id";

/// `GET /vercel/sign-in?code=…`
pub(super) async fn show_arrival(browser: Browser, PageQuery(params): PageQuery) -> Response {
    let Some(code) = params.get(CODE) else { return refusal("Vercel sent you here without a code.") };
    let text = |name| params.get(name).unwrap_or_default();
    let form = Form {
        action: &browser.path(places::VERCEL),
        csrf: &browser.form_token(places::VERCEL),
        hidden: &[(CODE, code), (STATE, text(STATE)), (RESOURCE, text(RESOURCE))],
        leads_to: None,
    };
    let account = browser.session.as_ref().map(|session| session.email.as_str());
    browser.with_form(pages::from_vercel(&pages::FromVercelPage { form, account }))
}

/// `POST /vercel/sign-in`
pub(super) async fn arrive(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    if !browser.made(&form, places::VERCEL) {
        return error::stale_form();
    }
    let text = |name| form.get(name).filter(|text: &&str| !text.is_empty());
    let code = text(CODE).unwrap_or_default();
    let arrival = VercelArrival { code, state: text(STATE), resource: text(RESOURCE) };
    match app.vercel.sign_in(&arrival, &browser.origin, browser.session.as_ref()).await {
        Ok((begun, next)) => go_on(&browser, &next, &begun),
        Err(failed @ Error::Forbidden { .. }) => {
            metrics::authentication_failed();
            refusal(&format!("It is not certain who you are: {failed}."))
        }
        Err(failed) => error::page(&failed),
    }
}

fn refusal(what: &str) -> Response {
    let next = "Go back to Vercel and open the database from there once more.";
    let title = "You are not signed in";
    pages::error(StatusCode::FORBIDDEN, &Message { title, what, next, ..Message::default() })
}

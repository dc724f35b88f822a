//! The page about the clients that act for a person: what they may, and taking it back.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use coppice_app::{App, BrowserSession};
use coppice_core::Error;

use super::body::Posted;
use super::browser::Browser;
use super::places::{self, ALLOWED_CLIENTS};
use super::{error, redirect};
use crate::pages::{self, AllowedClientsPage, Form, KnownClient};

const END: &str = "/account/clients/end";
/// Field with which client is meant.
const ID: &str = "client_id";

pub(super) fn routes() -> Router<App> {
    Router::new().route(ALLOWED_CLIENTS, get(show)).route(END, post(end))
}

/// `GET /account/clients`
async fn show(State(app): State<App>, browser: Browser) -> Response {
    let Some(session) = &browser.session else {
        return redirect(&places::sign_in(&browser, ALLOWED_CLIENTS));
    };
    page(&app, &browser, session).await.unwrap_or_else(|failed| error::page(&failed))
}

async fn page(app: &App, browser: &Browser, session: &BrowserSession) -> Result<Response, Error> {
    let allowed = app.identity.allowed_clients(&session.user).await?;
    let (action, csrf) = (browser.path(END), browser.form_token(END));
    let hidden: Vec<_> = allowed.iter().map(|client| [(ID, client.id.as_str())]).collect();
    let known = allowed.iter().zip(&hidden).map(|(client, hidden)| KnownClient {
        name: client.name.as_deref(),
        is_vouched: client.is_vouched,
        since: client.since.format("%Y-%m-%d").to_string(),
        scopes: client.scopes.words().iter().map(String::as_str).collect(),
        sessions: client.sessions,
        is_offline: client.is_offline,
        end: Form { action: &action, csrf: &csrf, hidden, leads_to: None },
    });
    Ok(browser.with_form(pages::allowed_clients(&AllowedClientsPage {
        account: &session.email,
        known: &known.collect::<Vec<_>>(),
    })))
}

/// `POST /account/clients/end`
async fn end(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else {
        return redirect(&places::sign_in(&browser, ALLOWED_CLIENTS));
    };
    if !browser.made(&form, END) {
        return error::stale_form();
    }
    let id = form.get(ID).unwrap_or_default();
    match app.identity.end_allowed_client(session, id, &browser.origin).await {
        Ok(()) => redirect(&browser.path(ALLOWED_CLIENTS)),
        Err(failed) => error::page(&failed),
    }
}

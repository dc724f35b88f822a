//! The page behind a link that signs somebody in, once. Whatever only looks at
//! the address, as programs do that show what is behind a link, uses nothing up.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use coppice_app::App;
use coppice_oauth::params::Params;

use super::body::{PageQuery, Posted};
use super::browser::Browser;
use super::showing::go_on;
use super::{error, places};
use crate::pages::{self, Form, Message, SignInLinkPage};

/// Parameter and field with what the link is found by.
const TOKEN: &str = "token";
/// Where people go on.
const NEXT: &str = "/console/";

/// The link with this secret, of a site.
pub fn sign_in_link(site: &str, secret: &str) -> String {
    format!("{site}{}?{}", places::LINK, Params::default().with(TOKEN, secret).encode())
}

/// `GET /oauth/link?token=…`
pub(super) async fn show_link(
    State(app): State<App>,
    browser: Browser,
    PageQuery(params): PageQuery,
) -> Response {
    let token = params.get(TOKEN).unwrap_or_default();
    let email = match app.identity.sign_in_link(token).await {
        Ok(Some(email)) => email,
        Ok(None) => return of_no_use(),
        Err(failed) => return error::page(&failed),
    };
    let form = Form {
        action: &browser.path(places::LINK),
        csrf: &browser.form_token(places::LINK),
        hidden: &[(TOKEN, token)],
        leads_to: None,
    };
    browser.with_form(pages::sign_in_link(&SignInLinkPage { form, account: &email }))
}

/// `POST /oauth/link`
pub(super) async fn follow_link(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    if !browser.made(&form, places::LINK) {
        return error::stale_form();
    }
    let token = form.get(TOKEN).unwrap_or_default();
    match app.identity.follow_sign_in_link(token, &browser.origin, browser.session.as_ref()).await {
        Ok(Some(begun)) => go_on(&browser, NEXT, &begun),
        Ok(None) => of_no_use(),
        Err(failed) => error::page(&failed),
    }
}

fn of_no_use() -> Response {
    pages::error(
        StatusCode::GONE,
        &Message {
            title: "This link is of no use any more",
            what: "Such a link signs in once, within 15 minutes.",
            next: "Sign in with your password, or make another link: coppice admin sign-in-link",
            ..Message::default()
        },
    )
}

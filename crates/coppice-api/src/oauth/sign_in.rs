//! The page to sign in, and what it leads to.

use axum::extract::State;
use axum::response::Response;
use coppice_app::{App, Authorization, SignIn};
use coppice_core::Result;
use coppice_oauth::params::Params;
use zeroize::Zeroizing;

use super::body::{PageQuery, Posted};
use super::browser::{ANEW, Browser, NEXT, own_path};
use super::showing::go_on;
use super::{error, places, redirect};
use crate::metrics;
use crate::pages::{self, Form, SignInPage};

fn purpose(next: &str) -> String {
    format!("sign-in\n{next}")
}

/// `GET /oauth/sign-in?next=…`
pub(super) async fn sign_in(
    State(app): State<App>,
    browser: Browser,
    PageQuery(params): PageQuery,
) -> Response {
    let next = params.get(NEXT).and_then(own_path).unwrap_or("/");
    if browser.session.is_some() && params.get(ANEW).is_none() {
        return redirect(&browser.path(next));
    }
    page(&app, &browser, next, "", None).await
}

/// The page to sign in; afterwards the person is sent on to `next`, a path of ours.
pub(crate) async fn page(
    app: &App,
    browser: &Browser,
    next: &str,
    email: &str,
    problem: Option<&str>,
) -> Response {
    // Whoever wants to know something of the person is named on the page.
    let asks = match asked(app, next).await {
        Ok(asks) => asks,
        Err(failed) => return error::page(&failed),
    };
    let client = asks.as_ref().map(|asks| asks.client.name.as_str());
    let leads_to = asks.as_ref().map(|asks| asks.request.destination.redirect_uri.as_str());
    let hint = asks.as_ref().and_then(|asks| asks.request.login_hint.as_deref());
    let hidden = [(NEXT, next)];
    let outside_address = places::outside(browser, next);
    let content = SignInPage {
        form: Form {
            action: &browser.path(places::SIGN_IN),
            csrf: &browser.form_token(&purpose(next)),
            hidden: &hidden,
            leads_to,
        },
        client,
        email: if email.is_empty() { hint.unwrap_or_default() } else { email },
        problem,
        with_password: app.config().has_passwords,
        outside: places::outside_link(app, &outside_address),
    };
    browser.with_form(pages::sign_in(&content))
}

/// The authorization request at the path `next`, if it is one that can be answered.
pub(super) async fn asked(app: &App, next: &str) -> Result<Option<Authorization>> {
    let Some((path, query)) = next.split_once('?') else { return Ok(None) };
    if path != "/oauth/authorize" && !path.ends_with("/openid-connect/auth") {
        return Ok(None);
    }
    let Ok(params) = Params::parse(query.as_bytes()) else { return Ok(None) };
    Ok(app.identity.read_authorization(&params).await?.ok())
}

/// `POST /oauth/sign-in`
pub(super) async fn sign_in_posted(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let next = form.get(NEXT).and_then(own_path).unwrap_or("/");
    let email = form.get("email").unwrap_or_default();
    if !browser.made(&form, &purpose(next)) {
        let problem = "The page was out of date. Please try again; cookies have to be allowed.";
        return page(&app, &browser, next, email, Some(problem)).await;
    }
    if !app.config().has_passwords {
        return page(&app, &browser, next, email, Some("Passwords are not accepted here.")).await;
    }
    let password = Zeroizing::new(form.get("password").unwrap_or_default().to_owned());
    match app.identity.sign_in(email, password, &browser.origin, browser.session.as_ref()).await {
        Ok(begun @ (SignIn::Done(_) | SignIn::Half(_))) => go_on(&browser, next, &begun),
        Ok(SignIn::Wrong) => {
            metrics::authentication_failed();
            page(&app, &browser, next, email, Some("The email address or the password is not right.")).await
        }
        Ok(SignIn::TooOften(seconds)) => pages::too_many_attempts(u64::from(seconds)),
        Err(failed) => error::page(&failed),
    }
}

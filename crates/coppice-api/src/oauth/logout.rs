//! Signing out, also when a client asks for it (OpenID Connect RP-Initiated
//! Logout). The person is asked, unless the client shows that it knows them.

use axum::extract::State;
use axum::response::Response;
use coppice_app::App;
use coppice_oauth::OAuthError;
use coppice_oauth::client::Trust;
use coppice_oauth::params::Params;

use super::body::{PageQuery, Posted};
use super::browser::Browser;
use super::{error, redirect};
use crate::pages::{self, CSRF_FIELD, Form, Link, SignOutPage};

const PATH: &str = "/oauth/logout";
/// Field with what the client asked for.
const REQUEST: &str = "request";

fn purpose(request: &str) -> String {
    format!("sign-out\n{request}")
}

/// What a client asks for, as far as it may be believed.
struct Wish {
    /// Where the person goes afterwards: a URI of the client's.
    url: Option<String>,
    redirect_uri: Option<String>,
    /// Whether somebody vouches for the client, so that nobody needs to be
    /// asked before they go there.
    is_vouched: bool,
    /// Who the client says is signed in.
    user: Option<String>,
}

/// `GET /oauth/logout`
pub(super) async fn logout(
    State(app): State<App>,
    browser: Browser,
    PageQuery(params): PageQuery,
) -> Response {
    handle(&app, &browser, &params, false).await.unwrap_or_else(|response| response)
}

/// `POST /oauth/logout`. What is no form of ours is a client's: a browser sends
/// no cookies with a form of another site, so it is made to ask again.
pub(super) async fn logout_posted(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    if form.get(CSRF_FIELD).is_none() {
        return redirect(&browser.path(&format!("{PATH}?{}", form.encode())));
    }
    let request = form.get(REQUEST).unwrap_or_default();
    if !browser.made(&form, &purpose(request)) {
        return error::stale_form();
    }
    match Params::parse(request.as_bytes()) {
        Ok(params) => handle(&app, &browser, &params, true).await.unwrap_or_else(|response| response),
        Err(refusal) => error::wrong_request(&refusal),
    }
}

async fn handle(
    app: &App,
    browser: &Browser,
    params: &Params,
    has_agreed: bool,
) -> Result<Response, Response> {
    let wish = understand(app, params).await?;
    let leads_on = wish.is_vouched || has_agreed;
    let Some(session) = &browser.session else {
        return Ok(done(browser, wish.url.as_deref().filter(|_| leads_on)));
    };
    let is_known = wish.user.as_deref() == Some(session.user.as_str());
    let needs_no_question = is_known && wish.is_vouched;
    if !has_agreed && !needs_no_question {
        let request = params.encode();
        let content = SignOutPage {
            form: Form {
                action: &browser.path(PATH),
                csrf: &browser.form_token(&purpose(&request)),
                hidden: &[(REQUEST, &request)],
                leads_to: wish.redirect_uri.as_deref(),
            },
            account: &session.email,
        };
        return Ok(browser.with_form(pages::sign_out(&content)));
    }
    app.identity.sign_out(session, &browser.origin).await.map_err(|failed| error::page(&failed))?;
    Ok(done(browser, wish.url.as_deref()))
}

async fn understand(app: &App, params: &Params) -> Result<Wish, Response> {
    let failed = |failed| error::page(&failed);
    let wrong = |what: &str| error::wrong_request(&OAuthError::invalid_request(what));
    if params.repeats_any() {
        return Err(wrong("a parameter comes more than once"));
    }
    let hint = match params.get("id_token_hint") {
        Some(hint) => app.identity.id_hint(hint).await.map_err(failed)?,
        None => None,
    };
    let named = params.get("client_id");
    if hint.as_ref().zip(named).is_some_and(|(hint, named)| hint.azp != named) {
        return Err(wrong("client_id is another one than that of the ID token"));
    }
    let user = hint.as_ref().map(|hint| hint.sub.clone());
    let client = match hint.as_ref().map(|hint| hint.azp.as_str()).or(named) {
        Some(id) => app.identity.oauth_client(id).await.map_err(failed)?,
        None => None,
    };
    let is_vouched = client.as_ref().is_some_and(|client| client.trust != Trust::Nobody);
    let Some(uri) = params.get("post_logout_redirect_uri") else {
        return Ok(Wish { url: None, redirect_uri: None, is_vouched, user });
    };
    if !client.is_some_and(|client| client.allows_redirect(uri)) {
        return Err(wrong("post_logout_redirect_uri is not one of the client's"));
    }
    let url = match params.get("state") {
        Some(state) => {
            let separator = if uri.contains('?') { '&' } else { '?' };
            format!("{uri}{separator}{}", Params::default().with("state", state).encode())
        }
        None => uri.to_owned(),
    };
    Ok(Wish { url: Some(url), redirect_uri: Some(uri.to_owned()), is_vouched, user })
}

fn done(browser: &Browser, url: Option<&str>) -> Response {
    browser.signed_out(match url {
        Some(url) => redirect(url),
        None => {
            let href = browser.path("/oauth/sign-in");
            pages::signed_out(Some(Link { href: &href, text: "Sign in again" }))
        }
    })
}

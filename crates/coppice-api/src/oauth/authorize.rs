//! The authorization endpoint, and the page that asks for leave.

use axum::extract::{Extension, State};
use axum::response::Response;
use coppice_app::BrowserSession;
use coppice_app::{App, Authorization};
use coppice_core::Error;
use coppice_oauth::authorize::{AuthorizationRefusal, AuthorizationStep, after_sign_in};
use coppice_oauth::client::Trust;
use coppice_oauth::params::Params;
use coppice_oauth::resource::Resource;
use coppice_oauth::{OAuthError, OAuthErrorCode};

use super::body::{PageQuery, Posted};
use super::browser::Browser;
use super::showing::ask_anew;
use super::{KnownRealm, error, redirect, sign_in};
use crate::pages::{self, ANSWER_FIELD, ConsentPage, Form};

/// Fields with the request that is asked about, and the realm it came to.
const REQUEST: &str = "request";
const REALM: &str = "realm";
const CONSENT_PATH: &str = "/oauth/consent";

/// `POST /oauth/authorize`. A browser sends no cookies with a form of another
/// site, so it is made to ask again.
pub(super) async fn authorize_posted(
    Extension(realm): Extension<KnownRealm>,
    Posted(browser, params): Posted,
) -> Response {
    redirect(&browser.path(&format!("{}?{}", realm.authorize_path(), params.encode())))
}

/// `GET /oauth/authorize`
pub(super) async fn authorize(
    State(app): State<App>,
    Extension(realm): Extension<KnownRealm>,
    browser: Browser,
    PageQuery(params): PageQuery,
) -> Response {
    let outcome = handle(&app, &realm, &browser, &params).await;
    outcome.unwrap_or_else(|response| response)
}

async fn understand(app: &App, realm: &KnownRealm, params: &Params) -> Result<Authorization, Response> {
    match app.identity.read_authorization(params).await {
        Ok(Ok(authorization)) => Ok(authorization),
        Ok(Err(AuthorizationRefusal::Shown(refusal))) => Err(error::wrong_request(&refusal)),
        Ok(Err(AuthorizationRefusal::Sent(destination, refusal))) => {
            Err(redirect(&destination.error_url(&app.identity.issuers().issuer(&realm.realm), &refusal)))
        }
        Err(failed) => Err(error::page(&failed)),
    }
}

async fn handle(
    app: &App,
    realm: &KnownRealm,
    browser: &Browser,
    params: &Params,
) -> Result<Response, Response> {
    let authorization = understand(app, realm, params).await?;
    let session = browser.session.as_ref();
    let step = app
        .identity
        .authorization_step(&authorization, session)
        .await
        .map_err(|failed| error::page(&failed))?;
    match (step, session) {
        // Nobody was asked anything, so it leads only to sites that somebody vouches for.
        (AuthorizationStep::Refuse(refusal), _) if authorization.client.trust == Trust::Nobody => {
            Err(error::wrong_request(&refusal))
        }
        (AuthorizationStep::Refuse(refusal), _) => {
            Ok(redirect(&app.identity.refuse_authorization(&realm.realm, &authorization, &refusal)))
        }
        (AuthorizationStep::AskConsent, Some(session)) => {
            Ok(ask(browser, realm, &authorization, params, session))
        }
        (AuthorizationStep::Answer, Some(session)) => {
            Ok(answered(app.identity.answer_authorization(&realm.realm, &authorization, session).await))
        }
        (AuthorizationStep::ShowAnew, Some(session)) => {
            Ok(ask_anew(app, browser, session, &once_signed_in(realm, params)))
        }
        (AuthorizationStep::SignIn, _) | (_, None) => {
            Ok(sign_in::page(app, browser, &once_signed_in(realm, params), "", None).await)
        }
    }
}

/// Where somebody goes on who has signed in for a request.
fn once_signed_in(realm: &KnownRealm, params: &Params) -> String {
    format!("{}?{}", realm.authorize_path(), after_sign_in(params).encode())
}

fn answered(answer: Result<String, Error>) -> Response {
    match answer {
        Ok(url) => redirect(&url),
        Err(failed) => error::page(&failed),
    }
}

fn purpose(realm: &str, request: &str) -> String {
    format!("consent\n{realm}\n{request}")
}

fn ask(
    browser: &Browser,
    realm: &KnownRealm,
    authorization: &Authorization,
    params: &Params,
    session: &BrowserSession,
) -> Response {
    let request = params.encode();
    let realm_name = realm.name.as_deref().unwrap_or_default();
    let other = after_sign_in(params).without(&["prompt"]).with("prompt", "login").encode();
    let scopes: Vec<_> = authorization.request.scopes.words().iter().map(String::as_str).collect();
    let content = ConsentPage {
        form: Form {
            action: &browser.path(CONSENT_PATH),
            csrf: &browser.form_token(&purpose(realm_name, &request)),
            hidden: &[(REQUEST, &request), (REALM, realm_name)],
            leads_to: Some(&authorization.request.destination.redirect_uri),
        },
        client: &authorization.client.name,
        is_vouched: authorization.client.trust != Trust::Nobody,
        account: &session.email,
        other_account: Some(&browser.path(&format!("{}?{other}", realm.authorize_path()))),
        is_for_agents: authorization.request.resource == Resource::Agents,
        scopes: &scopes,
    };
    browser.with_form(pages::consent(&content))
}

/// `POST /oauth/consent`
pub(super) async fn consent(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let outcome = decide(&app, &browser, &form).await;
    outcome.unwrap_or_else(|response| response)
}

async fn decide(app: &App, browser: &Browser, form: &Params) -> Result<Response, Response> {
    let (request, realm) = (form.get(REQUEST).unwrap_or_default(), form.get(REALM));
    if !browser.made(form, &purpose(realm.unwrap_or_default(), request)) {
        return Err(error::stale_form());
    }
    let realm = KnownRealm::find(app, realm).map_err(|unknown| error::page(&unknown))?;
    let params = Params::parse(request.as_bytes()).map_err(|refusal| error::wrong_request(&refusal))?;
    let authorization = understand(app, &realm, &params).await?;
    let step = app.identity.authorization_step(&authorization, browser.session.as_ref()).await;
    match (step.map_err(|failed| error::page(&failed))?, &browser.session) {
        (AuthorizationStep::AskConsent | AuthorizationStep::Answer, Some(session))
            if form.get(ANSWER_FIELD) == Some("allow") =>
        {
            let allowed = app
                .identity
                .allow_authorization(&realm.realm, &authorization, session, &browser.origin)
                .await;
            Ok(answered(allowed))
        }
        (AuthorizationStep::AskConsent | AuthorizationStep::Answer, Some(_)) => {
            let denied = OAuthError::new(OAuthErrorCode::AccessDenied, "the person said no");
            Ok(redirect(&app.identity.refuse_authorization(&realm.realm, &authorization, &denied)))
        }
        // Signed in for too long by now.
        (_, _) => Ok(redirect(&browser.path(&format!("{}?{}", realm.authorize_path(), params.encode())))),
    }
}

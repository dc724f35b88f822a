//! The page to which AWS Marketplace leads whoever has bought the product, and where they say which organization it
//! pays for.
//!
//! AWS has their browser post what it knows them by, from its site to ours. So nothing follows from that but a cookie:
//! another site could post what it knows itself by, and who is signed in here is asked by a form of ours.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use coppice_app::{App, Arrival, ArrivedSubscription, BrowserSession, Payable};
use coppice_core::sign_up::SignUp;
use coppice_core::{Error, ErrorCode, OrganizationId};
use zeroize::Zeroizing;

use super::body::{Posted, secret};
use super::browser::Browser;
use super::{cookies, error, places, redirect};
use crate::pages::{self, BoughtPage, Form, Link, Message, Newcomer, SubscriptionPage};

/// Where AWS leads people, and where our form leads them.
const PLACE: &str = "/marketplace/aws";
const REDEEM: &str = "/marketplace/aws/organization";
/// The field that AWS sends.
const TOKEN: &str = "x-amzn-marketplace-token";
/// Fields of ours.
const ORGANIZATION: &str = "organization";
const NAME: &str = "name";
/// What the browser keeps instead, for as long as it is of use.
const COOKIE: &str = "coppice-marketplace";
const COOKIE_SECONDS: i64 = 4 * 3600;

const AGAIN: &str = "Go back to AWS Marketplace, find the product among your subscriptions, and choose \u{201c}Set up your \
                     account\u{201d}.";

pub(super) fn routes() -> Router<App> {
    Router::new().route(PLACE, post(arrive).get(show)).route(REDEEM, post(redeem))
}

/// `POST /marketplace/aws`
async fn arrive(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    if !app.marketplace.is_there() {
        return not_here();
    }
    match app.marketplace.arrive(&secret(&form, TOKEN), &browser.origin).await {
        Ok(Arrival::Known(secret)) => {
            let mut response = redirect(&browser.path(PLACE));
            cookies::set(&app, &mut response, &cookies::name(&app, COOKIE), &secret, Some(COOKIE_SECONDS));
            response
        }
        Ok(Arrival::Unknown) => refused(
            StatusCode::BAD_REQUEST,
            "AWS Marketplace does not know you",
            "What your browser brought from there is not genuine, or too old.",
        ),
        Ok(Arrival::Other) => refused(
            StatusCode::BAD_REQUEST,
            "This is another product",
            "What you have subscribed to is not what is offered here, or was bought in a way that is not known here.",
        ),
        Err(failed @ Error::ProviderFailed { .. }) => {
            tracing::error!("resolving a customer of AWS Marketplace: {}", failed.for_log());
            refused(
                StatusCode::BAD_GATEWAY,
                "AWS Marketplace does not answer",
                "Who you are there could not be found out. Nothing is lost.",
            )
        }
        Err(failed) => error::page(&failed),
    }
}

/// `GET /marketplace/aws`
async fn show(State(app): State<App>, browser: Browser, headers: HeaderMap) -> Response {
    if !app.marketplace.is_there() {
        return not_here();
    }
    page(&app, &browser, &headers, "", None).await
}

async fn page(
    app: &App,
    browser: &Browser,
    headers: &HeaderMap,
    name: &str,
    problem: Option<&str>,
) -> Response {
    let arrived = match app.marketplace.arrival(&kept(app, headers)).await {
        Ok(Some(arrived)) => arrived,
        Ok(None) => {
            return refused(
                StatusCode::GONE,
                "Come from AWS Marketplace",
                "This page is for who has just subscribed there, and comes from there within four hours.",
            );
        }
        Err(failed) => return error::page(&failed),
    };
    let Some(session) = &browser.session else {
        let outside = places::outside(browser, PLACE);
        return pages::bought(&BoughtPage {
            aws_account: &arrived.account,
            sign_in: &places::sign_in(browser, PLACE),
            newcomer: newcomer(app, &outside),
        });
    };
    if let Some(what) = why_not(&arrived, session) {
        let href = browser.path("/console/");
        let content = Message {
            title: "This subscription is in use",
            what,
            next: "For another organization, subscribe once more at AWS Marketplace.",
            link: Some(Link { href: &href, text: "Open the console" }),
            ..Message::default()
        };
        return pages::error(StatusCode::CONFLICT, &content);
    }
    let organizations = match app.marketplace.list_payable_organizations(session).await {
        Ok(organizations) => organizations,
        Err(failed) => return error::page(&failed),
    };
    let organizations: Vec<_> =
        organizations.iter().map(|one| (one.id.as_str(), one.name.as_str())).collect();
    let (action, csrf) = (browser.path(REDEEM), browser.form_token(&question(&arrived)));
    browser.with_form(pages::subscription(&SubscriptionPage {
        form: Form { action: &action, csrf: &csrf, hidden: &[], leads_to: None },
        aws_account: &arrived.account,
        account: &session.email,
        other_account: &places::sign_in(browser, PLACE),
        organizations: &organizations,
        name,
        problem,
    }))
}

/// How who has no account gets one; `outside` leads to the provider that vouches for people, if there is one.
fn newcomer<'a>(app: &'a App, outside: &'a str) -> Newcomer<'a> {
    match (app.config().sign_up, places::outside_link(app, outside)) {
        (SignUp::Open, Some(outside)) => Newcomer::Outside(outside),
        (SignUp::Open | SignUp::Invite, _) => Newcomer::Invited,
        (SignUp::Off, _) => Newcomer::Nobody,
    }
}

/// Why a subscription can pay for nothing more, to who may know. Whose it is, is theirs to know.
fn why_not(arrived: &ArrivedSubscription, session: &BrowserSession) -> Option<&'static str> {
    let is_theirs = arrived.user.as_ref().is_none_or(|user| *user == session.user);
    match (arrived.is_over, arrived.is_bound, is_theirs) {
        (true, ..) => Some("It is over: AWS Marketplace says so."),
        (false, true, true) => Some("It pays for an organization of yours already."),
        (false, _, false) => Some("Somebody else has taken it already."),
        (false, false, true) => None,
    }
}

/// `POST /marketplace/aws/organization`
async fn redeem(State(app): State<App>, headers: HeaderMap, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, PLACE)) };
    let kept = kept(&app, &headers);
    match app.marketplace.arrival(&kept).await {
        Ok(Some(arrived)) if browser.made(&form, &question(&arrived)) => {}
        Ok(_) => return error::stale_form(),
        Err(failed) => return error::page(&failed),
    }
    let name = form.get(NAME).unwrap_or_default();
    let payable = match form.get(ORGANIZATION).unwrap_or_default() {
        "" => Payable::New(name.to_owned()),
        id => Payable::Known(OrganizationId::from_trusted(id)),
    };
    match app.marketplace.redeem(session, &kept, &payable, &browser.origin).await {
        Ok(_) => {
            let href = browser.path("/console/");
            let mut response = pages::message(&Message {
                title: "AWS Marketplace pays",
                what: "What the organization uses from now on is on your bill of AWS. You end that at AWS Marketplace.",
                link: Some(Link { href: &href, text: "Open the console" }),
                ..Message::default()
            });
            cookies::forget(&app, &mut response, &cookies::name(&app, COOKIE));
            response
        }
        Err(failed) => match problem(&failed) {
            Some(problem) => page(&app, &browser, &headers, name, Some(problem)).await,
            None => error::page(&failed),
        },
    }
}

/// What is told beside the form.
fn problem(failed: &Error) -> Option<&'static str> {
    Some(match failed.code() {
        ErrorCode::InvalidField => "Write a name of 1 to 128 characters, without any that can't be seen.",
        ErrorCode::AlreadyRegistered => "This organization is billed through AWS Marketplace already.",
        ErrorCode::RoleNotAllowed | ErrorCode::OrganizationAccessDenied => {
            "Choose an organization that you own or administer."
        }
        ErrorCode::OrganizationLimitReached => {
            "You own as many organizations as you may: choose one of them."
        }
        _ => return None,
    })
}

/// What the form is about: the subscription that it showed. Another site may lead a browser here with
/// another one while somebody reads it.
fn question(arrived: &ArrivedSubscription) -> String {
    format!("{REDEEM} {}", arrived.license)
}

fn kept(app: &App, headers: &HeaderMap) -> Zeroizing<String> {
    let found = cookies::find(headers, &cookies::name(app, COOKIE));
    Zeroizing::new(found.unwrap_or_default().to_owned())
}

fn refused(status: StatusCode, title: &str, what: &str) -> Response {
    pages::error(status, &Message { title, what, next: AGAIN, ..Message::default() })
}

fn not_here() -> Response {
    let what = "This platform is not offered at AWS Marketplace.";
    let next = "Ask whoever sent you here.";
    pages::error(StatusCode::NOT_FOUND, &Message { title: "Not here", what, next, ..Message::default() })
}

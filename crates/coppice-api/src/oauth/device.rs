//! The page that connects a device: the code first, then the question.

use axum::extract::State;
use axum::response::Response;
use coppice_app::{App, BrowserSession, Device};
use coppice_oauth::params::Params;

use super::body::{PageQuery, Posted};
use super::browser::Browser;
use super::showing::ask_anew;
use super::{error, sign_in};
use crate::pages::{self, ANSWER_FIELD, DeviceCodePage, DeviceConfirmationPage, Form};

const PATH: &str = "/oauth/device";
const USER_CODE: &str = "user_code";
const ASK_CODE: &str = "device";

fn answering(code: &str) -> String {
    format!("device answer\n{code}")
}

/// Who is signed in, if they showed just now who they are: a device that is let in stays for weeks.
fn fresh<'b>(app: &App, browser: &'b Browser) -> Option<&'b BrowserSession> {
    browser.session.as_ref().filter(|session| app.identity.was_just_asked(session))
}

/// `GET /oauth/device`. A code in the address is only filled in: nothing is
/// looked up until the person says so.
pub(super) async fn device(
    State(app): State<App>,
    browser: Browser,
    PageQuery(params): PageQuery,
) -> Response {
    let code = params.get(USER_CODE).unwrap_or_default();
    if fresh(&app, &browser).is_none() {
        return ask_to_sign_in(&app, &browser, code).await;
    }
    ask_code(&browser, code, None)
}

async fn ask_to_sign_in(app: &App, browser: &Browser, code: &str) -> Response {
    let next = match code {
        "" => PATH.to_owned(),
        code => format!("{PATH}?{}", Params::default().with(USER_CODE, code).encode()),
    };
    match &browser.session {
        // The page to sign in would say nothing of why they are asked once more.
        Some(session) if app.identity.signed_in_lately(session) => ask_anew(app, browser, session, &next),
        _ => sign_in::page(app, browser, &next, "", None).await,
    }
}

fn form<'a>(action: &'a str, csrf: &'a str, hidden: &'a [(&'a str, &'a str)]) -> Form<'a> {
    Form { action, csrf, hidden, leads_to: None }
}

fn ask_code(browser: &Browser, code: &str, problem: Option<&str>) -> Response {
    let (action, csrf) = (browser.path(PATH), browser.form_token(ASK_CODE));
    let content = DeviceCodePage { form: form(&action, &csrf, &[]), user_code: code, problem };
    browser.with_form(pages::device_code(&content))
}

/// `POST /oauth/device`
pub(super) async fn device_posted(State(app): State<App>, Posted(browser, posted): Posted) -> Response {
    let code = posted.get(USER_CODE).unwrap_or_default();
    let Some(session) = fresh(&app, &browser) else { return ask_to_sign_in(&app, &browser, code).await };
    let answer = posted.get(ANSWER_FIELD);
    let purpose = if answer.is_some() { answering(code) } else { ASK_CODE.to_owned() };
    if !browser.made(&posted, &purpose) {
        return error::stale_form();
    }
    let device = match app.identity.device_with_code(code, session).await {
        Ok(Some(device)) => device,
        Ok(None) => {
            let problem = "No device waits with this code. Check it, or let the device show a new one.";
            return ask_code(&browser, code, Some(problem));
        }
        Err(failed) => return error::page(&failed),
    };
    let Some(answer) = answer else { return ask(&browser, &device, &session.email) };
    let is_allowed = answer == "allow";
    match app.identity.answer_device(&device, is_allowed, session, &browser.origin).await {
        Ok(true) => pages::device_done(&device.client, is_allowed),
        Ok(false) => ask_code(&browser, "", Some("The device does not wait any more. Start again there.")),
        Err(failed) => error::page(&failed),
    }
}

fn ask(browser: &Browser, device: &Device, account: &str) -> Response {
    let scopes: Vec<_> = device.scopes.words().iter().map(String::as_str).collect();
    let hidden = [(USER_CODE, device.user_code.as_str())];
    let (action, csrf) = (browser.path(PATH), browser.form_token(&answering(&device.user_code)));
    let content = DeviceConfirmationPage {
        form: form(&action, &csrf, &hidden),
        client: &device.client,
        is_vouched: device.is_vouched,
        account,
        user_code: &device.user_code,
        address: &device.address,
        scopes: &scopes,
    };
    browser.with_form(pages::device_confirmation(&content))
}

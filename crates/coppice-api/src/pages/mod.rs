//! The pages that people see when they sign in: what they look like, and the
//! headers that go with them.
//!
//! **Owns** HTML, the stylesheet, the content security policy.
//! **Must not know** sessions, tokens or the app: each page is a struct of
//! plain texts and a function that makes the answer of it.
//!
//! Templates are in `templates/`; they escape what they are given. There is no
//! script on any page but a small one where a passkey can be used, and nothing
//! comes from another host.

mod allowed_clients;
mod assets;
mod consent;
mod device;
mod invitation;
mod message;
mod passkeys;
mod password;
mod policy;
mod qr;
pub(crate) mod rights;
mod second_factor;
mod sign_in;
mod subscription;
#[cfg(test)]
mod tests;
mod welcome;

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

pub(crate) use allowed_clients::{AllowedClientsPage, KnownClient, allowed_clients};
pub(crate) use assets::{below, below_the_same, icon_path, public, routes, script_path, style_path};
pub(crate) use consent::{ConsentPage, consent};
pub(crate) use device::{
    DeviceCodePage, DeviceConfirmationPage, device_code, device_confirmation, device_done,
};
pub(crate) use invitation::{InvitationPage, Visitor, invitation};
pub(crate) use message::{
    FromVercelPage, Link, Message, SignInLinkPage, SignOutPage, codes_paused, error, from_vercel, message,
    sign_in_link, sign_out, signed_out, too_many_attempts,
};
pub(crate) use passkeys::{KnownPasskey, NewPasskey, PasskeysPage, passkeys};
pub(crate) use password::{Field, PasswordPage, password, password_changed};
pub(crate) use second_factor::{
    EnrolmentPage, FactorField, RecoveryCodesPage, SecondFactorPage, SecondStepPage, enrolment,
    recovery_codes, second_factor, second_factor_removed, second_step,
};
pub(crate) use sign_in::{OutsideLink, SignInPage, sign_in};
pub(crate) use subscription::{BoughtPage, Newcomer, SubscriptionPage, bought, subscription};
pub(crate) use welcome::{WelcomePage, welcome};

/// Name of the hidden field with the token that shows that a form is ours.
pub(crate) const CSRF_FIELD: &str = "csrf";
/// Name of the field with `allow` or `deny`, where a page asks for leave.
pub(crate) const ANSWER_FIELD: &str = "answer";

/// What a page's form carries besides what the person types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    /// Path it is posted to.
    pub(crate) action: &'a str,
    /// The token that shows that the form is ours.
    pub(crate) csrf: &'a str,
    /// Hidden fields, such as the request that goes on afterwards.
    pub(crate) hidden: &'a [(&'a str, &'a str)],
    /// The redirect URI of the client that the answer to the post may lead to,
    /// at once or after more pages. Browsers count that as part of the post and
    /// refuse it unless the page allows it. It must be one that the client registered.
    pub(crate) leads_to: Option<&'a str>,
}

/// The answer with this page.
fn page(status: StatusCode, template: &impl Template, leads_to: Option<&str>) -> Response {
    answer(status, template, policy::content_security_policy(leads_to, false))
}

/// The answer with this page, which has our script.
fn page_with_script(status: StatusCode, template: &impl Template, leads_to: Option<&str>) -> Response {
    answer(status, template, policy::content_security_policy(leads_to, true))
}

fn answer(status: StatusCode, template: &impl Template, policy: HeaderValue) -> Response {
    let text = match template.render() {
        Ok(text) => text,
        Err(error) => {
            tracing::error!("rendering a page: {error}");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (
            header::HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ];
    (status, headers, text).into_response()
}

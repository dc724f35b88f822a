//! Where the pages are that lead to one another, as a browser asks for them.

use coppice_app::App;
use coppice_oauth::params::Params;

use super::browser::{Browser, NEXT};
use crate::pages::OutsideLink;

pub(super) const SIGN_IN: &str = "/oauth/sign-in";
pub(super) const SECOND_STEP: &str = "/oauth/sign-in/second-step";
pub(super) const LINK: &str = "/oauth/link";
pub(super) const VERCEL: &str = "/vercel/sign-in";
pub(super) const OUTSIDE: &str = "/oauth/outside";
pub(super) const PASSWORD: &str = "/account/password";
pub(super) const SECOND_FACTOR: &str = "/account/second-factor";
pub(super) const AUTHENTICATOR: &str = "/account/second-factor/app";
pub(super) const ALLOWED_CLIENTS: &str = "/account/clients";
pub(super) const PASSKEYS: &str = "/account/passkeys";

/// Where somebody signs in, also if they are signed in, and is sent on to `next`.
pub(super) fn sign_in(browser: &Browser, next: &str) -> String {
    browser.sign_in_path(SIGN_IN, next, false)
}

/// The same for whom nothing is known of yet.
pub(crate) fn sign_in_path(app: &App, next: &str) -> String {
    format!("{}{SIGN_IN}?{}", app.identity.issuers().base_path(), Params::default().with(NEXT, next).encode())
}

/// Where the second factor is asked for, after which the person is sent on to `next`.
pub(super) fn second_step(browser: &Browser, next: &str) -> String {
    browser.path(&format!("{SECOND_STEP}?{}", Params::default().with(NEXT, next).encode()))
}

/// Where the button that signs in outside leads, after which the person is sent
/// on to `next`. Who is signed in already is to say anew who they are, and so is
/// who is about to change how they sign in.
pub(super) fn outside(browser: &Browser, next: &str) -> String {
    let changes_sign_in = matches!(next, PASSWORD | SECOND_FACTOR | AUTHENTICATOR | PASSKEYS);
    browser.sign_in_path(OUTSIDE, next, changes_sign_in)
}

/// The button for the outside provider, if there is one, which leads to `address`.
pub(super) fn outside_link<'a>(app: &'a App, address: &'a str) -> Option<OutsideLink<'a>> {
    app.outside.name().map(|name| OutsideLink { href: address, name })
}

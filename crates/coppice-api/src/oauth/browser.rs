//! The browser that a page is made for: its cookies, who is signed in there,
//! and the tokens that tie forms to it.
//!
//! Three cookies: one that every browser gets with its first form, so that also
//! the form to sign in is its own, one that says who is signed in, and one that
//! says meanwhile who has still to show their second factor. They are sent along
//! only when the person comes by themselves or by a link.

use axum::extract::{FromRef, FromRequestParts};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use coppice_app::{App, BrowserSession, HALF_LIFETIME, HalfSignIn, SESSION_LIFETIME};
use coppice_core::Error;
use coppice_core::audit::RequestOrigin;
use coppice_oauth::params::Params;
use coppice_oauth::random;
use zeroize::Zeroizing;

use super::{cookies, error};
use crate::origin::ClientOrigin;
use crate::pages::CSRF_FIELD;

/// See the module.
pub(crate) struct Browser {
    app: App,
    /// What every browser gets; made up anew where it is missing.
    id: String,
    is_new: bool,
    /// What it kept of a sign-in that waits for the second factor.
    half: Option<Zeroizing<String>>,
    /// Who is signed in.
    pub(crate) session: Option<BrowserSession>,
    /// Where it is, and what it calls itself.
    pub(crate) origin: RequestOrigin,
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Browser({:?})", self.origin.address)
    }
}

/// Parameter and field with the path that a person is sent on to when they have
/// signed in.
pub(super) const NEXT: &str = "next";
/// Parameter with which also who is signed in is asked who they are.
pub(super) const ANEW: &str = "anew";

const BROWSER: &str = "coppice-browser";
const SESSION: &str = "coppice-session";
const HALF: &str = "coppice-half";

impl<S: Send + Sync> FromRequestParts<S> for Browser
where
    App: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let app = App::from_ref(state);
        let sent = |bare| cookies::find(&parts.headers, &cookies::name(&app, bare));
        let known = sent(BROWSER).filter(|value| value.len() == random::SECRET_LENGTH).map(str::to_owned);
        let session = match sent(SESSION) {
            Some(secret) => {
                app.identity.browser_session(secret).await.map_err(|failed| error::page(&failed))?
            }
            None => None,
        };
        let half = sent(HALF).map(|secret| Zeroizing::new(secret.to_owned()));
        let is_new = known.is_none();
        let id = known.unwrap_or_else(random::secret);
        Ok(Self { app, id, is_new, half, session, origin: ClientOrigin::of(parts).0 })
    }
}

/// What the browser of somebody who is signed in sends along.
pub(crate) fn session_cookie<'h>(app: &App, headers: &'h HeaderMap) -> Option<&'h str> {
    cookies::find(headers, &cookies::name(app, SESSION))
}

/// Lets the browser forget who is signed in.
pub(crate) fn signed_out(app: &App, mut response: Response) -> Response {
    cookies::forget(app, &mut response, &cookies::name(app, SESSION));
    response
}

impl Browser {
    /// The token of a form for `purpose`.
    pub(crate) fn form_token(&self, purpose: &str) -> String {
        self.app.identity.form_token(&self.id, self.session.as_ref(), purpose)
    }

    /// Whether a form for `purpose` was made for this browser, and for who is
    /// signed in there now.
    pub(crate) fn made(&self, form: &Params, purpose: &str) -> bool {
        let token = form.get(CSRF_FIELD).unwrap_or_default();
        !self.is_new && random::equal(token, &self.form_token(purpose))
    }

    /// A path of ours as the browser has to ask for it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.app.identity.issuers().base_path())
    }

    /// A path of ours, as the browser has to ask for it, where somebody signs in
    /// and is sent on to `next`; to say anew who they are if they are signed in,
    /// or `anew`.
    pub(crate) fn sign_in_path(&self, path: &str, next: &str, anew: bool) -> String {
        let mut params = Params::default().with(NEXT, next);
        if anew || self.session.is_some() {
            params = params.with(ANEW, "yes");
        }
        self.path(&format!("{path}?{}", params.encode()))
    }

    /// Gives the browser the cookie that its forms need, with a page that has one.
    pub(crate) fn with_form(&self, mut response: Response) -> Response {
        if self.is_new {
            let name = cookies::name(&self.app, BROWSER);
            cookies::set(&self.app, &mut response, &name, &self.id, None);
        }
        response
    }

    /// Lets the browser keep who is signed in; the platform may forget it earlier.
    pub(crate) fn signed_in(&self, mut response: Response, secret: &str) -> Response {
        let (name, age) = (cookies::name(&self.app, SESSION), SESSION_LIFETIME.num_seconds());
        cookies::set(&self.app, &mut response, &name, secret, Some(age));
        if self.half.is_some() {
            cookies::forget(&self.app, &mut response, &cookies::name(&self.app, HALF));
        }
        response
    }

    /// Lets the browser keep who has still to show their second factor.
    pub(crate) fn half_signed_in(&self, mut response: Response, secret: &str) -> Response {
        let (name, age) = (cookies::name(&self.app, HALF), HALF_LIFETIME.num_seconds());
        cookies::set(&self.app, &mut response, &name, secret, Some(age));
        response
    }

    /// The sign-in that waits for the second factor in this browser.
    ///
    /// # Errors
    /// When the metastore fails.
    pub(crate) async fn half_sign_in(&self) -> Result<Option<HalfSignIn>, Error> {
        match &self.half {
            Some(secret) => self.app.identity.half_sign_in(secret).await,
            None => Ok(None),
        }
    }

    /// Lets the browser forget who is signed in.
    pub(crate) fn signed_out(&self, response: Response) -> Response {
        signed_out(&self.app, response)
    }
}

/// A path that a person may be sent on to: on this site, whatever browsers make
/// of odd characters.
pub(crate) fn own_path(text: &str) -> Option<&str> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (is_plain && text.starts_with('/') && !text.starts_with("//")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_sent_on_to_this_site_only() {
        for path in ["/", "/oauth/device?user_code=BCDF-GHJK", "/a//b"] {
            assert_eq!(own_path(path), Some(path));
        }
        for path in [
            "",
            "a",
            "//evil.com",
            "/\\evil.com",
            "\\/evil.com",
            "https://evil.com",
            "/\t/evil.com",
            "/ /evil.com",
            "/\n/evil.com",
            "javascript:alert(1)",
        ] {
            assert_eq!(own_path(path), None, "{path:?}");
        }
    }
}

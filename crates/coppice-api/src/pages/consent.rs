//! The page that asks whether a client may use the account.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use coppice_oauth::redirect::site;

use super::{Form, page, rights};

/// Asks for leave; the field [`super::ANSWER_FIELD`] is `allow` or `deny`.
#[derive(Debug, Template)]
#[template(path = "consent.html")]
pub(crate) struct ConsentPage<'a> {
    /// Where it is posted; `leads_to` is the client's redirect URI.
    pub(crate) form: Form<'a>,
    /// Name of the client, as it gave it.
    pub(crate) client: &'a str,
    /// Email of the person who is signed in.
    pub(crate) account: &'a str,
    /// Where to sign in as somebody else, if that is possible.
    pub(crate) other_account: Option<&'a str>,
    /// Whether somebody else than the client itself says that it is this one.
    pub(crate) is_vouched: bool,
    /// Whether that is for the tools of agents alone.
    pub(crate) is_for_agents: bool,
    /// Names of the scopes that will be granted.
    pub(crate) scopes: &'a [&'a str],
}

impl ConsentPage<'_> {
    fn rights(&self) -> Vec<&'static str> {
        rights::in_words(self.scopes)
    }

    /// Where the person goes afterwards, in a form they can judge.
    fn destination(&self) -> String {
        match site(self.form.leads_to.unwrap_or_default()) {
            Some(site) if matches!(site.host.as_str(), "127.0.0.1" | "[::1]" | "localhost") => {
                "a program on this computer".to_owned()
            }
            Some(site) => site.host,
            None => "an app on this device".to_owned(),
        }
    }
}

/// The page that asks whether a client may use the account.
pub(crate) fn consent(content: &ConsentPage<'_>) -> Response {
    page(StatusCode::OK, content, content.form.leads_to)
}

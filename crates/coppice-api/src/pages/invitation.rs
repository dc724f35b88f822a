//! The page behind an invitation's link.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::{Field, Form, OutsideLink, page};

/// Who looks at the invitation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visitor<'a> {
    /// The invited person, signed in: one button.
    Invited {
        /// What lets in to their account, if nobody has shown that its address is theirs.
        unverified: Option<&'a str>,
    },
    /// A person who is signed in with another address.
    SomebodyElse {
        /// Their address.
        account: &'a str,
        /// Where to sign in as somebody else and come back.
        sign_in: &'a str,
    },
    /// Nobody is signed in, and the invited address has an account.
    Known {
        /// Where to sign in and come back.
        sign_in: &'a str,
    },
    /// Who gets an account at the invited address: asks for the fields `name`,
    /// `new_password`, `repeated_password`.
    New {
        /// What let in whoever made the account that there is, and who did not show
        /// that the address is theirs.
        former: Option<&'a str>,
        /// What is in the field for the name already.
        name: &'a str,
        /// Which field of the last attempt was wrong, and why.
        problem: Option<(Field, &'a str)>,
        /// Whether accounts have passwords.
        has_password: bool,
        /// The other way to get an account, if there is one.
        outside: Option<OutsideLink<'a>>,
    },
}

/// Tells of an invitation and lets the visitor accept it.
#[derive(Debug, Template)]
#[template(path = "invitation.html")]
pub(crate) struct InvitationPage<'a> {
    /// Where it is posted.
    pub(crate) form: Form<'a>,
    /// Name of the organization.
    pub(crate) organization: &'a str,
    /// Name of the role to be given.
    pub(crate) role: &'a str,
    /// The invited address.
    pub(crate) email: &'a str,
    /// Who looks at it.
    pub(crate) visitor: Visitor<'a>,
}

impl InvitationPage<'_> {
    fn at(&self, field: Field) -> Option<&str> {
        let Visitor::New { problem, .. } = self.visitor else { return None };
        problem.filter(|(at, _)| *at == field).map(|(_, text)| text)
    }

    fn has_problem(&self) -> bool {
        matches!(self.visitor, Visitor::New { problem: Some(_), .. })
    }
}

/// The page of an invitation: 200, or 400 when the last attempt failed.
pub(crate) fn invitation(content: &InvitationPage<'_>) -> Response {
    let status = if content.has_problem() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page(status, content, content.form.leads_to)
}

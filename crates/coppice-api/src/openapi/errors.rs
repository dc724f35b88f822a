//! What can go wrong with each operation, as the document says it.

use coppice_core::access::LimitedKeys;
use coppice_core::operation::{CallerRule, Operation};
use coppice_wire::ErrorBody;
use utoipa::ToSchema;
use utoipa::openapi::path::Operation as Documented;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};

/// Names of the security schemes.
pub(super) const BEARER: &str = "bearer";
pub(super) const OAUTH: &str = "oauth";

/// What decides which errors an operation can answer with.
pub(crate) struct Facts<'a> {
    /// Its row of the table of operations.
    pub(crate) operation: &'a Operation,
    /// Whether it has a body.
    pub(crate) has_body: bool,
    /// Whether it can be repeated by `Idempotency-Key`.
    pub(crate) is_post: bool,
    /// What 404 means, where what the path names may not be there.
    pub(crate) not_found: Option<&'static str>,
    /// Its own reasons.
    pub(crate) refusals: &'a [(u16, &'static str)],
    /// Whether callers are told that they may not.
    pub(crate) is_forbidden_documented: bool,
}

/// What is in the way of a repeated request.
const REPETITION: &str = "The `Idempotency-Key` was used with another request, or its first request is still running; \
                          then `Retry-After` says when to ask again.";

/// What every operation can answer with.
const ALWAYS: [(u16, &str); 8] = [
    (400, "The request can never work as it stands; the message says why."),
    (401, "No credential, or one that is not valid."),
    (405, "The path has no such method; `Allow` names those that it has."),
    (429, "Too many requests, or too many creations within an hour; `Retry-After` says when."),
    (
        431,
        "The request line and the headers are larger than 32 KiB together. There is no body and no `x-request-id`: it was not read.",
    ),
    (500, "A fault of the server; its log has the cause under the request id."),
    (503, "The server can't work now; nothing was changed. `Retry-After` says when to try again."),
    (504, "The work took too long."),
];

/// What one with a body can.
const WITH_BODY: [(u16, &str); 3] = [
    (408, "The body did not arrive in time."),
    (413, "The body is larger than 1 MiB."),
    (415, "The body is not JSON."),
];

impl Facts<'_> {
    /// Writes into the document which scope is needed and what can go wrong.
    /// Reasons for the same status follow each other.
    pub(crate) fn complete(&self, documented: &mut Documented) {
        let scopes: Vec<_> = self.operation.scope.iter().map(|scope| scope.as_str()).collect();
        documented.security = Some(vec![
            SecurityRequirement::new(BEARER, scopes.iter().copied()),
            SecurityRequirement::new(OAUTH, scopes),
        ]);
        let mut errors: Vec<(u16, String)> = vec![];
        for (status, what) in self.errors() {
            match errors.iter_mut().find(|(known, _)| *known == status) {
                Some((_, said)) => *said = format!("{said} {what}"),
                None => errors.push((status, what)),
            }
        }
        for (status, what) in errors {
            let mut response = ResponseBuilder::new().description(what);
            if status != 431 {
                let schema = Ref::from_schema_name(ErrorBody::name());
                response =
                    response.content("application/json", ContentBuilder::new().schema(Some(schema)).build());
            }
            documented.responses.responses.insert(status.to_string(), response.build().into());
        }
    }

    fn errors(&self) -> impl Iterator<Item = (u16, String)> {
        let forbidden = self.is_forbidden_documented.then(|| (403, forbidden(self.operation)));
        let with_body = if self.has_body { &WITH_BODY[..] } else { &[] };
        let not_found = self.not_found.map(|what| (404, what));
        let repetition = self.is_post.then_some((409, REPETITION));
        let said = ALWAYS.iter().chain(with_body).chain(&not_found).chain(self.refusals).chain(&repetition);
        let said: Vec<_> = said.map(|(status, what)| (*status, (*what).to_owned())).collect();
        said.into_iter().chain(forbidden)
    }
}

/// The whole rule of access, as the table of operations has it.
fn forbidden(operation: &Operation) -> String {
    let scope = match operation.scope {
        Some(scope) => {
            format!("The credential may not do this here. The scope `{}` is needed.", scope.as_str())
        }
        None => "The credential may not do this.".to_owned(),
    };
    let who = match operation.caller {
        CallerRule::Anybody => "",
        CallerRule::User => " A user's credential is needed.",
        CallerRule::Owner => " The credential of the organization's owner is needed.",
    };
    let keys = match operation.limited_keys {
        LimitedKeys::Allowed => "",
        LimitedKeys::MakesBranches => " Keys that are limited to branches may not.",
        LimitedKeys::RefusedWithBranchLimit => {
            " Keys that are limited to branches, or to those that they make, may not."
        }
        LimitedKeys::RefusedWithLogin => " Keys with a login of their own may not.",
        LimitedKeys::Refused => {
            " Keys that are limited to projects, branches or a login of their own may not."
        }
    };
    let enabled =
        if operation.needs_enabled_organization { " The organization has to be enabled." } else { "" };
    let anew = if operation.asks_anew {
        " In a browser, its person has to have shown just now who they are."
    } else {
        ""
    };
    format!("{scope}{who}{keys}{enabled}{anew}")
}

//! What can go wrong with each operation, as the document says it.

use coppice_core::operation::{self, CallerRule, Operation};

/// The errors an operation can answer with.
pub(super) fn of(
    path: &str,
    has_body: bool,
    is_post: bool,
    operation: &Operation,
) -> Vec<(&'static str, String)> {
    let mut errors = vec![
        ("400", "The request can never work as it stands; the message says why.".to_owned()),
        ("401", "No credential, or one that is not valid.".to_owned()),
    ];
    if operation.id != operation::LIST_REGIONS.id {
        errors.push(("403", refusals(operation)));
    }
    if path.contains("{projectID}") {
        errors.push(("404", "There is no such project or branch.".to_owned()));
    }
    if path.contains("{userID}") {
        errors.push(("404", "There is no such member.".to_owned()));
    }
    if path.contains("{invitationID}") || operation.id == operation::ACCEPT_INVITATION.id {
        errors.push(("404", "There is no such invitation.".to_owned()));
    }
    if has_body {
        errors.push(("408", "The body did not arrive in time.".to_owned()));
        errors.push(("413", "The body is larger than 1 MiB.".to_owned()));
        errors.push(("415", "The body is not JSON.".to_owned()));
    }
    if operation.id == operation::CREATE_BRANCH.id {
        errors.push(("412", "The parent is not ready; `Retry-After` says when to look again.".to_owned()));
    }
    let conflicts = [conflict(operation.id), is_post.then_some(REPETITION)];
    if conflicts.iter().any(Option::is_some) {
        errors.push(("409", conflicts.into_iter().flatten().collect::<Vec<_>>().join(" ")));
    }
    errors.extend([
        ("405", "The path has no such method; `Allow` names those that it has.".to_owned()),
        (
            "429",
            "Too many requests, or too many creations within an hour; `Retry-After` says when.".to_owned(),
        ),
        (
            "431",
            "The request line and the headers are larger than 32 KiB together. There is no body and no `x-request-id`: it was not read.".to_owned(),
        ),
        ("500", "A fault of the server; its log has the cause under the request id.".to_owned()),
        (
            "503",
            "The server can't work now; nothing was changed. `Retry-After` says when to try again."
                .to_owned(),
        ),
        ("504", "The work took too long.".to_owned()),
    ]);
    errors
}

/// What is in the way of a repeated request.
const REPETITION: &str = "The `Idempotency-Key` was used with another request, or its first request is still running; \
                          then `Retry-After` says when to ask again.";

/// What else can be in the way of an operation.
fn conflict(operation: &str) -> Option<&'static str> {
    match operation {
        "deleteOrganization" | "requestOrganizationDeletion" => Some("It still has projects."),
        "createBranch" => Some("The name is taken."),
        "createOrganizationInvitation" => Some("The address is invited already, or a member's."),
        "setOrganizationMemberRole" => Some("The owner keeps the role of the owner."),
        "updateBranch" => Some(
            "The name is taken; or the server is being changed, then `Retry-After` says when to try again.",
        ),
        _ => None,
    }
}

fn refusals(operation: &Operation) -> String {
    let who = match operation.caller {
        CallerRule::Anybody => "",
        CallerRule::User => " A user's credential is needed.",
        CallerRule::Owner => " The credential of the organization's owner is needed.",
    };
    match operation.scope {
        Some(scope) => {
            format!("The credential may not do this here. The scope `{}` is needed.{who}", scope.as_str())
        }
        None => format!("The credential may not do this.{who}"),
    }
}

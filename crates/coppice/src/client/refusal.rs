//! Why nothing was done, and what to do next.

use coppice_wire::ErrorBody;
use reqwest::{Response, StatusCode};

/// Why the API, or a look-up by name, said no.
#[derive(Debug)]
pub(super) struct Refused {
    message: String,
    /// Stable id of the error; empty when there is none.
    pub(super) id: String,
    /// Exit code of the program.
    pub(super) exit_code: i32,
}

/// Exit code: the credential is not valid, or may not do this.
const NOT_ALLOWED: i32 = 3;
/// Exit code: there is no such thing.
const NOT_FOUND: i32 = 4;

impl Refused {
    /// There is no such thing.
    pub(super) fn not_found(message: String) -> Self {
        Self { message, id: String::new(), exit_code: NOT_FOUND }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// What the API said, and what to do next; whoever `is_signed_in` has no key.
pub(super) async fn refused(response: Response, is_signed_in: bool) -> Refused {
    let status = response.status();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(str::to_owned);
    let body: Option<ErrorBody> = response.json().await.ok();
    let exit_code = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => NOT_ALLOWED,
        StatusCode::NOT_FOUND => NOT_FOUND,
        _ => 1,
    };
    let Some(body) = body else {
        return Refused { message: status.to_string(), id: String::new(), exit_code };
    };
    let next = match retry_after {
        Some(seconds) => Some(format!("try again in {seconds} seconds")),
        None => next_step(&body.id, is_signed_in).map(str::to_owned),
    };
    let message = match next {
        Some(next) => format!("{}: {next}", body.message),
        None => body.message,
    };
    Refused { message, id: body.id, exit_code }
}

/// What to do about an error, by its id.
fn next_step(id: &str, is_signed_in: bool) -> Option<&'static str> {
    Some(match id {
        "invalid_token" | "expired_token" if is_signed_in => "sign in again with `coppice login`",
        "missing_token" | "invalid_token" => "check COPPICE_API_KEY",
        "expired_token" => "the key has ended; make another with `coppice key create`",
        "insufficient_scope" => "make a key that has it: `coppice key create NAME --scope SCOPE`",
        "organization_access_denied" => "see `coppice org list`",
        "project_access_denied" | "branch_access_denied" | "restricted_key" => "use a key without that limit",
        "user_required" => "use a key of a user (`coppice key create NAME --user`)",
        "branch_name_taken" => "choose another name; `coppice branch list` shows those taken",
        "parent_not_ready" => "wait for it; `coppice branch show` tells what it is doing",
        "branch_limit_reached" => "delete a branch first (`coppice branch delete`)",
        "project_limit_reached" => "delete a project first (`coppice project delete`)",
        "org_has_projects" => "delete its projects first (`coppice project delete`)",
        "invitation_conflict" => "see `coppice org invitations` and `coppice org members`",
        "invitation_limit_reached" => "withdraw one first (`coppice org uninvite`)",
        "invitation_not_pending" => "ask for another invitation",
        "invalid_image" => "see `coppice image list`",
        "invalid_instance_type" => "see `coppice instance-type list`",
        "invalid_filter" => "correct it; look-around and back references are not supported",
        "invalid_region" => "see `coppice region list`",
        "invalid_postgres_parameter" => "see `coppice config list BRANCH`",
        "branch_busy" => "wait for it; `coppice branch show` tells what it is doing",
        "credentials_not_found" => "`coppice credentials rotate BRANCH`",
        "invalid_preload_library" => "see `coppice extension list IMAGE`",
        _ => return None,
    })
}

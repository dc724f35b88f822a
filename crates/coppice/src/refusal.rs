//! Why nothing was done, and what to do next.

use coppice_core::ErrorCode;
use coppice_wire::ErrorBody;
use reqwest::{Response, StatusCode};
use serde_json::json;

use crate::client::words::quoted;

/// Why the API, or a look-up by name, said no.
#[derive(Debug)]
pub(crate) struct Refused {
    message: String,
    /// Stable id of the error; empty when there is none.
    id: String,
    /// Exit code of the program.
    exit_code: u8,
}

/// Exit code: something went wrong that is not the caller's mistake.
const FAILURE: u8 = 1;
/// Exit code: the caller has to write something else.
pub(crate) const MISTAKE: u8 = 2;
/// Exit code: the credential is not valid, or may not do this.
const NOT_ALLOWED: u8 = 3;
/// Exit code: there is no such thing.
const NOT_FOUND: u8 = 4;
/// What the API says in some places of every credential that may not do something.
const FIXED_TEXT: &str = "invalid API key";

impl Refused {
    /// There is no such thing.
    pub(crate) fn not_found(message: String) -> Self {
        Self { message, id: String::new(), exit_code: NOT_FOUND }
    }

    /// The caller has to write something else.
    pub(crate) fn mistake(message: String) -> Self {
        Self { message, id: String::new(), exit_code: MISTAKE }
    }

    /// Whether it is this error of the API.
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        ErrorCode::parse(&self.id) == Some(code)
    }

    /// Whether the credential is not valid, or may not do this.
    pub(crate) fn is_not_allowed(&self) -> bool {
        self.exit_code == NOT_ALLOWED
    }

    /// Whether there is no such thing.
    pub(crate) fn is_not_found(&self) -> bool {
        self.exit_code == NOT_FOUND
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// Says why a command failed, and returns the exit code of the program.
pub(crate) fn report(error: &anyhow::Error, as_json: bool) -> u8 {
    let refused = error.downcast_ref::<Refused>();
    let exit_code = refused.map_or(FAILURE, |refused| refused.exit_code);
    let message = crate::suggest::completed(&format!("{error:#}"));
    if as_json {
        let id = refused.map(|refused| refused.id.as_str()).filter(|id| !id.is_empty());
        let error = json!({ "message": message, "id": id, "exitCode": exit_code });
        crate::say::remark(&json!({ "error": error }).to_string());
    } else {
        crate::say::remark(&format!("coppice: {message}"));
    }
    exit_code
}

/// What the API said, and what to do next; whoever `is_signed_in` has no key.
pub(crate) async fn refused(response: Response, is_signed_in: bool) -> Refused {
    let status = response.status();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(str::to_owned);
    let challenge = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
    let challenge = challenge.unwrap_or_default().to_owned();
    let body: Option<ErrorBody> = response.json().await.ok();
    let exit_code = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => NOT_ALLOWED,
        StatusCode::NOT_FOUND => NOT_FOUND,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => MISTAKE,
        _ => FAILURE,
    };
    let Some(body) = body else {
        return Refused { message: status.to_string(), id: String::new(), exit_code };
    };
    let next = match retry_after {
        Some(seconds) => Some(format!("try again in {seconds} s")),
        None => {
            let code = ErrorCode::parse(&body.id);
            code.and_then(|code| next_step(code, missing_scope(&challenge), is_signed_in))
        }
    };
    let said = own_words(&body, &challenge).unwrap_or_else(|| body.message.clone());
    let message = match next {
        Some(next) => format!("{said}: {next}"),
        None => said,
    };
    Refused { message, id: body.id, exit_code }
}

/// What a credential would need, as RFC 6750 has it in the answer.
fn missing_scope(challenge: &str) -> Option<&str> {
    let (_, rest) = challenge.split_once("scope=\"")?;
    rest.split_once('"').map(|(scope, _)| scope)
}

/// Only a key that is not valid is called so.
fn own_words(body: &ErrorBody, challenge: &str) -> Option<String> {
    let code = ErrorCode::parse(&body.id);
    let is_invalid =
        matches!(code, Some(ErrorCode::MissingToken | ErrorCode::InvalidToken | ErrorCode::ExpiredToken));
    if is_invalid || body.message != FIXED_TEXT {
        return None;
    }
    Some(match (code, missing_scope(challenge)) {
        (Some(ErrorCode::InsufficientScope), Some(scope)) => {
            format!("access denied: this credential lacks the scope {scope}")
        }
        (Some(ErrorCode::OrganizationAccessDenied), _) => {
            "access denied: not a member of this organization".to_owned()
        }
        (Some(ErrorCode::RestrictedKey), _) => {
            "access denied: this key is limited to projects or branches".to_owned()
        }
        (Some(ErrorCode::UserRequired), _) => "access denied: only people may do this".to_owned(),
        _ => "access denied: this credential may not do this".to_owned(),
    })
}

/// What to do about an error.
fn next_step(code: ErrorCode, missing_scope: Option<&str>, is_signed_in: bool) -> Option<String> {
    if code == ErrorCode::InsufficientScope {
        let scope = missing_scope.unwrap_or("SCOPE");
        return Some(format!("make a key that has it: `coppice key create NAME --scope {}`", quoted(scope)));
    }
    known_step(code, is_signed_in).map(str::to_owned)
}

fn known_step(code: ErrorCode, is_signed_in: bool) -> Option<&'static str> {
    Some(match code {
        ErrorCode::InvalidToken | ErrorCode::ExpiredToken if is_signed_in => {
            "sign in again with `coppice login`"
        }
        ErrorCode::MissingToken | ErrorCode::InvalidToken => "check COPPICE_API_KEY",
        ErrorCode::ExpiredToken => "the key has ended; make another with `coppice key create`",
        ErrorCode::OrganizationAccessDenied => "see `coppice org list`",
        ErrorCode::ProjectNotFound => {
            "see `coppice project list`; `coppice project use NAME` chooses one for good"
        }
        ErrorCode::BranchNotFound => "see `coppice branch list`",
        ErrorCode::ProjectAccessDenied | ErrorCode::BranchAccessDenied | ErrorCode::RestrictedKey => {
            "use a key without that limit"
        }
        ErrorCode::UserRequired => "use a key of a user (`coppice key create NAME --user`)",
        ErrorCode::BranchNameTaken => "choose another name; `coppice branch list` shows those taken",
        ErrorCode::ParentNotReady => "wait for it; `coppice branch show NAME` tells what it is doing",
        ErrorCode::BranchLimitReached => "delete a branch first (`coppice branch delete NAME`)",
        ErrorCode::ProjectLimitReached => "delete a project first (`coppice project delete NAME`)",
        ErrorCode::OrgHasProjects => "delete its projects first (`coppice project delete NAME`)",
        ErrorCode::InvitationConflict => "see `coppice org invitations` and `coppice org members`",
        ErrorCode::InvitationLimitReached => "withdraw one first (`coppice org uninvite EMAIL`)",
        ErrorCode::InvitationNotPending => "ask for another invitation",
        ErrorCode::InvalidImage => "see `coppice image list`",
        ErrorCode::InvalidInstanceType => "see `coppice instance-type list`",
        ErrorCode::InvalidFilter => "correct it; look-around and back references are not supported",
        ErrorCode::InvalidRegion => "see `coppice region list`",
        ErrorCode::InvalidPostgresParameter => "see `coppice config list BRANCH`",
        ErrorCode::BranchBusy => "wait for it; `coppice branch show NAME` tells what it is doing",
        ErrorCode::CredentialsNotFound => "`coppice credentials rotate BRANCH`",
        ErrorCode::InvalidPreloadLibrary => "see `coppice extension list IMAGE`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_invalid_key_is_called_invalid() {
        let body = |id: &str| ErrorBody { message: FIXED_TEXT.to_owned(), id: id.to_owned() };
        let challenge = r#"Bearer realm="platform", error="insufficient_scope", scope="keys:read""#;
        assert_eq!(own_words(&body("invalid_token"), challenge), None);
        assert_eq!(
            own_words(&body("insufficient_scope"), challenge).as_deref(),
            Some("access denied: this credential lacks the scope keys:read")
        );
        let step = next_step(ErrorCode::InsufficientScope, missing_scope(challenge), false);
        assert!(step.is_some_and(|step| step.ends_with("--scope keys:read`")));
        let refused = own_words(&body("role_not_allowed"), "");
        assert_eq!(refused.as_deref(), Some("access denied: this credential may not do this"));
    }
}

//! The audit log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// What kind of somebody changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditActorKind {
    /// A person.
    User,
    /// An organization, through one of its keys.
    Organization,
    /// Whoever runs the platform.
    Operator,
}

/// Who changed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditActor {
    /// What kind of somebody.
    pub kind: AuditActorKind,
    /// Id of the user or organization; null for the operator.
    #[schema(required, example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: Option<String>,
    /// Address of the user; null for others.
    #[schema(required, example = "ada@example.com")]
    pub email: Option<String>,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditResult {
    /// It was made.
    Succeeded,
    /// It was not allowed, or made no sense.
    Refused,
    /// A fault kept it from being made, wholly or in part.
    Failed,
    /// It is still being made, or a crash came before its end was written down.
    Unknown,
}

impl AuditResult {
    /// Its name, as in bodies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its id; later lines have greater ones.
    #[schema(example = "aud_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// When the change began.
    pub began_at: Timestamp,
    /// When it ended; null when that is not known.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// Who.
    pub actor: AuditActor,
    /// The key or session it came with; null when it came with none.
    #[schema(required, example = "key_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub credential_id: Option<String>,
    /// The operationId, or the name of another event.
    #[schema(example = "createBranch")]
    pub action: String,
    /// The organization it is about; null for what is about an account or the platform.
    #[schema(required, example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub organization_id: Option<String>,
    /// The project it is about; null for what is about none.
    #[schema(required, example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub project_id: Option<String>,
    /// The branch it is about; null for what is about none.
    #[schema(required, example = "kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub branch_id: Option<String>,
    /// Ids of what else it is about: members, invitations, keys.
    pub target_ids: Vec<String>,
    /// What those were called when it began, also if they are gone by now: project, branch, then the others.
    #[schema(example = json!(["shop", "main"]))]
    pub names: Vec<String>,
    /// The id of what was made; null when nothing was.
    #[schema(required, example = "kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub created_id: Option<String>,
    /// Where the client was; null for commands on the platform's machine.
    #[schema(required, example = "198.51.100.7")]
    pub client_address: Option<String>,
    /// What the client calls itself.
    #[schema(required, example = "curl/8.5.0")]
    pub user_agent: Option<String>,
    /// The id of the request.
    #[schema(required, example = "req_kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub request_id: Option<String>,
    /// How it ended.
    pub result: AuditResult,
    /// Status of the answer; null when it is not known.
    #[schema(required, example = 201)]
    pub status: Option<u16>,
    /// Id of the error; null when it was none.
    #[schema(required, example = "branch_name_taken")]
    pub error_id: Option<String>,
}

/// Answer of listAuditLog.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditLog {
    /// The newest first.
    pub entries: Vec<AuditEntry>,
    /// Goes on with older lines; null when these are the last.
    #[schema(required, example = "aud_06gq0m2kj8fr3cjdr0h2qkv5s4.0123456789abcdef")]
    pub next_cursor: Option<String>,
}

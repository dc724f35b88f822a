//! The audit log: who changed what, from where, and how it ended.

use std::net::IpAddr;

use chrono::{DateTime, Utc};

use crate::access::{Caller, Principal};
use crate::{AuditId, ErrorKind, OrganizationId, UserId};

/// Days that lines are kept, unless the operator says otherwise.
pub const AUDIT_DAYS: u32 = 400;
/// Characters of a user agent that are kept.
const USER_AGENT_LENGTH_MAX: usize = 256;

/// Who changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditActor {
    /// A person, through a token or a key.
    User(UserId),
    /// An organization, through one of its keys.
    Organization(OrganizationId),
    /// Whoever runs the platform, by a command on its machine.
    Operator,
}

impl AuditActor {
    /// The name of its kind in the metastore and the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Organization(_) => "organization",
            Self::Operator => "operator",
        }
    }

    /// The id of the user or organization.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::User(user) => Some(user.as_str()),
            Self::Organization(organization) => Some(organization.as_str()),
            Self::Operator => None,
        }
    }

    /// Whoever sent a request.
    pub fn of(caller: &Caller) -> Self {
        match &caller.principal {
            Principal::User(user) => Self::User(user.clone()),
            Principal::Organization(organization) => Self::Organization(organization.clone()),
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// What the client calls itself; only its beginning is kept.
    pub user_agent: Option<String>,
    /// The id of the request.
    pub request_id: Option<String>,
}

impl RequestOrigin {
    /// The part of the user agent that is kept.
    pub fn user_agent_kept(&self) -> Option<String> {
        let text = self.user_agent.as_deref()?;
        Some(text.chars().filter(|c| !c.is_control()).take(USER_AGENT_LENGTH_MAX).collect())
    }
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The API answered, with this status, which is the API's alone to make and to read.
    Answered(u16),
    /// It was made, and no answer of the API was about it.
    Succeeded,
    /// An error of this kind kept it from being made, and no answer of the API was about it.
    Failed(ErrorKind),
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id; lines sort by it, the oldest first.
    pub id: AuditId,
    /// When the change began, to the millisecond.
    pub began_at: DateTime<Utc>,
    /// When it ended, if that is known.
    pub ended_at: Option<DateTime<Utc>>,
    /// The organization it is about.
    pub organization: Option<String>,
    /// Who.
    pub actor: AuditActor,
    /// Address of the user who did it.
    pub actor_email: Option<String>,
    /// The key or session it came with.
    pub credential: Option<String>,
    /// The operation, as its operationId, or the name of another event.
    pub action: String,
    /// The project it is about.
    pub project: Option<String>,
    /// The branch it is about.
    pub branch: Option<String>,
    /// What else it is about: ids.
    pub targets: Vec<String>,
    /// What all of those were called then.
    pub names: Vec<String>,
    /// The id of what was made.
    pub created: Option<String>,
    /// Address of the client.
    pub client_address: Option<String>,
    /// What the client calls itself.
    pub user_agent: Option<String>,
    /// The id of the request.
    pub request_id: Option<String>,
    /// How it ended; none when nobody knows: it is still being made, or the process died meanwhile.
    pub outcome: Option<AuditOutcome>,
    /// Id of the error, if it was one.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_is_kept_up_to_a_length() {
        let origin = RequestOrigin { user_agent: Some("a\u{7}b".repeat(300)), ..Default::default() };
        let kept = origin.user_agent_kept().expect("there is one");
        assert_eq!((kept.len(), &kept[..4]), (USER_AGENT_LENGTH_MAX, "abab"));
    }

    #[test]
    fn ids_of_lines_begin_with_their_time() {
        let time = |millis| DateTime::from_timestamp_millis(millis).expect("a time");
        let now = time(1_700_000_000_123);
        let id = AuditId::generate(now);
        assert!(AuditId::first_at(now) <= id, "{id}");
        assert!(id < AuditId::first_at(time(1_700_000_000_124)));
    }
}

//! Members of organizations, their roles, and invitations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// What a member may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberRole {
    /// Made the organization; may do everything.
    Owner,
    /// Everything but deleting the organization.
    Admin,
    /// Projects, branches and their credentials.
    Editor,
    /// Looking only.
    Viewer,
}

/// A role that can be given to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AssignableRole {
    /// Everything but deleting the organization.
    Admin,
    /// Projects, branches and their credentials.
    Editor,
    /// Looking only.
    Viewer,
}

impl AssignableRole {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Editor => "editor",
            Self::Viewer => "viewer",
        }
    }
}

/// A person in an organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// The person's id.
    #[schema(example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[a-zA-Z0-9_~:-]+$", max_length = 128)]
    pub id: String,
    /// Their address.
    #[schema(example = "ada@example.com", format = "email", max_length = 254)]
    pub email: String,
    /// What they want to be called; empty when unset.
    #[schema(example = "Ada", max_length = 128)]
    pub name: String,
    /// What they may do.
    pub role: MemberRole,
    /// Since when they belong to it.
    pub joined_at: Timestamp,
}

/// Answer of listOrganizationMembers.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberList {
    /// Who joined first comes first.
    pub members: Vec<Member>,
}

/// Body of setOrganizationMemberRole.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SetMemberRole {
    /// What the member may do from now on.
    pub role: AssignableRole,
}

/// What a role is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Role {
    /// Its name on the wire.
    pub id: AssignableRole,
    /// Its name for people.
    #[schema(example = "Editor")]
    pub name: String,
    /// What it is for.
    #[schema(example = "May work with projects, branches and their credentials.")]
    pub description: String,
}

/// Answer of listOrganizationRoles.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RoleList {
    /// The mightiest first.
    pub roles: Vec<Role>,
}

/// Whether an invitation can still be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvitationStatus {
    /// It can.
    Pending,
    /// Its time is over.
    Expired,
}

/// Somebody is asked to join an organization.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// Its id.
    #[schema(example = "inv_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// Where to.
    #[schema(example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[a-zA-Z0-9_~:-]+$", max_length = 128)]
    pub organization_id: String,
    /// Who, in lower case.
    #[schema(example = "ada@example.com", format = "email", max_length = 254)]
    pub email: String,
    /// Their first name; null when it is not known.
    #[schema(required, example = json!(null))]
    pub first_name: Option<String>,
    /// Their last name; null when it is not known.
    #[schema(required, example = json!(null))]
    pub last_name: Option<String>,
    /// What they may do when they have accepted.
    pub role: AssignableRole,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it can't be accepted any more.
    pub expires_at: Timestamp,
    /// Whether it can still be accepted.
    pub status: InvitationStatus,
    /// There when the address has an account already, and nobody has shown that the address is theirs: anybody who once invited it can have made that, also keys of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub has_unverified_account: bool,
    /// Where it is accepted; only while it is pending, and only for those who may invite and would not be asked to sign in again for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://db.example.com/invitation?token=…", nullable = false)]
    pub invite_link: Option<String>,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation").field("id", &self.id).field("email", &self.email).finish_non_exhaustive()
    }
}

/// Answer of listOrganizationInvitations.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InvitationList {
    /// The newest first.
    pub invitations: Vec<Invitation>,
}

/// Body of createOrganizationInvitation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateInvitation {
    /// Who.
    #[schema(
        example = "ada@example.com",
        format = "email",
        max_length = 254,
        pattern = r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+([A-Za-z]{2,63}|[Xx][Nn]--[A-Za-z0-9-]{0,58}[A-Za-z0-9])$"
    )]
    pub email: String,
    /// What they may do when they have accepted; an editor's rights when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<AssignableRole>,
}

/// Body of acceptInvitation.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptInvitation {
    /// The secret in the link, after `token=`.
    #[schema(example = "kJ8m0QX3h1yV5tB7nC9dR2sF4gL6pW8zA0eU3iO5qT4", format = "looked-up")]
    pub token: String,
}

impl std::fmt::Debug for AcceptInvitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AcceptInvitation")
    }
}

/// Answer of acceptInvitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedInvitation {
    /// Where the caller is a member now.
    #[schema(example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[a-zA-Z0-9_~:-]+$", max_length = 128)]
    pub organization_id: String,
    /// What they may do there.
    pub role: MemberRole,
}

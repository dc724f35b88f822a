//! Members of an organization and the roles they can have.

use coppice_app::{Access, App};
use coppice_core::operation::{
    LIST_ORGANIZATION_MEMBERS, LIST_ORGANIZATION_ROLES, REMOVE_ORGANIZATION_MEMBER,
    SET_ORGANIZATION_MEMBER_ROLE,
};
use coppice_core::organization::{Member, Role};
use coppice_core::target::OnMember;
use coppice_core::{ApiKeyId, Error, Result};
use coppice_wire as wire;

use crate::context;
use crate::endpoint::{Body, Done, Endpoint, Shown, delete, get, put};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Organizations";
    vec![
        get("/members", &LIST_ORGANIZATION_MEMBERS)
            .says(AREA, "List the members of an organization", "With their roles; who joined first comes first.")
            .answers("Its members.")
            .runs(list_organization_members),
        delete("", &REMOVE_ORGANIZATION_MEMBER)
            .says(AREA, "Remove a member from an organization", "Their access ends with the next request. Keys and projects they made for the organization stay; the list of keys\nmarks those, and the line in the audit log names them.")
            .answers("Removed.")
            .runs(remove_organization_member),
        put("/role", &SET_ORGANIZATION_MEMBER_ROLE)
            .says(AREA, "Give a member another role", "Keys that they made for the organization stay. The list of keys marks those that allow more than the role does now,\nand the line in the audit log names them.")
            .answers("The member has the role.")
            .refuses(409, "The owner keeps the role of the owner.")
            .runs(set_organization_member_role),
        get("/roles", &LIST_ORGANIZATION_ROLES)
            .says(AREA, "List the roles that can be given to members", "The mightiest first. The owner's is not among them: nobody can be given it.")
            .answers("The roles.")
            .runs(list_organization_roles),
    ]
}

async fn list_organization_members(app: App, access: Access) -> Result<Shown<wire::MemberList>> {
    let members = app.members.list(&access).await?;
    Ok(Shown(wire::MemberList { members: members.into_iter().map(to_wire).collect() }))
}

async fn remove_organization_member(app: App, access: Access<OnMember>) -> Result<Done> {
    note_keys(&app.members.remove(&access).await?);
    Ok(Done)
}

async fn set_organization_member_role(
    app: App,
    access: Access<OnMember>,
    Body(asked): Body<wire::SetMemberRole>,
) -> Result<Done> {
    note_keys(&app.members.set_role(&access, role_of(asked.role)).await?);
    Ok(Done)
}

/// Names keys in the line of the audit log.
fn note_keys(keys: &[ApiKeyId]) {
    context::audit_notes(|notes| notes.targets(keys.iter().map(ToString::to_string).collect()));
}

async fn list_organization_roles(_: App, _: Access) -> Result<Shown<wire::RoleList>> {
    let describe = |role: Role| {
        let (name, description) = (role.title().to_owned(), role.description().to_owned());
        Ok(wire::Role { id: assignable(role)?, name, description })
    };
    let roles = Role::ASSIGNABLE.into_iter().map(describe).collect::<Result<_>>()?;
    Ok(Shown(wire::RoleList { roles }))
}

/// A role that can be given to somebody.
pub(crate) fn role_of(role: wire::AssignableRole) -> Role {
    match role {
        wire::AssignableRole::Admin => Role::Admin,
        wire::AssignableRole::Editor => Role::Editor,
        wire::AssignableRole::Viewer => Role::Viewer,
    }
}

pub(crate) fn assignable(role: Role) -> Result<wire::AssignableRole> {
    match role {
        Role::Admin => Ok(wire::AssignableRole::Admin),
        Role::Editor => Ok(wire::AssignableRole::Editor),
        Role::Viewer => Ok(wire::AssignableRole::Viewer),
        Role::Owner => Err(Error::internal("nobody can be made an owner")),
    }
}

pub(crate) fn role_to_wire(role: Role) -> wire::MemberRole {
    match role {
        Role::Owner => wire::MemberRole::Owner,
        Role::Admin => wire::MemberRole::Admin,
        Role::Editor => wire::MemberRole::Editor,
        Role::Viewer => wire::MemberRole::Viewer,
    }
}

fn to_wire(member: Member) -> wire::Member {
    wire::Member {
        id: member.id.to_string(),
        email: member.email,
        name: member.name,
        role: role_to_wire(member.role),
        joined_at: wire::Timestamp(member.joined_at),
    }
}

//! Invitations to an organization.

use coppice_app::{Access, App, InvitationFilter, PersonalAccess, VisibleInvitation};
use coppice_core::Result;
use coppice_core::operation::{
    ACCEPT_INVITATION, CREATE_ORGANIZATION_INVITATION, DELETE_ORGANIZATION_INVITATION,
    GET_ORGANIZATION_INVITATION, LIST_ORGANIZATION_INVITATIONS, RESEND_ORGANIZATION_INVITATION,
};
use coppice_core::organization::Role;
use coppice_core::target::OnInvitation;
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::context;
use crate::endpoint::{Body, Done, Endpoint, Made, Query, Shown, delete, get, post};
use crate::error::as_invalid_key;
use crate::members::{assignable, role_of, role_to_wire};

/// Invitations of one answer.
const COUNT_MAX: u32 = 100;

/// Which invitations to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListInvitations {
    /// Only these.
    #[param(inline)]
    status: Option<wire::InvitationStatus>,
    /// Only for this address, without regard to case.
    #[param(max_length = 254, format = "sought")]
    email: Option<String>,
    /// Only for first names that contain this, without regard to case.
    #[param(max_length = 254, format = "sought")]
    first_name: Option<String>,
    /// Only for last names that contain this, without regard to case.
    #[param(max_length = 254, format = "sought")]
    last_name: Option<String>,
    /// Only for addresses and names that contain this, without regard to case.
    #[param(max_length = 254, format = "sought")]
    search: Option<String>,
    /// Index of the first one, from 0.
    #[param(minimum = 0, maximum = 4_294_967_295_u32, default = 0)]
    first: Option<u32>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 100, default = 100)]
    max: Option<u32>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Organizations";
    vec![
        get("/invitations", &LIST_ORGANIZATION_INVITATIONS)
            .says(AREA, "List the invitations of an organization", "Pending and expired ones, the newest first, in pages of up to 100.")
            .answers("Its invitations, also expired ones.")
            .runs(list_organization_invitations),
        post("/invitations", &CREATE_ORGANIZATION_INVITATION)
            .says(AREA, "Invite somebody to an organization", "They get the link by mail where that is set up; it is in this answer too. An expired invitation of the\nsame address is replaced.")
            .answers("The invitation.")
            .refuses(409, "The address is invited already, or a member's.")
            .runs(create_organization_invitation),
        get("", &GET_ORGANIZATION_INVITATION)
            .says(AREA, "Show an invitation", "With its link, while it is pending, for those who may invite.")
            .answers("The invitation.")
            .runs(get_organization_invitation),
        delete("", &DELETE_ORGANIZATION_INVITATION)
            .says(AREA, "Withdraw an invitation", "Its link stops working.")
            .answers("Withdrawn.")
            .runs(delete_organization_invitation),
        post("/resend", &RESEND_ORGANIZATION_INVITATION)
            .says(AREA, "Send a pending invitation again", "It gets a new link, which makes the old one useless, and its whole time again.")
            .answers("Sent again.")
            .forbids_by(as_invalid_key)
            .runs(resend_organization_invitation),
        post("/invitations/accept", &ACCEPT_INVITATION)
            .says(AREA, "Accept an invitation as the calling user", "It must be for the user's own address. Whoever is a member already keeps their role.")
            .answers("The caller is a member.")
            .refuses(404, "There is no such invitation.")
            .runs(accept_invitation),
    ]
}

async fn list_organization_invitations(
    app: App,
    access: Access,
    Query(asked): Query<ListInvitations>,
) -> Result<Shown<wire::InvitationList>> {
    let (first, max) = (asked.first.unwrap_or(0), asked.max.unwrap_or(COUNT_MAX));
    let found = app.invitations.list(&access, &asked.into(), first, max).await?;
    let invitations = found.into_iter().map(to_wire).collect::<Result<_>>()?;
    Ok(Shown(wire::InvitationList { invitations }))
}

async fn create_organization_invitation(
    app: App,
    access: Access,
    Body(asked): Body<wire::CreateInvitation>,
) -> Result<Made<wire::Invitation>> {
    let role = asked.role.map_or(Role::Editor, role_of);
    let made = app.invitations.create(&access, &asked.email, role).await?;
    Ok(Made(to_wire(made)?))
}

async fn get_organization_invitation(
    app: App,
    access: Access<OnInvitation>,
) -> Result<Shown<wire::Invitation>> {
    Ok(Shown(to_wire(app.invitations.get(&access).await?)?))
}

async fn delete_organization_invitation(app: App, access: Access<OnInvitation>) -> Result<Done> {
    app.invitations.delete(&access).await?;
    Ok(Done)
}

async fn resend_organization_invitation(app: App, access: Access<OnInvitation>) -> Result<Done> {
    app.invitations.resend(&access).await?;
    Ok(Done)
}

async fn accept_invitation(
    app: App,
    access: PersonalAccess,
    Body(asked): Body<wire::AcceptInvitation>,
) -> Result<Shown<wire::AcceptedInvitation>> {
    let accepted = app.invitations.accept(&access, &asked.token).await?;
    context::audit_notes(|notes| notes.organization(accepted.organization.to_string()));
    Ok(Shown(wire::AcceptedInvitation {
        organization_id: accepted.organization.to_string(),
        role: role_to_wire(accepted.role),
    }))
}

impl From<ListInvitations> for InvitationFilter {
    fn from(asked: ListInvitations) -> Self {
        Self {
            is_pending: asked.status.map(|status| status == wire::InvitationStatus::Pending),
            email: asked.email,
            first_name: asked.first_name,
            last_name: asked.last_name,
            search: asked.search,
        }
    }
}

fn to_wire(visible: VisibleInvitation) -> Result<wire::Invitation> {
    let VisibleInvitation { invitation, link } = visible;
    Ok(wire::Invitation {
        id: invitation.id.to_string(),
        organization_id: invitation.organization.to_string(),
        email: invitation.email,
        first_name: invitation.first_name,
        last_name: invitation.last_name,
        role: assignable(invitation.role)?,
        created_at: wire::Timestamp(invitation.created_at),
        expires_at: wire::Timestamp(invitation.expires_at),
        status: match invitation.is_pending {
            true => wire::InvitationStatus::Pending,
            false => wire::InvitationStatus::Expired,
        },
        has_unverified_account: invitation.has_unverified_account,
        invite_link: link.map(|link| link.to_string()),
    })
}

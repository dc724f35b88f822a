//! The caller's own account.

use coppice_app::{App, PersonalAccess};
use coppice_core::Result;
use coppice_core::operation::{GET_USER, UPDATE_USER};
use coppice_core::organization::User;
use coppice_wire as wire;

use crate::endpoint::{Body, Endpoint, Shown, get, patch};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Users";
    vec![
        get("/user", &GET_USER)
            .says(AREA, "Show the calling user", "Whose key or token it is.")
            .answers("The caller's account.")
            .runs(get_user),
        patch("/user", &UPDATE_USER)
            .says(AREA, "Rename the calling user", "Everywhere; the address stays.")
            .answers("The account as it is now.")
            .runs(update_user),
    ]
}

async fn get_user(app: App, access: PersonalAccess) -> Result<Shown<wire::User>> {
    Ok(Shown(to_wire(app.users.get(&access).await?)))
}

async fn update_user(
    app: App,
    access: PersonalAccess,
    Body(asked): Body<wire::UpdateUser>,
) -> Result<Shown<wire::User>> {
    Ok(Shown(to_wire(app.users.update(&access, asked.name.as_deref()).await?)))
}

fn to_wire(user: User) -> wire::User {
    wire::User {
        id: user.id.to_string(),
        email: user.email,
        name: user.name,
        created_at: wire::Timestamp(user.created_at),
    }
}

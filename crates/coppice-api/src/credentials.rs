//! How to connect to a branch.

use coppice_app::{Access, App};
use coppice_core::Result;
use coppice_core::operation::{GET_BRANCH_CREDENTIALS, ROTATE_BRANCH_CREDENTIALS};
use coppice_core::target::InBranch;
use coppice_wire as wire;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::endpoint::{Body, Done, Endpoint, Query, Shown, get, post};

/// Whose password.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OfRole {
    /// The managed role, in either of its forms; with a key that has a database role, the key's own user.
    #[param(example = "app", format = "looked-up")]
    username: Option<String>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/credentials", &GET_BRANCH_CREDENTIALS)
            .says(AREA, "Show how to connect to a branch", "With the password that its server accepts, also while it sleeps. 404 after somebody else set one by SQL. A key with a\n`database_role` is shown a user of its own, which ends with the key.")
            .answers("Role, password and place.")
            .runs(get_branch_credentials),
        post("/credentials/rotate", &ROTATE_BRANCH_CREDENTIALS)
            .says(AREA, "Give the managed role of a branch a new password", "Answers when the new one is in force, or after a moment while the work goes on; a rotation that is going on is\nreplaced. Ask for the credentials to read it. Open sessions stay; new ones need the new password. A sleeping branch\nis not woken. A role that was locked out, renamed or dropped is there again afterwards. A key\nwith a `database_role` gives its own user another one.")
            .answers("The rotation was begun, and is usually done.")
            .runs(rotate_branch_credentials),
    ]
}

async fn get_branch_credentials(
    app: App,
    access: Access<InBranch>,
    Query(asked): Query<OfRole>,
) -> Result<Shown<wire::BranchCredentials>> {
    let found = app.credentials.get(&access, asked.username.as_deref()).await?;
    Ok(Shown(wire::BranchCredentials {
        username: found.username,
        password: found.password.to_string(),
        hostname: found.host,
        port: found.port,
        dbname: found.database,
        connection_string: found.connection_string.to_string(),
    }))
}

async fn rotate_branch_credentials(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::RotateCredentials>,
) -> Result<Done> {
    app.credentials.rotate(&access, &asked.username).await?;
    Ok(Done)
}

//! What the caller's credential is good for.

use coppice_app::App;
use coppice_core::Result;
use coppice_core::access::{Caller, Principal};
use coppice_core::operation::GET_CREDENTIAL;
use coppice_wire as wire;

use crate::endpoint::{Endpoint, Shown, get};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "API Keys";
    vec![
        get("/credential", &GET_CREDENTIAL)
            .says(AREA, "Show what the calling credential is good for", "Every credential may ask this, so a program that has nothing but a key can find out where it belongs.")
            .answers("Whose it is, and what it reaches.")
            .runs(get_credential),
    ]
}

async fn get_credential(app: App, caller: Caller) -> Result<Shown<wire::Credential>> {
    let reach = app.keys.reach(&caller).await?;
    let (organization_id, user_id) = match &caller.principal {
        Principal::Organization(organization) => (Some(organization.to_string()), None),
        Principal::User(user) => (None, Some(user.to_string())),
    };
    let projects = reach.projects.into_iter();
    let branches = reach.branches.into_iter();
    Ok(Shown(wire::Credential {
        id: caller.credential.name(),
        organization_id,
        user_id,
        scopes: match caller.grant.has_every_scope() {
            true => vec!["*".to_owned()],
            false => caller.grant.scopes.clone(),
        },
        is_limited: caller.grant.project_limit().is_some() || caller.grant.branch_limit().is_some(),
        projects: projects
            .map(|project| wire::ReachedProject { id: project.id, name: project.name })
            .collect(),
        branches: branches
            .map(|branch| wire::ReachedBranch {
                id: branch.id,
                name: branch.name,
                project_id: branch.project_id,
            })
            .collect(),
        expiry: caller.expiry.map(wire::Timestamp),
    }))
}

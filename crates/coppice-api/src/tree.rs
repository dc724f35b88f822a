//! All branches of a project at a glance.

use chrono::SubsecRound;
use coppice_app::{Access, App, BranchInTree};
use coppice_core::Result;
use coppice_core::operation::GET_PROJECT_TREE;
use coppice_core::target::InProject;
use coppice_wire as wire;

use crate::activity::{not_kept, summary};
use crate::branches::public_state;
use crate::endpoint::{Endpoint, Tagged, get};
use crate::projects::scale_to_zero;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/tree", &GET_PROJECT_TREE)
            .says(
                AREA,
                "Show the branches of a project with what each is doing",
                "Made to be asked every second by whoever watches: it wakes nothing, keeps nothing awake, and with the \
                 `ETag` of the last answer in `If-None-Match` it answers 304 while nothing has changed. A key that is \
                 limited to branches sees only those.",
            )
            .answers("Branches the caller may see.")
            .runs(get_project_tree),
    ]
}

async fn get_project_tree(app: App, access: Access<InProject>) -> Result<Tagged<wire::ProjectTree>> {
    let found = app.branches.tree(&access).await?;
    Ok(Tagged(wire::ProjectTree { branches: found.into_iter().map(branch).collect() }))
}

fn branch(found: BranchInTree) -> wire::BranchInTree {
    let BranchInTree { branch, activity, disk_bytes, shared_bytes } = found;
    let newest = activity.periods.first();
    let used = newest.and_then(|period| period.uses.iter().map(|used| used.last_used).max());
    wire::BranchInTree {
        status: branch.title().to_owned(),
        status_type: public_state(&branch).0,
        scale_to_zero: scale_to_zero(branch.scale_to_zero),
        summary: summary(&activity).unwrap_or_else(|| not_kept(&activity)),
        sessions: u32::try_from(activity.sessions.len()).unwrap_or(u32::MAX),
        // It is worked out from two clocks, so that its milliseconds are never the same twice.
        sleeps_at: activity.sleeps_at.map(|at| wire::Timestamp(at.round_subsecs(0))),
        woken_at: newest.map(|period| wire::Timestamp(period.began_at)),
        woken_by: newest.map(|period| period.woken_by.clone()).unwrap_or_default(),
        asleep_since: newest.and_then(|period| period.ended).map(|(at, _)| wire::Timestamp(at)),
        last_used_at: used.map(wire::Timestamp),
        disk_bytes,
        own_bytes: disk_bytes.zip(shared_bytes).map(|(all, shared)| all - shared),
        shared_bytes,
        id: branch.id.to_string(),
        name: branch.name,
        description: branch.description,
        parent_id: branch.parent.map(|parent| parent.to_string()),
        created_at: wire::Timestamp(branch.created_at),
        region: branch.spec.region.to_string(),
        instance_type: branch.spec.instance_type,
        message: branch.message,
    }
}

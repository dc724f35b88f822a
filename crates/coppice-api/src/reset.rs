//! Branches that take the data or the place of another, or another major version.

use coppice_app::{Access, App, ResetTo, UpgradeTo};
use coppice_core::operation::{DETACH_BRANCH, PROMOTE_BRANCH, RESET_BRANCH, UPGRADE_BRANCH};
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Result, VolumeId};
use coppice_wire as wire;

use crate::branches::short;
use crate::endpoint::{Body, Endpoint, Shown, post};
use crate::history::moment_from;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        post("/promote", &PROMOTE_BRANCH)
            .says(AREA, "Put a branch in the place of its parent", "Its parent becomes its child; all other children stay whose they are. Nothing happens to anybody's data, name or URL.")
            .answers("The branch as it is now.")
            .runs(promote_branch),
        post("/detach", &DETACH_BRANCH)
            .says(AREA, "Make a branch a base branch", "It is nobody's child any more, also when its parent comes back from the trash. Its data, name and URL stay.")
            .answers("The branch as it is now.")
            .runs(detach_branch),
        post("/reset", &RESET_BRANCH)
            .says(
                AREA,
                "Give a branch the data of another one, or data that it had",
                "Its parent's as it is now, another branch's, or its own at a moment of its history or as a version of before.\nIts id, URL, password and settings stay; its sessions end, and new clients wait. What it was is kept as a version\nfor some days (`versions` of getBranchHistory), and can be gone back to in the same way. If the data can't be\ncopied, the branch stays what it is, and its `message` says why.",
            )
            .answers("The branch as it is now.")
            .refuses(409, "It is protected, or is being changed.")
            .refuses(412, "The branch to copy is not ready; `Retry-After` says when to look again.")
            .runs(reset_branch),
        post("/upgrade", &UPGRADE_BRANCH)
            .says(
                AREA,
                "Give a branch a later major version of PostgreSQL",
                "It is tried on a copy first, while the branch serves; then its sessions end, and new clients wait until it is\ndone, for about as long as the trial took. Its id, URL, password, roles, settings and data stay; what it was is kept\nas a version for some days (`versions` of getBranchHistory), and resetBranch goes back to it. If it can't be done,\nthe branch goes on as it was, and its `message` says why. Answers at once; the branch is `upgrading` meanwhile.",
            )
            .answers("The branch as it is now.")
            .refuses(409, "It is being changed.")
            .runs(upgrade_branch),
    ]
}

async fn reset_branch(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::ResetBranch>,
) -> Result<Shown<wire::Branch>> {
    let from = asked.from.unwrap_or_default();
    let to = ResetTo {
        branch: from.branch_id.map(BranchId::from_trusted),
        version: from.version_id.map(VolumeId::from_trusted),
        moment: moment_from(from.target_time, from.target_lsn)?,
    };
    let branch = app.branches.reset(&access, &to).await?;
    Ok(Shown(short(&app, &access, &branch).await?))
}

async fn upgrade_branch(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::UpgradeBranch>,
) -> Result<Shown<wire::Branch>> {
    let to = UpgradeTo { image: asked.image, is_trial: asked.check.unwrap_or_default() };
    let branch = app.branches.upgrade(&access, &to).await?;
    Ok(Shown(short(&app, &access, &branch).await?))
}

async fn promote_branch(app: App, access: Access<InBranch>) -> Result<Shown<wire::Branch>> {
    let branch = app.branches.promote(&access).await?;
    Ok(Shown(short(&app, &access, &branch).await?))
}

async fn detach_branch(app: App, access: Access<InBranch>) -> Result<Shown<wire::Branch>> {
    let branch = app.branches.detach(&access).await?;
    Ok(Shown(short(&app, &access, &branch).await?))
}

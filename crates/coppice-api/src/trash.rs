//! Branches that were deleted and can be brought back.

use coppice_app::{Access, App};
use coppice_core::Result;
use coppice_core::branch::TrashedBranch;
use coppice_core::operation::{EMPTY_TRASH, LIST_TRASH, PURGE_BRANCH, UNDELETE_BRANCH};
use coppice_core::target::{InProject, InTrash};
use coppice_wire as wire;

use crate::branches::short;
use crate::endpoint::{Body, Done, Endpoint, Shown, delete, get, post};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/trash", &LIST_TRASH)
            .says(AREA, "List the deleted branches of a project", "Those that can be brought back, what was deleted last first.")
            .answers("What is in the trash.")
            .runs(list_trash),
        delete("/trash", &EMPTY_TRASH)
            .says(AREA, "Empty the trash of a project", "The data of every deleted branch is removed, in the background; this can't be undone.")
            .answers("Emptied.")
            .runs(empty_trash),
        delete("", &PURGE_BRANCH)
            .says(AREA, "Remove a deleted branch for good", "Its data is removed in the background; this can't be undone.")
            .answers("Removed.")
            .runs(purge_branch),
        post("/undelete", &UNDELETE_BRANCH)
            .says(AREA, "Bring a deleted branch back", "With its data, id and passwords, awake, and under another name if one is given. It is a child of the branch it was\none of, and the parent of its children, as far as those are there.")
            .answers("The branch as it is now.")
            .refuses(409, "The name is taken: give another one.")
            .runs(undelete_branch),
    ]
}

async fn list_trash(app: App, access: Access<InProject>) -> Result<Shown<wire::TrashList>> {
    let found = app.branches.list_trash(&access).await?;
    Ok(Shown(wire::TrashList { branches: found.into_iter().map(trashed).collect() }))
}

async fn empty_trash(app: App, access: Access<InProject>) -> Result<Done> {
    app.branches.empty_trash(&access).await?;
    Ok(Done)
}

async fn purge_branch(app: App, access: Access<InTrash>) -> Result<Done> {
    app.branches.purge(&access).await?;
    Ok(Done)
}

async fn undelete_branch(
    app: App,
    access: Access<InTrash>,
    Body(asked): Body<wire::UndeleteBranch>,
) -> Result<Shown<wire::Branch>> {
    let branch = app.branches.undelete(&access, asked.name.as_deref()).await?;
    Ok(Shown(short(&app, &access, &branch).await?))
}

fn trashed(found: TrashedBranch) -> wire::TrashedBranch {
    let TrashedBranch { branch, deleted_at, purge_at } = found;
    wire::TrashedBranch {
        id: branch.id.to_string(),
        name: branch.name,
        description: branch.description,
        created_at: wire::Timestamp(branch.created_at),
        deleted_at: wire::Timestamp(deleted_at),
        purge_at: wire::Timestamp(purge_at),
    }
}

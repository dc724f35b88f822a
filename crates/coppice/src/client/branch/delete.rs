//! `coppice branch delete`

use coppice_wire::{ListedBranch, TrashedBranch};

use crate::client::http::Client;
use crate::client::lookup::Named;
use crate::client::output::{self, day};
use crate::client::words::quoted;
use crate::client::{ProjectChoice, trash};
use crate::refusal::Refused;

/// What to delete, and how sure the caller is.
pub(super) struct Deletion {
    pub(super) named: Vec<String>,
    pub(super) project: ProjectChoice,
    pub(super) purge: bool,
    pub(super) is_confirmed: bool,
    pub(super) if_exists: bool,
}

/// Deletes branches; their children stay.
pub(super) async fn delete(client: &Client, deletion: Deletion, as_json: bool) -> anyhow::Result<()> {
    let project = client.project(deletion.project.project.as_deref()).await?;
    let mut found: Vec<Named> = vec![];
    for name in &deletion.named {
        match client.branch_in(&project, name).await {
            Ok(branch) => found.push(branch),
            Err(error) if deletion.if_exists && is_missing(&error) => {
                output::done(as_json, format!("there is no branch {name}"));
            }
            Err(error) => return Err(error),
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    // Whoever may not list can delete all the same.
    let listed = client.listed_branches(&project).await.unwrap_or_default();
    confirm(&found, &listed, &deletion)?;
    let mut deleted = vec![];
    for branch in found {
        let path = super::path(client, &project.id, &branch.id);
        let how = if deletion.purge { "?purge=true" } else { "" };
        match client.delete(&format!("{path}{how}")).await {
            Err(error) if deletion.if_exists && is_missing(&error) => {
                output::done(as_json, format!("there is no branch {}", branch.name));
            }
            done => {
                done?;
                deleted.push(branch);
            }
        }
    }
    // Whoever may not look there has deleted them all the same.
    let trash = trash::listed(client, &project).await.unwrap_or_default();
    for branch in &deleted {
        let kept = trash.iter().find(|kept| kept.id == branch.id);
        output::done(as_json, told(branch, kept));
    }
    Ok(())
}

/// Asks; for branches that are no copies, by the name of each.
fn confirm(found: &[Named], listed: &[ListedBranch], deletion: &Deletion) -> anyhow::Result<()> {
    let question = question(found, listed, deletion.purge);
    let bases = bases(found, listed);
    if bases.is_empty() {
        return output::confirm(&question, deletion.is_confirmed);
    }
    bases.into_iter().try_for_each(|name| output::confirm_by_name(&question, name, deletion.is_confirmed))
}

/// Names of those that are no copies; one that was not listed may be none.
fn bases<'a>(found: &'a [Named], listed: &[ListedBranch]) -> Vec<&'a str> {
    let is_copy = |branch: &Named| listed.iter().any(|one| one.id == branch.id && one.parent_id.is_some());
    found.iter().filter(|branch| !is_copy(branch)).map(|branch| branch.name.as_str()).collect()
}

/// What is said of a branch that was deleted, and may be kept in the trash.
fn told(branch: &Named, kept: Option<&TrashedBranch>) -> String {
    let Some(kept) = kept else { return format!("deleted branch {}", branch.name) };
    // Others of its name may be there, too.
    let back = crate::suggest::command(&format!("coppice trash restore {}", quoted(&kept.id)));
    let (name, until) = (&kept.name, day(&kept.purge_at));
    format!("deleted branch {name}; until {until} this brings it back: {back}")
}

/// Whether an error says that there is no such thing.
pub(in crate::client) fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(Refused::is_not_found)
}

fn question(found: &[Named], listed: &[ListedBranch], purge: bool) -> String {
    let names: Vec<_> = found.iter().map(|branch| branch.name.as_str()).collect();
    let what = if names.len() == 1 { "branch" } else { "branches" };
    let is_meant = |id: &str| found.iter().any(|branch| branch.id == id);
    let children = listed.iter().filter(|branch| {
        let parent = branch.parent_id.as_deref();
        parent.is_some_and(is_meant) && !is_meant(&branch.id)
    });
    let children: Vec<_> = children.map(|branch| branch.name.as_str()).collect();
    let stays = match children.as_slice() {
        [] => String::new(),
        [one] => format!(" Its copy {one} stays, without a parent."),
        several => format!(" The copies {} stay, without a parent.", several.join(", ")),
    };
    let how = if purge { " with all data, for good" } else { "" };
    format!("Delete {what} {}{how}?{stays}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::branch;
    use super::*;

    fn named(id: &str) -> Named {
        Named { id: id.to_owned(), name: format!("b{id}") }
    }

    #[test]
    fn whoever_deletes_what_may_be_no_copy_is_asked_for_its_name() {
        let listed = [branch("1", None), branch("2", Some("1")), branch("3", None)];
        let asked = |ids: &[&str]| -> Vec<String> {
            let found: Vec<_> = ids.iter().map(|id| named(id)).collect();
            bases(&found, &listed).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(asked(&["2"]), [""; 0]);
        assert_eq!(asked(&["1", "2", "3"]), ["b1", "b3"]);
        assert_eq!(asked(&["2", "9"]), ["b9"], "whoever deletes it may not see it");
    }

    #[test]
    fn whoever_deletes_a_parent_is_told_of_its_children() {
        let listed = [branch("1", None), branch("2", Some("1")), branch("3", Some("1")), branch("4", None)];
        assert_eq!(question(&[named("4")], &listed, false), "Delete branch b4?");
        assert_eq!(
            question(&[named("1"), named("3")], &listed, true),
            "Delete branches b1, b3 with all data, for good? Its copy b2 stays, without a parent."
        );
        assert!(question(&[named("1")], &listed, false).contains("The copies b2, b3 stay"));
    }
}

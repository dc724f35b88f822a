//! `coppice branch delete`

use coppice_wire::ListedBranch;

use crate::client::ProjectChoice;
use crate::client::http::Client;
use crate::client::lookup::Named;
use crate::client::output;
use crate::refusal::Refused;

/// What to delete, and how sure the caller is.
pub(super) struct Deletion {
    pub(super) named: Vec<String>,
    pub(super) project: ProjectChoice,
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
    output::confirm(&question(&found, &listed), deletion.is_confirmed)?;
    for branch in &found {
        match client.delete(&super::path(client, &project.id, &branch.id)).await {
            Err(error) if deletion.if_exists && is_missing(&error) => {
                output::done(as_json, format!("there is no branch {}", branch.name));
            }
            deleted => {
                deleted?;
                output::done(as_json, format!("deleted branch {}", branch.name));
            }
        }
    }
    Ok(())
}

/// Whether an error says that there is no such thing.
pub(in crate::client) fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(Refused::is_not_found)
}

fn question(found: &[Named], listed: &[ListedBranch]) -> String {
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
    format!("Delete {what} {} with all data?{stays}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::branch;
    use super::*;

    #[test]
    fn whoever_deletes_a_parent_is_told_of_its_children() {
        let listed = [branch("1", None), branch("2", Some("1")), branch("3", Some("1")), branch("4", None)];
        let named = |id: &str| Named { id: id.to_owned(), name: format!("b{id}") };
        assert_eq!(question(&[named("4")], &listed), "Delete branch b4 with all data?");
        assert_eq!(
            question(&[named("1"), named("3")], &listed),
            "Delete branches b1, b3 with all data? Its copy b2 stays, without a parent."
        );
        assert!(question(&[named("1")], &listed).contains("The copies b2, b3 stay"));
    }
}

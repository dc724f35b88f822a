//! Names and ids: what people write, found with as little as a credential has.
//!
//! An id is taken as it is, without asking. A name is looked for in the list;
//! a credential that may not see the list knows what it is limited to.

use anyhow::bail;
use coppice_core::{BranchId, ErrorCode};
use coppice_wire::{BranchList, ListedBranch, Organization, OrganizationList, ProjectList};

use super::BranchTarget;
use super::http::Client;
use super::profiles::ProfileFile;
use super::words::quoted;
use crate::refusal::Refused;

/// Something with an id. What was named by its id is called so, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its id.
    pub(super) id: String,
    /// What to call it.
    pub(super) name: String,
}

impl Named {
    fn by_id(id: &str) -> Self {
        Self { id: id.to_owned(), name: id.to_owned() }
    }
}

/// A branch with its project.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Its project.
    pub(super) project: Named,
    /// The branch.
    pub(super) branch: Named,
}

impl Client {
    /// An organization by name or id.
    pub(super) async fn organization_named(&self, named: &str) -> anyhow::Result<Organization> {
        let list: OrganizationList = self.get("/organizations").await?;
        choose(list.organizations, "org", named, |organization| (&organization.id, &organization.name))
    }

    /// The project that was named, else the remembered one, else the only one.
    pub(super) async fn project(&self, named: Option<&str>) -> anyhow::Result<Named> {
        let remembered = match named {
            Some(_) => None,
            None => self.remembered_project(),
        };
        let named = named.or(remembered.as_deref());
        if let Some(id) = named.filter(|named| named.starts_with("prj_")) {
            return Ok(Named::by_id(id));
        }
        let projects = self.projects().await?;
        match (named, projects.as_slice()) {
            (Some(named), _) => choose(projects, "project", named, |project| (&project.id, &project.name)),
            (None, [only]) => Ok(only.clone()),
            (None, []) => {
                bail!(Refused::not_found(
                    "there is no project: make one with `coppice project create NAME`".to_owned()
                ))
            }
            (None, several) => {
                let names: Vec<_> = several.iter().map(|project| quoted(&project.name)).collect();
                bail!(Refused::mistake(format!(
                    "there are several projects: name one with --project or COPPICE_PROJECT, or choose one for \
                     good with `coppice project use {}`; there are {}",
                    quoted(&several[0].name),
                    names.join(", ")
                )))
            }
        }
    }

    /// Every project that the credential reaches.
    pub(super) async fn projects(&self) -> anyhow::Result<Vec<Named>> {
        let list = self.get(&self.here("/projects")).await;
        match list {
            Ok(ProjectList { projects }) => {
                let named = |project: coppice_wire::Project| Named { id: project.id, name: project.name };
                Ok(projects.into_iter().map(named).collect())
            }
            Err(error) => {
                let reached = self.reached(error).await?;
                let projects = reached.projects.iter();
                Ok(projects
                    .map(|project| Named { id: project.id.clone(), name: project.name.clone() })
                    .collect())
            }
        }
    }

    /// What the credential is limited to, where it may not see a list.
    async fn reached(&self, error: anyhow::Error) -> anyhow::Result<&coppice_wire::Credential> {
        if error.downcast_ref::<Refused>().is_none_or(|refused| !refused.is(ErrorCode::InsufficientScope)) {
            return Err(error);
        }
        match self.known().await? {
            known if known.is_limited => Ok(known),
            _ => Err(error.context("this credential can't look names up: write ids (--project prj_…)")),
        }
    }

    /// The project that `coppice project use` chose; whoever can't keep one has none.
    pub(super) fn remembered_project(&self) -> Option<String> {
        let profiles = ProfileFile::locate().and_then(|file| file.read()).ok()?;
        profiles.projects.get(self.organization()?).cloned()
    }

    /// A branch by name or id, with its project.
    pub(super) async fn branch(&self, target: &BranchTarget) -> anyhow::Result<Place> {
        let project = self.project(target.project.project.as_deref()).await?;
        let branch = self.branch_in(&project, &target.branch).await?;
        Ok(Place { project, branch })
    }

    /// A branch of a project.
    pub(super) async fn branch_in(&self, project: &Named, named: &str) -> anyhow::Result<Named> {
        if BranchId::parse(named).is_some() {
            return Ok(Named::by_id(named));
        }
        let branches = self.branches_in(project).await?;
        choose(branches, "branch", named, |branch| (&branch.id, &branch.name))
    }

    /// The same by their names, also for a credential that may not see the list.
    pub(super) async fn branches_in(&self, project: &Named) -> anyhow::Result<Vec<Named>> {
        match self.listed_branches(project).await {
            Ok(branches) => {
                let named = |branch: ListedBranch| Named { id: branch.id, name: branch.name };
                Ok(branches.into_iter().map(named).collect())
            }
            Err(error) => {
                let reached = self.reached(error).await?;
                let here = reached.branches.iter().filter(|branch| branch.project_id == project.id);
                Ok(here.map(|branch| Named { id: branch.id.clone(), name: branch.name.clone() }).collect())
            }
        }
    }

    /// The branches of a project, oldest first.
    pub(super) async fn listed_branches(&self, project: &Named) -> anyhow::Result<Vec<ListedBranch>> {
        let list: BranchList = self.get(&self.here(&format!("/projects/{}/branches", project.id))).await?;
        Ok(list.branches)
    }

    /// The branch with this name or id; without one, the only branch of the project.
    pub(super) async fn branch_or_only(
        &self,
        named: Option<&str>,
        project: Option<&str>,
    ) -> anyhow::Result<Place> {
        let project = self.project(project).await?;
        let Some(named) = named else {
            let mut branches = self.branches_in(&project).await?;
            return match (branches.pop(), branches.is_empty()) {
                (Some(branch), true) => Ok(Place { project, branch }),
                (Some(_), false) => bail!(Refused::mistake(
                    "there are several branches: name one (`coppice branch list` shows them)".to_owned()
                )),
                (None, _) => bail!(Refused::not_found(
                    "there is no branch: make one with `coppice branch create NAME`".to_owned()
                )),
            };
        };
        let branch = self.branch_in(&project, named).await?;
        Ok(Place { project, branch })
    }

    /// The API's path of a branch.
    pub(super) fn path_of(&self, place: &Place) -> String {
        self.here(&format!("/projects/{}/branches/{}", place.project.id, place.branch.id))
    }
}

/// The one item with this id or, if there is none and only one such, this name: others may call
/// theirs by an id.
pub(super) fn choose<T>(
    mut items: Vec<T>,
    kind: &str,
    named: &str,
    keys: impl Fn(&T) -> (&String, &String),
) -> anyhow::Result<T> {
    if let Some(place) = items.iter().position(|item| keys(item).0 == named) {
        return Ok(items.swap_remove(place));
    }
    let mut matching: Vec<T> = items.into_iter().filter(|item| keys(item).1 == named).collect();
    if matching.len() > 1 {
        let ids: Vec<_> = matching.iter().map(|item| keys(item).0.as_str()).collect();
        bail!(Refused::mistake(format!("several are named {named}; use an id instead: {}", ids.join(", "))));
    }
    let found = matching.pop();
    let missing =
        || Refused::not_found(format!("no {kind} is named {named}: see `coppice {} list`", quoted(kind)));
    found.ok_or_else(|| missing().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<(String, String)> {
        [("1", "a"), ("2", "b"), ("3", "b")].map(|(id, name)| (id.to_owned(), name.to_owned())).into()
    }

    #[test]
    fn an_ambiguous_name_asks_for_an_id() {
        let error = choose(items(), "project", "b", |item| (&item.0, &item.1)).expect_err("ambiguous");
        assert_eq!(error.to_string(), "several are named b; use an id instead: 2, 3");
    }

    #[test]
    fn what_is_called_as_the_id_of_another_does_not_hide_that() {
        let mut items = items();
        items.insert(0, ("4".to_owned(), "2".to_owned()));
        let found = |named| choose(items.clone(), "key", named, |item| (&item.0, &item.1));
        assert_eq!(found("2").expect("found").0, "2");
        assert_eq!(found("4").expect("found").1, "2");
    }

    #[test]
    fn names_and_ids_are_found() {
        for named in ["1", "a"] {
            let found = choose(items(), "project", named, |item| (&item.0, &item.1)).expect("found");
            assert_eq!(found.0, "1");
        }
    }
}

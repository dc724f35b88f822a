//! Projects.

use chrono::Utc;
use coppice_core::limits::OrganizationLimits;
use coppice_core::project::{ConfigurationChange, Project, ProjectConfiguration};
use coppice_core::target::InProject;
use coppice_core::{Error, ErrorCode, ProjectId, Result};
use coppice_store::{Doomed, Store, Tx};

use crate::Access;
use crate::idempotency::commit_with_answer;
use crate::reconciler::Reconciler;
use crate::rows::{find_project, lock_in_tx, lock_project_in_tx};

/// A project to be made; checked by the caller.
#[derive(Clone, Debug)]
pub struct NewProject {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub configuration: ProjectConfiguration,
}

/// A change of a project; checked by the caller. What is absent stays.
#[derive(Clone, Debug, Default)]
pub struct ProjectChange {
    /// Its new name.
    pub name: Option<String>,
    /// Settings to change.
    pub configuration: ConfigurationChange,
}

/// Projects of organizations.
#[derive(Clone)]
pub struct Projects {
    store: Store,
    reconciler: Reconciler,
    limits: OrganizationLimits,
}

impl Projects {
    pub(crate) fn new(store: Store, reconciler: Reconciler, limits: OrganizationLimits) -> Self {
        Self { store, reconciler, limits }
    }

    /// Makes a project without branches.
    ///
    /// # Errors
    /// `project_limit_reached`, `project_rate_exceeded`, `organization_disabled`
    pub async fn create(&self, access: &Access, new: &NewProject) -> Result<Project> {
        let organization = access.organization.id.clone();
        let place = InProject { organization, project: ProjectId::generate(Utc::now()) };
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let project = self.insert_in_tx(&mut tx, &place, &new.name, &new.configuration).await?;
        commit_with_answer(tx, None).await?;
        Ok(project)
    }

    /// Makes a project of an organization that the transaction has locked.
    ///
    /// # Errors
    /// `project_limit_reached`, `project_rate_exceeded`
    pub(crate) async fn insert_in_tx(
        &self,
        tx: &mut Tx,
        place: &InProject,
        name: &str,
        configuration: &ProjectConfiguration,
    ) -> Result<Project> {
        let (organization, limits) = (&place.organization, &self.limits);
        let (present, recent) = self.store.project_count_in_tx(tx, organization).await?;
        if present >= limits.projects_max {
            return Err(Error::invalid(
                ErrorCode::ProjectLimitReached,
                format!("project limit of {} reached", limits.projects_max),
            ));
        }
        if recent >= limits.projects_per_hour_max {
            return Err(Error::TooMany {
                code: ErrorCode::ProjectRateExceeded,
                public: "too many projects created in one hour".to_owned(),
                retry_after_seconds: self
                    .store
                    .project_room_in_tx(tx, organization, limits.projects_per_hour_max)
                    .await?,
            });
        }
        let made =
            self.store.project_insert_in_tx(tx, organization, &place.project, name, configuration).await?;
        Ok(made)
    }

    /// Projects the caller may see.
    pub async fn list(&self, access: &Access) -> Result<Vec<Project>> {
        let grant = &access.caller.grant;
        let projects = self
            .store
            .project_list(&access.organization.id, grant.project_limit(), grant.branch_limit())
            .await?;
        Ok(projects)
    }

    /// One project.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn get(&self, access: &Access<InProject>) -> Result<Project> {
        find_project(&self.store, &access.target).await
    }

    /// Changes a project; one that changes nothing leaves it as it is.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn update(&self, access: &Access<InProject>, change: ProjectChange) -> Result<Project> {
        let id = &access.target.project;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let current = lock_project_in_tx(&self.store, &mut tx, &access.target).await?;
        let name = change.name.unwrap_or_else(|| current.name.clone());
        let configuration = current.configuration.clone().with(change.configuration);
        if name == current.name && configuration == current.configuration {
            return Ok(current);
        }
        let project = self.store.project_update_in_tx(&mut tx, id, &name, &configuration).await?;
        tx.commit().await?;
        Ok(project)
    }

    /// Deletes a project with its branches and their data. Returns when that
    /// can't be undone any more; the data is removed in the background.
    ///
    /// # Errors
    /// `project_not_found`, `branch_protected`
    pub async fn delete(&self, access: &Access<InProject>) -> Result<()> {
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        self.delete_with(tx, &access.target).await
    }

    /// As [`Projects::delete`], for what has the right to.
    pub(crate) async fn delete_at(&self, place: &InProject) -> Result<()> {
        self.delete_with(self.store.begin().await?, place).await
    }

    async fn delete_with(&self, mut tx: Tx, place: &InProject) -> Result<()> {
        let InProject { organization, project: id } = place;
        if !self.store.project_delete_in_tx(&mut tx, organization, id).await? {
            return Err(Error::project_not_found(id));
        }
        let kept = self.store.branch_protected_in_tx(&mut tx, id).await?;
        if !kept.is_empty() {
            return Err(protected(&format!("its branch {}", kept.join(", its branch ")), "the project"));
        }
        let branches =
            self.store.branch_delete_in_tx(&mut tx, id, Doomed::Everything, "project deleted").await?;
        tx.commit().await?;
        for branch in branches {
            self.reconciler.nudge(branch);
        }
        Ok(())
    }
}

/// The complaint about a branch that can't be deleted.
pub(crate) fn protected(what: &str, it: &str) -> Error {
    protected_from("delete", what, it)
}

/// The complaint about a branch that something can't be done to.
pub(crate) fn protected_from(doing: &str, what: &str, it: &str) -> Error {
    Error::Conflict {
        code: ErrorCode::BranchProtected,
        public: format!(
            "{what} is protected: remove the protection before you {doing} {it} (`coppice branch unprotect`, or \
             `\"protected\": false` in updateBranch)"
        ),
    }
}

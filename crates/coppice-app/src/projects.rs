//! Projects.

use chrono::Utc;
use coppice_core::project::{ConfigurationChange, Project, ProjectConfiguration};
use coppice_core::target::InProject;
use coppice_core::{Error, ErrorCode, ProjectId, Result};
use coppice_store::{Doomed, Tx};

use crate::branches::protected;
use crate::{Access, App};

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

impl App {
    /// Makes a project without branches.
    ///
    /// # Errors
    /// `project_limit_reached`, `project_rate_exceeded`, `organization_disabled`
    pub async fn create_project(&self, access: &Access, new: &NewProject) -> Result<Project> {
        let organization = access.organization.id.clone();
        let place = InProject { organization, project: ProjectId::generate(Utc::now()) };
        let mut tx = self.store.begin().await?;
        self.lock_enabled_organization_in_tx(&mut tx, &place.organization).await?;
        let project = self.insert_project_in_tx(&mut tx, &place, &new.name, &new.configuration).await?;
        self.commit_with_answer(tx, None).await?;
        Ok(project)
    }

    /// Makes a project of an organization that the transaction has locked.
    ///
    /// # Errors
    /// `project_limit_reached`, `project_rate_exceeded`
    pub(crate) async fn insert_project_in_tx(
        &self,
        tx: &mut Tx,
        place: &InProject,
        name: &str,
        configuration: &ProjectConfiguration,
    ) -> Result<Project> {
        let (organization, limits) = (&place.organization, &self.config.limits);
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
    pub async fn list_projects(&self, access: &Access) -> Result<Vec<Project>> {
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
    pub async fn get_project(&self, access: &Access<InProject>) -> Result<Project> {
        self.find_project(&access.target).await
    }

    /// The project at a place.
    pub(crate) async fn find_project(&self, place: &InProject) -> Result<Project> {
        let InProject { organization, project } = place;
        let found = self.store.project_find(organization, project).await?;
        found.ok_or_else(|| Error::project_not_found(project))
    }

    /// Changes a project; one that changes nothing leaves it as it is.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn update_project(&self, access: &Access<InProject>, change: ProjectChange) -> Result<Project> {
        let id = &access.target.project;
        let mut tx = self.store.begin().await?;
        let locked = self.store.project_lock_in_tx(&mut tx, &access.organization.id, id).await?;
        let current = locked.ok_or_else(|| Error::project_not_found(id))?;
        let name = change.name.unwrap_or_else(|| current.name.clone());
        let configuration = current.configuration.clone().with(change.configuration);
        if name == current.name && configuration == current.configuration {
            return Ok(current);
        }
        let project = self.store.project_update_in_tx(&mut tx, id, &name, &configuration).await?;
        tx.commit().await.map_err(coppice_store::StoreError::from)?;
        Ok(project)
    }

    /// Deletes a project with its branches and their data. Returns when that
    /// can't be undone any more; the data is removed in the background.
    ///
    /// # Errors
    /// `project_not_found`, `branch_protected`
    pub async fn delete_project(&self, access: &Access<InProject>) -> Result<()> {
        self.delete_project_at(&access.target).await
    }

    /// As [`App::delete_project`], for what has the right to.
    pub(crate) async fn delete_project_at(&self, place: &InProject) -> Result<()> {
        let InProject { organization, project: id } = place;
        let mut tx = self.store.begin().await?;
        if !self.store.project_delete_in_tx(&mut tx, organization, id).await? {
            return Err(Error::project_not_found(id));
        }
        let kept = self.store.branch_protected_in_tx(&mut tx, id).await?;
        if !kept.is_empty() {
            return Err(protected(&format!("its branch {}", kept.join(", its branch ")), "the project"));
        }
        let branches =
            self.store.branch_delete_in_tx(&mut tx, id, Doomed::Everything, "project deleted").await?;
        tx.commit().await.map_err(coppice_store::StoreError::from)?;
        for branch in branches {
            self.reconciler.nudge(branch);
        }
        Ok(())
    }
}

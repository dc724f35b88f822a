//! Databases that people have by an installation, each a project with a branch
//! of its organization.

use chrono::{SubsecRound as _, TimeDelta, Utc};
use coppice_core::access::{AskedExpiry, Principal};
use coppice_core::audit::RequestOrigin;
use coppice_core::backup::BackupChange;
use coppice_core::branch::{Branch, BranchState};
use coppice_core::image::image_name;
use coppice_core::target::InProject;
use coppice_core::vercel::{VERCEL_LOGINS_MAX, VERCEL_PLAN, VercelInstallation, VercelResource};
use coppice_core::{Error, ErrorCode, ProjectId, Result};
use coppice_failpoint::failpoint;
use serde_json::Value;

use super::databases::{
    NewDatabase, NewLogin, ResourceRequest, ResourceSecrets, ResourceSeen, ResourceStatus, ResourceTold,
    secrets,
};
use super::{Vercel, VercelCaller};
use crate::Access;
use crate::branches::{BranchOrigin, CustomBranch, MadeFor, NewBranchRequest};
use crate::idempotency::KeptAnswer;
use crate::rows::find_in_project;

/// What the branch of a database is called.
const BRANCH: &str = "main";
/// How large its data may get, in GiB.
const STORAGE_GIB: u32 = 10;
/// Longest id of a resource that is looked for.
const ID_LENGTH_MAX: usize = 64;

/// What is to be otherwise of a database; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct ResourceChange {
    /// What it is called.
    pub name: Option<String>,
    /// By what it is charged.
    pub plan: Option<String>,
    /// What was chosen for it at Vercel, an object.
    pub metadata: Option<Value>,
}

impl Vercel {
    /// Makes a database, and tells what to connect with, whether it is ready or not. What is kept for repetitions
    /// says that it is not, until the call is finished.
    ///
    /// # Errors
    /// `invalid_token`, `installation_not_found`, `invalid_field`, and those of making a project and a branch.
    pub async fn provision_resource(
        &self,
        caller: &VercelCaller,
        asked: &ResourceRequest,
        kept: &KeptAnswer<ResourceTold>,
        origin: &RequestOrigin,
    ) -> Result<ResourceTold> {
        let known = self.living_installation_of(caller).await?;
        let project = ProjectId::generate(Utc::now());
        let line = self
            .begin_audit(caller, (&known.organization, Some(&project)), "provisionResource", origin)
            .await?;
        let login = NewLogin::make();
        let database = NewDatabase {
            store: &self.store,
            calls: &self.calls,
            credentials: &self.credentials,
            installation: &known,
            asked,
            login: &login,
            kept,
        };
        let outcome = self.make_resource(project, &database).await;
        self.audit.end_with(&line, &outcome).await;
        outcome
    }

    async fn make_resource(&self, project: ProjectId, database: &NewDatabase<'_>) -> Result<ResourceTold> {
        check_plan(&database.asked.plan)?;
        let region = self.region.as_str();
        let image = self.offers.images(Some(region)).await?.into_iter().next();
        let kind = self.offers.instance_types(Some(region)).await?.into_iter().next();
        let lacking = |what: &str| Error::unavailable(format!("there is no {what} for databases of Vercel"));
        let (image, _) = image.ok_or_else(|| lacking("PostgreSQL"))?;
        let (_, kind) = kind.ok_or_else(|| lacking("instance type"))?;
        let new = NewBranchRequest {
            name: BRANCH.to_owned(),
            description: String::new(),
            labels: Default::default(),
            scale_to_zero: Default::default(),
            expiry: AskedExpiry::Never,
            backups: BackupChange::default(),
            origin: BranchOrigin::Custom(CustomBranch {
                region: region.to_owned(),
                instance_type: kind.name,
                image: image_name(image.version),
                replicas: 0,
                storage_gib: STORAGE_GIB,
                parameters: Default::default(),
                preload_libraries: None,
            }),
        };
        let place = InProject { organization: database.installation.organization.clone(), project };
        let branch =
            self.branches.make(&place, None::<&Access>, &new, Some(MadeFor::Resource(database))).await?;
        failpoint!("vercel.provisioned");
        Ok(database.told((&place.project, &branch.id), status_of(&branch, true)))
    }

    /// One database of the caller's installation.
    ///
    /// # Errors
    /// `invalid_token`, `installation_not_found`, `project_not_found`
    pub async fn resource(&self, caller: &VercelCaller, id: &str) -> Result<ResourceSeen> {
        let known = self.living_installation_of(caller).await?;
        let resource = self.find_resource(&known, id).await?;
        self.see_resource(&known, resource).await
    }

    /// Changes a database.
    ///
    /// # Errors
    /// As [`Vercel::resource`], and `invalid_field`.
    pub async fn update_resource(
        &self,
        caller: &VercelCaller,
        id: &str,
        change: &ResourceChange,
        origin: &RequestOrigin,
    ) -> Result<ResourceSeen> {
        let known = self.living_installation_of(caller).await?;
        let resource = self.find_resource(&known, id).await?;
        let about = (&known.organization, Some(&resource.project));
        let line = self.begin_audit(caller, about, "updateResource", origin).await?;
        let outcome = self.change_resource(&known, &resource, change).await;
        self.audit.end_with(&line, &outcome).await;
        outcome?;
        let changed = self.find_resource(&known, id).await?;
        self.see_resource(&known, changed).await
    }

    async fn change_resource(
        &self,
        known: &VercelInstallation,
        resource: &VercelResource,
        change: &ResourceChange,
    ) -> Result<()> {
        change.plan.as_deref().map_or(Ok(()), check_plan)?;
        let mut tx = self.store.begin().await?;
        let project = &resource.project;
        let locked = self.store.project_lock_in_tx(&mut tx, &known.organization, project).await?;
        let locked = locked.ok_or_else(|| unknown_resource(project.as_str()))?;
        if let Some(name) = &change.name {
            self.store.project_update_in_tx(&mut tx, project, name, &locked.configuration).await?;
        }
        if let Some(metadata) = &change.metadata {
            self.store.vercel_resource_update_in_tx(&mut tx, project, metadata).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Deletes a database with its project. One that is not there is deleted already.
    ///
    /// # Errors
    /// `invalid_token`, `branch_protected`
    pub async fn delete_resource(
        &self,
        caller: &VercelCaller,
        id: &str,
        origin: &RequestOrigin,
    ) -> Result<()> {
        let Some(known) = self.installation_of(caller).await? else { return Ok(()) };
        let resource = match self.find_resource(&known, id).await {
            Err(Error::NotFound { .. }) => return Ok(()),
            found => found?,
        };
        let about = (&known.organization, Some(&resource.project));
        let line = self.begin_audit(caller, about, "deleteResource", origin).await?;
        let place = InProject { organization: known.organization.clone(), project: resource.project };
        let outcome = self.projects.delete_at(&place).await;
        self.audit.end_with(&line, &outcome).await;
        outcome?;
        Ok(self.store.vercel_resource_forget(&known.id, &place.project).await?)
    }

    /// Gives a database other secrets. Those it has are good for `delay` more.
    ///
    /// # Errors
    /// As [`Vercel::resource`]; `too_many_logins` while as many are good as may be.
    pub async fn rotate_secrets(
        &self,
        caller: &VercelCaller,
        id: &str,
        delay: TimeDelta,
        kept: &KeptAnswer<ResourceSecrets>,
        origin: &RequestOrigin,
    ) -> Result<ResourceSecrets> {
        let known = self.living_installation_of(caller).await?;
        let resource = self.find_resource(&known, id).await?;
        let about = (&known.organization, Some(&resource.project));
        let line = self.begin_audit(caller, about, "rotateResourceSecrets", origin).await?;
        let outcome = self.replace_logins(&known, &resource, delay, kept).await;
        self.audit.end_with(&line, &outcome).await;
        outcome
    }

    async fn replace_logins(
        &self,
        known: &VercelInstallation,
        resource: &VercelResource,
        delay: TimeDelta,
        kept: &KeptAnswer<ResourceSecrets>,
    ) -> Result<ResourceSecrets> {
        let project = &resource.project;
        let mut tx = self.store.begin().await?;
        let good = self.store.vercel_logins_lock_in_tx(&mut tx, &known.id, project).await?;
        let good = good.ok_or_else(|| unknown_resource(project.as_str()))?;
        if good >= VERCEL_LOGINS_MAX && delay > TimeDelta::zero() {
            return Err(Error::Conflict {
                code: ErrorCode::TooManyLogins,
                public: format!(
                    "{good} secrets of the database are good at present, which is as many as may be: wait until \
                     one ends, or rotate without a delay, which ends them all"
                ),
            });
        }
        let end = Utc::now().trunc_subsecs(3) + delay;
        let login = NewLogin::make();
        let secrets = secrets(&self.credentials, &resource.branch, &login);
        self.store.vercel_logins_replace_in_tx(&mut tx, project, end, login.row()).await?;
        self.calls.keep_answer_in_tx(&mut tx, kept, &secrets).await?;
        tx.commit().await?;
        failpoint!("vercel.rotated");
        Ok(secrets)
    }

    /// The installation that somebody calls for, which is there and not being deleted.
    pub(super) async fn living_installation_of(&self, caller: &VercelCaller) -> Result<VercelInstallation> {
        let known = self.installation_of(caller).await?;
        known.filter(|known| !known.is_ending).ok_or_else(|| Error::NotFound {
            code: ErrorCode::InstallationNotFound,
            public: format!("installation {} not found", caller.installation),
        })
    }

    /// Whether the organization of the caller's installation may do something.
    ///
    /// # Errors
    /// `invalid_token`, `installation_not_found`
    pub async fn is_installation_enabled(&self, caller: &VercelCaller) -> Result<bool> {
        let known = self.living_installation_of(caller).await?;
        self.is_organization_enabled(&known).await
    }

    async fn is_organization_enabled(&self, known: &VercelInstallation) -> Result<bool> {
        let of = Principal::Organization(known.organization.clone());
        Ok(self.store.organization_list(&of).await?.iter().all(|organization| organization.is_enabled()))
    }

    pub(super) async fn find_resource(&self, known: &VercelInstallation, id: &str) -> Result<VercelResource> {
        let is_id = (1..=ID_LENGTH_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
        let project = is_id.then(|| ProjectId::from_trusted(id)).ok_or_else(|| unknown_resource(""))?;
        let found = self.store.vercel_resource(&known.id, &project).await?;
        found.ok_or_else(|| unknown_resource(id))
    }

    async fn see_resource(
        &self,
        known: &VercelInstallation,
        resource: VercelResource,
    ) -> Result<ResourceSeen> {
        let place = InProject { organization: known.organization.clone(), project: resource.project.clone() };
        let branch = find_in_project(&self.store, &place, &resource.branch).await?;
        let status = status_of(&branch, self.is_organization_enabled(known).await?);
        Ok(ResourceSeen { resource, status })
    }
}

fn status_of(branch: &Branch, is_enabled: bool) -> ResourceStatus {
    match branch.state {
        BranchState::Failed => ResourceStatus::Error,
        _ if !is_enabled => ResourceStatus::Suspended,
        BranchState::Creating => ResourceStatus::Pending,
        _ => ResourceStatus::Ready,
    }
}

fn check_plan(plan: &str) -> Result<()> {
    match plan {
        VERCEL_PLAN => Ok(()),
        _ => Err(Error::invalid_field("billingPlanId", format_args!("must be {VERCEL_PLAN}"))),
    }
}

pub(super) fn unknown_resource(id: &str) -> Error {
    let public = format!("resource {id} not found");
    Error::NotFound { code: ErrorCode::ProjectNotFound, public }
}

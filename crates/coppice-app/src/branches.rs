//! Branches.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::Utc;
use coppice_core::access::Scope;
use coppice_core::branch::{Branch, BranchSpec, BranchState, MANAGED_DATABASE, MANAGED_ROLE, Reconfigure};
use coppice_core::limits::{BRANCH_CHILDREN_MAX, BRANCH_DEPTH_MAX};
use coppice_core::parameter::check_parameters;
use coppice_core::project::{Project, ScaleToZero, ScaleToZeroChange};
use coppice_core::{BranchId, Error, InstanceId, Result, VolumeId};
use coppice_store::{NewBranch, StoreError, Tx};
use zeroize::Zeroizing;

use crate::configuration::server;
use crate::secrets::{new_password, scram_verifier};
use crate::{Access, Activity, App};

/// How long a request waits for a server to take its parameters.
const RELOAD_WAIT: Duration = Duration::from_secs(1);
/// What woke a branch whose owner asked for it.
const WOKEN_BY_REQUEST: &str = "a request to the API";

/// A branch to be made; its fields were checked by the caller.
#[derive(Clone, Debug)]
pub struct NewBranchRequest {
    /// Unique in the project.
    pub name: String,
    /// Empty when none was given.
    pub description: String,
    /// Over the project's default.
    pub scale_to_zero: ScaleToZeroChange,
    /// Where its data comes from.
    pub origin: Origin,
}

/// Where a new branch's data comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A copy of another branch, as it is now.
    Inherit {
        /// The other branch.
        parent: BranchId,
    },
    /// An empty database.
    Custom(CustomBranch),
}

/// What a branch without a parent is made of.
#[derive(Clone, Debug)]
pub struct CustomBranch {
    /// Where it runs.
    pub region: String,
    /// Its size.
    pub instance_type: String,
    /// For example `postgres:17`.
    pub image: String,
    /// Instances besides the primary.
    pub replicas: u32,
    /// Largest size of the data.
    pub storage_gib: u32,
    /// PostgreSQL parameters.
    pub parameters: BTreeMap<String, String>,
    /// Libraries to preload; without it, the usual ones.
    pub preload_libraries: Option<Vec<String>>,
}

/// A change of a branch; checked by the caller. What is absent stays.
#[derive(Clone, Debug, Default)]
pub struct BranchChange {
    /// Its new name.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZeroChange,
    /// Whether it shall sleep now, or wake.
    pub hibernate: Option<bool>,
    /// PostgreSQL parameters, over those it has.
    pub parameters: BTreeMap<String, String>,
}

/// A branch with what its instances are doing.
#[derive(Clone, Debug)]
pub struct BranchDetails {
    /// The branch.
    pub branch: Branch,
    /// Its instances.
    pub instances: Vec<(InstanceId, InstanceStatus)>,
    /// What keeps it awake; none while it is not.
    pub activity: Option<Activity>,
}

/// What one instance is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceStatus {
    /// Accepts connections.
    Healthy,
    /// On its way up.
    Starting,
    /// Does not run.
    Stopped,
    /// Can't be brought up.
    Failed,
}

/// How clients connect to a branch.
#[derive(Debug)]
pub struct Credentials {
    /// With the branch's suffix where there is no gateway domain.
    pub username: String,
    /// The managed role's password.
    pub password: Zeroizing<String>,
    /// Where the gateway is.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database.
    pub database: String,
    /// All of it as one URL.
    pub connection_string: Zeroizing<String>,
}

/// What a new branch takes from its origin.
struct Plan {
    spec: BranchSpec,
    source: Option<VolumeId>,
    parent: Option<BranchId>,
    default_scale_to_zero: ScaleToZero,
}

impl App {
    /// Makes a branch and waits a few seconds for it to be ready; what is true
    /// then is in its state.
    ///
    /// # Errors
    /// Everything the error catalogue lists for createBranch.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn create_branch(&self, access: &Access, new: &NewBranchRequest) -> Result<Branch> {
        let (id, volume) = (BranchId::generate(), VolumeId::generate(Utc::now()));
        let password = new_password();
        let sealed = self.key.seal(id.as_str(), &password);
        let verifier = scram_verifier(&password);

        let mut tx = self.store.begin().await?;
        self.lock_enabled_organization_in_tx(&mut tx, &access.organization.id).await?;
        let project = self.lock_project(&mut tx, access).await?;
        let plan = self.plan_branch(&mut tx, &project, &new.origin).await?;
        self.check_quotas(&mut tx, access, &project).await?;
        let row = NewBranch {
            id: &id,
            project: &project.id,
            parent: plan.parent.as_ref(),
            source: plan.source.as_ref(),
            name: &new.name,
            description: &new.description,
            spec: &plan.spec,
            scale_to_zero: plan.default_scale_to_zero.with(new.scale_to_zero),
            volume: &volume,
            host: &self.config.host,
            password_sealed: &sealed,
            managed_role_verifier: &verifier,
        };
        self.store.branch_insert_in_tx(&mut tx, &row).await.map_err(|error| name_taken(error, &new.name))?;
        // Before the commit, so that no change of its state can be missed.
        let ready = self.reconciler.watch(&id);
        tx.commit().await.map_err(|error| name_taken(error.into(), &new.name))?;

        self.reconciler.nudge(id.clone());
        // Also over when the branch failed or was deleted: the row tells.
        let _ = tokio::time::timeout(self.config.create_wait, ready).await;
        self.find_in_project(access, &id).await
    }

    /// Locks the project the path names; its organization is locked first, as
    /// everywhere.
    async fn lock_project(&self, tx: &mut Tx, access: &Access) -> Result<Project> {
        let id = access.project()?;
        let project = self.store.project_lock_in_tx(tx, &access.organization.id, id).await?;
        project.ok_or_else(|| Error::project_not_found(id))
    }

    async fn plan_branch(&self, tx: &mut Tx, project: &Project, origin: &Origin) -> Result<Plan> {
        match origin {
            Origin::Custom(custom) => Ok(Plan {
                spec: self.custom_spec(custom).await?,
                source: None,
                parent: None,
                default_scale_to_zero: project.configuration.base_branches,
            }),
            Origin::Inherit { parent } => {
                let found =
                    self.store.branch_find_in_tx(tx, &project.organization, &project.id, parent).await?;
                let parent = found.ok_or_else(|| Error::branch_not_found(parent))?;
                if !matches!(parent.state, BranchState::Ready | BranchState::Hibernated) {
                    return Err(Error::NotReady {
                        code: "parent_not_ready",
                        public: format!("parent branch {} is not ready", parent.id),
                    });
                }
                let (depth, children) = self.store.branch_place_in_tx(tx, &parent.id).await?;
                if depth >= BRANCH_DEPTH_MAX {
                    return Err(Error::invalid(
                        "branch_depth_exceeded",
                        format!("branch tree is limited to {BRANCH_DEPTH_MAX} levels"),
                    ));
                }
                if parent.parent.is_some() && children >= BRANCH_CHILDREN_MAX {
                    return Err(Error::invalid(
                        "branch_children_exceeded",
                        format!("branch already has {BRANCH_CHILDREN_MAX} children"),
                    ));
                }
                Ok(Plan {
                    spec: BranchSpec { replicas: 0, ..parent.spec },
                    source: Some(parent.volume),
                    parent: Some(parent.id),
                    default_scale_to_zero: project.configuration.child_branches,
                })
            }
        }
    }

    async fn custom_spec(&self, custom: &CustomBranch) -> Result<BranchSpec> {
        let region = self.check_region(&custom.region)?;
        let types = self.list_instance_types(Some(region.as_str()))?;
        let kind = types.into_iter().find(|(_, kind)| kind.name == custom.instance_type);
        let (_, kind) = kind.ok_or_else(|| {
            Error::invalid("invalid_instance_type", format!("unknown instance type {}", custom.instance_type))
        })?;
        let version = self.choose_image(&custom.image)?;
        // What can't be done yet is refused rather than ignored.
        if custom.replicas > 0 {
            return Err(Error::invalid_field("configuration.replicas", "this region runs no replicas"));
        }
        let storage_max = self.config.limits.storage_gib_max;
        if storage_max != 0 && custom.storage_gib > storage_max {
            return Err(Error::invalid_field(
                "configuration.storage",
                format_args!("at most {storage_max} GiB"),
            ));
        }
        let contents = self.image_contents(version).await?;
        let preload_libraries =
            self.check_preload_libraries(custom.preload_libraries.as_deref(), &contents)?;
        check_parameters(&custom.parameters, &server(version.major, &kind, &preload_libraries, &contents))?;
        Ok(BranchSpec {
            region,
            version,
            instance_type: custom.instance_type.clone(),
            replicas: 0,
            storage_gib: custom.storage_gib,
            parameters: custom.parameters.clone(),
            preload_libraries,
        })
    }

    async fn check_quotas(&self, tx: &mut Tx, access: &Access, project: &Project) -> Result<()> {
        let limits = &self.config.limits;
        let counted = self.store.branch_quotas_in_tx(tx, &access.organization.id, &project.id).await?;
        let reached = [
            (counted.in_project, limits.branches_per_project_max),
            (counted.in_organization, limits.branches_max),
        ]
        .into_iter()
        .find(|(count, max)| count >= max);
        if let Some((_, max)) = reached {
            return Err(Error::invalid("branch_limit_reached", format!("branch limit of {max} reached")));
        }
        if counted.recent >= limits.branches_per_hour_max {
            return Err(Error::TooMany {
                code: "branch_rate_exceeded",
                public: "too many branches created in one hour".to_owned(),
                retry_after_seconds: 60,
            });
        }
        Ok(())
    }

    /// A branch of the project the path names; tells which of both is missing.
    async fn find_in_project(&self, access: &Access, id: &BranchId) -> Result<Branch> {
        let found = self.store.branch_find_in(&access.organization.id, access.project()?, id).await?;
        match found {
            Some(branch) => Ok(branch),
            None => {
                self.get_project(access).await?;
                Err(Error::branch_not_found(id))
            }
        }
    }

    /// The branch the path names.
    pub(crate) async fn find_branch(&self, access: &Access) -> Result<Branch> {
        self.find_in_project(access, access.branch()?).await
    }

    /// Branches of the project that the caller may see.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn list_branches(&self, access: &Access) -> Result<Vec<Branch>> {
        let only = access.caller.grant.branch_limit();
        let branches = self.store.branch_list(&access.organization.id, access.project()?, only).await?;
        if branches.is_empty() {
            self.get_project(access).await?;
        }
        Ok(branches)
    }

    /// Changes what the owner says of a branch; a change that changes nothing
    /// leaves it as it is.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `branch_name_taken`, `branch_busy`,
    /// `invalid_postgres_parameter`, `organization_disabled`
    pub async fn update_branch(&self, access: &Access, change: BranchChange) -> Result<Branch> {
        let id = access.branch()?;
        if change.hibernate == Some(true) {
            // What was used until now belongs to the time that ends now.
            self.note_uses().await;
        }
        let mut tx = self.store.begin().await?;
        self.lock_enabled_organization_in_tx(&mut tx, &access.organization.id).await?;
        // Renames wait for each other and for creations in the project.
        let project = self.lock_project(&mut tx, access).await?;
        let found = self.store.branch_find_in_tx(&mut tx, &project.organization, &project.id, id).await?;
        let current = found.ok_or_else(|| Error::branch_not_found(id))?;
        let name = change.name.as_deref().unwrap_or(&current.name);
        let description = change.description.as_deref().unwrap_or(&current.description);
        let scale_to_zero = current.scale_to_zero.with(change.scale_to_zero);
        let new_parameters = self.changed_parameters(&current, &change.parameters).await?;
        let is_same = (name, description, scale_to_zero)
            == (current.name.as_str(), current.description.as_str(), current.scale_to_zero);
        if !is_same {
            self.store
                .branch_update_in_tx(&mut tx, id, name, description, scale_to_zero)
                .await
                .map_err(|error| name_taken(error, name))?;
        }
        if let Some(new) = &new_parameters
            && !self.store.branch_set_parameters_in_tx(&mut tx, id, &new.parameters, new.how).await?
        {
            return Err(Error::Conflict {
                code: "branch_busy",
                public: format!("branch {id} is being changed, retry"),
            });
        }
        let has_new_goal = match change.hibernate {
            None => false,
            Some(true) => self.store.branch_hibernate_in_tx(&mut tx, id).await?,
            Some(false) => self.store.branch_wake_in_tx(&mut tx, id, WOKEN_BY_REQUEST).await?,
        };
        if is_same && !has_new_goal && new_parameters.is_none() {
            return Ok(current);
        }
        let done = self.reconciler.watch(id);
        tx.commit().await.map_err(|error| name_taken(error.into(), name))?;
        if has_new_goal || new_parameters.is_some() {
            self.reconciler.nudge(id.clone());
        }
        if new_parameters.is_some_and(|new| new.how == Reconfigure::Reload) && !has_new_goal {
            // Also over when the server does not answer; it is told later.
            let _ = tokio::time::timeout(RELOAD_WAIT, done).await;
        }
        self.find_in_project(access, id).await
    }

    /// A branch with its instances.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn describe_branch(&self, access: &Access) -> Result<BranchDetails> {
        let branch = self.find_branch(access).await?;
        let status = match branch.state {
            BranchState::Ready => InstanceStatus::Healthy,
            BranchState::Creating | BranchState::Waking | BranchState::Updating | BranchState::Unknown => {
                InstanceStatus::Starting
            }
            BranchState::Hibernating | BranchState::Hibernated | BranchState::Deleted => {
                InstanceStatus::Stopped
            }
            BranchState::Failed => InstanceStatus::Failed,
        };
        let instances = vec![(InstanceId::new(&branch.id, 1), status)];
        let activity = match branch.state {
            BranchState::Ready => Some(self.activity(&branch, 1).await?),
            _ => None,
        };
        Ok(BranchDetails { branch, instances, activity })
    }

    /// Deletes a branch. Returns when that can't be undone any more; its data
    /// is removed in the background.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn delete_branch(&self, access: &Access) -> Result<()> {
        let id = access.branch()?;
        let mut tx = self.store.begin().await?;
        self.lock_organization_in_tx(&mut tx, &access.organization.id).await?;
        let project = self.lock_project(&mut tx, access).await?;
        let deleted =
            self.store.branch_delete_in_tx(&mut tx, &project.id, Some(id), "branch deleted").await?;
        if deleted.is_empty() {
            return Err(Error::branch_not_found(id));
        }
        tx.commit().await.map_err(StoreError::from)?;
        self.reconciler.nudge(id.clone());
        Ok(())
    }

    /// How to connect to a branch. `username` may name the managed role in
    /// either of its forms, or by an alias.
    ///
    /// # Errors
    /// `invalid_username`, `credentials_not_found` and those of
    /// [`App::describe_branch`].
    pub async fn get_branch_credentials(
        &self,
        access: &Access,
        username: Option<&str>,
    ) -> Result<Credentials> {
        let branch = self.find_branch(access).await?;
        if let Some(name) = username {
            self.check_username(&branch, name)?;
        }
        let password = self.password_in_force(&branch).await?;
        Ok(self.credentials(&branch, password))
    }

    /// The connection string of a branch, for callers that may read
    /// credentials.
    ///
    /// # Errors
    /// When the password can't be decrypted.
    pub fn connection_string(&self, access: &Access, branch: &Branch) -> Result<Option<Zeroizing<String>>> {
        if !access.caller.grant.has_scope(Scope::CredentialsRead) {
            return Ok(None);
        }
        let password = self.key.open(branch.id.as_str(), &branch.password_sealed)?;
        Ok(Some(self.credentials(branch, password).connection_string))
    }

    fn credentials(&self, branch: &Branch, password: Zeroizing<String>) -> Credentials {
        let port = self.config.gateway_address.port();
        let (username, host) = match &self.config.gateway_domain {
            Some(domain) => (MANAGED_ROLE.to_owned(), format!("{}.{domain}", branch.id)),
            None => (format!("{MANAGED_ROLE}.{}", branch.id), self.config.gateway_address.ip().to_string()),
        };
        let url_host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let url_port = if port == 5432 { String::new() } else { format!(":{port}") };
        // The password has letters and digits only: nothing needs encoding.
        let connection_string = Zeroizing::new(format!(
            "postgresql://{username}:{}@{url_host}{url_port}/{MANAGED_DATABASE}",
            password.as_str()
        ));
        let database = MANAGED_DATABASE.to_owned();
        Credentials { username, password, host, port, database, connection_string }
    }
}

fn name_taken(error: StoreError, name: &str) -> Error {
    if error.is_unique_violation("branches_name") {
        return Error::Conflict {
            code: "branch_name_taken",
            public: format!("a branch named {name} already exists"),
        };
    }
    error.into()
}

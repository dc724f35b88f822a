//! Branches.

use std::collections::BTreeMap;

use chrono::Utc;
use coppice_core::branch::{Branch, BranchSpec, BranchState, MANAGED_DATABASE, MANAGED_ROLE};
use coppice_core::image::ImageRequest;
use coppice_core::limits::{BRANCH_CHILDREN_MAX, BRANCH_DEPTH_MAX};
use coppice_core::project::{Project, ScaleToZero};
use coppice_core::{BranchId, Error, InstanceId, Result, VolumeId};
use coppice_store::{NewBranch, StoreError, Tx};
use zeroize::Zeroizing;

use crate::secrets::{new_password, scram_verifier};
use crate::{Access, App};

/// A branch to be made; its fields were checked by the caller.
#[derive(Clone, Debug)]
pub struct NewBranchRequest {
    /// Unique in the project.
    pub name: String,
    /// Empty when none was given.
    pub description: String,
    /// Without it, the project's default.
    pub scale_to_zero: Option<ScaleToZero>,
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
    /// Libraries to preload.
    pub preload_libraries: Vec<String>,
}

/// A branch with what its instances are doing.
#[derive(Clone, Debug)]
pub struct BranchDetails {
    /// The branch.
    pub branch: Branch,
    /// Its instances: id and `healthy`, `starting`, `stopped` or `failed`.
    pub instances: Vec<(InstanceId, &'static str)>,
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
    pub async fn create_branch(&self, access: &Access, new: &NewBranchRequest) -> Result<Branch> {
        let (id, volume) = (BranchId::generate(), VolumeId::generate(Utc::now()));
        let password = new_password();
        let sealed = self.key.seal(id.as_str(), &password);
        let verifier = scram_verifier(&password);

        let mut tx = self.store.begin().await?;
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
            scale_to_zero: new.scale_to_zero.unwrap_or(plan.default_scale_to_zero),
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
        self.find_branch_row(&project, &id).await
    }

    async fn lock_project(&self, tx: &mut Tx, access: &Access) -> Result<Project> {
        let id = access.project()?;
        let organization = &access.organization.id;
        self.store.organization_lock_in_tx(tx, organization).await?;
        let project = self.store.project_lock_in_tx(tx, organization, id).await?;
        project.ok_or_else(|| Error::project_not_found(id))
    }

    async fn plan_branch(&self, tx: &mut Tx, project: &Project, origin: &Origin) -> Result<Plan> {
        match origin {
            Origin::Custom(custom) => Ok(Plan {
                spec: self.custom_spec(custom)?,
                source: None,
                parent: None,
                default_scale_to_zero: project.configuration.base_branches,
            }),
            Origin::Inherit { parent } => {
                let parent = self.find_branch_row(project, parent).await?;
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

    fn custom_spec(&self, custom: &CustomBranch) -> Result<BranchSpec> {
        let region = self.check_region(&custom.region)?;
        let known = self
            .list_instance_types(Some(region.as_str()))?
            .into_iter()
            .any(|(_, kind)| kind.name == custom.instance_type);
        if !known {
            return Err(Error::invalid(
                "invalid_instance_type",
                format!("unknown instance type {}", custom.instance_type),
            ));
        }
        let invalid_image =
            |why: &str| Error::invalid("invalid_image", format!("invalid image {}: {why}", custom.image));
        let request = ImageRequest::parse(&custom.image)
            .ok_or_else(|| invalid_image("write postgres:<major> or postgres:<major>.<minor>"))?;
        let offered: Vec<_> = self.engine.images().into_iter().map(|image| image.version).collect();
        let version = request.choose(&offered).ok_or_else(|| invalid_image("not offered in this region"))?;
        // What can't be done yet is refused rather than ignored.
        if custom.replicas > 0 {
            return Err(Error::invalid_field("configuration.replicas", "this region runs no replicas"));
        }
        if !custom.parameters.is_empty() {
            let field = "configuration.postgresConfigurationParameters";
            return Err(Error::invalid_field(field, "parameters can't be changed in this version"));
        }
        if !custom.preload_libraries.is_empty() {
            let field = "configuration.preloadLibraries";
            return Err(Error::invalid_field(field, "libraries can't be changed in this version"));
        }
        let storage_max = self.config.limits.storage_gib_max;
        if storage_max != 0 && custom.storage_gib > storage_max {
            return Err(Error::invalid_field(
                "configuration.storage",
                format_args!("at most {storage_max} GiB"),
            ));
        }
        Ok(BranchSpec {
            region,
            version,
            instance_type: custom.instance_type.clone(),
            replicas: 0,
            storage_gib: custom.storage_gib,
            parameters: BTreeMap::new(),
            preload_libraries: Vec::new(),
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

    async fn find_branch_row(&self, project: &Project, id: &BranchId) -> Result<Branch> {
        let found = self.store.branch_find(id).await?;
        found.filter(|branch| branch.project == project.id).ok_or_else(|| Error::branch_not_found(id))
    }

    /// The branch the path names, after its project.
    async fn find_branch(&self, access: &Access) -> Result<Branch> {
        let project = self.get_project(access).await?;
        self.find_branch_row(&project, access.branch()?).await
    }

    /// Branches of the project that the caller may see.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn list_branches(&self, access: &Access) -> Result<Vec<Branch>> {
        let project = self.get_project(access).await?;
        Ok(self.store.branch_list(&project.id, access.caller.grant.branch_limit()).await?)
    }

    /// A branch with its instances.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn describe_branch(&self, access: &Access) -> Result<BranchDetails> {
        let branch = self.find_branch(access).await?;
        let status = match branch.state {
            BranchState::Ready => "healthy",
            BranchState::Creating | BranchState::Waking | BranchState::Unknown => "starting",
            BranchState::Hibernating | BranchState::Hibernated | BranchState::Deleted => "stopped",
            BranchState::Failed => "failed",
        };
        let instances = vec![(InstanceId::new(&branch.id, 1), status)];
        Ok(BranchDetails { branch, instances })
    }

    /// Deletes a branch. Returns when that can't be undone any more; its data
    /// is removed in the background.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn delete_branch(&self, access: &Access) -> Result<()> {
        let id = access.branch()?;
        let mut tx = self.store.begin().await?;
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
    /// either of its forms.
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
        let with_suffix = format!("{MANAGED_ROLE}.{}", branch.id);
        if username.is_some_and(|name| name != MANAGED_ROLE && name != with_suffix) {
            return Err(Error::invalid(
                "invalid_username",
                format!("only the user {MANAGED_ROLE} is managed"),
            ));
        }
        self.credentials(&branch).await
    }

    /// The connection string of a branch, for callers that may read
    /// credentials.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn connection_string(
        &self,
        access: &Access,
        branch: &Branch,
    ) -> Result<Option<Zeroizing<String>>> {
        if coppice_core::access::check_scope(&access.caller, coppice_core::access::Scope::CredentialsRead)
            .is_err()
        {
            return Ok(None);
        }
        Ok(Some(self.credentials(branch).await?.connection_string))
    }

    async fn credentials(&self, branch: &Branch) -> Result<Credentials> {
        let sealed = self.store.branch_password(&branch.id).await?.ok_or_else(|| Error::NotFound {
            code: "credentials_not_found",
            public: "credentials not found".to_owned(),
        })?;
        let password = self.key.open(branch.id.as_str(), &sealed)?;
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
        Ok(Credentials { username, password, host, port, database, connection_string })
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

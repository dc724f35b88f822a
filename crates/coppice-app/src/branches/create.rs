//! Making branches.

use std::collections::BTreeMap;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use coppice_core::access::AskedExpiry;
use coppice_core::backup::{BackupChange, BackupConfiguration};
use coppice_core::branch::{Branch, BranchSpec, BranchState};
use coppice_core::error::excerpt;
use coppice_core::history::Moment;
use coppice_core::labels::Labels;
use coppice_core::limits::{BRANCH_CHILDREN_MAX, BRANCH_DEPTH_MAX};
use coppice_core::lsn::Lsn;
use coppice_core::parameter::check_parameters;
use coppice_core::project::{Project, ScaleToZero, ScaleToZeroChange};
use coppice_core::target::{InBranch, InProject};
use coppice_core::{ApiKeyId, BranchId, Error, ErrorCode, Result, VolumeId};
use coppice_failpoint::failpoint;
use coppice_store::{BaseMoment, BranchQuotas, NewBranch, PullKey, Tx};
use coppice_turns::step_aside;

use super::{Branches, SpecChange, checked_expiry, checked_labels, has_name, name_taken};
use crate::Access;
use crate::configuration::server;
use crate::idempotency::{branch_of_call, note_effect_in_tx};
use crate::past::Past;
use crate::rows::{
    find_in_project, find_project, lock_enabled_organization_in_tx, lock_in_tx, lock_project_in_tx,
};
use crate::secrets::{new_password, scram_verifier};
use crate::vercel::databases::NewDatabase;

/// A branch to be made; its fields were checked by the caller.
#[derive(Clone, Debug)]
pub struct NewBranchRequest {
    /// Unique in the project.
    pub name: String,
    /// Empty when none was given.
    pub description: String,
    /// What it is told apart by; an empty value is none.
    pub labels: Labels,
    /// Over the project's default.
    pub scale_to_zero: ScaleToZeroChange,
    /// When it is deleted, over the project's default.
    pub expiry: AskedExpiry,
    /// Over what new branches have.
    pub backups: BackupChange,
    /// Where its data comes from.
    pub origin: BranchOrigin,
}

/// Where a new branch's data comes from.
#[derive(Clone, Debug)]
pub enum BranchOrigin {
    /// A copy of another branch, as it is now or was at a moment, or of a version of it.
    Inherit {
        /// The other branch.
        parent: BranchId,
        /// What shall be otherwise than there.
        change: SpecChange,
        /// A version of it, by its volume; none for what it is.
        version: Option<VolumeId>,
        /// The moment; none for now.
        moment: Option<Moment>,
    },
    /// What another branch was, whatever it is doing.
    Restored {
        /// The other branch.
        source: BranchId,
        /// Where it shall run, if it is said.
        region: Option<String>,
        /// What shall be otherwise than there.
        change: SpecChange,
        /// At which time; none for the latest that can be restored.
        time: Option<DateTime<Utc>>,
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

/// For what a branch is made that nobody asks for with a key: it is written down with the branch.
#[derive(Clone, Copy)]
pub(crate) enum MadeFor<'a> {
    /// A pull request.
    Pull(&'a PullKey),
    /// A database by Vercel, with its first login; its project is made with the branch, and has this name.
    Resource(&'a NewDatabase<'a>),
}

/// What a new branch takes from its origin.
struct Plan {
    spec: BranchSpec,
    source: Option<VolumeId>,
    moment: Option<Lsn>,
    base: Option<BaseMoment>,
    parent: Option<BranchId>,
    default_scale_to_zero: ScaleToZero,
}

/// A branch is restored where it is.
fn check_region(origin: &BranchOrigin, source: &Branch) -> Result<()> {
    let is_in = &source.spec.region;
    match origin {
        BranchOrigin::Restored { region: Some(region), .. } if *region != *is_in.as_str() => {
            let public = format!("invalid region {}: branch {} is in {is_in}", excerpt(region), source.id);
            Err(Error::invalid(ErrorCode::InvalidRegion, public))
        }
        _ => Ok(()),
    }
}

/// When a new branch is deleted.
fn end_of(project: &Project, plan: &Plan, asked: AskedExpiry) -> Result<Option<DateTime<Utc>>> {
    let hours = match plan.parent {
        Some(_) => project.configuration.child_expiry_hours,
        None => 0,
    };
    match asked {
        AskedExpiry::At(time) => checked_expiry(time).map(Some),
        AskedExpiry::Unsaid if hours > 0 => {
            Ok(Some(Utc::now().trunc_subsecs(3) + TimeDelta::hours(hours.into())))
        }
        AskedExpiry::Never | AskedExpiry::Unsaid => Ok(None),
    }
}

impl Branches {
    /// Makes a branch and waits a few seconds for it to be ready; what is true
    /// then is in its state.
    ///
    /// # Errors
    /// Everything the error catalogue lists for createBranch.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn create(&self, access: &Access<InProject>, new: &NewBranchRequest) -> Result<Branch> {
        self.make(&access.target, Some(access), new, None).await
    }

    /// Makes a branch out of what another one was. Waits as
    /// [`Branches::create`] does.
    ///
    /// # Errors
    /// Everything the error catalogue lists for restoreFromBackup.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn restore(&self, access: &Access<InBranch>, new: &NewBranchRequest) -> Result<Branch> {
        self.make(&access.target.within, Some(access), new, None).await
    }

    /// As [`Branches::create`], by somebody, or for something else: whose branch it is, is written down with it.
    pub(crate) async fn make<T: Clone + Sync>(
        &self,
        place: &InProject,
        by: Option<&Access<T>>,
        new: &NewBranchRequest,
        made_for: Option<MadeFor<'_>>,
    ) -> Result<Branch> {
        if let Some(id) = branch_of_call() {
            return self.come_up(place, &id, self.reconciler.watch(&id)).await;
        }
        self.check_backups(new.backups)?;
        let made_with = by.and_then(|access| access.caller.credential.key());
        let (id, volume) = (BranchId::generate(), VolumeId::generate(Utc::now()));
        let password = new_password();
        let sealed = self.key.seal(id.as_str(), &password);
        let verifier = scram_verifier(&password);

        // Before anything is locked: it takes a look at the parent's log.
        let past = self.find_past(place, new, made_with).await?;
        let mut tx = self.store.begin().await?;
        match by {
            Some(access) => drop(lock_in_tx(&self.store, &mut tx, access).await?),
            None => lock_enabled_organization_in_tx(&self.store, &mut tx, &place.organization).await?,
        }
        if let Some(MadeFor::Resource(database)) = made_for {
            self.projects.insert_in_tx(&mut tx, place, database.name(), &Default::default()).await?;
        }
        let project = lock_project_in_tx(&self.store, &mut tx, place).await?;
        let plan = self.plan_branch(&mut tx, &project, &new.origin, past).await?;
        self.check_room(&mut tx, &project, made_with).await?;
        let row = NewBranch {
            id: &id,
            project: &project.id,
            parent: plan.parent.as_ref(),
            source: plan.source.as_ref(),
            moment: plan.moment,
            base: plan.base.as_ref(),
            name: &new.name,
            description: &new.description,
            labels: &checked_labels(&Labels::new(), &new.labels)?,
            spec: &plan.spec,
            scale_to_zero: plan.default_scale_to_zero.with(new.scale_to_zero),
            expires_at: end_of(&project, &plan, new.expiry)?,
            backups: BackupConfiguration::of_new_branch().with(new.backups),
            made_with,
            volume: &volume,
            host: &self.host,
            password_sealed: &sealed,
            managed_role_verifier: &verifier,
        };
        self.store.branch_insert_in_tx(&mut tx, &row).await.map_err(|error| name_taken(error, &new.name))?;
        self.check_branches_of_key(&mut tx, made_with).await?;
        match made_for {
            Some(MadeFor::Pull(pull)) => self.store.github_pull_made_in_tx(&mut tx, pull, &id).await?,
            Some(MadeFor::Resource(database)) => {
                database.write_in_tx(&mut tx, (&project.id, &id)).await?;
            }
            None => {}
        }
        note_effect_in_tx(&self.store, &mut tx, &id).await?;
        // Before the commit, so that no change of its state can be missed.
        let ready = self.reconciler.watch(&id);
        tx.commit().await.map_err(|error| name_taken(error, &new.name))?;
        failpoint!("branch.committed");
        self.come_up(place, &id, ready).await
    }

    /// Waits a while for a branch that was made to be ready, or to have failed.
    async fn come_up(&self, place: &InProject, id: &BranchId, ready: impl Future) -> Result<Branch> {
        self.reconciler.nudge(id.clone());
        step_aside();
        // It also ends when the branch fails or is deleted: the row tells.
        let _ = tokio::time::timeout(self.create_wait, ready).await;
        match find_in_project(&self.store, place, id).await {
            Err(Error::NotFound { code: code @ ErrorCode::BranchNotFound, .. }) => Err(Error::NotFound {
                code,
                public: format!(
                    "branch {id}, which this request made, was deleted by another one before it was ready"
                ),
            }),
            found => found,
        }
    }

    async fn plan_branch(
        &self,
        tx: &mut Tx,
        project: &Project,
        origin: &BranchOrigin,
        past: Option<Past>,
    ) -> Result<Plan> {
        match origin {
            BranchOrigin::Custom(custom) => Ok(Plan {
                spec: self.custom_spec(custom).await?,
                source: None,
                moment: None,
                base: None,
                parent: None,
                default_scale_to_zero: project.configuration.base_branches,
            }),
            BranchOrigin::Inherit { parent, change, .. }
            | BranchOrigin::Restored { source: parent, change, .. } => {
                let found =
                    self.store.branch_find_in_tx(tx, &project.organization, &project.id, parent).await?;
                let parent = found.ok_or_else(|| Error::branch_not_found(parent))?;
                let is_at_rest = matches!(parent.state, BranchState::Ready | BranchState::Hibernated);
                if matches!(origin, BranchOrigin::Inherit { version: None, .. }) && !is_at_rest {
                    return Err(Error::NotReady {
                        code: ErrorCode::ParentNotReady,
                        public: format!("parent branch {} is not ready", parent.id),
                    });
                }
                check_region(origin, &parent)?;
                let (depth, children) = self.store.branch_place_in_tx(tx, &parent.id).await?;
                if depth >= BRANCH_DEPTH_MAX {
                    return Err(too_deep());
                }
                if parent.parent.is_some() && children >= BRANCH_CHILDREN_MAX {
                    return Err(too_many_children());
                }
                let Past { volume, lsn, base } =
                    past.unwrap_or_else(|| Past { volume: parent.volume.clone(), lsn: None, base: None });
                let major = self.major_of_past(tx, &parent, &volume).await?;
                let version = self.release_of(parent.spec.version, major).await?;
                let is_other_major = version.major != parent.spec.version.major;
                let spec = BranchSpec { replicas: 0, version, ..parent.spec };
                let spec = self.changed_spec(&spec, change).await?.spec;
                if is_other_major {
                    self.check_fits(&spec, version).await?;
                }
                Ok(Plan {
                    spec,
                    source: Some(volume),
                    moment: lsn,
                    base,
                    parent: Some(parent.id),
                    default_scale_to_zero: project.configuration.child_branches,
                })
            }
        }
    }

    async fn custom_spec(&self, custom: &CustomBranch) -> Result<BranchSpec> {
        let region = self.offers.check_region(&custom.region)?;
        let kind = self.offered_type(region.as_str(), &custom.instance_type).await?;
        let version = self.offers.choose_image(&custom.image).await?;
        self.check_storage("configuration.storage", custom.storage_gib)?;
        let contents = self.offers.image_contents(version).await?;
        let preload_libraries =
            self.offers.check_preload_libraries(custom.preload_libraries.as_deref(), &contents)?;
        check_parameters(&custom.parameters, &server(version.major, &kind, &preload_libraries, &contents))?;
        Ok(BranchSpec {
            region,
            version,
            instance_type: custom.instance_type.clone(),
            replicas: custom.replicas,
            storage_gib: custom.storage_gib,
            parameters: custom.parameters.clone(),
            preload_libraries,
        })
    }

    /// Where a new branch begins; none for one that begins at no moment of the past.
    async fn find_past(
        &self,
        place: &InProject,
        new: &NewBranchRequest,
        made_with: Option<&ApiKeyId>,
    ) -> Result<Option<Past>> {
        match &new.origin {
            BranchOrigin::Inherit { version: None, moment: None, .. } | BranchOrigin::Custom(_) => Ok(None),
            BranchOrigin::Inherit { parent, version, moment, .. } => {
                let parent = find_in_project(&self.store, place, parent).await?;
                self.check_new(place, &new.name, made_with).await?;
                self.moments.find_own_past(&parent, version.as_ref(), *moment).await.map(Some)
            }
            BranchOrigin::Restored { source, time, .. } => {
                let source = find_in_project(&self.store, place, source).await?;
                self.check_new(place, &new.name, made_with).await?;
                self.moments.find_restored(&source, *time).await.map(Some)
            }
        }
    }

    /// Refuses at once what would be refused whatever a past is: to look for that takes long.
    async fn check_new(&self, place: &InProject, name: &str, made_with: Option<&ApiKeyId>) -> Result<()> {
        let project = find_project(&self.store, place).await?;
        let mut tx = self.store.begin().await?;
        if self.store.branch_has_name_in_tx(&mut tx, &project.id, name).await? {
            return Err(has_name(name));
        }
        self.check_room(&mut tx, &project, made_with).await
    }

    /// Whether another branch may be made.
    async fn check_room(&self, tx: &mut Tx, project: &Project, made_with: Option<&ApiKeyId>) -> Result<()> {
        self.check_quotas(tx, project).await?;
        let used_up = self.store.budget_in_the_way_in_tx(tx, &project.id, made_with).await?;
        used_up.map_or(Ok(()), |used_up| Err(used_up.error()))
    }

    /// Whether no more branches of a key exist than it may have, with what the transaction did.
    ///
    /// # Errors
    /// `branch_limit_reached`
    pub(super) async fn check_branches_of_key(&self, tx: &mut Tx, key: Option<&ApiKeyId>) -> Result<()> {
        let Some(key) = key else { return Ok(()) };
        match self.store.key_branches_in_tx(tx, key).await? {
            Some((max, count)) if count > max => Err(Error::invalid(
                ErrorCode::BranchLimitReached,
                format!("branch limit of {max} of this key reached: delete one that it made"),
            )),
            _ => Ok(()),
        }
    }

    async fn check_quotas(&self, tx: &mut Tx, project: &Project) -> Result<()> {
        let limits = &self.limits;
        let counted = self.store.branch_quotas_in_tx(tx, &project.organization, &project.id).await?;
        self.check_branch_limits(&counted)?;
        if counted.recent >= limits.branches_per_hour_max {
            return Err(Error::TooMany {
                code: ErrorCode::BranchRateExceeded,
                public: "too many branches created in one hour".to_owned(),
                retry_after_seconds: self
                    .store
                    .branch_room_in_tx(tx, &project.organization, limits.branches_per_hour_max)
                    .await?,
            });
        }
        Ok(())
    }

    /// Refuses another branch where there are as many as may be.
    pub(super) fn check_branch_limits(&self, counted: &BranchQuotas) -> Result<()> {
        let limits = &self.limits;
        let reached = [
            (counted.in_project, limits.branches_per_project_max),
            (counted.in_organization, limits.branches_max),
        ]
        .into_iter()
        .find(|(count, max)| count >= max);
        match reached {
            None => Ok(()),
            Some((_, max)) => {
                Err(Error::invalid(ErrorCode::BranchLimitReached, format!("branch limit of {max} reached")))
            }
        }
    }
}

pub(super) fn too_deep() -> Error {
    let public = format!("branch tree is limited to {BRANCH_DEPTH_MAX} levels");
    Error::invalid(ErrorCode::BranchDepthExceeded, public)
}

pub(super) fn too_many_children() -> Error {
    let public = format!("branch already has {BRANCH_CHILDREN_MAX} children");
    Error::invalid(ErrorCode::BranchChildrenExceeded, public)
}

//! What a branch is made of, as its owner changes it.

use std::collections::{BTreeMap, BTreeSet};

use coppice_core::branch::{BranchSpec, BranchState, Reconfigure};
use coppice_core::error::excerpt;
use coppice_core::image::{PostgresVersion, image_name};
use coppice_core::instance_type::InstanceType;
use coppice_core::parameter::{check_parameters, fitted, merge};
use coppice_core::{Error, ErrorCode, Result};

use super::Branches;
use crate::configuration::{instance_type, server};

/// What an instance type is called that is none of the list; to name it changes
/// nothing.
const CUSTOM: &str = "custom";

/// What to change of what a branch is made of. What is absent stays, and to name
/// what it has changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecChange {
    /// Its size.
    pub instance_type: Option<String>,
    /// For example `postgres:17`, for its newest release.
    pub image: Option<String>,
    /// Instances besides the primary.
    pub replicas: Option<u32>,
    /// Most storage, in GiB.
    pub storage_gib: Option<u32>,
    /// PostgreSQL parameters, over those it has.
    pub parameters: BTreeMap<String, String>,
    /// All libraries to preload.
    pub preload_libraries: Option<Vec<String>>,
}

/// What a branch is to be made of.
pub(super) struct NewSpec {
    pub(super) spec: BranchSpec,
    /// What a server that is up needs to take it.
    pub(super) how: Reconfigure,
    /// What the branch is while that is a restart.
    pub(super) meanwhile: BranchState,
}

impl Branches {
    /// What a branch is made of after a change. A parameter at its default is no
    /// choice any more.
    ///
    /// # Errors
    /// `invalid_instance_type`, `invalid_image`, `invalid_postgres_parameter`,
    /// `invalid_preload_library`, `storage_shrink`, `invalid_field`
    pub(super) async fn changed_spec(&self, spec: &BranchSpec, change: &SpecChange) -> Result<NewSpec> {
        if *change == SpecChange::default() {
            let (spec, how, meanwhile) = (spec.clone(), Reconfigure::Reload, BranchState::Updating);
            return Ok(NewSpec { spec, how, meanwhile });
        }
        let version = self.changed_version(spec.version, change.image.as_deref()).await?;
        let storage_gib = self.grown_storage(spec.storage_gib, change.storage_gib)?;
        let contents = self.offers.image_contents(version).await?;
        let old_type = instance_type(&spec.instance_type);
        let new_type = self.changed_type(spec, change.instance_type.as_deref()).await?;
        let preload_libraries = match change.preload_libraries.as_deref() {
            // In another order they are the same.
            Some(asked) if set(asked) != set(&spec.preload_libraries) => {
                self.offers.check_preload_libraries(Some(asked), &contents)?
            }
            _ => spec.preload_libraries.clone(),
        };
        let before = server(version.major, &old_type, &spec.preload_libraries, &contents);
        let now = server(version.major, &new_type, &preload_libraries, &contents);
        check_parameters(&change.parameters, &now)?;
        let is_other_server =
            new_type.name != old_type.name || set(&preload_libraries) != set(&spec.preload_libraries);
        let kept = match is_other_server {
            true => fitted(&spec.parameters, &before, &now),
            false => spec.parameters.clone(),
        };
        let (parameters, needs_restart) = merge(&kept, &change.parameters, &now);
        let is_upgrade = version != spec.version;
        if is_upgrade && (is_other_server || parameters != spec.parameters) {
            let why = "another release is not taken together with another instanceType, other \
                       postgresConfigurationParameters or other preloadLibraries: send two requests";
            return Err(invalid_image(&image_name(version), why));
        }
        // A catalogue may have lost the name that a branch goes on to have.
        let instance_type = match is_other_server {
            true => new_type.name,
            false => spec.instance_type.clone(),
        };
        let replicas = change.replicas.unwrap_or(spec.replicas);
        let region = spec.region.clone();
        let spec = BranchSpec {
            region,
            version,
            instance_type,
            replicas,
            storage_gib,
            parameters,
            preload_libraries,
        };
        let how = match needs_restart || is_other_server || is_upgrade {
            true => Reconfigure::Restart,
            false => Reconfigure::Reload,
        };
        let meanwhile = if is_upgrade { BranchState::Upgrading } else { BranchState::Updating };
        Ok(NewSpec { spec, how, meanwhile })
    }

    /// The release that a branch is to have: a later one of the same major version.
    async fn changed_version(&self, has: PostgresVersion, asked: Option<&str>) -> Result<PostgresVersion> {
        // Its own may not be offered any more.
        let Some(name) = asked.filter(|name| *name != image_name(has)) else { return Ok(has) };
        let asked = self.offers.choose_image(name).await?;
        if asked.major != has.major {
            let why = format!(
                "the branch has PostgreSQL {}, and its data is in the format of that: upgradeBranch (`coppice branch \
                 upgrade`) takes it to a later major version",
                has.major
            );
            return Err(invalid_image(name, &why));
        }
        if asked < has {
            return Err(invalid_image(
                name,
                &format!("the branch has {}, and there is no way back", image_name(has)),
            ));
        }
        Ok(asked)
    }

    /// Refuses a release that does not have what a branch has set.
    ///
    /// # Errors
    /// `invalid_postgres_parameter`, `invalid_preload_library`
    pub(super) async fn check_fits(&self, spec: &BranchSpec, version: PostgresVersion) -> Result<()> {
        let contents = self.offers.image_contents(version).await?;
        self.offers.check_preload_libraries(Some(&spec.preload_libraries), &contents)?;
        let kind = instance_type(&spec.instance_type);
        check_parameters(&spec.parameters, &server(version.major, &kind, &spec.preload_libraries, &contents))
    }

    /// The size that a branch is to have.
    async fn changed_type(&self, spec: &BranchSpec, asked: Option<&str>) -> Result<InstanceType> {
        // Its own may not be offered any more.
        match asked.filter(|name| *name != spec.instance_type && *name != CUSTOM) {
            None => Ok(instance_type(&spec.instance_type)),
            Some(name) => self.offered_type(spec.region.as_str(), name).await,
        }
    }

    /// The size with this name, where it fits.
    pub(super) async fn offered_type(&self, region: &str, name: &str) -> Result<InstanceType> {
        let mut types = self.offers.instance_types(Some(region)).await?.into_iter().map(|(_, kind)| kind);
        types.find(|kind| kind.name == name).ok_or_else(|| {
            Error::invalid(ErrorCode::InvalidInstanceType, format!("unknown instance type {}", excerpt(name)))
        })
    }

    /// The storage that a branch is to have.
    fn grown_storage(&self, has: u32, asked: Option<u32>) -> Result<u32> {
        let Some(asked) = asked.filter(|asked| *asked != has) else { return Ok(has) };
        if asked < has {
            let public = format!("storage cannot be reduced from {has} to {asked} GiB");
            return Err(Error::invalid(ErrorCode::StorageShrink, public));
        }
        self.check_storage("storage", asked)?;
        Ok(asked)
    }

    /// Refuses more storage than a branch may have.
    pub(super) fn check_storage(&self, field: &str, gib: u32) -> Result<()> {
        match self.limits.storage_gib_max {
            max if max != 0 && gib > max => {
                Err(Error::invalid_field(field, format_args!("at most {max} GiB")))
            }
            _ => Ok(()),
        }
    }
}

fn set(libraries: &[String]) -> BTreeSet<&str> {
    libraries.iter().map(String::as_str).collect()
}

pub(super) fn invalid_image(name: &str, why: &str) -> Error {
    Error::invalid(ErrorCode::InvalidImage, format!("invalid image {}: {why}", excerpt(name)))
}

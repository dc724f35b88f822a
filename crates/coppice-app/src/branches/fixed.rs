//! What of a branch can't be changed yet. Whoever sends a branch back as they
//! were shown it names that too, and asks for nothing.

use std::collections::BTreeSet;

use coppice_core::branch::BranchSpec;
use coppice_core::error::excerpt;
use coppice_core::instance_type::catalogue;
use coppice_core::{Error, ErrorCode, Result};

use crate::App;

/// What an instance type is called that is none of the list; to name it changes
/// nothing.
const CUSTOM: &str = "custom";

/// Parts of a branch that are what they were made as.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// Instances besides the primary.
    pub replicas: Option<u32>,
    /// Its size.
    pub instance_type: Option<String>,
    /// For example `postgres:17`.
    pub image: Option<String>,
    /// Libraries to preload.
    pub preload_libraries: Option<Vec<String>>,
}

impl App {
    /// Refuses what names another value than a branch has.
    pub(super) fn check_fixed(&self, spec: &BranchSpec, asked: &Fixed) -> Result<()> {
        if asked.replicas.is_some_and(|replicas| replicas != spec.replicas) {
            return Err(cannot_change("replicas"));
        }
        if let Some(name) = asked.instance_type.as_ref().filter(|name| !is_same_type(name, spec)) {
            let is_known = catalogue().iter().any(|kind| kind.name == *name);
            return Err(match is_known {
                true => cannot_change("instanceType"),
                false => unknown_instance_type(name),
            });
        }
        if let Some(name) = &asked.image
            && self.choose_image(name)? != spec.version
        {
            return Err(cannot_change("image"));
        }
        let is_same_set = |libraries: &Vec<String>| {
            libraries.iter().collect::<BTreeSet<_>>() == spec.preload_libraries.iter().collect()
        };
        match asked.preload_libraries.as_ref().is_none_or(is_same_set) {
            true => Ok(()),
            false => Err(cannot_change("preloadLibraries")),
        }
    }
}

fn is_same_type(name: &str, spec: &BranchSpec) -> bool {
    name == spec.instance_type || name == CUSTOM
}

fn cannot_change(field: &str) -> Error {
    let why = "can't be changed in this version; make a new branch with the value you want";
    Error::invalid_field(field, why)
}

/// The complaint about a size that is none.
pub(super) fn unknown_instance_type(name: &str) -> Error {
    Error::invalid(ErrorCode::InvalidInstanceType, format!("unknown instance type {}", excerpt(name)))
}

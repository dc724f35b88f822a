//! PostgreSQL parameters of a branch.

use std::time::Duration;

use coppice_core::branch::{Branch, BranchSpec, BranchState};
use coppice_core::instance_type::{InstanceType, catalogue};
use coppice_core::parameter::{Described, Observed, Server, describe};
use coppice_core::target::InBranch;
use coppice_core::{InstanceId, Result};
use coppice_engine::{ImageContents, SharedEngine};
use coppice_store::Store;

use crate::Access;
use crate::offers::Offers;
use crate::rows::find_branch;

/// A server that takes longer to tell its statistics is not waited for.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// PostgreSQL parameters of branches, as their owners see them.
#[derive(Clone)]
pub struct Parameters {
    store: Store,
    engine: SharedEngine,
    offers: Offers,
}

impl Parameters {
    pub(crate) fn new(store: Store, engine: SharedEngine, offers: Offers) -> Self {
        Self { store, engine, offers }
    }

    /// Every parameter that the owner of a branch may set, with what it is set
    /// to and what else it could be. Wakes nothing.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn of_branch(&self, access: &Access<InBranch>) -> Result<Vec<Described>> {
        let branch = find_branch(&self.store, access).await?;
        let contents = self.offers.image_contents(branch.spec.version).await?;
        let observed = self.observed(&branch).await?;
        let instance_type = instance_type(&branch.spec.instance_type);
        let preloaded = &branch.spec.preload_libraries;
        let server = server(branch.spec.version.major, &instance_type, preloaded, &contents);
        Ok(describe(&server, &branch.spec.parameters, observed.as_ref()))
    }

    /// What the server of a branch counted; while it can't be asked, what it
    /// said last.
    async fn observed(&self, branch: &Branch) -> Result<Option<Observed>> {
        let remembered = self.store.branch_observed(&branch.id).await?;
        if branch.state != BranchState::Ready {
            return Ok(remembered);
        }
        let instance = InstanceId::primary(&branch.id);
        let asked = self.engine.statistics(&instance, branch.spec.version);
        match tokio::time::timeout(LOOK_PATIENCE, asked).await {
            Ok(Ok(seen)) => {
                let seen = seen.after(remembered.as_ref());
                self.store.branch_note_observed(&branch.id, &seen, false).await?;
                Ok(Some(seen))
            }
            Ok(Err(_)) | Err(_) => Ok(remembered),
        }
    }
}

/// The type with this name, or the smallest: a catalogue may have changed.
pub(crate) fn instance_type(name: &str) -> InstanceType {
    let mut types = catalogue();
    let position = types.iter().position(|kind| kind.name == name).unwrap_or(0);
    types.swap_remove(position)
}

/// What decides which parameters a server takes.
pub(crate) fn server<'a>(
    major: u32,
    instance_type: &'a InstanceType,
    preloaded: &'a [String],
    contents: &'a ImageContents,
) -> Server<'a> {
    Server { major, instance_type, preloaded, known: &contents.parameters }
}

/// PostgreSQL parameters of a server, from its size and from its owner; a later one
/// wins.
pub(crate) fn settings_of(spec: &BranchSpec) -> Vec<(String, String)> {
    let sized = instance_type(&spec.instance_type).settings(spec.version.major).into_iter();
    let sized = sized.map(|(name, value)| (name.to_owned(), value));
    let chosen = spec.parameters.iter().map(|(name, value)| (name.clone(), value.clone()));
    sized.chain(chosen).collect()
}

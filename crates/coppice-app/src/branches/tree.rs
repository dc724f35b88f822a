//! All branches of a project with what each is doing, made to be asked all the
//! time by whoever watches: a few statements, whatever their number, and no
//! server is asked anything.

use std::collections::HashMap;

use coppice_core::Result;
use coppice_core::branch::Branch;
use coppice_core::target::InProject;

use super::Branches;
use crate::metering::known_bytes;
use crate::{Access, Activity};

/// A branch among the others of its project.
#[derive(Clone, Debug)]
pub struct BranchInTree {
    /// The branch.
    pub branch: Branch,
    /// What keeps it awake, with the newest time in which it was awake alone.
    pub activity: Activity,
    /// The size of its data as it was last measured; none when it was not yet.
    pub disk_bytes: Option<u64>,
    /// Of that, what it did not write itself; none when the file system can't tell.
    pub shared_bytes: Option<u64>,
}

impl Branches {
    /// The branches of a project that the caller may see, oldest first.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn tree(&self, access: &Access<InProject>) -> Result<Vec<BranchInTree>> {
        let branches = self.list(access).await?;
        let mut newest: HashMap<_, _> =
            self.store.awake_newest(&access.target.project).await?.into_iter().collect();
        let mut tree = Vec::with_capacity(branches.len());
        for branch in branches {
            let periods = newest.remove(&branch.id).into_iter().collect();
            let activity = self.sleep.known_activity(&branch, periods).await;
            let known = known_bytes(&self.engine, &branch.volume);
            let disk_bytes = known.map(|bytes| bytes.total);
            let shared_bytes = known.and_then(|bytes| bytes.shared);
            tree.push(BranchInTree { branch, activity, disk_bytes, shared_bytes });
        }
        Ok(tree)
    }
}

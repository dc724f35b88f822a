//! Vercel's marketplace, where people install our integration and get
//! databases by it.

use crate::{BranchId, OrganizationId, ProjectId, VercelInstallationId};

/// Most characters of an installation's id behind its prefix.
const ID_LENGTH_MAX: usize = 64;

impl VercelInstallationId {
    /// Reads an id as Vercel writes them: `icfg_` and letters or digits.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("icfg_")?;
        let is_good = (1..=ID_LENGTH_MAX).contains(&rest.len())
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_good.then(|| Self::from_trusted(text))
    }
}

/// An installation of our integration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VercelInstallation {
    /// As Vercel knows it.
    pub id: VercelInstallationId,
    /// Whose it is there.
    pub account: String,
    /// What it has here.
    pub organization: OrganizationId,
    /// Whether it was deleted, and that is not finished.
    pub is_ending: bool,
    /// Whether that was more than a day ago: Vercel has closed it by itself.
    pub is_overdue: bool,
    /// Whether its projects are to be deleted with it.
    pub is_cascading: bool,
}

/// A database that somebody has by an installation: a project with a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VercelResource {
    /// What it has here, and what it is known by at Vercel.
    pub project: ProjectId,
    /// Where its data is; the project may have others.
    pub branch: BranchId,
    /// What it is called.
    pub name: String,
    /// Which product of ours it is, as Vercel knows that.
    pub product: String,
    /// By what it is charged.
    pub plan: String,
    /// What was chosen for it at Vercel, as a JSON object.
    pub metadata: String,
}

/// What a database can be charged by. There is one: Vercel charges nothing for it.
pub const VERCEL_PLAN: &str = "standard";

/// How the addresses end of people who came from Vercel. Nobody gets mail there.
pub const VERCEL_ADDRESSES: &str = "@vercel.invalid";

/// Most logins of one database that are good at a time.
pub const VERCEL_LOGINS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_vercel_writes_and_nothing_that_could_be_more() {
        let longest = format!("icfg_{}", "a".repeat(64));
        for good in ["icfg_1", "icfg_9bceb8ccT32d3U417ezb5c8p", &longest] {
            assert!(VercelInstallationId::parse(good).is_some(), "{good}");
        }
        for bad in ["", "icfg_", "icfg_a-b", "icfg_a/b", "icfg_é", "xicfg_1", &format!("{longest}a")] {
            assert!(VercelInstallationId::parse(bad).is_none(), "{bad}");
        }
    }
}

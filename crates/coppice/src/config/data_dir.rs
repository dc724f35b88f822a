//! Which data directory is meant, and whether this account may rely on it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;

use crate::refusal::Refused;

/// Where exports go that nobody named a place for.
pub(crate) fn exports(data_dir: &Path) -> PathBuf {
    data_dir.join("exports")
}

/// Where the data of a machine is, unless told otherwise.
fn default_data_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/coppice");
    }
    dirs::data_local_dir().unwrap_or_else(|| PathBuf::from(".")).join("coppice")
}

/// Names the data directory.
#[derive(Args, Clone, Debug)]
pub(crate) struct DataDir {
    /// Where everything is kept [default: /var/lib/coppice as root, else ~/.local/share/coppice]
    #[arg(long, env = "COPPICE_DATA_DIR", value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
}

impl DataDir {
    /// Whether somebody named it.
    pub(crate) fn is_given(&self) -> bool {
        self.data_dir.is_some()
    }

    /// The directory, whether or not it exists.
    ///
    /// What is in it is run and mounted, and names the process that is to end.
    /// So it has to be this account's or root's: else root does what whoever
    /// owns it wants, and where the platform is not root's that may be a tenant.
    ///
    /// # Errors
    /// When it holds the installation of another account.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let path = self.data_dir.clone().unwrap_or_else(default_data_dir);
        // A link counts itself, not what it leads to.
        let Ok(installation) = path.join("installation.json").symlink_metadata() else { return Ok(path) };
        let (owner, own) = (installation.uid(), rustix::process::geteuid().as_raw());
        if owner == own || owner == 0 {
            return Ok(path);
        }
        bail!(Refused::mistake(format!(
            "the platform in {} belongs to the account {owner}, and this is {own}: run it as that account, as \
             `sudo --user='#{owner}' coppice …` does",
            path.display()
        )))
    }

    /// The one of this name.
    #[cfg(test)]
    pub(super) fn named(path: impl Into<PathBuf>) -> Self {
        Self { data_dir: Some(path.into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    /// Nobody's.
    const STRANGER: u32 = 1_234_567;

    #[test]
    fn the_installation_of_another_account_is_left_to_it() {
        let home = tempfile::tempdir().expect("a directory");
        let directory = DataDir::named(home.path());
        assert_eq!(directory.path().expect("nothing is there"), home.path());
        let installation = home.path().join("installation.json");
        std::fs::write(&installation, "{}").expect("a file");
        assert_eq!(directory.path().expect("one's own"), home.path());
        if lchown(&installation, Some(STRANGER), None).is_err() {
            // Only root gives files away; an ordinary account has root's to look at.
            return;
        }
        let refused = directory.path().expect_err("another's").to_string();
        assert!(refused.contains("belongs to the account 1234567"), "{refused}");
        // Nor by a link to one of root's.
        std::fs::remove_file(&installation).expect("removed");
        symlink("/etc/passwd", &installation).expect("a link");
        lchown(&installation, Some(STRANGER), None).expect("a new owner");
        assert!(directory.path().is_err());
    }
}

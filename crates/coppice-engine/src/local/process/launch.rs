//! The description of a confined program, handed to the launcher.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::{EngineError, Result};

/// A program and its confinement. Holds no secret: it is passed as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The program to become.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// A file for its standard input; none means empty.
    pub input: Option<PathBuf>,
    /// Files that take the process into its cgroups.
    pub cgroups: Vec<PathBuf>,
    /// Namespaces, mounts and account; none when not started by root.
    pub isolation: Option<Isolation>,
    /// What Landlock lets it use.
    pub access: FileAccess,
}

/// What only root can set up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Isolation {
    /// The uid and gid to run under.
    pub account: u32,
    /// Directories to mount, in order.
    pub mounts: Vec<BindMount>,
    /// Replaces `/etc/passwd`, so that the account has a name.
    pub passwd: PathBuf,
}

/// A directory of the host that the program sees in another place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BindMount {
    /// On the host.
    pub from: PathBuf,
    /// An existing directory.
    pub to: PathBuf,
    /// Owner on disk that is to appear as the program's account.
    pub owner_on_disk: Option<u32>,
    /// Whether it is read-only.
    pub is_read_only: bool,
}

/// Directories and files a program may use; everything else is denied.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileAccess {
    /// Read and execute.
    pub execute: Vec<PathBuf>,
    /// Read.
    pub read: Vec<PathBuf>,
    /// Read, write, create, remove.
    pub write: Vec<PathBuf>,
}

/// Starts the launcher, which becomes the program under the same pid. What it
/// writes to standard error goes to `log`; `input` decides standard input once
/// the description was read from it.
///
/// # Errors
/// When the launcher can't be started or does not take the description.
pub async fn spawn(launcher: &Path, spec: &LaunchSpec, log: &File) -> Result<Child> {
    let action = || format!("starting {}", spec.program.display());
    let clone = || log.try_clone().map_err(EngineError::io(action()));
    let mut child = Command::new(launcher)
        .arg0("coppice")
        .arg("launch")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(clone()?)
        .stderr(clone()?)
        .current_dir("/")
        .spawn()
        .map_err(EngineError::io(action()))?;
    let text = serde_json::to_vec(spec).map_err(|error| EngineError::Other(error.to_string()))?;
    let mut stdin = child
        .stdin
        .take()
        .ok_or_else(|| EngineError::Other("the launcher has no standard input".to_owned()))?;
    stdin.write_all(&text).await.map_err(EngineError::io(action()))?;
    stdin.shutdown().await.map_err(EngineError::io(action()))?;
    Ok(child)
}

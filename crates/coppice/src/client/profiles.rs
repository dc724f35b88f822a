//! Who is signed in where: one file, readable by its owner only.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::words::quoted;
use crate::refusal::Refused;

/// The profile of whoever names none.
pub(super) const DEFAULT_PROFILE: &str = "default";

/// A server and the person who is signed in there.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Profile {
    /// Base URL of the API.
    pub(super) url: String,
    /// The person's email address.
    pub(super) email: String,
    /// The organization that commands are about, by id; none when the person
    /// belonged to none.
    pub(super) organization: Option<String>,
    /// Where tokens are renewed.
    pub(super) token_endpoint: String,
    /// Where tokens are ended.
    pub(super) revocation_endpoint: String,
    #[serde(flatten)]
    pub(super) tokens: Tokens,
}

/// What the authorization server gave out.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Tokens {
    /// Sent with every request.
    pub(super) access_token: String,
    /// Renews the access token.
    pub(super) refresh_token: String,
    /// When the access token ends.
    pub(super) expires_at: DateTime<Utc>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens until {}", self.expires_at)
    }
}

/// All profiles of a person on this machine.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Profiles {
    /// The one that commands use unless told otherwise.
    pub(super) current: Option<String>,
    /// By name.
    #[serde(default)]
    pub(super) profiles: BTreeMap<String, Profile>,
    /// The project that commands are about unless told otherwise, by id, for each organization.
    #[serde(default)]
    pub(super) projects: BTreeMap<String, String>,
}

impl Profiles {
    /// The profile of this name, or the current one; none when nobody signed in
    /// and none was asked for.
    ///
    /// # Errors
    /// When there is no profile of this name.
    pub(super) fn find(&self, named: Option<&str>) -> anyhow::Result<Option<(&str, &Profile)>> {
        let Some(name) = named.or(self.current.as_deref()) else { return Ok(None) };
        match self.profiles.get_key_value(name) {
            Some((name, profile)) => Ok(Some((name, profile))),
            None if self.profiles.is_empty() => {
                bail!(Refused::not_found(format!(
                    "there is no profile {name}: sign in with `coppice login URL --profile {}`",
                    quoted(name)
                )))
            }
            None => {
                let names: Vec<_> = self.profiles.keys().map(String::as_str).collect();
                bail!(Refused::not_found(format!(
                    "there is no profile {name}: there are {}",
                    names.join(", ")
                )))
            }
        }
    }
}

/// The file with the profiles.
pub(super) struct ProfileFile {
    path: PathBuf,
}

impl ProfileFile {
    /// Where it is; it need not exist.
    ///
    /// # Errors
    /// When this account has no home directory.
    pub(super) fn locate() -> anyhow::Result<Self> {
        let directory = match std::env::var_os("COPPICE_CONFIG_DIR") {
            Some(directory) => PathBuf::from(directory),
            None => dirs::config_dir()
                .context("this account has no home directory: set COPPICE_CONFIG_DIR")?
                .join("coppice"),
        };
        Ok(Self { path: directory.join("profiles.json") })
    }

    /// For messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it.
    pub(super) fn read(&self) -> anyhow::Result<Profiles> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{} is damaged: remove it and sign in again with `coppice login`",
                    self.path.display()
                )
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Profiles::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", self.path.display())),
        }
    }

    /// Keeps other commands from changing it meanwhile: two that renew the same
    /// tokens would end the session.
    pub(super) async fn lock(&self) -> anyhow::Result<LockedFile<'_>> {
        let directory = self.path.parent().context("profiles have a directory")?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let lock = private().create(true).truncate(false).open(directory.join("profiles.lock"))?;
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await?;
        Ok(LockedFile { file: self, _lock: lock.context("waiting for another command that signs in")? })
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Nobody else changes the file while this exists.
pub(super) struct LockedFile<'a> {
    file: &'a ProfileFile,
    _lock: File,
}

impl LockedFile<'_> {
    /// Changes the profiles durably, all or nothing.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Profiles) -> T) -> anyhow::Result<T> {
        let path = &self.file.path;
        let mut profiles = self.file.read()?;
        let result = change(&mut profiles);
        let writing = || format!("writing {}", path.display());
        let new = path.with_extension("new");
        // What an interrupted command left may be anybody's to read.
        let _ = fs::remove_file(&new);
        let mut file = private().create_new(true).open(&new).with_context(writing)?;
        file.write_all(&serde_json::to_vec_pretty(&profiles)?).with_context(writing)?;
        file.sync_all().with_context(writing)?;
        fs::rename(&new, path).with_context(writing)?;
        Ok(result)
    }
}

//! `coppice pgdata`: a copy of a branch's data directory that a plain
//! `postgres` starts.
//!
//! A copy of the branch is made, which takes no time and cuts nobody, and put
//! to sleep: its server writes everything down and ends. Then its files are
//! copied, and it is deleted.

use std::fmt::Write;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use coppice_core::BranchId;
use coppice_core::image::PostgresVersion;
use coppice_engine::local::volumes::copy_out;
use coppice_wire::{
    Branch, BranchActivity, BranchCredentials, BranchDetails, BranchStatusType, CreateBranch, InheritBranch,
    Timestamp, UpdateBranch,
};
use nix::unistd::User;

use super::connection::credentials;
use super::http::Client;
use super::lookup::{Named, Place};
use super::waiting::wait_for;
use super::words::quoted;
use super::{BranchTarget, output, server};
use crate::config::DataDir;
use crate::refusal::Refused;

/// What to copy, and where to.
#[derive(Args, Debug)]
pub(crate) struct PgdataArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// A new directory
    directory: PathBuf,
    /// The account that is going to run postgres [default: postgres, where there is one]
    #[arg(long, value_name = "ACCOUNT")]
    owner: Option<String>,
}

/// Copies the data directory. It needs the rights of the platform, on its machine.
pub(super) async fn run(arguments: &PgdataArgs, data_dir: &DataDir, client: &Client) -> anyhow::Result<()> {
    let here = std::path::absolute(data_dir.path()?)?;
    server::is_here(client.url(), &here).await.context(
        "the files of a branch can be copied on the machine of the platform only, by whoever runs it (sudo \
         coppice pgdata …); from elsewhere there is `coppice dump`",
    )?;
    let directory = std::path::absolute(&arguments.directory)?;
    let owner = owner(arguments.owner.as_deref())?;
    // Nobody looks at what is half there.
    DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(|error| Refused::mistake(format!("making {}: {error}", directory.display())))?;
    let source = client.branch(&arguments.target).await?;
    let waiting = output::spinner(format!("copying {}", source.branch.name));
    let made = match Copy::make(client, &source).await {
        Ok(copy) => {
            let copied = copy.write(client, &here, &directory, owner.as_ref()).await;
            // Whatever happened, nothing is left of it.
            copied.and(client.delete(&client.path_of(&copy.place)).await.map(|()| copy))
        }
        Err(error) => Err(error),
    };
    waiting.finish_and_clear();
    match made {
        Ok(copy) => {
            copy.tell(&here, &directory);
            say!("{}", directory.display());
            Ok(())
        }
        Err(error) => {
            let _ = fs::remove_dir_all(&directory);
            Err(error)
        }
    }
}

/// The account that the copy is for; none where files can't be given away.
fn owner(named: Option<&str>) -> anyhow::Result<Option<User>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    match (User::from_name(named.unwrap_or("postgres"))?, named) {
        (Some(user), _) => Ok(Some(user)),
        (None, None) => Ok(None),
        (None, Some(named)) => bail!(Refused::mistake(format!("there is no account {named}"))),
    }
}

/// The copy of the branch whose files are copied.
struct Copy {
    place: Place,
    credentials: BranchCredentials,
    details: BranchDetails,
    version: std::cell::Cell<Option<PostgresVersion>>,
}

impl Copy {
    async fn make(client: &Client, source: &Place) -> anyhow::Result<Self> {
        let body = CreateBranch::Inherit(InheritBranch {
            configuration: None,
            version_id: None,
            target_time: None,
            target_lsn: None,
            name: format!("pgdata-{}", coppice_core::id::random_text()),
            parent_id: source.branch.id.clone(),
            description: Some("copied by coppice pgdata".to_owned()),
            labels: None,
            scale_to_zero: None,
            backup_configuration: None,
            expires_at: None,
        });
        let branches = client.here(&format!("/projects/{}/branches", source.project.id));
        let made: Branch = client.post(&branches, &body).await?;
        let place = Place { project: source.project.clone(), branch: Named { id: made.id, name: made.name } };
        let ready = async {
            let details = wait_for(client, &place, BranchStatusType::Healthy).await?;
            Ok((details, credentials(client, &place).await?))
        };
        match ready.await {
            Ok((details, credentials)) => {
                Ok(Self { place, credentials, details, version: std::cell::Cell::new(None) })
            }
            Err(error) => {
                client.delete(&client.path_of(&place)).await?;
                Err(error)
            }
        }
    }

    async fn write(
        &self,
        client: &Client,
        data_dir: &Path,
        directory: &Path,
        owner: Option<&User>,
    ) -> anyhow::Result<()> {
        let path = client.path_of(&self.place);
        let sleep = UpdateBranch { hibernate: Some(true), ..UpdateBranch::default() };
        let _: Branch = client.patch(&path, &sleep).await?;
        wait_for(client, &self.place, BranchStatusType::Hibernated).await?;
        let before = self.asleep_since(client, &path).await?;
        let branch = BranchId::from_trusted(&self.place.branch.id);
        let (here, to) = (data_dir.to_owned(), directory.to_owned());
        let copied = tokio::task::spawn_blocking(move || copy_out(&here, &branch, &to)).await?;
        let version = copied.map_err(|error| anyhow::anyhow!("{}", error.chain()))?;
        if before.is_none() || self.asleep_since(client, &path).await? != before {
            bail!("somebody woke {} while it was copied: try again", self.place.branch.name);
        }
        self.version.set(Some(version));
        self.configure(directory)?;
        give(directory, owner).with_context(|| format!("giving {} away", directory.display()))
    }

    /// Since when the branch sleeps; none when somebody woke it.
    async fn asleep_since(&self, client: &Client, path: &str) -> anyhow::Result<Option<Timestamp>> {
        let activity: BranchActivity = client.get(&format!("{path}/activity")).await?;
        Ok(activity.awake.first().and_then(|last| last.ended_at))
    }

    /// Files that the platform keeps elsewhere.
    fn configure(&self, directory: &Path) -> anyhow::Result<()> {
        let configuration = &self.details.configuration;
        let mut text = "# Copied from a branch; its own parameters are at the end.\n\
                        listen_addresses = 'localhost'\npassword_encryption = 'scram-sha-256'\n"
            .to_owned();
        let libraries = &configuration.preload_libraries;
        if !libraries.is_empty() {
            writeln!(text, "shared_preload_libraries = '{}'", libraries.join(","))?;
        }
        for (name, value) in &configuration.postgres_configuration_parameters {
            writeln!(text, "{name} = {}", setting(value))?;
        }
        let access = "# TYPE DATABASE USER ADDRESS METHOD\nlocal all all scram-sha-256\n\
                      host all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 scram-sha-256\n";
        for (name, text) in
            [("postgresql.conf", text.as_str()), ("pg_hba.conf", access), ("pg_ident.conf", "")]
        {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        Ok(())
    }

    /// Says what to do with it.
    fn tell(&self, data_dir: &Path, directory: &Path) {
        let Some(version) = self.version.get() else { return };
        let image = data_dir.join("images").join(version.to_string());
        let debian = image.join(format!("lib/postgresql/{}/bin/postgres", version.major));
        let program = if debian.exists() { debian } else { image.join("bin/postgres") };
        note!(
            "start it with PostgreSQL {version}, best with the same build, since others may sort text in another \
             order: {} -D {}",
            quoted(&program.display().to_string()),
            quoted(&directory.display().to_string())
        );
        note!(
            "its role is app, its database {}, the password of this copy {}",
            self.credentials.dbname,
            self.credentials.password
        );
    }
}

/// A value as `postgresql.conf` has it, where a backslash escapes what follows.
fn setting(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// Gives everything in a directory to its new owner.
fn give(path: &Path, owner: Option<&User>) -> std::io::Result<()> {
    let Some(user) = owner else { return Ok(()) };
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_does_not_leave_its_quotes() {
        for (value, written) in [("1MB", "'1MB'"), ("a'b", "'a''b'"), (r"\", r"'\\'"), (r"\'x", r"'\\''x'")] {
            assert_eq!(setting(value), written);
        }
    }
}

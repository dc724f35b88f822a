//! Templates: one volume with a fresh cluster for each image, copied to make
//! base branches.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::volume::VolumeLabel;
use coppice_core::{InstanceId, VolumeId};
use coppice_failpoint::failpoint;
use tokio::runtime::Handle;

use super::LocalEngine;
use super::blocking::blocking;
use super::durable::write_durably;
use super::fresh;
use super::template::{Contents, make_cluster};
use crate::{EngineError, Result, StopMode};

/// Grows with every change of what is in a template; those of smaller numbers are made anew.
const GENERATION: u32 = 4;
/// Begins the names of instances that make templates.
pub(super) const TEMPLATE_PREFIX: &str = "template-";
/// Accounts that make templates stay clear of those of volumes.
const TEMPLATE_ACCOUNT: u32 = 65_300;

fn write(path: &Path, known: &BTreeMap<String, VolumeId>) -> Result<()> {
    let text = serde_json::to_vec_pretty(known).map_err(|error| EngineError::Other(error.to_string()))?;
    write_durably(path, &text, 0o600)
}

impl LocalEngine {
    /// Makes the templates of these major versions, or of every image, newest
    /// first, so that the first branch of each is made as fast as the next ones.
    pub async fn prepare_templates(&self, majors: Option<&[u32]>) {
        let images = self.host.installed_images().into_iter().rev();
        for image in images.filter(|image| majors.is_none_or(|majors| majors.contains(&image.version.major)))
        {
            if let Err(error) = self.template(image.version).await {
                tracing::warn!("preparing PostgreSQL {}: {}", image.version, error.chain());
            }
        }
    }

    /// Ends what makes templates at this moment; the next start makes them anew.
    ///
    /// # Errors
    /// When a process does not end.
    pub async fn stop_templates(&self) -> Result<()> {
        let servers = &self.host.servers;
        let making = servers.running().into_iter().filter(|id| id.as_str().starts_with(TEMPLATE_PREFIX));
        for instance in making {
            servers.stop(&instance, None, StopMode::Immediate).await?;
        }
        Ok(())
    }

    /// The template of a release; made when it is missing.
    pub(super) async fn template(&self, version: PostgresVersion) -> Result<VolumeId> {
        let _one = self.template_lock.lock().await;
        let path = self.host.layout().templates();
        let mut known: BTreeMap<String, VolumeId> =
            fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let name = format!("{version} #{GENERATION}");
        let id = match known.get(&name) {
            Some(id) => id.clone(),
            None => {
                let id = VolumeId::generate(chrono::Utc::now());
                known.insert(name.clone(), id.clone());
                write(&path, &known)?;
                id
            }
        };
        failpoint!("template.named");
        if !self.volumes.exists(&id) {
            self.make_template(version, &id).await?;
        }
        let is_older = |other: &str| other.split(' ').next() == Some(&version.to_string()) && other != name;
        let older: Vec<_> = known.extract_if(.., |other, _| is_older(other)).map(|(_, id)| id).collect();
        if !older.is_empty() {
            for id in older {
                let volumes = self.volumes.clone();
                blocking(move || volumes.remove(&id)).await?;
            }
            write(&path, &known)?;
        }
        Ok(id)
    }

    async fn make_template(&self, version: PostgresVersion, id: &VolumeId) -> Result<()> {
        let image = self.host.image(version)?;
        tracing::info!("preparing PostgreSQL {version}");
        let label = VolumeLabel {
            installation: self.host.installation().installation.clone(),
            host: self.host.installation().host.clone(),
            volume: id.clone(),
            branch: None,
            claim: ClaimToken::new(0, 0),
            version,
        };
        let (host, volumes, runtime) = (self.host.clone(), self.volumes.clone(), Handle::current());
        let instance = InstanceId::from_trusted(format!("{TEMPLATE_PREFIX}{}", version.major));
        let account = TEMPLATE_ACCOUNT + version.major % 100;
        let made = blocking({
            let instance = instance.clone();
            move || {
                let verifier = host.platform_password();
                volumes.create(&label, &mut |data| {
                    runtime.block_on(make_cluster(
                        &host.servers,
                        &image,
                        &instance,
                        account,
                        data,
                        Contents::Template,
                        verifier.as_deref(),
                    ))
                })
            }
        })
        .await;
        let host = self.host.clone();
        blocking(move || host.servers.remove(&instance)).await?;
        made?;
        fresh::forget(self.host.layout())
    }
}

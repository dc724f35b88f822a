//! The server of a branch: how it is started, set up, and made its branch's own.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::plan::InstanceSeen;
use coppice_core::{InstanceId, VolumeId};
use coppice_failpoint::failpoint;
use tokio_postgres::error::SqlState;

use super::blocking::blocking;
use super::config::processes_max;
use super::durable::write_durably;
use super::images::InstalledImage;
use super::process::controllers::Limits;
use super::server::ServerPlan;
use super::session::{Patience, Session, column};
use super::untrusted::UntrustedPath;
use super::{LocalEngine, control_file, first_start, limits, prepared};
use crate::{EngineError, FirstStart, InstanceSpec, Result, StopMode};

/// A server takes its new settings within this time.
const RELOAD_PATIENCE: Duration = Duration::from_secs(10);

impl LocalEngine {
    /// A file beside the data that says for which volume the first start is
    /// done; a copy inherits it and is told apart by the id in it.
    pub(super) fn first_start_marker(&self, volume: &VolumeId) -> PathBuf {
        self.host.layout().volume(volume).join("first-start")
    }

    pub(super) fn is_first_start(&self, volume: &VolumeId) -> bool {
        fs::read_to_string(self.first_start_marker(volume))
            .is_ok_and(|text| text == volume.as_str())
            .eq(&false)
    }

    async fn start_server(&self, spec: &InstanceSpec, is_first_start: bool) -> Result<()> {
        let image = self.host.image(spec.version)?;
        let data = self.volumes.data_dir(&spec.volume);
        let plan = server_plan(spec, &image, &data, is_first_start);
        self.host.servers.start(&plan).await?;
        if self.is_kept_out(&spec.instance, &data).await? {
            self.end_prepared(&plan).await?;
        }
        limits::limit_soon(&self.host, &spec.instance);
        Ok(())
    }

    /// Whether prepared transactions have all locks that a server has room for: then
    /// nobody gets in, not even to end them, and it is the same after each start.
    async fn is_kept_out(&self, instance: &InstanceId, data: &UntrustedPath) -> Result<bool> {
        let of_server = data.clone();
        if !blocking(move || prepared::has_state(&of_server)).await? {
            return Ok(false);
        }
        let opened = self.address(instance).open(Patience::QUESTION).await;
        Ok(matches!(
            opened, Err(EngineError::Sql { source, .. }) if source.code() == Some(&SqlState::OUT_OF_MEMORY)
        ))
    }

    /// Starts a server anew without what is prepared there.
    async fn end_prepared(&self, plan: &ServerPlan<'_>) -> Result<()> {
        let (servers, instance) = (&self.host.servers, plan.instance);
        servers.stop(instance, Some(plan.data), StopMode::Fast).await?;
        let data = plan.data.clone();
        blocking(move || match control_file::clean_checkpoint(&data)? {
            Some(_) => prepared::remove_every_state(&data),
            // What the server recovers is in its WAL, too: at another start, then.
            None => Ok(()),
        })
        .await?;
        tracing::warn!(
            %instance,
            "instance {instance}: what was prepared is rolled back, for it had all the locks that there are"
        );
        servers.start(plan).await
    }

    /// [`crate::Engine::start`]
    pub(super) async fn start_instance(&self, spec: &InstanceSpec) -> Result<()> {
        let _guard = self.lock_volume(&spec.volume).await;
        if !self.volumes.exists(&spec.volume) {
            return Err(EngineError::NoVolume(spec.volume.clone()));
        }
        self.volumes.check_claim(&spec.volume, spec.claim)?;
        self.sessions.lock().remove(&spec.instance);
        if let Some(primary) = &spec.follows {
            return self.start_replica(spec, primary).await;
        }
        let is_first_start = self.is_first_start(&spec.volume);
        let data = self.volumes.data_dir(&spec.volume);
        if is_first_start && self.host.servers.observe(&spec.instance, &data).await == InstanceSeen::Stopped {
            blocking(move || first_start::remove_inherited_files(&data)).await?;
        }
        if !is_first_start {
            self.look_between(&spec.volume).await;
        }
        self.start_server(spec, is_first_start).await?;
        if is_first_start { self.check_moment(spec).await } else { Ok(()) }
    }

    /// [`crate::Engine::configure`]
    pub(super) async fn configure_instance(&self, spec: &InstanceSpec) -> Result<()> {
        self.volumes.check_claim(&spec.volume, spec.claim)?;
        let with_as_much = match &spec.follows {
            Some(_) => Some(self.settings_of_replica(spec).await?),
            None => None,
        };
        let spec = with_as_much.as_ref().unwrap_or(spec);
        let (image, data) = (self.host.image(spec.version)?, self.volumes.data_dir(&spec.volume));
        self.host.servers.configure(&server_plan(spec, &image, &data, false))?;
        let reload = async |session: Arc<Session>| {
            session.execute("reloading the configuration", "SELECT pg_reload_conf()").await
        };
        self.ask(&spec.instance, reload).await
    }

    /// [`crate::Engine::first_start`]
    pub(super) async fn end_first_start(&self, plan: &FirstStart) -> Result<()> {
        let spec = &plan.spec;
        let servers = &self.host.servers;
        let address = self.address(&spec.instance);
        let verifier = &plan.managed_role_verifier;
        let has_statistics = spec.preload_libraries.iter().any(|name| name == first_start::STATISTICS);
        // An upgraded one is its branch's already.
        let is_copy = self.is_first_start(&spec.volume);
        let session = first_start::detach_from_source(&address, verifier, has_statistics, is_copy).await?;
        failpoint!("first_start.detached");
        let marker = self.first_start_marker(&spec.volume);
        write_durably(&marker, spec.volume.as_str().as_bytes(), 0o600)?;
        failpoint!("first_start.marked");
        let image = self.host.image(spec.version)?;
        let data = self.volumes.data_dir(&spec.volume);
        servers.configure(&server_plan(spec, &image, &data, false))?;
        let action = "ending the first start";
        session.execute(action, "SELECT pg_reload_conf()").await?;
        // The reload reaches this session as soon as the postmaster passed it on.
        let deadline = Instant::now() + RELOAD_PATIENCE;
        while Instant::now() < deadline {
            let row = session.query_one(action, "SHOW dynamic_library_path", &[]).await?;
            if column::<&str>(&row, 0)? == "$libdir" {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err(EngineError::Other(format!("instance {} does not take its new settings", spec.instance)))
    }
}

/// What a server of a branch is started with.
pub(super) fn server_plan<'a>(
    spec: &'a InstanceSpec,
    image: &'a InstalledImage,
    data: &'a UntrustedPath,
    is_first_start: bool,
) -> ServerPlan<'a> {
    let limits = Limits {
        cpu_millis: spec.cpu_millis,
        cpu_weight: spec.cpu_weight,
        memory_bytes: spec.memory_bytes,
        processes_max: processes_max(&spec.settings),
    };
    ServerPlan {
        instance: &spec.instance,
        image,
        data,
        account: spec.account,
        limits,
        storage_bytes: Some(spec.storage_bytes),
        fullness: spec.fullness,
        settings: &spec.settings,
        preload_libraries: &spec.preload_libraries,
        is_first_start,
        follows: None,
    }
}

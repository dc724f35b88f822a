//! The server of a branch: how it is started, set up, and made its branch's own.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::plan::InstanceSeen;
use coppice_core::{VolumeId, random};
use coppice_failpoint::failpoint;

use super::blocking::blocking;
use super::config::processes_max;
use super::durable::write_durably;
use super::images::InstalledImage;
use super::prepared::{self, InTheWay};
use super::process::controllers::Limits;
use super::server::ServerPlan;
use super::session::{Patience, Session, column};
use super::untrusted::UntrustedPath;
use super::{LocalEngine, control_file, first_start, limits};
use crate::{EngineError, FirstStart, InstanceSpec, Result, StopMode};

/// Room for locks that the platform's work has at least after a start: it takes some twenty.
const LOCKS: u32 = 256;
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
        let plan = server_plan(spec, &image, &data, &spec.settings, is_first_start);
        self.host.servers.start(&plan).await?;
        while let Some(what) = self.in_the_way(&plan).await?
            && self.end_prepared(&plan, what).await?
        {}
        limits::limit_soon(&self.host, &spec.instance);
        Ok(())
    }

    /// What is prepared and keeps the platform from its work after each start, if anything does. Where
    /// that has so many locks that there is no room for others, a server can't be told a password, or
    /// nobody gets in at all.
    async fn in_the_way(&self, plan: &ServerPlan<'_>) -> Result<Option<InTheWay>> {
        let data = plan.data.clone();
        let look = move || Ok((prepared::has_state(&data)?, prepared::hold_own_relations(&data)?));
        match blocking(look).await? {
            (false, _) => return Ok(None),
            // Nobody has to knock at a door that they keep shut.
            (true, true) => return Ok(Some(InTheWay::OwnRelations)),
            (true, false) => {}
        }
        // Locks that somebody has already take no room.
        let mut key = [0; 4];
        random::fill(&mut key);
        let key = i32::from_ne_bytes(key);
        let taking =
            format!("SELECT count(pg_advisory_xact_lock({key}, i)) FROM generate_series(1, {LOCKS}) i");
        let taken = async {
            let session = self.address(plan.instance).open(Patience::QUESTION).await?;
            session.execute("looking for room for locks", &taking).await
        };
        let lacks_locks = taken.await.is_err_and(|error| error.is_want_of_locks());
        Ok(lacks_locks.then_some(InTheWay::MostLocks))
    }

    /// Starts a server anew without what of its prepared transactions is in the way; false when that
    /// can't be done.
    async fn end_prepared(&self, plan: &ServerPlan<'_>, what: InTheWay) -> Result<bool> {
        let (servers, instance) = (&self.host.servers, plan.instance);
        servers.stop(instance, Some(plan.data), StopMode::Fast).await?;
        let data = plan.data.clone();
        let is_ended = blocking(move || match control_file::clean_checkpoint(&data)? {
            Some(_) => prepared::remove(&data, what),
            // What the server recovers is in its WAL, too: at another start, then.
            None => Ok(false),
        })
        .await?;
        if is_ended {
            let why = match what {
                InTheWay::OwnRelations => "it held what belongs to PostgreSQL itself",
                InTheWay::MostLocks => "there was hardly room for other locks",
            };
            tracing::warn!(%instance, "instance {instance}: a prepared transaction is rolled back, for {why}");
        }
        servers.start(plan).await?;
        Ok(is_ended)
    }

    /// [`crate::Engine::start`]
    pub(super) async fn start_instance(&self, spec: &InstanceSpec) -> Result<()> {
        let _guard = self.lock_volume(&spec.volume).await;
        if !self.volumes.exists(&spec.volume) {
            return Err(EngineError::NoVolume(spec.volume.clone()));
        }
        self.volumes.check_claim(&spec.volume, spec.claim)?;
        self.close_sessions(&spec.instance);
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
        let (image, data) = (self.host.image(spec.version)?, self.volumes.data_dir(&spec.volume));
        let settings = match &spec.follows {
            Some(_) => self.settings_of_replica(spec).await?,
            None => spec.settings.clone(),
        };
        self.host.servers.configure(&server_plan(spec, &image, &data, &settings, false))?;
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
        servers.configure(&server_plan(spec, &image, &data, &spec.settings, false))?;
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

/// What a server of a branch is started with. What confines it follows from what the branch
/// has, whatever its server's settings are besides.
pub(super) fn server_plan<'a>(
    spec: &'a InstanceSpec,
    image: &'a InstalledImage,
    data: &'a UntrustedPath,
    settings: &'a [(String, String)],
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
        settings,
        preload_libraries: &spec.preload_libraries,
        is_first_start,
        follows: None,
    }
}

//! [`Engine`] for one Linux machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coppice_archive::{Connection, Written};
use coppice_core::backup::DrillReport;
use coppice_core::claim::ClaimToken;
use coppice_core::history::{Gap, History, Window};
use coppice_core::image::PostgresVersion;
use coppice_core::login::Login;
use coppice_core::lsn::Lsn;
use coppice_core::parameter::Observed;
use coppice_core::plan::InstanceSeen;
use coppice_core::statistics::InstanceStatistics;
use coppice_core::storage::{ChangedBytes, VolumeBytes};
use coppice_core::volume::{VolumeLabel, VolumeSource};
use coppice_core::{ApiKeyId, InstanceId, VolumeId};
use coppice_failpoint::failpoint;
use coppice_turns::{Behalf, Name, Turns};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::blocking::blocking;
use super::metastore::METASTORE;
use super::session::{Parameter, Patience, Session};
use super::sessions::Sessions;
use super::templates::TEMPLATE_PREFIX;
use super::volumes::{SourceState, Volumes};
use super::{
    HostEngine, contents, control_file, following, handing_over, held_wal, logins, managed_role, measure,
    prepared, reader, session, sizes, sleep, statistics, system_views, verifiers,
};
use crate::{
    Answer, BasePlan, BoxedServerStream, Capacity, DrillPlan, Engine, EngineError, FirstStart, Image,
    ImageContents, InstanceSpec, LogFiles, ROLE_LENGTH_MAX, ReplicaSlot, Result, RoleVerifier, SleepingRoles,
    StopMode, UpgradePlan, Upgraded, VolumeFacts, VolumePlan,
};

/// All that a first start has to say to a server, which may take its time for each word.
const FIRST_START_PATIENCE: Duration = Duration::from_secs(40);

/// Of how many pairs of volumes blocks are compared at once.
const COMPARISONS_MAX: usize = 2;
const COMPARISONS_OF_ONE_MAX: usize = 1;
/// For how long a comparison waits until others are done.
const TURN_PATIENCE: Duration = Duration::from_secs(15);

/// Branches on this machine: [`HostEngine`] with its volumes attached.
pub struct LocalEngine {
    pub(super) host: Arc<HostEngine>,
    pub(super) volumes: Arc<Volumes>,
    /// Where bases go, if anywhere.
    pub(super) store: Option<Arc<Connection>>,
    /// Held while a volume is copied without a server, or its server starts.
    locks: Mutex<HashMap<VolumeId, Arc<tokio::sync::Mutex<()>>>>,
    /// One template at a time is made.
    pub(super) template_lock: tokio::sync::Mutex<()>,
    /// Held while a drill goes on.
    pub(super) drill_lock: tokio::sync::Mutex<()>,
    pub(super) sessions: Sessions,
    pub(super) watching: Arc<Sessions>,
    /// Images never change, so looking once is enough.
    contents: Mutex<HashMap<PostgresVersion, Arc<ImageContents>>>,
    pub(super) measuring: measure::Measuring,
    sizes: Arc<sizes::Sizes>,
    /// Of these, one is held while blocks of two volumes are compared.
    comparing: Turns<Name>,
    /// From where on servers keep their logs, and since which of their processes.
    pub(super) held: Mutex<HashMap<InstanceId, held_wal::Held>>,
}

impl LocalEngine {
    /// Puts a host and its volumes together.
    pub fn new(host: Arc<HostEngine>, volumes: Volumes) -> Self {
        Self {
            host,
            volumes: Arc::new(volumes),
            store: None,
            locks: Mutex::default(),
            template_lock: tokio::sync::Mutex::default(),
            drill_lock: tokio::sync::Mutex::default(),
            sessions: Sessions::new(Patience::QUESTION),
            watching: Arc::new(Sessions::new(Patience::WATCH)),
            contents: Mutex::default(),
            measuring: measure::Measuring::default(),
            sizes: Arc::default(),
            comparing: Turns::new(COMPARISONS_MAX, COMPARISONS_OF_ONE_MAX),
            held: Mutex::default(),
        }
    }

    /// Writes bases to a store, and makes volumes from them.
    #[must_use]
    pub fn with_store(self, store: Option<Arc<Connection>>) -> Self {
        Self { store, ..self }
    }

    /// The volumes on this machine.
    pub fn storage(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    pub(super) async fn lock_volume(&self, volume: &VolumeId) -> OwnedMutexGuard<()> {
        let mutex = self.locks.lock().entry(volume.clone()).or_default().clone();
        mutex.lock_owned().await
    }
}

#[async_trait]
impl Engine for LocalEngine {
    async fn images(&self) -> Result<Vec<Image>> {
        Ok(self.host.installed_images().into_iter().map(|image| Image { version: image.version }).collect())
    }

    async fn image_contents(&self, version: PostgresVersion) -> Result<Arc<ImageContents>> {
        if let Some(known) = self.contents.lock().get(&version) {
            return Ok(known.clone());
        }
        let image = self.host.image(version)?;
        let found = Arc::new(blocking(move || contents::read(&image)).await?);
        self.contents.lock().insert(version, found.clone());
        Ok(found)
    }

    async fn capacity(&self) -> Result<Capacity> {
        Ok(self.host.capacity())
    }

    async fn create_volume(&self, plan: &VolumePlan) -> Result<VolumeFacts> {
        let volume = &plan.label.volume;
        match &plan.source {
            VolumeSource::Volume(source) => self.create_from_volume(plan, source).await?,
            VolumeSource::Moment(source, lsn) => self.create_from_moment(plan, source, *lsn).await?,
            VolumeSource::Base(base, until) => self.create_from_base(plan, base, *until).await?,
            VolumeSource::Template => {
                let template = self.template(plan.label.version).await?;
                let (volumes, label) = (self.volumes.clone(), plan.label.clone());
                blocking(move || volumes.copy(&template, &label, SourceState::Stopped)).await?;
            }
        }
        failpoint!("engine.volume_copied");
        let data = self.volumes.data_dir(volume);
        blocking(move || control_file::read(&data)).await
    }

    async fn upgrade(&self, plan: &UpgradePlan) -> Result<Upgraded> {
        self.change_major(plan).await
    }

    async fn end_upgrade(&self, plan: &UpgradePlan) -> Result<()> {
        self.abandon_upgrade(plan).await
    }

    async fn remove_volume(&self, volume: &VolumeId) -> Result<()> {
        let (volumes, id) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.remove(&id)).await?;
        self.locks.lock().remove(volume);
        self.measuring.forget(volume);
        Ok(())
    }

    async fn observe(&self, instance: &InstanceId, volume: &VolumeId) -> Result<InstanceSeen> {
        Ok(self.host.servers.observe(instance, &self.volumes.data_dir(volume)).await)
    }

    async fn start(&self, spec: &InstanceSpec) -> Result<()> {
        self.start_instance(spec).await?;
        self.watching.begin(self.address(&spec.instance));
        Ok(())
    }

    async fn configure(&self, spec: &InstanceSpec) -> Result<()> {
        self.configure_instance(spec).await
    }

    async fn first_start(&self, plan: &FirstStart) -> Result<()> {
        // Others wait behind it.
        let ended = timeout(FIRST_START_PATIENCE, self.end_first_start(plan)).await;
        ended.unwrap_or_else(|_| Err(EngineError::no_answer()))
    }

    async fn keep_for_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        LocalEngine::keep_for_replica(self, primary, replica).await
    }

    async fn forget_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        LocalEngine::forget_replica(self, primary, replica).await
    }

    async fn replica_slots(&self, primary: &InstanceId) -> Result<Vec<ReplicaSlot>> {
        self.slots_of_replicas(primary).await
    }

    async fn stop(&self, instance: &InstanceId, volume: Option<&VolumeId>, mode: StopMode) -> Result<()> {
        self.close_sessions(instance);
        let data = volume.map(|volume| self.volumes.data_dir(volume));
        self.host.servers.stop(instance, data.as_ref(), mode).await?;
        if let Some(volume) = volume.filter(|volume| mode == StopMode::Fast && !self.is_replica(volume)) {
            self.look_between(volume).await;
        }
        Ok(())
    }

    async fn sleep(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
    ) -> Result<Option<(SleepingRoles, String)>> {
        self.put_to_sleep(instance, volume).await
    }

    async fn clean_checkpoint(&self, volume: &VolumeId) -> Result<Option<String>> {
        let data = self.volumes.data_dir(volume);
        blocking(move || control_file::clean_checkpoint(&data)).await
    }

    fn has_answered(&self, instance: &InstanceId) -> bool {
        self.watching.known(instance).is_some_and(|session| !session.is_in_doubt())
    }

    async fn ask_whether_it_answers(&self, instance: &InstanceId) -> Answer {
        self.health(instance).await
    }

    async fn wait_exit(&self, instance: &InstanceId) {
        self.host.servers.wait_exit(instance).await;
    }

    async fn remove_instance(&self, instance: &InstanceId) -> Result<()> {
        let (host, instance) = (self.host.clone(), instance.clone());
        blocking(move || host.servers.remove(&instance)).await
    }

    async fn open(&self, instance: &InstanceId) -> Result<BoxedServerStream> {
        Ok(Box::new(self.host.servers.connect(instance).await?))
    }

    async fn verifier(&self, instance: &InstanceId, role: &str) -> Result<Option<RoleVerifier>> {
        // The server would complain about it in the tenant's log.
        if role.len() > ROLE_LENGTH_MAX {
            return Ok(None);
        }
        self.ask(instance, async |session| verifiers::of_role(&session, role).await).await
    }

    async fn managed_verifier(&self, instance: &InstanceId) -> Result<Option<String>> {
        self.ask(instance, async |session| managed_role::verifier(&session).await).await
    }

    async fn set_managed_verifier(&self, instance: &InstanceId, verifier: &str) -> Result<()> {
        self.change(instance, managed_role::set_verifier(&self.address(instance), verifier)).await
    }

    async fn ensure_reader(&self, instance: &InstanceId, verifier: &str) -> Result<()> {
        self.ask(instance, async |session| reader::ensure(&session, verifier).await).await
    }

    async fn ensure_login(&self, instance: &InstanceId, login: &Login) -> Result<()> {
        let address = self.address(instance);
        self.ask(instance, async |session| logins::ensure(&address, &session, login).await).await
    }

    async fn end_login(&self, instance: &InstanceId, key: &ApiKeyId) -> Result<()> {
        self.change(instance, logins::end(&self.address(instance), key.as_str())).await
    }

    async fn close_system_views(&self, instance: &InstanceId, volume: &VolumeId) -> Result<()> {
        let (address, data) = (self.address(instance), self.volumes.data_dir(volume));
        self.change(instance, system_views::close(&address, &data)).await
    }

    async fn lock_out(&self, instance: &InstanceId) -> Result<()> {
        self.change(instance, handing_over::lock_out(&self.address(instance))).await
    }

    async fn end_session(&self, instance: &InstanceId, role: &str, process: u32) -> Result<()> {
        let process = process.cast_signed();
        self.ask(instance, async |session| reader::end_session(&session, role, process).await).await
    }

    async fn end_holders(
        &self,
        instance: &InstanceId,
        volume: &VolumeId,
        transactions: &[u32],
    ) -> Result<()> {
        // A session that does not end when it is told to holds up a fast stop, too.
        let mode = if transactions.is_empty() { StopMode::Immediate } else { StopMode::Fast };
        self.stop(instance, Some(volume), mode).await?;
        let data = self.volumes.data_dir(volume);
        let transactions = transactions.to_owned();
        blocking(move || match control_file::clean_checkpoint(&data)? {
            Some(_) => prepared::remove_state(&data, &transactions),
            // What the server recovers is in its WAL, too: once more, then.
            None => Ok(()),
        })
        .await
    }

    async fn fence(&self, volume: &VolumeId, claim: ClaimToken) -> Result<()> {
        if !self.volumes.exists(volume) {
            return Err(EngineError::NoVolume(volume.clone()));
        }
        self.volumes.check_claim(volume, claim)
    }

    async fn statistics(&self, instance: &InstanceId, version: PostgresVersion) -> Result<Observed> {
        self.ask(instance, async |session| statistics::read(&session, version.major).await).await
    }

    async fn has_active_slot(&self, instance: &InstanceId) -> Result<bool> {
        let session = self.session(instance).await?;
        sleep::has_active_slot(&session).await
    }

    fn logs(&self, instance: &InstanceId) -> Result<Box<dyn LogFiles>> {
        Ok(Box::new(self.host.log_files(instance)?))
    }

    async fn measure(&self, instance: &InstanceId, volume: &VolumeId) -> InstanceStatistics {
        let server = self.ask_statistics(instance).await.map_err(|error| {
            tracing::debug!(%instance, "instance {instance} does not tell its statistics: {}", error.chain());
        });
        let (volumes, id) = (self.volumes.clone(), volume.clone());
        let generation = blocking(move || Ok(volumes.generation(&id))).await.ok().flatten();
        let data = self.volumes.data_dir(volume);
        self.measuring.look(&self.host.servers, instance, (volume, data), generation, server.ok()).await
    }

    fn known_disk_bytes(&self, volume: &VolumeId) -> Option<u64> {
        self.measuring.known_disk_size(volume)
    }

    async fn disk_bytes(&self, instance: &InstanceId, volume: &VolumeId) -> Option<u64> {
        let taken = self.host.servers.taken(instance, self.volumes.data_dir(volume));
        self.measuring.disk_size_near_limit(volume, taken).await
    }

    async fn measure_volumes(&self) -> Result<()> {
        let (sizes, volumes) = (self.sizes.clone(), self.volumes.clone());
        blocking(move || sizes.take_turn(&volumes)).await
    }

    fn known_volume_bytes(&self, volume: &VolumeId) -> Option<VolumeBytes> {
        self.sizes.known(volume)
    }

    async fn changed_bytes(
        &self,
        volume: &VolumeId,
        against: &VolumeId,
        database: u32,
    ) -> Result<ChangedBytes> {
        let of = Behalf::current_name();
        let Ok(turn) = timeout(TURN_PATIENCE, self.comparing.take(&of)).await else {
            return Ok(ChangedBytes::Unknown("others are comparing theirs; ask again later"));
        };
        let (volumes, volume, against) = (self.volumes.clone(), volume.clone(), against.clone());
        blocking(move || {
            let _turn = turn;
            volumes.changed_bytes(&volume, &against, database)
        })
        .await
    }

    fn keeps_history(&self) -> bool {
        self.volumes.can_keep_history()
    }

    async fn keep_history(&self, instance: &InstanceId, volume: &VolumeId, keep: Duration) -> Result<()> {
        self.keep_wal(instance, volume, keep).await
    }

    async fn history(&self, volume: &VolumeId) -> Result<Option<History>> {
        let (volumes, volume) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.history(&volume)).await
    }

    async fn history_window(&self, volume: &VolumeId) -> Result<Option<(Window, Vec<Gap>)>> {
        let (volumes, volume) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.history_window(&volume)).await
    }

    async fn back_up(&self, plan: &BasePlan) -> Result<Written> {
        self.write_base(plan).await
    }

    async fn drill(&self, plan: &DrillPlan) -> DrillReport {
        self.hold_drill(plan).await
    }

    async fn log_from(&self, volume: &VolumeId, from: Lsn) -> Result<Option<Vec<u8>>> {
        self.read_log(volume, from).await
    }

    async fn end_sessions(&self, instance: &InstanceId, only_writers: bool) -> Result<()> {
        let end = async |session: Arc<Session>| {
            // A replica's is of no database; any role can be called as one's meanwhile. Workers of
            // autovacuum evaluate what indexes are made of, which may be anything.
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE backend_type IN ('client backend', 'walsender', 'autovacuum worker') \
                         AND (usename IS NULL OR usename <> $1 AND (usename !~ $3 OR datid IS NOT NULL)) \
                         AND (backend_xid IS NOT NULL OR NOT $2)";
            let parameters: [Parameter<'_>; 3] = [
                (&session::PLATFORM_ROLE, Type::NAME),
                (&only_writers, Type::BOOL),
                (&following::NAMES, Type::TEXT),
            ];
            session.query("ending sessions", sql, &parameters).await.map(drop)
        };
        self.ask(instance, end).await
    }

    async fn is_short_of_room(&self) -> Result<bool> {
        let volumes = self.volumes.clone();
        blocking(move || Ok(volumes.usage()?.is_short())).await
    }

    async fn volumes(&self) -> Result<Vec<VolumeLabel>> {
        let volumes = self.volumes.clone();
        let list = blocking(move || volumes.list()).await?;
        list.tell_unreadable();
        Ok(list.labels)
    }

    async fn quarantine(&self, volume: &VolumeId) -> Result<()> {
        let (volumes, volume) = (self.volumes.clone(), volume.clone());
        blocking(move || volumes.quarantine(&volume)).await
    }

    async fn running_instances(&self) -> Result<Vec<InstanceId>> {
        let running = self.host.servers.running().into_iter();
        let is_ours = |id: &InstanceId| id.as_str() == METASTORE || id.as_str().starts_with(TEMPLATE_PREFIX);
        Ok(running.filter(|id| !is_ours(id)).collect())
    }
}

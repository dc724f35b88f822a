//! Replicas: servers that follow another one of the same branch.
//!
//! A replica begins as a copy of the primary's volume, and its server receives
//! what the primary writes from then on through the primary's own socket, which
//! is mounted into its root directory. Each has a role and a slot at the primary,
//! both of the same name. The role may do nothing but replicate; its password is
//! made anew at every start, and known to this one server alone. The slot has the
//! primary wait for the replica; how much log that may hold back is bounded in
//! the primary's configuration, and a replica that is further behind is of no use
//! any more.
//!
//! A branch's owner may be able to drop the slot, or to change a role of that
//! name, and loses the replica with it, nothing else.

use std::ffi::CStr;
use std::path::PathBuf;

use coppice_core::plan::InstanceSeen;
use coppice_core::{InstanceId, VolumeId};
use coppice_failpoint::failpoint;
use tokio_postgres::types::Type;

use super::blocking::blocking;
use super::durable::write_durably;
use super::following::{Door, Following, NAME, NAMES};
use super::instances::server_plan;
use super::prepared::{self, InTheWay};
use super::process::launch::Neighbour;
use super::replica_slots::{drop_role, ensure_role, slot, state};
use super::session::{Patience, column};
use super::untrusted::UntrustedPath;
use super::{LocalEngine, control_file, first_start, limits, random_hex, slots};
use crate::{EngineError, InstanceSpec, ReplicaSlot, Result, SlotState, StopMode};

/// The socket of a server in its directory.
const SOCKET: &CStr = c".s.PGSQL.5432";
/// Settings of which a server that follows needs as much as the one it follows,
/// which writes its own into the log (PostgreSQL manual, section 27.4.3).
const AS_MUCH: [&str; 5] = [
    "max_connections",
    "max_worker_processes",
    "max_wal_senders",
    "max_prepared_transactions",
    "max_locks_per_transaction",
];

/// Names of settings, and their values.
type Settings = Vec<(String, String)>;

/// The name of a replica's role and slot.
fn name_of(replica: &InstanceId) -> Result<String> {
    let ordinal = replica.ordinal();
    let ordinal = ordinal.ok_or_else(|| EngineError::Other(format!("{replica} is no replica")))?;
    Ok(format!("{NAME}{ordinal}"))
}

impl LocalEngine {
    /// A file beside the data that says that it is a replica's.
    fn replica_marker(&self, volume: &VolumeId) -> PathBuf {
        self.host.layout().volume(volume).join("replica")
    }

    /// Whether a volume is a replica's: its history is the primary's.
    pub(super) fn is_replica(&self, volume: &VolumeId) -> bool {
        self.replica_marker(volume).exists()
    }

    /// Has a running primary keep its log for a replica from now on.
    pub(super) async fn keep_for_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        let name = name_of(replica)?;
        self.ask(primary, async |session| match slot(&session, &name).await? {
            Some(SlotState::Idle | SlotState::Active) => Ok(()),
            Some(SlotState::Lost) => {
                slots::drop_named(&session, &name).await?;
                slots::make(&session, &name).await
            }
            None => slots::make(&session, &name).await,
        })
        .await
    }

    /// Has a running primary forget a replica, whose server is stopped.
    pub(super) async fn forget_replica(&self, primary: &InstanceId, replica: &InstanceId) -> Result<()> {
        let name = name_of(replica)?;
        self.ask(primary, async |session| {
            slots::drop_named(&session, &name).await?;
            drop_role(&session, &name).await
        })
        .await
    }

    /// What a running primary keeps for its replicas.
    pub(super) async fn slots_of_replicas(&self, primary: &InstanceId) -> Result<Vec<ReplicaSlot>> {
        let query = "SELECT slot_name::text, active, wal_status IS NOT DISTINCT FROM 'lost' \
                     FROM pg_replication_slots WHERE slot_name ~ $1 AND slot_type = 'physical'";
        let asked = self.ask(primary, async |session| {
            session.query("looking at the slots of replicas", query, &[(&NAMES, Type::TEXT)]).await
        });
        let mut slots = vec![];
        for row in asked.await? {
            let name: String = column(&row, 0)?;
            if let Some(ordinal) = name.strip_prefix(NAME).and_then(|text| text.parse().ok()) {
                slots.push(ReplicaSlot { ordinal, state: state(column(&row, 1)?, column(&row, 2)?) });
            }
        }
        Ok(slots)
    }

    /// Starts a server that follows `primary`, which runs.
    pub(super) async fn start_replica(&self, spec: &InstanceSpec, primary: &InstanceId) -> Result<()> {
        let (instance, volume) = (&spec.instance, &spec.volume);
        let data = self.volumes.data_dir(volume);
        if self.host.servers.observe(instance, &data).await == InstanceSeen::Running {
            return Ok(());
        }
        self.host.servers.stop(instance, Some(&data), StopMode::Immediate).await?;
        write_durably(&self.replica_marker(volume), volume.as_str().as_bytes(), 0o600)?;
        let is_first = self.is_first_start(volume);
        let of_replica = data.clone();
        blocking(move || {
            if is_first {
                first_start::remove_inherited_files(&of_replica)?;
            }
            // What the primary ended while it was stopped has no end in its log.
            prepared::remove(&of_replica, InTheWay::OwnRelations)?;
            write_standby_signal(&of_replica)
        })
        .await?;
        failpoint!("replica.prepared");
        let following = self.follow(primary, instance).await?;
        let settings = with_as_much(spec, &data).await?;
        let image = self.host.image(spec.version)?;
        let mut plan = server_plan(spec, &image, &data, &settings, false);
        plan.follows = Some(&following);
        self.host.servers.start(&plan).await?;
        limits::limit_soon(&self.host, instance);
        failpoint!("replica.started");
        write_durably(&self.first_start_marker(volume), volume.as_str().as_bytes(), 0o600)
    }

    /// Lets a replica's server in at the primary, and tells how it gets there.
    async fn follow(&self, primary: &InstanceId, replica: &InstanceId) -> Result<Following> {
        let name = name_of(replica)?;
        let servers = &self.host.servers;
        let server = servers.living(primary).ok_or_else(|| EngineError::NotRunning(primary.clone()))?;
        let password = random_hex::<32>();
        let socket = self.host.layout().instance_socket(primary);
        let neighbour = match servers.is_root {
            false => None,
            true => {
                let (_, group) = server.account().ok_or_else(|| EngineError::NotRunning(primary.clone()))?;
                // Through its root directory, where no link of ours leads.
                let root = PathBuf::from(format!("/proc/{}/root", server.pid));
                check_door(&UntrustedPath::new(&root, "socket"), primary)?;
                Some(Neighbour { pid: server.pid, group, ..Neighbour::default() })
            }
        };
        let session = self.address(primary).open(Patience::CHANGE).await?;
        ensure_role(&session, &name, &password).await?;
        Ok(Following { name, socket, door: Some(Door { password, neighbour }) })
    }

    /// The same server's settings, for one that goes on running.
    pub(super) async fn settings_of_replica(&self, spec: &InstanceSpec) -> Result<Settings> {
        with_as_much(spec, &self.volumes.data_dir(&spec.volume)).await
    }
}

/// Sockets of servers that an earlier release started are closed to replicas.
fn check_door(socket: &UntrustedPath, primary: &InstanceId) -> Result<()> {
    let stat = socket.require().and_then(|directory| directory.stat(SOCKET));
    let stat = stat.map_err(EngineError::io(format!("looking at the socket of instance {primary}")))?;
    match stat.st_mode & 0o020 != 0 {
        true => Ok(()),
        false => Err(EngineError::Other(
            "its primary was started by an earlier release and lets no replica in: put the branch to sleep \
             and wake it"
                .to_owned(),
        )),
    }
}

/// Settings with as much of what is shared with the primary as the log asks for: a server
/// that has less does not start. The primary's file says how much that is, so nothing that
/// confines a server follows from it.
async fn with_as_much(spec: &InstanceSpec, data: &UntrustedPath) -> Result<Settings> {
    let data = data.clone();
    let needed = blocking(move || control_file::needed_by_standbys(&data)).await?;
    let mut settings = spec.settings.clone();
    for (name, needed) in AS_MUCH.into_iter().zip(needed) {
        let has =
            settings.iter().rev().find(|(key, _)| key == name).and_then(|(_, value)| value.parse().ok());
        if has.is_none_or(|has: u32| has < needed) {
            settings.push((name.to_owned(), needed.to_string()));
        }
    }
    Ok(settings)
}

/// Has a server follow another one from its next start on. Blocks.
fn write_standby_signal(data: &UntrustedPath) -> Result<()> {
    let written = data.require().and_then(|data| data.put_empty(c"standby.signal", c"PG_VERSION"));
    written.map_err(EngineError::io("writing standby.signal"))
}

#[cfg(test)]
mod tests {
    use coppice_core::BranchId;
    use coppice_core::claim::ClaimToken;
    use coppice_core::image::PostgresVersion;
    use coppice_core::storage::Fullness;

    use super::*;
    use crate::local::images::InstalledImage;

    #[tokio::test]
    async fn what_a_primary_says_it_has_lifts_no_limit_of_its_replica() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(directory.path().join("data/global")).expect("a directory");
        std::fs::write(directory.path().join("data/global/pg_control"), [0x7f; 512]).expect("a file");
        let data = UntrustedPath::new(directory.path(), "data");
        let version = PostgresVersion::parse("18.4").expect("a version");
        let spec = InstanceSpec {
            instance: InstanceId::from_trusted("one-2".to_owned()),
            branch: BranchId::from_trusted("one".to_owned()),
            volume: VolumeId::from_trusted("one".to_owned()),
            follows: Some(InstanceId::from_trusted("one-1".to_owned())),
            claim: ClaimToken(1),
            version,
            account: 0,
            cpu_millis: 1000,
            cpu_weight: 100,
            memory_bytes: 1 << 30,
            fullness: Fullness::Fine,
            storage_bytes: 1 << 30,
            settings: vec![("max_connections".to_owned(), "100".to_owned())],
            preload_libraries: vec![],
        };
        let image = InstalledImage { version, root: PathBuf::new(), bin: PathBuf::new() };
        let settings = with_as_much(&spec, &data).await.expect("a file that can be read");
        assert!(settings.contains(&("max_worker_processes".to_owned(), "100000".to_owned())), "{settings:?}");
        let plan = server_plan(&spec, &image, &data, &settings, false);
        assert_eq!(plan.settings, settings);
        let primary = server_plan(&spec, &image, &data, &spec.settings, false);
        assert_eq!(plan.limits.processes_max, primary.limits.processes_max);
    }
}

//! Another major version: what is in a volume is dumped from a copy of it, and restored
//! into a fresh cluster of the other release, which becomes a volume of its own.
//!
//! The old server has nothing to lose: it runs on a copy that goes away. The new one is
//! what the branch will be, so nothing of the owner's runs in it as a superuser: tables,
//! indexes and constraints evaluate functions while they are restored, and a superuser
//! who restores them runs these. A role that may do nothing else owns everything until
//! it is complete; then, without evaluating anything, objects get their owners, and
//! privileges are granted. At last materialized views are filled, each as its owner.
//! Both servers, `pg_dump` and `pg_restore` are confined as every server is.

mod databases;
mod evaluated;
mod grants;
mod pair;
mod programs;
mod quoting;
mod relay;
mod roles;
mod room;
mod views;

use coppice_core::image::PostgresVersion;
use coppice_core::storage::Fullness;
use coppice_core::volume::VolumeLabel;
use coppice_core::{InstanceId, VolumeId};
use coppice_failpoint::failpoint;

use super::LocalEngine;
use super::blocking::blocking;
use super::config::{NO_AUTOVACUUM, processes_max};
use super::durable::write_durably;
use super::process::controllers::Limits;
use super::server::ServerPlan;
use super::taken::Taken;
use super::untrusted::UntrustedPath;
use super::volumes::{DriverKind, SourceState};
use super::{control_file, first_start, limits, random_hex};
use crate::{EngineError, Result, StopMode, UpgradePlan, Upgraded};
use pair::Pair;
use programs::Programs;
use room::Room;

/// Memory of the server that is dumped, and of the programs.
const SMALL: u64 = 512 << 20;
/// What the server that is dumped has: little, and nothing to do but that.
const OLD_SETTINGS: [(&str, &str); 1] = [("shared_buffers", "64MB")];
/// What the other one has while it is filled.
const NEW_SETTINGS: [(&str, &str); 2] = [("synchronous_commit", "off"), ("checkpoint_timeout", "1h")];
/// Replication slots of a copy that are looked at.
const SLOTS_MAX: usize = 1024;
/// Begins the names of those that are the platform's.
const OWN_SLOTS: &str = "coppice_";

/// Settings of a server that does nothing by itself.
fn quiet(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = settings.iter().chain(&NO_AUTOVACUUM);
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The parts of an upgrade: what runs, and where its data is.
struct Parts {
    old: InstanceId,
    new: InstanceId,
    programs: InstanceId,
    copy: VolumeId,
    target: VolumeId,
}

impl Parts {
    fn of(plan: &UpgradePlan) -> Self {
        let volume = &plan.label.volume;
        let instance = |part: &str| InstanceId::from_trusted(format!("upgrade-{volume}-{part}"));
        let target = match plan.is_trial {
            true => VolumeId::from_trusted(format!("{volume}-trial")),
            false => volume.clone(),
        };
        Self {
            old: instance("from"),
            new: instance("to"),
            programs: instance("programs"),
            copy: VolumeId::from_trusted(format!("{volume}-from")),
            target,
        }
    }
}

impl LocalEngine {
    /// [`crate::Engine::upgrade`]
    pub(super) async fn change_major(&self, plan: &UpgradePlan) -> Result<Upgraded> {
        let parts = Parts::of(plan);
        let (volumes, label) = (self.volumes.clone(), plan.label.clone());
        let is_made = !plan.is_trial && blocking(move || volumes.is_made(&label)).await?;
        let mut left_out = vec![];
        if !is_made {
            self.end_parts(&parts).await?;
            let done = self.make_upgraded(plan, &parts).await;
            let published = match done {
                Ok(names) if !plan.is_trial => self.publish(plan, &parts).await.map(|()| names),
                done => done,
            };
            self.end_parts(&parts).await?;
            left_out = published?;
        }
        if plan.is_trial {
            return Ok(Upgraded { facts: None, left_out });
        }
        let data = self.volumes.data_dir(&plan.label.volume);
        let facts = blocking(move || control_file::read(&data)).await?;
        Ok(Upgraded { facts: Some(facts), left_out })
    }

    /// [`crate::Engine::end_upgrade`]
    pub(super) async fn abandon_upgrade(&self, plan: &UpgradePlan) -> Result<()> {
        self.end_parts(&Parts::of(plan)).await
    }

    /// Ends and removes everything but the volume.
    async fn end_parts(&self, parts: &Parts) -> Result<()> {
        for instance in [&parts.programs, &parts.old, &parts.new] {
            self.host.servers.stop(instance, None, StopMode::Immediate).await?;
            let (host, instance) = (self.host.clone(), instance.clone());
            blocking(move || host.servers.remove(&instance)).await?;
        }
        let (volumes, staged) = (self.volumes.clone(), [parts.copy.clone(), parts.target.clone()]);
        blocking(move || staged.iter().try_for_each(|volume| volumes.clear_beside(volume))).await
    }

    /// Makes all of it in staging. Returns what had to be left behind.
    async fn make_upgraded(&self, plan: &UpgradePlan, parts: &Parts) -> Result<Vec<String>> {
        let to = plan.label.version;
        let data_bytes = self.require_room(plan).await?;
        let beside = self.volumes.beside(&parts.copy);
        let restored = UntrustedPath::new(&self.volumes.beside(&parts.target), "data");
        let places = [restored, UntrustedPath::new(&beside, "dumps"), UntrustedPath::new(&beside, "data")];
        let programs = Programs {
            host: self.host.clone(),
            image: programs::choose_programs(&self.host, plan.from, to)?,
            instance: parts.programs.clone(),
            account: plan.spec.account,
            limits: Limits { memory_bytes: SMALL, ..limits_of(plan, &[]) },
            dumps: beside.join("dumps"),
            room: Room::of(self.volumes.clone(), places, plan.spec.storage_bytes, data_bytes),
        };
        programs.room.check().await?;
        let template = self.template(to).await?;
        let copy = self.copy_to_dump(plan, parts).await?;
        refuse_slots(copy.clone()).await?;
        let (volumes, label) = (self.volumes.clone(), label_of(plan, &parts.target, to));
        let fresh = blocking(move || volumes.stage_beside(&template, &label, SourceState::Stopped)).await?;
        failpoint!("upgrade.copied");
        self.start_old(plan, parts, &copy).await?;
        self.start_new(plan, parts, &fresh).await?;
        programs.make_dumps()?;
        failpoint!("upgrade.started");
        let pair = Pair {
            plan,
            from: self.address(&parts.old),
            to: self.address(&parts.new),
            programs,
            restorer: format!("coppice_restorer_{}", random_hex::<16>()),
            password: random_hex::<24>(),
        };
        // Not only programs evaluate what the owner wrote.
        let left_out = tokio::select! {
            biased;
            carried = pair.carry_over() => carried?,
            excess = pair.programs.room.excess() => return Err(excess),
        };
        self.host.servers.stop(&parts.new, Some(&fresh), StopMode::Fast).await?;
        match blocking(move || control_file::clean_checkpoint(&fresh)).await? {
            Some(_) => Ok(left_out),
            None => Err(EngineError::Other("the upgraded server did not stop cleanly".to_owned())),
        }
    }

    /// Returns how many bytes there are to carry over.
    async fn require_room(&self, plan: &UpgradePlan) -> Result<u64> {
        let (volumes, source) = (self.volumes.clone(), self.volumes.data_dir(&plan.source));
        blocking(move || {
            // Copying a volume takes room only where blocks are not shared.
            let copies = if volumes.driver() == DriverKind::Copy { 2 } else { 1 };
            let bytes = Taken::new(source.clone(), source, vec![]).bytes();
            room::require(bytes, copies, volumes.room_bytes()?).map(|()| bytes)
        })
        .await
    }

    /// The logins of keys and everything else stay, so this is not a copy's first start.
    async fn publish(&self, plan: &UpgradePlan, parts: &Parts) -> Result<()> {
        let id = plan.label.volume.clone();
        let marker = self.volumes.beside(&parts.target).join("first-start");
        write_durably(&marker, id.as_str().as_bytes(), 0o600)?;
        failpoint!("upgrade.restored", EngineError::NotUpgradable("a test wants it so".to_owned()));
        let volumes = self.volumes.clone();
        blocking(move || volumes.publish_beside(&id)).await
    }

    async fn copy_to_dump(&self, plan: &UpgradePlan, parts: &Parts) -> Result<UntrustedPath> {
        let (volumes, source) = (self.volumes.clone(), plan.source.clone());
        let label = label_of(plan, &parts.copy, plan.from);
        let copy = move |state: SourceState<'_>| volumes.stage_beside(&source, &label, state);
        self.with_source(plan.source_instance.as_ref(), &plan.source, copy).await
    }

    /// Nothing of a copy reaches out of it: its slots are gone, and it loads nothing that
    /// connects.
    async fn start_old(&self, plan: &UpgradePlan, parts: &Parts, data: &UntrustedPath) -> Result<()> {
        let inherited = data.clone();
        blocking(move || first_start::remove_inherited_files(&inherited)).await?;
        let settings = quiet(&OLD_SETTINGS);
        let image = self.host.image(plan.from)?;
        let server = ServerPlan {
            instance: &parts.old,
            image: &image,
            data,
            account: plan.spec.account,
            limits: Limits { memory_bytes: SMALL, ..limits_of(plan, &settings) },
            storage_bytes: None,
            fullness: Fullness::Fine,
            settings: &settings,
            preload_libraries: &[],
            is_first_start: true,
            follows: None,
        };
        self.host.servers.start(&server).await?;
        limits::limit_soon(&self.host, &parts.old);
        Ok(())
    }

    async fn start_new(&self, plan: &UpgradePlan, parts: &Parts, data: &UntrustedPath) -> Result<()> {
        let settings: Vec<_> = plan.spec.settings.iter().cloned().chain(quiet(&NEW_SETTINGS)).collect();
        let image = self.host.image(plan.label.version)?;
        let server = ServerPlan {
            instance: &parts.new,
            image: &image,
            data,
            account: plan.spec.account,
            limits: limits_of(plan, &settings),
            storage_bytes: Some(plan.spec.storage_bytes),
            fullness: Fullness::Fine,
            settings: &settings,
            preload_libraries: &plan.spec.preload_libraries,
            is_first_start: false,
            follows: None,
        };
        self.host.servers.start(&server).await?;
        limits::limit_soon(&self.host, &parts.new);
        Ok(())
    }
}

fn limits_of(plan: &UpgradePlan, settings: &[(String, String)]) -> Limits {
    Limits {
        cpu_millis: plan.spec.cpu_millis,
        cpu_weight: plan.spec.cpu_weight,
        memory_bytes: plan.spec.memory_bytes,
        processes_max: processes_max(settings),
    }
}

fn label_of(plan: &UpgradePlan, volume: &VolumeId, version: PostgresVersion) -> VolumeLabel {
    VolumeLabel { volume: volume.clone(), version, ..plan.label.clone() }
}

/// What reads a slot would not find it again.
async fn refuse_slots(data: UntrustedPath) -> Result<()> {
    let names = blocking(move || {
        let read = || match data.require()?.directory("pg_replslot")? {
            Some(slots) => slots.names(SLOTS_MAX),
            None => Ok(vec![]),
        };
        read().map_err(EngineError::io("looking for replication slots"))
    });
    let names = names.await?;
    let foreign = names.iter().map(|name| name.to_string_lossy()).find(|name| !name.starts_with(OWN_SLOTS));
    foreign.map_or(Ok(()), |name| {
        Err(EngineError::NotUpgradable(format!(
            "it has the replication slot {name}, whose reader would not find its place again: drop it with \
             pg_drop_replication_slot first"
        )))
    })
}

//! Another major version: what is in a volume is dumped from a copy of it, and restored
//! into a fresh cluster of the other release, which becomes a volume of its own.
//!
//! The old server has nothing to lose: it runs on a copy that goes away. The new one is
//! what the branch will be, so nothing of the owner's runs in it as a superuser: tables,
//! indexes and constraints evaluate functions while they are restored, and a superuser
//! who restores them runs these. A role that may do nothing else owns everything until
//! it is complete; then, without evaluating anything, objects get their owners, and
//! privileges are granted. Both servers, `pg_dump` and `pg_restore` are confined as
//! every server is.

mod databases;
mod programs;
mod quoting;
mod relay;
mod roles;

use std::time::{Duration, Instant};

use coppice_core::image::PostgresVersion;
use coppice_core::storage::Fullness;
use coppice_core::volume::VolumeLabel;
use coppice_core::{InstanceId, VolumeId};
use coppice_failpoint::failpoint;

use super::LocalEngine;
use super::blocking::blocking;
use super::config::processes_max;
use super::connecting::Address;
use super::durable::write_durably;
use super::process::controllers::Limits;
use super::server::ServerPlan;
use super::session::{PLATFORM_ROLE, Patience, Session};
use super::untrusted::UntrustedPath;
use super::volumes::SourceState;
use super::{control_file, first_start, limits, prepared};
use crate::{EngineError, Result, StopMode, UpgradePlan, VolumeFacts};
use databases::Database;
use programs::{PLATFORM_OPTIONS, Programs, RESTORER_OPTIONS, Run};
use relay::{LIST, Relay};
use roles::said;

/// An upgrade that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// Memory of the server that is dumped, and of the programs.
const SMALL: u64 = 512 << 20;
/// What the server that is dumped has: little, and nothing to do but that.
const OLD_SETTINGS: [(&str, &str); 2] = [("shared_buffers", "64MB"), ("autovacuum", "off")];
/// What the other one has while it is filled.
const NEW_SETTINGS: [(&str, &str); 3] =
    [("autovacuum", "off"), ("synchronous_commit", "off"), ("checkpoint_timeout", "1h")];
/// Replication slots of a copy that are looked at.
const SLOTS_MAX: usize = 1024;
/// Begins the names of those that are the platform's.
const OWN_SLOTS: &str = "coppice_";

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

/// The two servers.
struct Pair<'a> {
    plan: &'a UpgradePlan,
    from: Address,
    to: Address,
    programs: Programs,
    /// Who owns everything while it is restored.
    restorer: String,
    password: String,
}

impl LocalEngine {
    /// [`crate::Engine::upgrade`]
    pub(super) async fn change_major(&self, plan: &UpgradePlan) -> Result<Option<VolumeFacts>> {
        let parts = Parts::of(plan);
        let (volumes, label) = (self.volumes.clone(), plan.label.clone());
        let is_made = !plan.is_trial && blocking(move || volumes.is_made(&label)).await?;
        if !is_made {
            self.end_parts(&parts).await?;
            let done = self.make_upgraded(plan, &parts).await;
            let published = match done {
                Ok(()) if !plan.is_trial => self.publish(plan, &parts).await,
                done => done,
            };
            self.end_parts(&parts).await?;
            published?;
        }
        match plan.is_trial {
            true => Ok(None),
            false => {
                let data = self.volumes.data_dir(&plan.label.volume);
                blocking(move || control_file::read(&data)).await.map(Some)
            }
        }
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

    async fn make_upgraded(&self, plan: &UpgradePlan, parts: &Parts) -> Result<()> {
        let to = plan.label.version;
        let programs = Programs {
            host: self.host.clone(),
            volumes: self.volumes.clone(),
            image: programs::choose_programs(&self.host, plan.from, to)?,
            instance: parts.programs.clone(),
            account: plan.spec.account,
            limits: Limits { memory_bytes: SMALL, ..limits_of(plan, &[]) },
            dumps: self.volumes.beside(&parts.copy).join("dumps"),
            until: Instant::now() + PATIENCE,
        };
        programs.check_bounds()?;
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
            restorer: format!("coppice_restorer_{}", secret()),
            password: secret(),
        };
        pair.carry_over().await.map_err(hopeless)?;
        self.host.servers.stop(&parts.new, Some(&fresh), StopMode::Fast).await?;
        match blocking(move || control_file::clean_checkpoint(&fresh)).await? {
            Some(_) => Ok(()),
            None => Err(EngineError::Other("the upgraded server did not stop cleanly".to_owned())),
        }
    }

    /// The logins of keys and everything else stay, so this is not a copy's first start.
    async fn publish(&self, plan: &UpgradePlan, parts: &Parts) -> Result<()> {
        let id = plan.label.volume.clone();
        let marker = self.volumes.beside(&parts.target).join("first-start");
        write_durably(&marker, id.as_str().as_bytes(), 0o600)?;
        failpoint!("upgrade.restored");
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
        let settings = OLD_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
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
        let own = NEW_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings: Vec<_> = plan.spec.settings.iter().cloned().chain(own).collect();
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

/// Nobody can guess it.
fn secret() -> String {
    let mut bytes = [0; 16];
    coppice_core::random::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a server refuses once, it refuses again.
fn hopeless(error: EngineError) -> EngineError {
    match &error {
        EngineError::Sql { source, .. } if source.as_db_error().is_some() => {
            EngineError::NotUpgradable(error.chain())
        }
        _ => error,
    }
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

impl Pair<'_> {
    /// Takes everything from the one server to the other.
    async fn carry_over(&self) -> Result<()> {
        let (old, new) = (self.from.open(Patience::WORK).await?, self.to.open(Patience::WORK).await?);
        refuse_what_would_be_lost(&old).await?;
        let databases = databases::all(&old).await?;
        new.execute("dropping an empty database", "DROP DATABASE IF EXISTS app").await?;
        roles::copy(&old, &new).await?;
        let restorer = quoting::name(&self.restorer);
        let make = format!("CREATE ROLE {restorer} LOGIN PASSWORD {}", quoting::text(&self.password));
        new.execute("making the role that restores", &make).await?;
        for (number, database) in databases.iter().enumerate() {
            self.carry_over_database(&old, &new, database, &format!("{number}.dump")).await?;
        }
        for database in &databases {
            databases::finish(database, &old, &new).await?;
        }
        new.execute("dropping the role that restored", &format!("DROP ROLE {restorer}")).await?;
        let unknown = roles::copy_settings(&old, &new).await?;
        if !unknown.is_empty() {
            let (volume, version) = (&self.plan.label.volume, self.plan.label.version);
            tracing::warn!(%volume, "settings of roles and databases that PostgreSQL {version} does not know: {unknown:?}");
        }
        failpoint!("upgrade.carried_over");
        Ok(())
    }

    async fn carry_over_database(
        &self,
        old: &Session,
        new: &Session,
        database: &Database,
        file: &str,
    ) -> Result<()> {
        databases::open(old, database).await?;
        let (from, to) = (self.plan.from.major, self.plan.label.version.major);
        let inside_old = self.from.open_inside(&database.name, from, Patience::WORK).await?;
        databases::make(database, &inside_old, new, &self.to, &self.restorer).await?;
        let dump = self.programs.dump(file);
        self.run_on_old(database, "pg_dump", &["--format=custom", "--compress=1", &format!("--file={dump}")])
            .await?;
        failpoint!("upgrade.dumped");
        self.restore(database, &dump).await?;
        let inside_new = self.to.open_inside(&database.name, to, Patience::WORK).await?;
        databases::give_back(&inside_old, &inside_new, &self.restorer).await?;
        self.grant(database, &dump).await?;
        inside_new.execute(&format!("counting what is in {}", database.name), "ANALYZE").await?;
        std::fs::remove_file(self.programs.dumps.join(file)).map_err(EngineError::io("removing a dump"))
    }

    async fn door(&self, to: &Address, role: &str, password: Option<&str>) -> Result<Relay> {
        let Programs { host, instance, account, .. } = &self.programs;
        let directory = host.layout().instance_runtime(instance);
        super::server::make_directory(host.layout().runtime_dir(), 0o711)?;
        super::server::make_directory(&directory, 0o711)?;
        let home = host.layout().instance(instance);
        super::server::make_directory(home.parent().unwrap_or(&home), 0o700)?;
        super::server::make_directory(&home, 0o711)?;
        let account = host.account_of_programs(*account);
        let relay = Relay::open(host, &to.instance, directory.join("door"), account).await?;
        if let Some(password) = password {
            relay.leave_password(role, password)?;
        }
        Ok(relay)
    }

    async fn run_on_old(&self, database: &Database, program: &'static str, arguments: &[&str]) -> Result<()> {
        let relay = self.door(&self.from, PLATFORM_ROLE, self.programs.host.secret()).await?;
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (role, options) = (PLATFORM_ROLE, PLATFORM_OPTIONS);
        self.programs
            .run(Run { program, arguments, relay: &relay, role, database: &database.name, options })
            .await?;
        Ok(())
    }

    /// Everything, as the property of a role without rights.
    async fn restore(&self, database: &Database, dump: &str) -> Result<()> {
        let relay = self.door(&self.to, &self.restorer, Some(&self.password)).await?;
        let jobs = format!("--jobs={}", (self.plan.spec.cpu_millis / 1000).clamp(1, 8));
        let arguments = ["--exit-on-error", "--no-owner", "--no-privileges", &jobs, dump];
        let run = Run {
            program: "pg_restore",
            arguments: arguments.map(str::to_owned).into(),
            relay: &relay,
            role: &self.restorer,
            database: &database.name,
            options: RESTORER_OPTIONS,
        };
        self.programs.run(run).await?;
        failpoint!("upgrade.filled");
        Ok(())
    }

    /// What is granted, and nothing else of the dump: it evaluates nothing.
    async fn grant(&self, database: &Database, dump: &str) -> Result<()> {
        let relay = self.door(&self.to, PLATFORM_ROLE, self.programs.host.secret()).await?;
        let run = |arguments: Vec<String>| {
            let (program, role, options) = ("pg_restore", PLATFORM_ROLE, PLATFORM_OPTIONS);
            Run { program, arguments, relay: &relay, role, database: &database.name, options }
        };
        let listed = self.programs.list_of(dump, &relay).await?;
        let grants: String =
            listed.lines().filter(|line| is_grant(line)).map(|line| format!("{line}\n")).collect();
        if grants.is_empty() {
            return Ok(());
        }
        relay.leave(LIST, &grants)?;
        let list = format!("--use-list={}", self.programs.list(&relay));
        self.programs.run(run(vec!["--exit-on-error".to_owned(), list, dump.to_owned()])).await?;
        Ok(())
    }
}

/// Whether a line of a list of what is in a dump is of privileges:
/// `3425; 0 16390 ACL public TABLE t app`.
fn is_grant(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_entry =
        words.next().and_then(|word| word.strip_suffix(';')).is_some_and(|id| id.parse::<u32>().is_ok());
    let mut kind = words.skip(2);
    is_entry
        && match kind.next() {
            Some("ACL") => true,
            Some("DEFAULT") => kind.next() == Some("ACL"),
            _ => false,
        }
}

/// What a dump does not have, and its owner has to decide about.
async fn refuse_what_would_be_lost(old: &Session) -> Result<()> {
    if !prepared::all(old).await?.is_empty() {
        let why = "it has prepared transactions (pg_prepared_xacts lists them): COMMIT PREPARED or ROLLBACK PREPARED \
                   them first";
        return Err(EngineError::NotUpgradable(why.to_owned()));
    }
    let query = "SELECT subname FROM pg_catalog.pg_subscription ORDER BY subname LIMIT 1";
    if let Some(row) = old.query_opt("looking for subscriptions", query, &[]).await? {
        let name = said(&row, 0)?;
        return Err(EngineError::NotUpgradable(format!(
            "it has the subscription {name}, which would not find its place again: drop it first"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_told_from_what_is_called_like_them() {
        assert!(is_grant("3425; 0 16390 ACL public TABLE t app"));
        assert!(is_grant("3426; 826 16391 DEFAULT ACL public DEFAULT PRIVILEGES FOR TABLES app"));
        assert!(!is_grant("3427; 1259 16392 TABLE public ACL app"));
        assert!(!is_grant("3428; 2604 16393 DEFAULT public t id"));
        assert!(!is_grant("; 0 16390 ACL public TABLE t app"));
    }
}

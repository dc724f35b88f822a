//! From a data directory to a platform that is ready to take clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use coppice_app::reconciler::ControlPlane;
use coppice_app::{App, AppConfig, MasterKey, Reconciler, Server};
use coppice_archive::{ArchiveError, Connection};
use coppice_core::RegionId;
use coppice_engine::local::durable::write_durably;
use coppice_engine::local::installation::ControlLock;
use coppice_engine::local::process::identity::boot_id;
use coppice_engine::local::volumes::Volumes;
use coppice_engine::local::{HostEngine, LocalEngine, MetastoreAddress};
use coppice_gateway::Sessions;
use coppice_store::{ConnectOptions, Store};

use super::drain::Predecessors;
use super::{LAUNCHER, METASTORE_PATIENCE, gateway, notify};
use crate::chain::chain;
use crate::config::Config;
use crate::secret_key::master_key;

/// How long a start waits for the store.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// The region of a default install.
pub(super) const REGION: &str = "local";

/// Everything a running platform consists of.
pub(super) struct Platform {
    pub(super) app: App,
    pub(super) host: Arc<HostEngine>,
    pub(super) engine: Arc<LocalEngine>,
    pub(super) reconciler: Reconciler,
    pub(super) sessions: Arc<Sessions>,
    pub(super) predecessors: Arc<Predecessors>,
    /// Released when the process ends, whatever ends it, or when a drain begins.
    pub(super) lock: ControlLock,
}

/// Starts everything below the listeners.
pub(super) async fn boot(
    config: &Config,
    api_address: SocketAddr,
    gateway_address: SocketAddr,
    lock: ControlLock,
) -> anyhow::Result<Platform> {
    let data_dir = config.data_dir.clone();
    let host = open_host(config).await?;
    let key = Arc::new(master_key(&data_dir)?);
    let store = connect_metastore(config, &host).await?;

    say!("preparing storage");
    notify::status("preparing storage");
    let (layout, installation) = (host.layout().clone(), host.installation().clone());
    let storage = config.storage.clone();
    let volumes =
        tokio::task::spawn_blocking(move || Volumes::open(&layout, &installation, &storage)).await?;
    let volumes = volumes.map_err(|error| chain(&error))?;
    say!("volumes: {} ({})", volumes.driver(), volumes.driver_reason());
    let archive = open_store(config, &key, &host).await?;
    let engine = Arc::new(LocalEngine::new(host.clone(), volumes).with_store(archive.clone()));

    let installation = host.installation().clone();
    let region = RegionId::from_trusted(REGION);
    let epoch = store.host_start(&installation.host, &region, "local", boot_id()).await?;
    let control_plane =
        ControlPlane { installation: installation.installation, host: installation.host, epoch };
    let reconciler = Reconciler::new(store.clone(), engine.clone(), key.clone(), control_plane.clone());
    let gateway_place = config.public_gateway.place(gateway_address, config.gateway_domain.is_some());
    let public_url = config.public_url.clone().unwrap_or_else(|| format!("http://{api_address}"));
    let server =
        Server { installation: control_plane.installation.clone(), process: coppice_core::id::random_text() };
    let app_config = AppConfig {
        server,
        sign_up: config.auth.sign_in.sign_up,
        outside: config.auth.sign_in.outside.clone(),
        has_passwords: config.auth.sign_in.has_passwords,
        identity: config.auth.identity(&public_url)?,
        region,
        host: control_plane.host,
        public_url,
        gateway: gateway_place,
        gateway_domain: config.gateway_domain.clone(),
        create_wait: config.create_wait,
        user_aliases: config.user_aliases.clone(),
        limits: config.limits,
        trash_keep: config.trash_keep,
        audit_days: config.audit_days,
        mailer: config.mailer.clone(),
        webhook_reach: config.webhook_reach.clone(),
        metrics_interval: config.metrics_interval,
        archive,
        store_interval: config.store_interval,
        drill_every: config.drill_every,
        prices: config.prices.clone(),
        github: config.github.clone(),
        vercel: config.vercel.clone(),
        stripe: config.stripe.clone(),
        orb: config.orb.clone(),
        marketplace: config.marketplace.clone(),
    };
    let sessions = Arc::<Sessions>::default();
    let predecessors = Predecessors::new(host.layout().runtime_dir());
    let clients = gateway::GatewayClients { sessions: sessions.clone(), predecessors: predecessors.clone() };
    let clients = Arc::new(clients);
    let app = App::new(store, engine.clone(), reconciler.clone(), key, clients, app_config);
    app.credentials.spread_kept().await?;
    app.orb.set_up().await?;
    if let Err(error) = engine.end_drill().await {
        tracing::warn!("removing what a drill left: {}", error.chain());
    }
    reconciler.adopt().await?;
    Ok(Platform { app, host, engine, reconciler, sessions, predecessors, lock })
}

/// Opens the store, if one is set.
async fn open_store(
    config: &Config,
    key: &MasterKey,
    host: &HostEngine,
) -> anyhow::Result<Option<Arc<Connection>>> {
    let Some(place) = config.store.clone() else { return Ok(None) };
    say!("store: {place}");
    let store = Connection::new(place, key.archive_key(), host.installation().installation.clone());
    look_at_store(&store, &config.data_dir.join("store.used")).await?;
    Ok(Some(Arc::new(store)))
}

/// Looks whether a store can be used. One that was set by mistake, and was never used (`used` names the last one that
/// was), is an error; any other is waited for beside everything else, whatever is wrong with it. Who can write to it
/// must not be able to keep everybody's branches from starting.
async fn look_at_store(store: &Connection, used: &Path) -> anyhow::Result<()> {
    let place = store.to_string();
    match tokio::time::timeout(STORE_PATIENCE, store.archive()).await {
        Ok(Ok(_)) => write_durably(used, place.as_bytes(), 0o600).map_err(|error| chain(&error))?,
        Ok(Err(error)) => {
            let is_mistake = matches!(
                error,
                ArchiveError::Place(_)
                    | ArchiveError::File { .. }
                    | ArchiveError::NoStore
                    | ArchiveError::WrongKey(_)
                    | ArchiveError::UnknownFormat(_)
                    | ArchiveError::OtherInstallation(_)
            );
            let was_used = std::fs::read(used).is_ok_and(|last| last == place.as_bytes());
            if is_mistake && !was_used {
                bail!("{}", error.chain());
            }
            tracing::warn!("nothing is backed up until the store can be used: {}", error.chain());
        }
        Err(_) => tracing::warn!("nothing is backed up until the store answers: it has not yet"),
    }
    Ok(())
}

/// Opens the machine's engine; copies new PostgreSQL installations.
async fn open_host(config: &Config) -> anyhow::Result<Arc<HostEngine>> {
    say!("looking for PostgreSQL");
    notify::status("looking for PostgreSQL");
    let (data_dir, postgres_dirs) = (config.data_dir.clone(), config.postgres_dirs.clone());
    let opened =
        tokio::task::spawn_blocking(move || HostEngine::open(&data_dir, LAUNCHER.into(), &postgres_dirs))
            .await?;
    let host = opened.map_err(|error| chain(&error))?;
    let versions: Vec<_> = host.installed_images().iter().map(|image| image.version.to_string()).collect();
    say!("PostgreSQL: {}", versions.join(", "));
    Ok(Arc::new(host))
}

/// How to connect to the embedded metastore.
pub(crate) fn metastore_options(address: &MetastoreAddress) -> ConnectOptions {
    let options = ConnectOptions::new_without_pgpass()
        .socket(&address.socket_directory)
        .username(&address.user)
        .database(&address.database);
    match &address.password {
        Some(password) => options.password(password),
        None => options,
    }
}

/// Connects to the metastore, embedded or not, and makes sure that it is the
/// one this data directory belongs to.
async fn connect_metastore(config: &Config, host: &HostEngine) -> anyhow::Result<Store> {
    let options = match &config.metastore_url {
        Some(url) => url.parse::<ConnectOptions>().context("understanding the metastore's URL")?,
        None => {
            say!("starting the metastore");
            notify::status("starting the metastore");
            let address = host.start_metastore().await.map_err(|error| chain(&error))?;
            metastore_options(&address)
        }
    };
    let store = Store::connect(options, METASTORE_PATIENCE).await.context("connecting to the metastore")?;
    let exports = crate::config::exports(host.layout().data_dir());
    if let Some(path) = store.migrate_after_export(&exports).await? {
        say!("the metastore as it was before its migration: {}", path.display());
    }
    // Written once this data directory has a metastore; from then on an empty
    // one is a lost one.
    let bound = host.layout().data_dir().join("metastore.bound");
    let own = &host.installation().installation;
    let found = store.installation_ensure(own, !bound.exists()).await?;
    match found {
        Some(found) if found == *own => {}
        Some(found) => bail!(
            "the metastore belongs to installation {found}, this data directory to {own}: \
             start with the metastore that belongs to it (nothing was changed)"
        ),
        None => bail!(
            "the metastore is empty, but {} has data of installation {own}: restore the metastore \
             (nothing was changed)",
            config.data_dir.display()
        ),
    }
    write_durably(&bound, own.as_str().as_bytes(), 0o600).map_err(|error| chain(&error))?;
    Ok(store)
}

#[cfg(test)]
mod tests {
    use coppice_archive::{ArchiveKey, StorePlace};
    use coppice_core::InstallationId;
    use zeroize::Zeroizing;

    use super::*;

    #[tokio::test]
    async fn what_is_wrong_with_a_store_that_was_used_keeps_no_platform_from_starting() {
        let directory = tempfile::tempdir().expect("a directory");
        let (place, used) = (directory.path().join("store"), directory.path().join("store.used"));
        let look = async |key: u8| {
            let place = StorePlace::Directory(place.clone());
            let key = ArchiveKey::new(Zeroizing::new([key; 32]));
            look_at_store(&Connection::new(place, key, InstallationId::from_trusted("ins_1")), &used).await
        };
        look(1).await.expect("it is new");
        let other = look(2).await.map(drop);
        other.expect("an operator may want the branches first");
        let forged = place.join("owner").join(format!("{}-aa", u64::MAX));
        std::fs::write(&forged, "").expect("written");
        look(1).await.expect("whoever can write there keeps nothing from starting");
        std::fs::write(place.join("coppice.json"), "junk").expect("written");
        look(1).await.expect("nor by that");
        std::fs::remove_file(&used).expect("removed");
        look(1).await.expect("also where it was never used: it is no mistake of the operator's");
        std::fs::remove_file(&forged).expect("removed");
        std::fs::remove_file(place.join("coppice.json")).expect("removed");
        look(1).await.expect("it is made anew");
        std::fs::remove_file(&used).expect("removed");
        let refused = look(2).await.expect_err("a mistake").to_string();
        assert!(refused.contains("another key"), "{refused}");
    }
}

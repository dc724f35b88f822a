//! The embedded metastore: a small server of the platform's own, run with the
//! same code as those of branches, outside the pool.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coppice_core::InstanceId;
use coppice_core::image::PostgresVersion;
use coppice_core::storage::Fullness;
use coppice_failpoint::failpoint;

use super::config::processes_max;
use super::durable::write_durably;
use super::installation::Installation;
use super::layout::Layout;
use super::process::controllers::Limits;
use super::server::{ServerPlan, make_directory};
use super::template::{Contents, make_cluster};
use super::untrusted::{self, UntrustedPath};
use super::{HostEngine, session};
use crate::{EngineError, Result, StopMode};

/// Its server's name among the instances.
pub(super) const METASTORE: &str = "metastore";
/// Number of its account; volumes count from 1 and stay below.
const ACCOUNT: u32 = 65_400;
/// Pause before a metastore that did not start is tried again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Kept on disk so that there is room to delete things when a disk is full.
const BALLAST_BYTES: u64 = 64 << 20;

/// How to reach the metastore.
#[derive(Clone)]
pub struct MetastoreAddress {
    /// Directory of its socket.
    pub socket_directory: PathBuf,
    /// Its role.
    pub user: String,
    /// Its password, where the account of this process is not enough.
    pub password: Option<String>,
    /// Its database.
    pub database: String,
    /// Whether it was made by this call, so that it can hold nothing yet.
    pub is_new: bool,
}

impl HostEngine {
    /// Starts the metastore, or finds it running.
    ///
    /// # Errors
    /// When its PostgreSQL major version is missing, or it does not start.
    pub async fn start_metastore(&self) -> Result<MetastoreAddress> {
        let home = self.layout().metastore();
        make_directory(&home, 0o711)?;
        let version_file = home.join("version");
        let major: Option<u32> =
            fs::read_to_string(&version_file).ok().and_then(|text| text.trim().parse().ok());
        let image = self.metastore_image(major)?;
        let instance = InstanceId::from_trusted(METASTORE);
        let data = self.metastore_data();
        let is_new = !self.has_metastore();
        if is_new {
            let staging = UntrustedPath::new(&home, "data.new");
            // Left by a start that was interrupted; never held anything.
            untrusted::delete_tree(staging.host_path())
                .map_err(EngineError::io("removing a half-made metastore"))?;
            make_directory(staging.host_path(), 0o700)?;
            self.give_to_storage(staging.host_path())?;
            let verifier = self.platform_password();
            make_cluster(
                &self.servers,
                &image,
                &instance,
                ACCOUNT,
                &staging,
                Contents::Metastore,
                verifier.as_deref(),
            )
            .await?;
            write_durably(&version_file, image.version.major.to_string().as_bytes(), 0o600)?;
            failpoint!("metastore.made");
            let directory =
                fs::File::open(staging.host_path()).map_err(EngineError::io("opening the new metastore"))?;
            rustix::fs::syncfs(&directory).map_err(EngineError::io("flushing the new metastore"))?;
            fs::rename(staging.host_path(), data.host_path())
                .map_err(EngineError::io("putting the metastore in place"))?;
            failpoint!("metastore.in_place");
        }
        self.tend_ballast();
        let settings = [("max_connections", "100"), ("shared_buffers", "32MB"), ("max_wal_size", "256MB")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let limits = Limits {
            cpu_millis: self.capacity_cpu_millis(),
            cpu_weight: 1000,
            memory_bytes: 1 << 30,
            processes_max: processes_max(&settings),
        };
        let plan = ServerPlan {
            instance: &instance,
            image: &image,
            data: &data,
            account: ACCOUNT,
            limits,
            storage_bytes: None,
            fullness: Fullness::Fine,
            settings: &settings,
            preload_libraries: &[],
            is_first_start: false,
            follows: None,
        };
        self.servers.start(&plan).await?;
        Ok(MetastoreAddress {
            socket_directory: self.layout().instance_socket(&instance).host_path().to_owned(),
            user: session::PLATFORM_ROLE.to_owned(),
            password: self.secret().map(str::to_owned),
            database: "coppice".to_owned(),
            is_new,
        })
    }

    fn metastore_data(&self) -> UntrustedPath {
        UntrustedPath::new(&self.layout().metastore(), "data")
    }

    /// Whether an embedded metastore was made here.
    pub fn has_metastore(&self) -> bool {
        self.metastore_data().host_path().exists()
    }

    /// Where the metastore of `data_dir` answers while it runs, also for those
    /// who do not hold the control lock; changes nothing.
    ///
    /// # Errors
    /// When there is no installation in `data_dir`, or it can't be read.
    pub fn metastore_address(data_dir: &Path) -> Result<MetastoreAddress> {
        if !data_dir.join("installation.json").exists() {
            return Err(EngineError::Other(format!("there is no coppice in {}", data_dir.display())));
        }
        let layout = Layout::new(data_dir, &Installation::ensure(data_dir)?.key(data_dir));
        layout.check_runtime()?;
        let password = match rustix::process::geteuid().is_root() {
            true => None,
            false => Some(
                fs::read_to_string(data_dir.join("platform.secret"))
                    .map_err(EngineError::io("reading the platform's secret"))?,
            ),
        };
        Ok(MetastoreAddress {
            socket_directory: layout
                .instance_socket(&InstanceId::from_trusted(METASTORE))
                .host_path()
                .to_owned(),
            user: session::PLATFORM_ROLE.to_owned(),
            password,
            database: "coppice".to_owned(),
            is_new: false,
        })
    }

    /// Starts the metastore again whenever its server ends, for ever. To be
    /// dropped before [`HostEngine::stop_metastore`].
    pub async fn keep_metastore(&self) {
        let instance = InstanceId::from_trusted(METASTORE);
        loop {
            self.servers.wait_exit(&instance).await;
            tracing::error!("the metastore's server ended: starting it again");
            if let Err(error) = self.start_metastore().await {
                tracing::error!("the metastore can't be started: {}", error.chain());
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
    }

    /// Whether the metastore's server runs.
    pub fn metastore_is_running(&self) -> bool {
        self.servers.living(&InstanceId::from_trusted(METASTORE)).is_some()
    }

    /// Stops the metastore; its data stays.
    ///
    /// # Errors
    /// When its processes do not end.
    pub async fn stop_metastore(&self) -> Result<()> {
        let instance = InstanceId::from_trusted(METASTORE);
        let data = self.metastore_data();
        self.servers.stop(&instance, Some(&data), StopMode::Fast).await
    }

    fn metastore_image(&self, major: Option<u32>) -> Result<super::images::InstalledImage> {
        let wanted = |version: &PostgresVersion| major.is_none_or(|major| version.major == major);
        let found = self.installed_images().into_iter().rev().find(|image| wanted(&image.version));
        found.ok_or_else(|| {
            EngineError::Other(match major {
                Some(major) => format!(
                    "the metastore was made with PostgreSQL {major}, which is not installed: install it and start again"
                ),
                None => "no PostgreSQL is installed: install one (Debian: apt install postgresql) or name its \
                         directory in COPPICE_POSTGRES_DIRS"
                    .to_owned(),
            })
        })
    }

    fn ballast(&self) -> PathBuf {
        self.layout().metastore().join("ballast")
    }

    /// Makes the disk reserve unless it is there.
    fn ensure_ballast(&self) -> Result<()> {
        let path = self.ballast();
        if path.exists() {
            return Ok(());
        }
        let file = fs::File::create(&path).map_err(EngineError::io("making the disk reserve"))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BALLAST_BYTES).map_err(|error| {
            let _ = fs::remove_file(&path);
            EngineError::io("filling the disk reserve")(error)
        })
    }

    /// Gives the disk reserve back to a disk that is full, so that deletions
    /// still work, and makes it again when there is room; to be called now and
    /// then.
    pub fn tend_ballast(&self) {
        let Ok(disk) = rustix::fs::statvfs(self.layout().metastore()) else { return };
        let free_bytes = disk.f_bavail * disk.f_frsize;
        let is_there = self.ballast().exists();
        if is_there && free_bytes < BALLAST_BYTES / 4 {
            tracing::error!("the disk of the metastore is full: released its reserve; delete something");
            let _ = fs::remove_file(self.ballast());
        } else if !is_there && free_bytes > BALLAST_BYTES * 8 {
            let _ = self.ensure_ballast();
        }
    }
}

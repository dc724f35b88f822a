//! What surrounds a server: its files, its directories, and what it may touch.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use coppice_core::InstanceId;

use super::blocking::blocking;
use super::config::{Configuration, ServerPaths};
use super::logs::{self, LogEnd};
use super::process::launch::{BindMount, FileAccess, Isolation, LaunchSpec};
use super::server::{ServerPlan, Servers, make_directory};
use crate::{EngineError, Result};

/// Where a program finds its directories, and what takes them there.
pub(super) struct Surroundings {
    pub(super) data: PathBuf,
    pub(super) image: PathBuf,
    configuration: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    isolation: Option<Isolation>,
}

impl Servers {
    /// Writes the configuration files.
    pub(super) fn configure(&self, plan: &ServerPlan<'_>) -> Result<()> {
        let directory = self.layout.instance(plan.instance).join("conf");
        let configuration = self.configuration(plan);
        let files = [
            ("postgresql.conf", configuration.file()),
            ("pg_hba.conf", configuration.access_file()),
            ("pg_ident.conf", "platform root platform\n".to_owned()),
        ];
        for (name, text) in files {
            let path = directory.join(name);
            // Made anew before every start, so a crash that tears it costs nothing.
            fs::write(&path, text).map_err(EngineError::io(format!("writing {}", path.display())))?;
        }
        Ok(())
    }

    fn configuration<'a>(&self, plan: &ServerPlan<'a>) -> Configuration<'a> {
        Configuration {
            major: plan.image.version.major,
            settings: plan.settings,
            preload_libraries: plan.preload_libraries,
            is_first_start: plan.is_first_start,
            storage_bytes: plan.storage_bytes,
            fullness: plan.fullness,
            trusts_root: self.is_root,
        }
    }

    /// Makes directories and files around a server.
    pub(super) fn prepare(&self, plan: &ServerPlan<'_>) -> Result<Surroundings> {
        let home = self.layout.instance(plan.instance);
        let runtime = self.layout.instance_runtime(plan.instance);
        make_directory(home.parent().unwrap_or(&home), 0o700)?;
        make_directory(&home, 0o711)?;
        make_directory(&home.join("conf"), 0o755)?;
        make_directory(&home.join("log"), 0o700)?;
        make_directory(runtime.ancestors().nth(2).unwrap_or(&runtime), 0o711)?;
        make_directory(self.layout.runtime_dir(), 0o711)?;
        make_directory(&runtime, 0o711)?;
        make_directory(&runtime.join("socket"), 0o700)?;
        self.configure(plan)?;
        let socket = runtime.join("socket");
        if !self.is_root {
            return Ok(Surroundings {
                data: plan.data.host_path().to_owned(),
                image: plan.image.root.clone(),
                configuration: home.join("conf"),
                log: home.join("log"),
                socket,
                isolation: None,
            });
        }
        let account = self.installation.instance_account(plan.account);
        for owned in [&home.join("log"), &socket] {
            chown(owned, Some(account), Some(account)).map_err(EngineError::io("giving a directory away"))?;
        }
        let passwd = runtime.join("passwd");
        let names = format!("root:x:0:0::/:/bin/false\npostgres:x:{account}:{account}::/:/bin/false\n");
        fs::write(&passwd, names).map_err(EngineError::io("writing the account's name"))?;
        fs::set_permissions(&passwd, fs::Permissions::from_mode(0o644))
            .map_err(EngineError::io("writing the account's name"))?;
        let mount = |name: &str, from: &Path, owner_on_disk, is_read_only| -> Result<BindMount> {
            make_directory(&runtime.join(name), 0o711)?;
            Ok(BindMount { from: from.to_owned(), to: runtime.join(name), owner_on_disk, is_read_only })
        };
        let mounts = vec![
            mount("image", &plan.image.root, None, true)?,
            mount("conf", &home.join("conf"), None, true)?,
            mount("log", &home.join("log"), None, false)?,
            mount("data", plan.data.host_path(), Some(self.installation.storage_account()), false)?,
        ];
        Ok(Surroundings {
            data: runtime.join("data"),
            image: runtime.join("image"),
            configuration: runtime.join("conf"),
            log: runtime.join("log"),
            socket,
            isolation: Some(Isolation { account, mounts, passwd }),
        })
    }

    pub(super) fn launch_spec(&self, plan: &ServerPlan<'_>, around: &Surroundings) -> Result<LaunchSpec> {
        let paths = ServerPaths {
            data: &around.data,
            configuration: &around.configuration,
            log: &around.log,
            socket: &around.socket,
        };
        let cgroup = self.leaf(plan.instance).map(|leaf| leaf.ensure(&plan.limits)).transpose()?;
        let system = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let mut execute = system(&["/usr/lib", "/usr/lib64", "/lib", "/lib64"]);
        execute.push(around.image.clone());
        let mut read = system(&["/etc", "/usr/share", "/proc", "/dev/urandom", "/dev/random", "/dev/zero"]);
        read.push(around.configuration.clone());
        let mut write = system(&["/dev/null", "/dev/shm"]);
        write.extend([&around.data, &around.log, &around.socket].map(Clone::clone));
        let environment = [("LC_ALL", "C"), ("TZ", "UTC"), ("PGTZ", "UTC"), ("PATH", "/usr/bin:/bin")];
        Ok(LaunchSpec {
            program: plan.image.program(&around.image, "postgres"),
            arguments: self.configuration(plan).arguments(&paths),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            input: None,
            cgroup,
            isolation: around.isolation.clone(),
            access: FileAccess { execute, read, write },
        })
    }

    pub(super) fn start_log_path(&self, instance: &InstanceId) -> PathBuf {
        self.layout.instance(instance).join("start.log")
    }

    pub(super) fn start_log(&self, instance: &InstanceId) -> Result<File> {
        let path = self.start_log_path(instance);
        OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(EngineError::io(format!("opening {}", path.display())))
    }

    /// The most telling line a server wrote before it ended, where its log had
    /// this end before it was started.
    pub(super) async fn last_words(&self, instance: &InstanceId, written_before: Option<LogEnd>) -> String {
        let (start_log, logs) = (self.start_log_path(instance), self.layout.instance_logs(instance));
        let read = blocking(move || {
            Ok(logs::tail(&start_log) + &logs::written_since(&logs, written_before.as_ref()))
        });
        logs::most_telling(&read.await.unwrap_or_default())
    }
}

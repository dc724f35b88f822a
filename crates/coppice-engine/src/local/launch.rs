//! What surrounds a server: its files, its directories, and what it may touch.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use coppice_core::InstanceId;

use super::blocking::blocking;
use super::config::{Configuration, ServerPaths};
use super::durable::write_durably;
use super::images::InstalledImage;
use super::log_files::NAMES_MAX;
use super::log_pipe::LogPipe;
use super::logs::{self, LogEnd};
use super::metastore::METASTORE;
use super::process::cgroup::Membership;
use super::process::identity::ProcessIdentity;
use super::process::launch::{BindMount, FileAccess, Isolation, LaunchSpec, MountUse, Neighbour};
use super::server::{ServerPlan, Servers, make_directory};
use super::untrusted;
use crate::{EngineError, Result};

/// Where an isolated server finds its directories: the same for all, so that
/// its arguments, which every account of the machine can see, name no branch.
pub(super) const DATA: &str = "/data";
const IMAGE: &str = "/image";
const CONFIGURATION: &str = "/conf";
const LOG: &str = "/log";
const SOCKET: &str = "/socket";
const PRIMARY: &str = "/primary";
/// Where a server that follows another one has its password, beside its settings.
const PASSWORD_FILE: &str = "password";

/// What the kernel runs to run a program, by the C libraries and machines that
/// there are (ld.so(8)).
const LOADERS: [&str; 4] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// What the C library, OpenSSL and PostgreSQL read of the system.
const SYSTEM: [&str; 15] = [
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/share/zoneinfo",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/openssl.cnf",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
];

/// The environment of every program.
const ENVIRONMENT: [(&str, &str); 4] =
    [("LC_ALL", "C"), ("TZ", "UTC"), ("PGTZ", "UTC"), ("PATH", "/usr/bin:/bin")];

/// Where a program finds its directories, and what takes them there.
pub(super) struct Surroundings {
    pub(super) data: PathBuf,
    pub(super) image: PathBuf,
    configuration: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    /// The directory of the socket of the server that it follows.
    primary: PathBuf,
    isolation: Option<Isolation>,
}

/// A program of an image that is no server, and what it may use.
pub(super) struct ProgramPlan<'a> {
    pub(super) image: &'a InstalledImage,
    pub(super) program: &'a str,
    /// As it sees its directories.
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// A file of the host for its standard input.
    pub(super) input: Option<PathBuf>,
    /// The account that runs it, whom what it writes to belongs to; none where this
    /// process is not root.
    pub(super) account: Option<u32>,
    pub(super) cgroup: Option<Membership>,
    /// Directories of the host, where it finds them, and what for.
    pub(super) directories: Vec<(&'a Path, &'a str, ProgramUse)>,
}

/// What a program does with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramUse {
    /// It reads files.
    Read,
    /// It writes files.
    WriteFiles,
    /// It writes files, and makes directories.
    Write,
}

/// Where a program finds a directory of the host: in `isolated`, if it has a root
/// directory of its own.
pub(super) fn place_of(account: Option<u32>, directory: &Path, isolated: &str) -> PathBuf {
    account.map_or_else(|| directory.to_owned(), |_| isolated.into())
}

/// What starts a program that is no server, confined as they are.
pub(super) fn program_spec(plan: ProgramPlan<'_>) -> LaunchSpec {
    let image = place_of(plan.account, &plan.image.root, IMAGE);
    let program = plan.image.program(&image, plan.program);
    let mut execute: Vec<PathBuf> = LOADERS.iter().map(PathBuf::from).collect();
    execute.push(program.clone());
    let mut access = FileAccess { execute, ..FileAccess::default() };
    access.read.extend(SYSTEM.iter().map(PathBuf::from).chain([image]));
    access.write_files.push("/dev/null".into());
    let mut mounts = vec![BindMount {
        from: plan.image.root.clone(),
        to: IMAGE.into(),
        owner_on_disk: None,
        usage: MountUse::Code,
    }];
    for (directory, place, usage) in plan.directories {
        let (rights, usage) = match usage {
            ProgramUse::Read => (&mut access.read, MountUse::Read),
            ProgramUse::WriteFiles => (&mut access.write_files, MountUse::Write),
            ProgramUse::Write => (&mut access.write, MountUse::Write),
        };
        rights.push(place_of(plan.account, directory, place));
        mounts.push(BindMount { from: directory.to_owned(), to: place.into(), owner_on_disk: None, usage });
    }
    let environment = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (cgroup, joined) = birth_and_joined(plan.cgroup);
    LaunchSpec {
        program,
        arguments: plan.arguments,
        environment: environment.into_iter().chain(plan.environment).collect(),
        input: plan.input,
        cgroup,
        joined,
        goes_first: true,
        isolation: plan.account.map(|account| Isolation { account, mounts, socket: None, neighbour: None }),
        access,
        starts_programs: false,
    }
}

/// Where a program is born, if it has cgroups, and what it joins.
fn birth_and_joined(cgroups: Option<Membership>) -> (Option<PathBuf>, Vec<PathBuf>) {
    cgroups.map(|cgroups| (Some(cgroups.birth), cgroups.joined)).unwrap_or_default()
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
            follows: plan.follows.map(|following| following.name.as_str()),
            trusts_root: self.is_root,
        }
    }

    /// Makes directories and files around a server.
    pub(super) async fn prepare(&self, plan: &ServerPlan<'_>) -> Result<Surroundings> {
        let home = self.layout.instance(plan.instance);
        let runtime = self.layout.instance_runtime(plan.instance);
        make_directory(home.parent().unwrap_or(&home), 0o700)?;
        make_directory(&home, 0o711)?;
        make_directory(&home.join("conf"), 0o755)?;
        make_directory(&home.join("log"), 0o700)?;
        make_directory(runtime.ancestors().nth(2).unwrap_or(&runtime), 0o711)?;
        make_directory(self.layout.runtime_dir(), 0o711)?;
        make_directory(&runtime, 0o711)?;
        let socket = runtime.join("socket");
        // A link to where the last server had it.
        let old = socket.clone();
        blocking(move || untrusted::delete_tree(&old).map_err(EngineError::io("removing an old socket")))
            .await?;
        if !self.has_own_socket_directory(plan.instance) {
            make_directory(&socket, 0o700)?;
        }
        self.configure(plan)?;
        let primary = plan.follows.map(|one| one.socket.host_path().to_owned()).unwrap_or_default();
        let door = plan.follows.and_then(|following| following.door.as_ref().zip(Some(&following.name)));
        if let Some((door, name)) = door {
            let line = format!("*:*:*:{name}:{}\n", door.password);
            let path = home.join("conf").join(PASSWORD_FILE);
            write_durably(&path, line.as_bytes(), 0o600)?;
            if self.is_root {
                let account = self.installation.instance_account(plan.account);
                chown(&path, Some(account), Some(account))
                    .map_err(EngineError::io("giving a password to its server"))?;
            }
        }
        if !self.is_root {
            return Ok(Surroundings {
                primary,
                data: plan.data.host_path().to_owned(),
                image: plan.image.root.clone(),
                configuration: home.join("conf"),
                log: home.join("log"),
                socket,
                isolation: None,
            });
        }
        let account = self.installation.instance_account(plan.account);
        let on_host = (!self.has_own_socket_directory(plan.instance)).then_some(&socket);
        self.give_logs(plan.instance, account).await?;
        if let Some(socket) = on_host {
            chown(socket, Some(account), Some(account))
                .map_err(EngineError::io("giving a directory away"))?;
        }
        let mount = |from: &Path, to: &str, owner_on_disk, usage| BindMount {
            from: from.to_owned(),
            to: PathBuf::from(to),
            owner_on_disk,
            usage,
        };
        let mut mounts = vec![
            mount(&plan.image.root, IMAGE, None, MountUse::Code),
            mount(&home.join("conf"), CONFIGURATION, None, MountUse::Read),
            mount(&home.join("log"), LOG, None, MountUse::Write),
            mount(plan.data.host_path(), DATA, Some(self.installation.storage_account()), MountUse::Write),
        ];
        mounts.extend(on_host.map(|socket| mount(socket, SOCKET, None, MountUse::Write)));
        let own_socket = on_host.is_none().then(|| SOCKET.into());
        let neighbour = door.and_then(|(door, _)| door.neighbour.clone()).map(|neighbour| Neighbour {
            from: SOCKET.into(),
            to: PRIMARY.into(),
            ..neighbour
        });
        Ok(Surroundings {
            primary: PRIMARY.into(),
            data: DATA.into(),
            image: IMAGE.into(),
            configuration: CONFIGURATION.into(),
            log: LOG.into(),
            socket: SOCKET.into(),
            isolation: Some(Isolation { account, mounts, socket: own_socket, neighbour }),
        })
    }

    /// Gives the logs to the account of its server, with the files in them where they were
    /// another one's: two that begin in the same second write to the same file.
    async fn give_logs(&self, instance: &InstanceId, account: u32) -> Result<()> {
        let logs = self.layout.instance_logs(instance);
        blocking(move || {
            let give = || {
                let directory = logs.require()?;
                match directory.owner()? == account {
                    true => Ok(()),
                    false => directory.give_to(account, NAMES_MAX),
                }
            };
            give().map_err(EngineError::io("giving logs to a server"))
        })
        .await
    }

    pub(super) async fn launch_spec(
        &self,
        plan: &ServerPlan<'_>,
        around: &Surroundings,
    ) -> Result<LaunchSpec> {
        let paths = ServerPaths {
            data: &around.data,
            configuration: &around.configuration,
            log: &around.log,
            socket: &around.socket,
            primary: &around.primary,
            password: &around.configuration.join(PASSWORD_FILE),
        };
        let (leaf, limits) = (self.leaf(plan.instance), plan.limits);
        let cgroup = blocking(move || leaf.map(|leaf| leaf.ensure(&limits)).transpose()).await?;
        let (cgroup, joined) = birth_and_joined(cgroup);
        let program = plan.image.program(&around.image, "postgres");
        let system = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let mut execute = system(&LOADERS);
        execute.push(program.clone());
        let mut read = system(&SYSTEM);
        read.extend([&around.image, &around.configuration].map(Clone::clone));
        if around.isolation.is_some() {
            // Its own; elsewhere it shows everybody's processes.
            read.push("/proc".into());
        }
        let mut write = system(&["/dev/null"]);
        write.push(around.data.clone());
        let mut write_files = system(&["/dev/shm"]);
        write_files.extend([&around.log, &around.socket].map(Clone::clone));
        Ok(LaunchSpec {
            program,
            arguments: self.configuration(plan).arguments(&paths),
            environment: ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            input: None,
            cgroup,
            joined,
            goes_first: plan.instance.as_str() != METASTORE,
            isolation: around.isolation.clone(),
            access: FileAccess { execute, read, write, write_files },
            starts_programs: false,
        })
    }

    /// The same for `initdb`, which runs `postgres` and `locale` through a shell.
    pub(super) fn let_start_programs(spec: &mut LaunchSpec, around: &Surroundings) {
        spec.starts_programs = true;
        spec.access.execute.extend(["/usr/bin", "/bin"].map(PathBuf::from));
        spec.access.execute.push(around.image.clone());
    }

    /// Whether a server has the directory of its socket in memory of its own.
    /// The metastore is no tenant's, and its socket is where people look for it.
    fn has_own_socket_directory(&self, instance: &InstanceId) -> bool {
        self.is_root && instance.as_str() != METASTORE
    }

    /// Shows where the socket of a server that was just started is: in its own
    /// root directory, which is there for as long as it lives.
    pub(super) fn show_socket(&self, instance: &InstanceId, server: &ProcessIdentity) -> Result<()> {
        if !self.has_own_socket_directory(instance) {
            return Ok(());
        }
        let place = self.layout.instance_socket(instance);
        symlink(format!("/proc/{}/root{SOCKET}", server.pid), place.host_path())
            .map_err(EngineError::io("showing where a socket is"))
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
    /// this end before it was started; `pipe` leads to its logger, if it had one.
    pub(super) async fn last_words(
        &self,
        instance: &InstanceId,
        written_before: Option<LogEnd>,
        pipe: Option<LogPipe>,
    ) -> String {
        let (start_log, logs) = (self.start_log_path(instance), self.layout.instance_logs(instance));
        let read = blocking(move || {
            if let Some(pipe) = pipe {
                logs::complete(&logs, pipe);
            }
            Ok(logs::tail(&start_log) + &logs::written_since(&logs, written_before.as_ref()))
        });
        logs::most_telling(&read.await.unwrap_or_default())
    }
}

//! Running the executable.

mod branches;

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::directory::PlatformDirectory;
use crate::fresh::Fresh;
use crate::{ApiClient, Leftovers, Signal, signal, wait_for};

/// How long a platform may take to be ready; making templates is part of it.
const READY_PATIENCE: Duration = Duration::from_secs(120);

/// How long the kernel may take to let go of a detached pool.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// How to start a platform.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further flags of `serve`.
    pub flags: Vec<String>,
    /// Further environment.
    pub environment: Vec<(String, String)>,
    /// Use this data directory, which somebody else removes.
    pub data_dir: Option<PathBuf>,
    /// Begin with nothing, as at the very first start, instead of with what `initdb` made once for
    /// all platforms of this program.
    pub begins_with_nothing: bool,
}

/// A platform. Dropping it removes everything it made.
pub struct Platform {
    program: PathBuf,
    options: Options,
    data_dir: PathBuf,
    child: Option<Child>,
    /// Processes whose place another one took; they end with their sessions.
    earlier: Vec<Child>,
    take_overs: u32,
    api: String,
    gateway: (String, u16),
    settings: HashMap<String, String>,
    _directory: Option<PlatformDirectory>,
}

impl Platform {
    /// Starts a platform and waits until it is ready.
    pub fn start(program: &str, options: Options) -> Self {
        let mut platform = Self::prepare(program, options);
        platform.spawn();
        platform.wait_ready();
        platform
    }

    /// A platform that is not started yet.
    pub fn prepare(program: &str, options: Options) -> Self {
        let directory = options.data_dir.is_none().then(PlatformDirectory::new);
        let data_dir = match (&options.data_dir, &directory) {
            (Some(dir), _) => dir.clone(),
            (None, Some(directory)) => directory.path().join("data"),
            (None, None) => unreachable!("one of both is there"),
        };
        if directory.is_some() && !options.begins_with_nothing {
            Fresh::of(program, &options.environment).copy_to(&data_dir);
        }
        Self {
            program: program.into(),
            options,
            data_dir,
            child: None,
            earlier: vec![],
            take_overs: 0,
            api: String::new(),
            gateway: (String::new(), 0),
            settings: HashMap::new(),
            _directory: directory,
        }
    }

    /// Where its data is.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    fn log_path(&self) -> PathBuf {
        self.data_dir.with_extension(format!("{}.log", self.take_overs))
    }

    /// What it printed since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Flags of `serve` that a test has not chosen itself.
    fn default_flags(&self) -> Vec<&'static str> {
        let defaults = [
            ("--listen", "127.0.0.1:0"),
            ("--gateway-listen", "127.0.0.1:0"),
            ("--pool-size-gib", "1"),
            ("--host-reserve-gib", "1"),
            // Templates of versions that no story asks for take longer than most stories.
            ("--prepare", "18"),
            // A busy machine takes its time; stories go on with a branch that is ready.
            ("--branch-create-wait", "25"),
        ];
        let is_chosen = |name: &str| self.options.flags.iter().any(|flag| flag == name);
        defaults
            .into_iter()
            .filter(|(name, _)| !is_chosen(name))
            .flat_map(|(name, value)| [name, value])
            .collect()
    }

    /// Starts the control plane without waiting for it.
    pub fn spawn(&mut self) {
        self.child = Some(self.launch(&[]));
    }

    fn launch(&self, more: &[&str]) -> Child {
        let log = File::create(self.log_path()).expect("a log file");
        Command::new(&self.program)
            .arg("serve")
            .args(self.default_flags())
            .args(&self.options.flags)
            .args(more)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .envs(self.options.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second descriptor"))
            .stderr(log)
            .spawn()
            .expect("the executable starts")
    }

    /// Starts another process in the place of the running one, as an upgrade
    /// does, and waits until it is ready. The earlier one goes on until its
    /// sessions have ended.
    pub fn take_over(&mut self) {
        self.earlier.extend(self.child.take());
        self.take_overs += 1;
        self.child = Some(self.launch(&["--take-over"]));
        self.wait_ready();
    }

    /// Waits for the end of the process whose place was taken last; returns its
    /// exit code.
    pub fn wait_for_earlier(&mut self) -> Option<i32> {
        let mut earlier = self.earlier.pop()?;
        let ended = || earlier.try_wait().expect("a child");
        wait_for("the earlier process ends", READY_PATIENCE, ended).code()
    }

    /// The pid of the control plane.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Changes the environment of the next start.
    pub fn set_environment(&mut self, environment: &[(&str, &str)]) {
        self.options.environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    }

    /// Adds flags for the next start.
    pub fn add_flags(&mut self, flags: &[&str]) {
        self.options.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// Waits until it is ready; panics with its log when it ends before.
    pub fn wait_ready(&mut self) {
        let is_ready = wait_for("the platform is ready", READY_PATIENCE, || {
            if self.log().contains("coppice is ready") {
                return Some(true);
            }
            self.has_ended().then_some(false)
        });
        assert!(is_ready, "the platform ended:\n{}", self.log());
        let record = fs::read(self.data_dir.join("serve.json")).expect("a record of the running server");
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        let text = |name: &str| record[name].as_str().expect("an address").to_owned();
        self.api = format!("http://{}", text("api"));
        let gateway = text("gateway");
        let (host, port) = gateway.rsplit_once(':').expect("host and port");
        self.gateway = (host.to_owned(), port.parse().expect("a port"));
        let admin = fs::read_to_string(self.data_dir.join("admin.env")).expect("admin.env");
        let pairs = admin.lines().filter_map(|line| line.split_once('='));
        self.settings = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    }

    /// Whether the control plane has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().expect("a child").is_some())
    }

    /// Waits until the control plane ends by itself.
    pub fn wait_end(&mut self) {
        wait_for("the control plane ends", READY_PATIENCE, || self.has_ended().then_some(()));
        self.child = None;
    }

    /// Kills the control plane; its servers go on.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends the control plane as a service manager does; returns its exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let child = self.child.as_ref()?;
        signal(child.id(), Signal::TERM).expect("a signal");
        let mut child = self.child.take()?;
        child.wait().ok()?.code()
    }

    /// What a power cut leaves: no process, no mount, no loop device, no
    /// runtime files. What was written is there.
    pub fn cut_power(&mut self) {
        self.kill();
        let runtime = self.runtime_dir();
        wait_for("nothing is left", READY_PATIENCE, || {
            Leftovers::clear(&self.data_dir);
            (Leftovers::of(&self.data_dir) == Leftovers::default()).then_some(())
        });
        if let Some(runtime) = runtime {
            fs::remove_dir_all(&runtime).expect("a runtime directory");
        }
    }

    /// Where the sockets and records of the running servers are; none when
    /// nothing runs.
    fn runtime_dir(&self) -> Option<PathBuf> {
        let processes = Leftovers::of(&self.data_dir).processes;
        let of_this = |record: &Path| {
            let record: Value = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
            let pid = u32::try_from(record["pid"].as_u64()?).ok()?;
            // The number alone may meanwhile be that of another process: records
            // of platforms that were cut off stay until the next boot.
            let is_its = processes.contains(&pid) && start_time(pid) == record["start_time"].as_u64();
            is_its.then_some(())
        };
        let engines = fs::read_dir("/run/coppice").ok()?.filter_map(Result::ok).map(|engine| engine.path());
        engines.into_iter().find(|engine| {
            let instances = fs::read_dir(engine).into_iter().flatten().filter_map(Result::ok);
            instances.into_iter().any(|instance| of_this(&instance.path().join("server.json")).is_some())
        })
    }

    /// Starts it again and waits until it is ready.
    pub fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.wait_ready();
    }

    /// Runs the executable with `arguments` and the data directory.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(&self.program)
            .args(arguments)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .stdin(Stdio::null())
            .output()
            .expect("the executable runs")
    }

    /// Runs a client command and returns its JSON; panics when it fails.
    pub fn cli(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {err}\n{}", self.log());
        if output.stdout.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&output.stdout).expect("JSON")
        }
    }

    /// A value of `admin.env`.
    pub fn setting(&self, name: &str) -> &str {
        &self.settings[name]
    }

    /// Sends a request as the first user; returns status and body.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.call_as(Some(self.setting("COPPICE_API_KEY")), method, path, body)
    }

    /// Sends a request with another credential, or none. `{org}` in the path is
    /// the organization.
    pub fn call_as(&self, key: Option<&str>, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.client_as(key).call(method, path, body).expect("an answer")
    }

    /// Sends requests as the first user, also from other threads and while the
    /// control plane is stopped.
    pub fn client(&self) -> ApiClient {
        self.client_as(Some(self.setting("COPPICE_API_KEY")))
    }

    fn client_as(&self, key: Option<&str>) -> ApiClient {
        ApiClient {
            base: self.api.clone(),
            organization: self.setting("COPPICE_ORGANIZATION").to_owned(),
            key: key.map(str::to_owned),
        }
    }

    /// The base URL of the API.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// Host and port of the gateway.
    pub fn gateway(&self) -> (&str, u16) {
        (&self.gateway.0, self.gateway.1)
    }

    /// Stops everything and returns what is left of it on the machine.
    pub fn stop_all(&mut self) -> Leftovers {
        let output = self.run(&["stop", "--all"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.child.take().map(|mut child| child.wait());
        // A loop device goes when the kernel has let go of its last user.
        let deadline = Instant::now() + DETACH_PATIENCE;
        while Leftovers::of(&self.data_dir) != Leftovers::default() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        Leftovers::of(&self.data_dir)
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.kill();
        for mut earlier in self.earlier.drain(..) {
            let _ = earlier.kill();
            let _ = earlier.wait();
        }
        if self.data_dir.join("installation.json").exists() {
            let _ = self.run(&["stop", "--all"]);
        }
        Leftovers::clear(&self.data_dir);
        if std::thread::panicking() {
            eprintln!("--- log of the platform\n{}", self.log());
        }
    }
}

/// When a process began, in the clock ticks of proc(5) after the machine did.
fn start_time(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

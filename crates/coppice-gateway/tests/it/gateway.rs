//! A gateway with one branch, and clients for it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use coppice_core::branch::BranchState;
use coppice_core::organization::Holder;
use coppice_core::project::{AllowedRange, IpFiltering};
use coppice_core::proxies::TrustedProxies;
use coppice_core::{BranchId, Error, InstanceId, Result};
use coppice_engine::{BoxedServerStream, KeptRole, RoleVerifier};
use coppice_gateway::{
    ActingAs, Branches, CancelKey, CertificateFiles, ClientInfo, ConnectionLimits, Gateway, GatewayConfig,
    Plaintext, Route, Sessions,
};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::postgres::Postgres;

pub(crate) const DOMAIN: &str = "db.example.test";
pub(crate) const PASSWORD: &str = "correct horse battery staple";
/// A valid id of no branch.
pub(crate) const NO_BRANCH: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnn";

/// Enough for everybody.
pub(crate) const LIMITS: ConnectionLimits =
    ConnectionLimits { total: 100, per_address: 100, starting: 100, starting_per_address: 100 };

/// One branch on one server.
struct OneBranch {
    postgres: Postgres,
    admin: tokio_postgres::Client,
    branch: BranchId,
    state: watch::Receiver<BranchState>,
    set_state: watch::Sender<BranchState>,
    ip_filtering: watch::Receiver<IpFiltering>,
    holder: watch::Receiver<Holder>,
    /// Verifiers that were kept when it went to sleep.
    kept: Option<BTreeMap<String, String>>,
    may_wake: Arc<AtomicBool>,
    wakes: Arc<AtomicU32>,
}

impl OneBranch {
    fn route(&self, role: &str) -> Route {
        let (instance, state) = (InstanceId::primary(&self.branch), *self.state.borrow());
        Route {
            instance,
            replicas: vec![],
            replicas_wanted: 0,
            root: self.branch.clone(),
            state,
            message: String::new(),
            holder: self.holder.borrow().clone(),
            ip_filtering: self.ip_filtering.borrow().clone(),
            used_up: None,
            kept: match &self.kept {
                Some(kept) if state == BranchState::Hibernated => {
                    kept.get(role).cloned().map_or(KeptRole::Nothing, KeptRole::Verifier)
                }
                _ => KeptRole::Unknown,
            },
        }
    }
}

#[async_trait::async_trait]
impl Branches for OneBranch {
    async fn find(&self, branch: &BranchId, role: &str) -> Result<Option<Route>> {
        Ok((*branch == self.branch).then(|| self.route(role)))
    }

    async fn verifier(&self, route: &Route, role: &str) -> Result<Option<RoleVerifier>> {
        if route.state != BranchState::Ready {
            return Err(Error::unavailable("no server"));
        }
        let query = "select rolpassword from pg_authid where rolname = $1";
        let row = self.admin.query_opt(query, &[&role]).await.map_err(Error::unavailable)?;
        Ok(row.map(|row| match row.get::<_, Option<String>>(0) {
            Some(text) if text.starts_with("md5") => RoleVerifier::Md5,
            Some(text) => RoleVerifier::Scram(text),
            None => RoleVerifier::NoPassword,
        }))
    }

    async fn ask_nobody(&self) {
        self.admin.simple_query("select 1").await.unwrap();
    }

    async fn prepare(&self, _: &BranchId, _: &str) -> Result<Option<ActingAs>> {
        Ok(None)
    }

    async fn over(&self, _: &[(BranchId, String)]) -> Result<Vec<(BranchId, String)>> {
        Ok(vec![])
    }

    async fn open(&self, _: &Route) -> Result<BoxedServerStream> {
        let socket = self.postgres.socket_dir().join(".s.PGSQL.5432");
        Ok(Box::new(UnixStream::connect(socket).await.map_err(Error::unavailable)?))
    }

    async fn wake(&self, _: &BranchId, _: &ClientInfo) -> Result<bool> {
        if !self.may_wake.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.set_state.send_if_modified(|state| {
            let was_asleep = *state == BranchState::Hibernated;
            if was_asleep {
                *state = BranchState::Ready;
            }
            was_asleep
        });
        Ok(true)
    }

    async fn cancel_elsewhere(&self, _: &CancelKey) -> bool {
        false
    }

    async fn wait_settled(&self, branch: &BranchId, role: &str, patience: Duration) -> Result<Option<Route>> {
        let mut state = self.state.clone();
        let is_settled = |state: &BranchState| {
            matches!(state, BranchState::Ready | BranchState::Hibernated | BranchState::Failed)
        };
        let _ = tokio::time::timeout(patience, state.wait_for(is_settled)).await;
        self.find(branch, role).await
    }
}

/// Stops serving when it goes out of scope.
pub(crate) struct TestGateway {
    pub(crate) address: SocketAddr,
    pub(crate) branch: BranchId,
    /// A role of this test alone, which owns a database of the same name.
    pub(crate) role: String,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) certificate_dir: tempfile::TempDir,
    pub(crate) admin: tokio_postgres::Client,
    pub(crate) state: watch::Sender<BranchState>,
    pub(crate) ip_filtering: watch::Sender<IpFiltering>,
    pub(crate) holder: watch::Sender<Holder>,
    pub(crate) may_wake: Arc<AtomicBool>,
    pub(crate) wakes: Arc<AtomicU32>,
    pub(crate) stop: CancellationToken,
    pub(crate) served: Option<JoinHandle<()>>,
}

impl TestGateway {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a gateway with other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut GatewayConfig)) -> Self {
        Self::on(Ipv4Addr::LOCALHOST.into(), change).await
    }

    /// Starts a gateway on another address.
    pub(crate) async fn on(address: IpAddr, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let postgres = tokio::task::spawn_blocking(Postgres::shared).await.unwrap();
        Self::between(address, postgres, change).await
    }

    /// Starts a gateway before this server.
    pub(crate) async fn before(postgres: Postgres, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        Self::between(Ipv4Addr::LOCALHOST.into(), postgres, change).await
    }

    async fn between(address: IpAddr, postgres: Postgres, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let role = format!("app{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let admin = postgres.admin().await;
        admin.batch_execute(&format!("create role {role} login password '{PASSWORD}'")).await.unwrap();
        admin.batch_execute(&format!("create database {role} owner {role}")).await.unwrap();

        let certificate_dir = tempfile::tempdir().unwrap();
        let mut config = GatewayConfig {
            domain: Some(DOMAIN.to_owned()),
            plaintext: Plaintext::Loopback,
            trusted_proxies: TrustedProxies::default(),
            startup_timeout: Duration::from_secs(60),
            wake_timeout: Duration::from_secs(60),
            queue_timeout: Duration::from_secs(60),
            pooled_idle_timeout: Duration::from_secs(60),
            limits: LIMITS,
            visitors: LIMITS,
            failures_per_minute: NonZeroU32::new(20).unwrap(),
            drain_timeout: Duration::from_secs(60),
            fake_salt_secret: [7; 32],
        };
        change(&mut config);
        let (state, state_seen) = watch::channel(BranchState::Ready);
        let branch = BranchId::generate();
        let own_admin = postgres.admin().await;
        let (ip_filtering, ip_filtering_seen) = watch::channel(IpFiltering::default());
        let (holder, holder_seen) = watch::channel(Holder::from_trusted("usr_1"));
        let (may_wake, wakes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let row = admin.query_one("select rolpassword from pg_authid where rolname = $1", &[&role]).await;
        let kept = BTreeMap::from([(role.clone(), row.unwrap().get(0))]);
        let branches = OneBranch {
            postgres,
            admin: own_admin,
            branch: branch.clone(),
            state: state_seen,
            set_state: state.clone(),
            ip_filtering: ip_filtering_seen,
            holder: holder_seen,
            kept: Some(kept),
            may_wake: may_wake.clone(),
            wakes: wakes.clone(),
        };
        let sessions = Arc::<Sessions>::default();
        let certificate = CertificateFiles::ensure(certificate_dir.path()).unwrap().load_changed().unwrap();
        let gateway = Arc::new(
            Gateway::new(config, certificate.unwrap(), Arc::new(branches), sessions.clone()).unwrap(),
        );
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let served = Some(tokio::spawn(gateway.clone().serve(listener, stop.clone())));
        Self {
            address,
            branch,
            role,
            gateway,
            sessions,
            certificate_dir,
            admin,
            state,
            ip_filtering,
            holder,
            may_wake,
            wakes,
            stop,
            served,
        }
    }

    /// Lets clients in from one range only.
    pub(crate) fn admit_only(&self, cidr: &str) {
        let range = AllowedRange { cidr: cidr.to_owned(), description: String::new() };
        self.ip_filtering.send_replace(IpFiltering { enabled: true, ranges: vec![range] });
    }

    /// The role with the branch's suffix.
    pub(crate) fn user(&self) -> String {
        format!("{}.{}", self.role, self.branch)
    }

    /// A client program with the right password and nothing from outside.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear();
        command.envs(std::env::vars().filter(|(name, _)| name == "PATH"));
        command.env("PGPASSWORD", PASSWORD).env("PGPASSFILE", "/dev/null").env("PGCONNECT_TIMEOUT", "60");
        command.env("PGPORT", self.address.port().to_string()).env("PGSSLMODE", "disable");
        command.env("PGHOST", self.address.ip().to_string()).env("PGUSER", self.user());
        command.kill_on_drop(true).stdin(std::process::Stdio::null());
        command
    }

    /// Runs SQL by psql; `connection` is a connection string over the defaults.
    pub(crate) async fn psql(&self, connection: &str, sql: &str) -> Output {
        let mut command = self.program("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", connection, "-c", sql]);
        command.output().await.unwrap()
    }

    /// What SQL that works prints.
    pub(crate) async fn query(&self, connection: &str, sql: &str) -> String {
        let output = self.psql(connection, sql).await;
        assert!(output.status.success(), "{}", error_of(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// What psql says when it is not let in.
    pub(crate) async fn refusal(&self, connection: &str) -> String {
        let output = self.psql(connection, "select 1").await;
        assert_eq!(output.status.code(), Some(2), "is refused: {}", error_of(&output));
        error_of(&output)
    }

    /// A session without TLS.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        self.connect_as(&self.user(), |_| {}).await
    }

    /// A session without TLS, begun in another way.
    pub(crate) async fn connect_as(
        &self,
        user: &str,
        change: impl FnOnce(&mut tokio_postgres::Config),
    ) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host(self.address.ip().to_string()).port(self.address.port());
        config.user(user).password(PASSWORD);
        change(&mut config);
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

pub(crate) fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Polls until the condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), poll).await.unwrap_or_else(|_| panic!("{what}"));
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        if let Some(served) = &self.served {
            served.abort();
        }
    }
}

//! One branch on a server of the tests, and how to reach it over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use coppice_api::gateway_routes;
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
use coppice_test_support::Postgres;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::OnceCell;
use tower::ServiceExt as _;

use crate::http::HBA;

pub(crate) const DOMAIN: &str = "db.example.test";
pub(crate) const PASSWORD: &str = "p@ss word/+é";
/// The same as a part of a URL.
pub(crate) const PASSWORD_IN_URL: &str = "p%40ss%20word%2F+%C3%A9";

/// What the gateway is told of the branch.
pub(crate) struct Told {
    pub(crate) state: BranchState,
    pub(crate) may_wake: bool,
    pub(crate) ip_filtering: IpFiltering,
    /// Who answers for it.
    pub(crate) holder: Holder,
}

struct OneBranch {
    postgres: Arc<Postgres>,
    admin: tokio_postgres::Client,
    branch: BranchId,
    told: Arc<Mutex<Told>>,
}

#[async_trait]
impl Branches for OneBranch {
    async fn find(&self, branch: &BranchId, role: &str) -> Result<Option<Route>> {
        if *branch != self.branch {
            return Ok(None);
        }
        let (state, ip_filtering, holder) = {
            let told = self.told.lock();
            (told.state, told.ip_filtering.clone(), told.holder.clone())
        };
        // As if it were kept for the sleep: what the server says.
        let kept = match state {
            BranchState::Ready => KeptRole::Unknown,
            _ => match self.verifier_of(role).await? {
                Some(RoleVerifier::Scram(text)) => KeptRole::Verifier(text),
                Some(_) | None => KeptRole::Nothing,
            },
        };
        let instance = InstanceId::primary(&self.branch);
        let root = self.branch.clone();
        Ok(Some(Route {
            instance,
            replicas: vec![],
            replicas_wanted: 0,
            root,
            state,
            message: String::new(),
            holder,
            ip_filtering,
            used_up: None,
            kept,
        }))
    }

    async fn verifier(&self, _: &Route, role: &str) -> Result<Option<RoleVerifier>> {
        self.verifier_of(role).await
    }

    async fn ask_nobody(&self) {
        let _ = self.admin.simple_query("select 1").await;
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
        let mut told = self.told.lock();
        if told.may_wake {
            told.state = BranchState::Ready;
        }
        Ok(told.may_wake)
    }

    async fn cancel_elsewhere(&self, _: &CancelKey) -> bool {
        false
    }

    async fn wait_settled(&self, branch: &BranchId, role: &str, _: Duration) -> Result<Option<Route>> {
        self.find(branch, role).await
    }
}

impl OneBranch {
    async fn verifier_of(&self, role: &str) -> Result<Option<RoleVerifier>> {
        let query = "select rolpassword from pg_authid where rolname = $1";
        let row = self.admin.query_opt(query, &[&role]).await.map_err(Error::unavailable)?;
        Ok(row.and_then(|row| row.get::<_, Option<String>>(0)).map(RoleVerifier::Scram))
    }
}

/// The branch, the way there over HTTP, and a session past both.
pub(crate) struct Branch {
    pub(crate) id: BranchId,
    /// A role of this test alone, which owns a database of the same name.
    pub(crate) role: String,
    pub(crate) admin: tokio_postgres::Client,
    pub(crate) told: Arc<Mutex<Told>>,
    gateway: Arc<Gateway>,
    router: Router,
    listening: OnceCell<SocketAddr>,
    _certificate_dir: tempfile::TempDir,
}

/// What came back.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

async fn superuser(postgres: &Postgres) -> tokio_postgres::Client {
    let mut config = tokio_postgres::Config::new();
    config.host_path(postgres.socket_dir()).user("postgres").dbname("postgres");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    client
}

impl Branch {
    pub(crate) async fn start() -> Self {
        Self::start_with_places(100).await
    }

    /// Where so many may be connected.
    pub(crate) async fn start_with_places(places: usize) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let postgres = tokio::task::spawn_blocking(|| Postgres::shared(HBA)).await.expect("a server");
        let role = format!("app{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let admin = superuser(&postgres).await;
        for statement in [
            format!("create role {role} login password '{PASSWORD}'"),
            format!("create database {role} owner {role}"),
        ] {
            admin.batch_execute(&statement).await.expect("it is done");
        }
        let certificate_dir = tempfile::tempdir().expect("a directory");
        let mut files = CertificateFiles::ensure(certificate_dir.path()).expect("a certificate");
        let certificate = files.load_changed().expect("readable").expect("a new one");
        let limits = ConnectionLimits {
            total: places,
            per_address: places,
            starting: places,
            starting_per_address: places,
        };
        let config = GatewayConfig {
            domain: Some(DOMAIN.to_owned()),
            plaintext: Plaintext::Never,
            trusted_proxies: TrustedProxies::default(),
            startup_timeout: Duration::from_secs(60),
            wake_timeout: Duration::from_secs(60),
            queue_timeout: Duration::from_secs(60),
            pooled_idle_timeout: Duration::from_secs(60),
            limits,
            visitors: limits,
            failures_per_minute: NonZeroU32::new(20).expect("not zero"),
            drain_timeout: Duration::from_secs(60),
            fake_salt_secret: [7; 32],
        };
        let holder = Holder::from_trusted("usr_1");
        let ip_filtering = IpFiltering::default();
        let told = Told { state: BranchState::Ready, may_wake: true, ip_filtering, holder };
        let (id, told) = (BranchId::generate(), Arc::new(Mutex::new(told)));
        let own_admin = superuser(&postgres).await;
        let branch = OneBranch { postgres, admin: own_admin, branch: id.clone(), told: told.clone() };
        let gateway = Gateway::new(config, certificate, Arc::new(branch), Arc::<Sessions>::default())
            .expect("a gateway");
        let gateway = Arc::new(gateway);
        let router = gateway_routes(gateway.clone(), TrustedProxies::default());
        let listening = OnceCell::new();
        Self { id, role, admin, told, gateway, router, listening, _certificate_dir: certificate_dir }
    }

    /// Lets clients in from one range only.
    pub(crate) fn admit_only(&self, cidr: &str) {
        let range = AllowedRange { cidr: cidr.to_owned(), description: String::new() };
        self.told.lock().ip_filtering = IpFiltering { enabled: true, ranges: vec![range] };
    }

    /// A connection string that names the branch by its host.
    pub(crate) fn url(&self) -> String {
        self.url_as(&self.role, PASSWORD_IN_URL, &format!("{}.{DOMAIN}", self.id))
    }

    pub(crate) fn url_as(&self, user: &str, password: &str, host: &str) -> String {
        format!("postgres://{user}:{password}@{host}/{}", self.role)
    }

    /// Where it listens, from the first time on that somebody asks.
    pub(crate) async fn listen(&self) -> SocketAddr {
        let listening = self.listening.get_or_init(|| async {
            let listener = TcpListener::bind((HERE, 0)).await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let limits = coppice_api::ConnectionLimits {
                total: CONNECTIONS_MAX,
                per_address: CONNECTIONS_MAX,
                first_request: Duration::from_secs(60),
                trusted_proxies: TrustedProxies::default(),
            };
            let (router, gateway) = (self.router.clone(), self.gateway.clone());
            let served = coppice_api::serve(listener, router, gateway, limits, std::future::pending());
            tokio::spawn(served);
            address
        });
        *listening.await
    }

    /// Sends a request with these headers.
    pub(crate) async fn send(&self, headers: &[(&str, &str)], body: impl Into<Body>) -> Answered {
        let mut request = Request::post("/sql");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.router.clone().oneshot(request.body(body.into()).expect("a request")).await;
        let (parts, body) = answer.expect("an answer").into_parts();
        assert_eq!(parts.headers["content-type"], "application/json");
        let bytes = to_bytes(body, usize::MAX).await.expect("a body");
        Answered { status: parts.status.as_u16(), body: serde_json::from_slice(&bytes).expect("JSON") }
    }

    /// Sends a body with the branch's own connection string.
    pub(crate) async fn ask(&self, body: &Value) -> Answered {
        self.send(&[("connection-string", &self.url())], body.to_string()).await
    }

    /// What a statement without parameters answers that works.
    pub(crate) async fn rows(&self, query: &str) -> Value {
        let answered = self.ask(&serde_json::json!({ "query": query })).await;
        assert_eq!(answered.status, 200, "{}", answered.body);
        answered.body["rows"].clone()
    }

    /// Bytes that its clients were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.gateway.sessions().traffic_of(&self.id).to_clients
    }

    /// How many sessions of the role do something that looks like this.
    pub(crate) async fn count_busy(&self, query_part: &str) -> i64 {
        let query = "select count(*) from pg_stat_activity
            where usename = $1 and state <> 'idle' and position($2 in query) > 0";
        self.admin.query_one(query, &[&self.role, &query_part]).await.expect("a row").get(0)
    }

    /// Polls until the condition holds.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let poll = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), poll).await.unwrap_or_else(|_| panic!("{what}"));
    }
}

impl Answered {
    /// Status, code and message.
    pub(crate) fn refusal(&self) -> (u16, String, String) {
        let text = |name: &str| self.body[name].as_str().unwrap_or_default().to_owned();
        (self.status, text("code"), text("message"))
    }
}

/// Where requests that are not sent over a socket come from.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Connections at the same time.
pub(crate) const CONNECTIONS_MAX: usize = 100;

//! The API in this process, and a client of it.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use coppice_api::{ApiConfig, Exposition, Hosts, RequestRoute, document, router};
use coppice_app::reconciler::ControlPlane;
use coppice_app::tasks::Tasks;
use coppice_app::{
    App, AppConfig, AwsMarketplaceConfig, Clients, FirstAccount, GatewayPlace, IdentityConfig, MasterKey,
    OrbConfig, Reconciler, Server, StripeConfig,
};
use coppice_core::awake::{ClientSession, NewUse};
use coppice_core::price_list::PriceList;
use coppice_core::statistics::ClientTraffic;
use coppice_core::{BranchId, HostId, InstallationId, RegionId};
use coppice_engine::SharedEngine;
use coppice_oauth::client::Client;
use coppice_oauth::issuer::Issuers;
use coppice_oauth::signing::SigningAlgorithm;
use coppice_store::{ConnectOptions, Store};
use coppice_test_support::{Answer, Postgres, text_of};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;
use tower::ServiceExt;

use crate::engine::NoPostgres;

/// The tests' own sessions and the metastore's are let in; clients of branches sign in as in production.
pub(crate) const HBA: &str = "local all postgres trust\nlocal all all scram-sha-256\n";
/// What people are told to go to.
const URL: &str = "http://127.0.0.1:7070";
/// Whose account is made first.
pub(crate) const EMAIL: &str = "ada@example.com";
const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 1 << 24;

/// No gateway, so no clients.
struct NoClients;

#[async_trait]
impl Clients for NoClients {
    async fn sessions(&self, _: &BranchId) -> Vec<ClientSession> {
        vec![]
    }

    fn last_left(&self, _: &BranchId) -> Option<Instant> {
        None
    }

    async fn hold(&self, _: &BranchId) -> Option<Box<dyn Send + Sync>> {
        None
    }

    fn take_uses(&self) -> Vec<NewUse> {
        vec![]
    }

    fn traffic(&self, _: &BranchId) -> ClientTraffic {
        ClientTraffic::default()
    }

    fn sent(&self) -> BTreeMap<BranchId, u64> {
        BTreeMap::new()
    }
}

impl Exposition for NoClients {
    fn text(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(ready(String::new()))
    }
}

/// The router with everything below it, and the first user's key.
pub(crate) struct Http {
    router: Router,
    app: App,
    first: FirstAccount,
    key: Arc<MasterKey>,
    /// Statuses by operation, as the document says.
    documented: HashMap<String, Vec<String>>,
    _tasks: Tasks,
    runtime: Runtime,
    /// Ends after all that uses it.
    postgres: Arc<Postgres>,
    /// The database of the metastore.
    database: String,
}

static SHARED: Mutex<Weak<Http>> = Mutex::new(Weak::new());

/// The one of the tests that run at the same time.
pub(crate) fn shared() -> Arc<Http> {
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let http = Arc::new(Http::start(Paying::default()));
        *shared = Arc::downgrade(&http);
        http
    })
}

/// With whom organizations pay, if with anybody.
#[derive(Clone, Default)]
pub(crate) struct Paying {
    pub(crate) stripe: Option<StripeConfig>,
    pub(crate) orb: Option<OrbConfig>,
    pub(crate) marketplace: Option<AwsMarketplaceConfig>,
}

/// With one price that changes, and one that each organization has.
fn prices() -> PriceList {
    let file = json!({
        "currency": "EUR",
        "issuer": ["Trees & Sons", "1 Wood"],
        "prices": [
            { "from": "2026-01-01", "compute": { "small": "100", "micro": "0.30" }, "storage": "67.2", "egress": "0.05",
              "fixed": [{ "name": "Support", "amount": "20.005" }] },
            { "from": "2026-03-01", "compute": { "micro": "0.017" } },
            { "from": "9999-01-01", "compute": { "micro": "7" } },
        ],
    });
    PriceList::read(serde_json::from_value(file).expect("a file")).expect("a price list")
}

fn config(control_plane: &ControlPlane, paying: Paying) -> AppConfig {
    AppConfig {
        server: Server { installation: control_plane.installation.clone(), process: "one".to_owned() },
        region: RegionId::from_trusted("local"),
        host: control_plane.host.clone(),
        public_url: URL.to_owned(),
        gateway: GatewayPlace { host: "127.0.0.1".to_owned(), port: 7432 },
        gateway_domain: None,
        create_wait: Duration::ZERO,
        user_aliases: vec![],
        sign_up: Default::default(),
        outside: Some(crate::outside::provider()),
        has_passwords: true,
        limits: Default::default(),
        identity: IdentityConfig {
            issuers: Issuers::new(URL, &[]).expect("a realm"),
            clients: vec![Client::console(URL)],
            dynamic_clients: true,
            own_redirect_uris: vec![],
            algorithm: SigningAlgorithm::Rs256,
            signing_key_days: 90,
        },
        trash_keep: Duration::from_secs(7 * 86_400),
        audit_days: 90,
        mailer: None,
        webhook_reach: Default::default(),
        metrics_interval: Duration::from_secs(15),
        archive: None,
        store_interval: Duration::from_secs(10),
        drill_every: None,
        prices: Some(prices()),
        // With and without an App.
        github: paying.orb.is_none().then(crate::github::app),
        vercel: Some(crate::vercel::integration()),
        stripe: paying.stripe,
        orb: paying.orb,
        marketplace: paying.marketplace,
    }
}

async fn app(options: ConnectOptions, key: Arc<MasterKey>, paying: Paying) -> App {
    let store = Store::connect(options, PATIENCE).await.expect("a metastore");
    let installation = InstallationId::from_trusted("ins_1");
    store.installation_ensure(&installation, true).await.expect("an installation");
    let (host, region) = (HostId::from_trusted("hst_1"), RegionId::from_trusted("local"));
    let epoch = store.host_start(&host, &region, "local", "one").await.expect("a host");
    let control_plane = ControlPlane { installation, host, epoch };
    let engine: SharedEngine = Arc::new(NoPostgres);
    let config = config(&control_plane, paying);
    let reconciler = Reconciler::new(store.clone(), engine.clone(), key.clone(), control_plane);
    App::new(store, engine, reconciler, key, Arc::new(NoClients), config)
}

fn documented() -> HashMap<String, Vec<String>> {
    let document = serde_json::to_value(document()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|item| item.as_object().expect("an item").values());
    let statuses = |operation: &Value| {
        let responses = operation["responses"].as_object().expect("responses");
        (text_of(&operation["operationId"]), responses.keys().cloned().collect())
    };
    operations.map(statuses).collect()
}

fn options(postgres: &Postgres, database: &str) -> ConnectOptions {
    let options = ConnectOptions::new_without_pgpass().socket(postgres.socket_dir());
    options.username("postgres").database(database)
}

/// The answer to a request, and the operation that it was for.
async fn answer_of(router: Router, request: Request<Body>) -> (Answer, String) {
    let response = router.oneshot(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    let route = parts.extensions.get::<Arc<RequestRoute>>().expect("a route");
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let bytes = to_bytes(body, ANSWER_BYTES_MAX).await.expect("a body").to_vec();
    let answer = Answer { status: parts.status.as_u16(), headers: headers.collect(), bytes };
    (answer, route.operation.to_string())
}

coppice_test_support::requests!(Http, key);

impl Http {
    /// Where organizations pay with `paying`.
    pub(crate) fn start(paying: Paying) -> Self {
        let postgres = Postgres::shared(HBA);
        let database = postgres.database_from("metastore", async |name: &str| {
            let store = Store::connect(options(&postgres, name), PATIENCE).await.expect("a metastore");
            store.migrate().await.expect("migrations");
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let many = NonZeroU32::new(10_000).expect("it is not zero");
        let key = Arc::new(MasterKey::new(&MasterKey::generate()));
        let (router, app, first, tasks) = runtime.block_on(async {
            let app = app(options(&postgres, &database), key.clone(), paying).await;
            app.orb.set_up().await.expect("the metastore answers");
            let first = app.bootstrap.create_first_account(EMAIL, |_| Ok(())).await.expect("an account");
            app.note_set_up();
            let mut tasks = Tasks::default();
            app.begin_tasks(&mut tasks);
            let config = ApiConfig {
                requests_per_second: many,
                address_requests_per_second: many,
                trusted_proxies: Default::default(),
                metrics_token: None,
                hosts: Hosts::new(None, IpAddr::V4(Ipv4Addr::LOCALHOST)),
            };
            (router(&mut tasks, app.clone(), config, Arc::new(NoClients), None), app, first, tasks)
        });
        Self { router, app, first, key, documented: documented(), _tasks: tasks, runtime, postgres, database }
    }

    /// The first organization's id.
    pub(crate) fn organization(&self) -> &str {
        self.first.organization.as_str()
    }

    /// Sends a request; `{org}` in the path is the organization. Refuses an
    /// answer that the document does not know.
    #[track_caller]
    pub(crate) fn as_key(&self, key: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let path = path.replace("{org}", self.organization());
        let request = Request::builder().method(method).uri(&path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let (answer, operation) = self.send(request.body(body).expect("a request"));
        if let Some(statuses) = self.documented.get(&operation) {
            let status = answer.status.to_string();
            assert!(statuses.contains(&status), "{operation} answers {status}: {}", answer.text());
        }
        answer
    }

    /// As [`Http::slowly`], of JSON.
    pub(crate) fn as_key_slowly(
        &self,
        key: &str,
        at: (&str, &str),
        body: &Value,
        meanwhile: impl FnOnce(),
    ) -> Answer {
        let key = format!("Bearer {key}");
        let headers = [("authorization", key.as_str()), ("content-type", "application/json")];
        self.slowly(at, &headers, body.to_string(), meanwhile)
    }

    /// Sends a request whose body comes when something has been done meanwhile, after its head was read.
    pub(crate) fn slowly(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        text: String,
        meanwhile: impl FnOnce(),
    ) -> Answer {
        let (asked, is_asked) = std::sync::mpsc::channel();
        let (send, comes) = tokio::sync::oneshot::channel();
        let body = Body::from_stream(futures_util::stream::once(async move {
            let _ = asked.send(());
            comes.await.map_err(std::io::Error::other)
        }));
        let request = Request::builder().method(method).uri(path.replace("{org}", self.organization()));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body).expect("a request");
        let answer = self.runtime.spawn(answer_of(self.router.clone(), request));
        is_asked.recv_timeout(PATIENCE).expect("the body is asked for");
        meanwhile();
        send.send(text).expect("it is waited for");
        self.runtime.block_on(answer).expect("an answer").0
    }

    /// Begins so many requests at once.
    pub(crate) fn begin_many(
        &self,
        count: usize,
        key: &str,
        (method, path): (&str, &str),
        body: Option<&Value>,
    ) -> Vec<JoinHandle<Answer>> {
        let begin = |_| {
            let request = Request::builder().method(method).uri(path);
            let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
            let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
            let request = request.body(body).expect("a request");
            let router = self.router.clone();
            self.runtime.spawn(async move { answer_of(router, request).await.0 })
        };
        (0..count).map(begin).collect()
    }

    /// Their answers.
    pub(crate) fn finish(&self, begun: impl IntoIterator<Item = JoinHandle<Answer>>) -> Vec<Answer> {
        self.runtime.block_on(async {
            let mut answers = vec![];
            for one in begun {
                answers.push(one.await.expect("no panic"));
            }
            answers
        })
    }

    /// Does work while a session on the metastore is in a transaction with these statements, which
    /// is committed then.
    pub(crate) fn while_locked<T>(&self, statement: &str, work: impl AsyncFnOnce(&Self) -> T) -> T {
        self.in_metastore(async |client| {
            client.batch_execute(&format!("begin; {statement}")).await.expect("statements that work");
            let done = work(self).await;
            client.batch_execute("commit").await.expect("a commit");
            done
        })
    }

    /// Waits until so many statements on the metastore wait for a lock.
    pub(crate) async fn locks_waited_for(&self, count: i64) {
        let (client, connection) = self.superuser().connect(NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let waiting = "select count(*) from pg_stat_activity
            where wait_event_type = 'Lock' and datname = current_database()";
        while client.query_one(waiting, &[]).await.expect("a count").get::<_, i64>(0) < count {}
    }

    /// A request with these headers alone.
    pub(crate) fn anonymous(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send_text(method, path, headers, "")
    }

    /// A request with these headers alone and a body of text.
    pub(crate) fn send_text(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(Body::from(body.to_owned())).expect("a request")).0
    }

    /// The secret of a link that signs the first user in.
    pub(crate) fn new_sign_in_link(&self) -> String {
        self.runtime.block_on(self.app.identity.first_sign_in_link()).expect("a link").to_string()
    }

    /// Does what is below the pages and the API.
    pub(crate) fn in_app<T>(&self, work: impl AsyncFnOnce(&App) -> T) -> T {
        self.runtime.block_on(work(&self.app))
    }

    /// Does what an operator does.
    pub(crate) fn operate<T>(&self, work: impl AsyncFnOnce(&Store, &MasterKey) -> T) -> T {
        self.runtime.block_on(async {
            let store =
                Store::connect(options(&self.postgres, &self.database), PATIENCE).await.expect("a metastore");
            work(&store, &self.key).await
        })
    }

    /// The first user's key.
    pub(crate) fn key(&self) -> &str {
        self.first.key.expose()
    }

    fn send(&self, request: Request<Body>) -> (Answer, String) {
        self.runtime.block_on(answer_of(self.router.clone(), request))
    }

    /// Makes the invoices that are due.
    pub(crate) fn issue_invoices(&self) {
        self.runtime.block_on(self.app.billing.issue_invoices()).expect("invoices");
    }

    /// Enables who waits for something to pay with where nobody needs that.
    pub(crate) fn lift_payment_requirement(&self) {
        self.runtime.block_on(self.app.billing.lift_payment_requirement()).expect("the metastore answers");
    }

    /// Carries out statements on the metastore; `{org}` is the organization.
    pub(crate) fn metastore(&self, statements: &str) {
        let statements = statements.replace("{org}", self.organization());
        self.in_metastore(async |client| {
            client.batch_execute(&statements).await.expect("statements that work");
        });
    }

    /// The truth that a statement finds in the metastore.
    pub(crate) fn asks(&self, statement: &str) -> bool {
        self.in_metastore(async |client| {
            let row =
                client.query_one(statement, &[]).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
            row.get(0)
        })
    }

    fn superuser(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.postgres.socket_dir()).user("postgres").dbname(&self.database);
        config
    }

    fn in_metastore<T>(&self, work: impl AsyncFnOnce(&tokio_postgres::Client) -> T) -> T {
        self.runtime.block_on(async {
            let (client, connection) = self.superuser().connect(NoTls).await.expect("a connection");
            let connection = tokio::spawn(connection);
            let found = work(&client).await;
            drop(client);
            connection.await.expect("an end").expect("a good one");
            found
        })
    }

    /// A request of the first user without a body.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str) -> Answer {
        self.as_key(self.first.key.expose(), method, path, None)
    }
}

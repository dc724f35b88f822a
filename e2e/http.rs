//! HTTP as a stranger speaks it: every header in and out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

pub(crate) use coppice_test_support::{Answer, fields, text_of};
use coppice_test_support::{Platform, wait_for};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::runtime::Runtime;

/// A platform and a client of it.
pub(crate) struct Http {
    pub(crate) platform: Platform,
    client: reqwest::Client,
    runtime: Runtime,
}

coppice_test_support::requests!(Http, admin);

impl Http {
    /// A client of a platform that was started.
    pub(crate) fn new(platform: Platform) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        Self { platform, client: reqwest::Client::new(), runtime }
    }

    /// The first user's key.
    pub(crate) fn admin(&self) -> &str {
        self.platform.setting("COPPICE_API_KEY")
    }

    /// The first organization's id.
    pub(crate) fn organization(&self) -> &str {
        self.platform.setting("COPPICE_ORGANIZATION")
    }

    /// A request without a credential. `{org}` in the path is the organization.
    pub(crate) fn anonymous(&self, method: &str, path: &str) -> RequestBuilder {
        let path = path.replace("{org}", self.organization());
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        self.client.request(method, format!("{}{path}", self.platform.api()))
    }

    /// A request of the first user.
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(self.admin())
    }

    /// Sends a request.
    pub(crate) fn send(&self, request: RequestBuilder) -> Answer {
        self.runtime.block_on(answer_to(request))
    }

    /// Sends a request, to anybody; none when there is no answer.
    pub(crate) fn try_send(&self, request: RequestBuilder) -> Option<Answer> {
        self.runtime.block_on(async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            Some(Answer { status, headers: HashMap::new(), bytes: response.bytes().await.ok()?.to_vec() })
        })
    }

    /// Sends several at once; the answers come in the same order.
    pub(crate) fn send_together(&self, requests: Vec<RequestBuilder>) -> Vec<Answer> {
        let sent: Vec<_> =
            requests.into_iter().map(|request| self.runtime.spawn(answer_to(request))).collect();
        let answers = sent.into_iter().map(|task| self.runtime.block_on(task).expect("an answer"));
        answers.collect()
    }

    /// A request with another key.
    pub(crate) fn as_key(&self, key: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let request = self.anonymous(method, path).bearer_auth(key);
        self.send(match body {
            Some(body) => request.json(body),
            None => request,
        })
    }

    /// Waits until a branch is ready: on a busy machine its creation answers before.
    pub(crate) fn wait_healthy(&self, branch: &str) {
        let state = || Some(self.get(branch).expect(200)["status"]["statusType"].clone());
        let is_healthy = |state: &Value| *state == "STATUS_TYPE_HEALTHY";
        wait_for("the branch is ready", Duration::from_secs(120), || state().filter(is_healthy));
    }
}

async fn answer_to(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let bytes = response.bytes().await.expect("a body").to_vec();
    Answer { status, headers, bytes }
}

/// One platform for the tests of a module that run at the same time; it goes
/// with the last of them.
pub(crate) struct Shared(Mutex<Weak<Http>>);

impl Shared {
    /// Nothing is started yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The platform, started by the first who asks.
    pub(crate) fn get(&self, start: impl FnOnce() -> Platform) -> Arc<Http> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(http) = shared.upgrade() {
            return http;
        }
        let http = Arc::new(Http::new(start()));
        *shared = Arc::downgrade(&http);
        http
    }
}

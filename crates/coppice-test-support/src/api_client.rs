//! Requests to the API.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer takes: a platform that hangs fails a test, and does not
/// keep it from its end.
const PATIENCE: Duration = Duration::from_secs(300);

/// Made once, as it reads the certificates of the machine. No connection is
/// kept: each request has a runtime of its own.
static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(PATIENCE);
    client.build().expect("a client")
});

/// Sends requests to the API of a platform as it was when this was made.
#[derive(Clone, Debug)]
pub struct ApiClient {
    pub(crate) base: String,
    pub(crate) organization: String,
    pub(crate) key: Option<String>,
}

impl ApiClient {
    /// For another service, which takes JSON and a key of its own.
    pub fn of_other(base: &str, key: &str) -> Self {
        Self { base: base.to_owned(), organization: String::new(), key: Some(key.to_owned()) }
    }

    /// Sends a request; returns status and body. `{org}` in the path is the
    /// organization.
    ///
    /// # Errors
    /// When there is no answer, or not all of it.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), reqwest::Error> {
        let url = format!("{}{}", self.base, path.replace("{org}", &self.organization));
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut request = HTTP.request(method, url);
            if let Some(key) = &self.key {
                request = request.bearer_auth(key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = request.send().await?;
            let status = response.status().as_u16();
            let text = response.text().await?;
            Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
        })
    }
}

//! How requests reach a server, and how long one is waited for.

use std::time::Duration;

use anyhow::Context;
use reqwest::Url;

/// How long a host may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a request may take with its answer; the server ends its own after
/// 30 seconds. Nothing here is a stream: what is followed is asked for again
/// and again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client that every request is sent with.
pub(super) fn http_client() -> anyhow::Result<reqwest::Client> {
    client_with(PATIENCE)
}

/// As [`http_client`], for this machine, whatever proxy the environment names,
/// and without TLS: to read the machine's certificates takes longer than an
/// answer.
pub(super) fn local_client() -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    let client = client.connect_timeout(CONNECT_PATIENCE).timeout(PATIENCE);
    client.build().context("preparing to send requests")
}

fn client_with(patience: Duration) -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder().connect_timeout(CONNECT_PATIENCE).timeout(patience);
    client.build().context("preparing to send requests")
}

/// The answer of `url`, or why there is none and what to look at.
pub(super) fn answered<T>(url: &str, answer: reqwest::Result<T>) -> anyhow::Result<T> {
    answer.map_err(|error| {
        let why = unanswered(url, &error);
        anyhow::Error::new(error).context(why)
    })
}

fn unanswered(url: &str, error: &reqwest::Error) -> String {
    if !error.is_timeout() {
        return format!("calling {url}: is the platform running? (`coppice serve`)");
    }
    let host = Url::parse(url).ok().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    format!(
        "{} did not answer in time: check that this is the right address, that this machine can reach it, and \
         that the platform there is well (`coppice doctor`)",
        host.as_deref().unwrap_or(url)
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_host_that_does_not_answer_is_named() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/organizations", silent.local_addr().expect("an address"));
        let client = client_with(Duration::from_millis(50)).expect("a client");
        let error = client.get(&url).send().await.expect_err("nobody answers");
        let told = unanswered(&url, &error);
        let host = format!("127.0.0.1:{} did not answer", silent.local_addr().expect("an address").port());
        assert!(told.starts_with(&host) && told.contains("coppice doctor"), "{told}");
    }

    #[tokio::test]
    async fn a_host_where_nothing_listens_may_not_run_a_platform() {
        let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let url = format!("http://{gone}");
        let error = http_client().expect("a client").get(&url).send().await.expect_err("nobody is there");
        assert_eq!(
            unanswered(&url, &error),
            format!("calling {url}: is the platform running? (`coppice serve`)")
        );
    }
}

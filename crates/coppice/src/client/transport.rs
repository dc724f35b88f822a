//! How requests reach a server, and how long one is waited for. None goes on to where a server
//! says: a credential, and what else is sent, is for the one that was named.

use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Response, Url};

use crate::refusal::Refused;

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
    let client = client.redirect(Policy::none()).connect_timeout(CONNECT_PATIENCE).timeout(PATIENCE);
    client.build().context("preparing to send requests")
}

fn client_with(patience: Duration) -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder().redirect(Policy::none());
    let client = client.connect_timeout(CONNECT_PATIENCE).timeout(patience);
    client.build().context("preparing to send requests")
}

/// The answer of `url`, or why there is none and what to look at.
pub(super) fn answered<T>(url: &str, answer: reqwest::Result<T>) -> anyhow::Result<T> {
    answer.map_err(|error| {
        let why = unanswered(url, &error);
        anyhow::Error::new(error).context(why)
    })
}

/// As [`answered`], of an answer that begins.
///
/// # Errors
/// Also when it says to ask elsewhere.
pub(super) fn begun(url: &str, answer: reqwest::Result<Response>) -> anyhow::Result<Response> {
    let response = answered(url, answer)?;
    if !response.status().is_redirection() {
        return Ok(response);
    }
    let elsewhere = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    // As it was parsed, it has nothing that commands a terminal.
    let elsewhere = elsewhere.and_then(|place| response.url().join(place).ok());
    let elsewhere = elsewhere.map_or_else(|| "elsewhere".to_owned(), |place| format!("to {place}"));
    bail!(Refused::mistake(format!(
        "{url} sends those who ask it {elsewhere}, where nothing was sent: if the platform is there, name that \
         address (--url, COPPICE_URL, `coppice login URL`); if not, ask whoever runs {url} why"
    )))
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
    use std::io::{ErrorKind, Read as _, Write as _};
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
    async fn nothing_is_sent_to_where_a_server_sends_those_who_ask_it() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
        elsewhere.set_nonblocking(true).expect("it need not wait");
        let place = elsewhere.local_addr().expect("an address");
        for client in [http_client(), local_client()] {
            let server = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}", server.local_addr().expect("an address"));
            let answers = std::thread::spawn(move || {
                let (mut stream, _) = server.accept().expect("somebody asks");
                let length = stream.read(&mut [0; 1024]).expect("a request");
                assert!(length > 0);
                let answer = format!(
                    "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{place}/login\r\ncontent-length: 0\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).expect("it reads");
            });
            let answer = client.expect("a client").get(&url).bearer_auth("pku_secret").send().await;
            answers.join().expect("it answers");
            let refused = begun(&url, answer).expect_err("it is not followed");
            assert!(refused.downcast_ref::<Refused>().is_some(), "{refused:#}");
            let told = refused.to_string();
            assert!(told.contains(&format!("to http://{place}/login, where nothing")), "{told}");
        }
        assert_eq!(elsewhere.accept().map(drop).expect_err("nobody").kind(), ErrorKind::WouldBlock);
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

//! Which server is meant. A credential is shown to no other one.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use reqwest::Url;
use serde::Deserialize;

use super::listeners;
use super::transport::{begun, http_client, local_client};
use crate::refusal::Refused;
use crate::serve::ServeRecord;

/// How long a record may be behind while one process hands over to the next.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// What a server says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Identity {
    /// The id of its installation.
    pub(super) installation: String,
    process: String,
}

/// A URL as it is typed, without a slash at its end.
pub(super) fn url(text: &str) -> Result<String, String> {
    let example = "write for example http://127.0.0.1:7070 or https://db.example.com";
    if text.trim().is_empty() {
        return Err(format!("it is empty: unset COPPICE_URL, or {example}"));
    }
    let url = Url::parse(text).map_err(|error| format!("it is no URL ({error}): {example}"))?;
    match (url.scheme(), url.host()) {
        ("http" | "https", Some(_)) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(format!("it is no address of a server: {example}")),
    }
}

/// A text that says something.
pub(super) fn filled(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty: leave it out, or unset the variable".to_owned()),
        filled => Ok(filled.to_owned()),
    }
}

/// Asks a server which one it is.
pub(super) async fn identity(http: &reqwest::Client, url: &str) -> anyhow::Result<Identity> {
    let answer = begun(url, http.get(format!("{url}/.well-known/coppice")).send().await)?;
    let known = answer.error_for_status().map_err(anyhow::Error::from);
    let strange =
        || format!("{url} does not say that it is a Coppice platform of this version: check the URL");
    known.with_context(strange)?.json().await.with_context(strange)
}

/// Whether two URLs are of the same address.
fn is_same(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (Url::parse(one), Url::parse(other)) else { return false };
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    one.origin() == other.origin() && path(&one) == path(&other)
}

/// Sees to it that `url`, which a person named, is the address that the kept credential of
/// `whose` is for. What a server says of itself is no proof: anybody can repeat it.
///
/// # Errors
/// When it is another one.
pub(super) fn check_address(url: &str, own: &str, whose: &str) -> anyhow::Result<()> {
    if is_same(url, own) {
        return Ok(());
    }
    anyhow::bail!(Refused::mistake(format!(
        "{url} is another address than that of {whose} ({own}), so no key was sent there: unset COPPICE_URL, name \
         what belongs to {url} with COPPICE_API_KEY, --profile or --data-dir, or sign in there with `coppice login {}`",
        super::words::quoted(url)
    )))
}

/// Keeps a key that a person named for a data directory from going by mistake to a server of
/// another installation.
///
/// # Errors
/// When the server at `url` is one.
pub(super) async fn check(
    http: &reqwest::Client,
    url: &str,
    installation: &str,
    whose: &str,
) -> anyhow::Result<()> {
    let found = identity(http, url).await?.installation;
    if found == installation {
        return Ok(());
    }
    anyhow::bail!(Refused::mistake(format!(
        "{url} is another server ({found}) than that of {whose} ({installation}), so no key was sent there: unset \
         COPPICE_URL, or name what belongs to that server with COPPICE_API_KEY, --profile or --data-dir"
    )))
}

/// Sees to it that the server at `url` works on a data directory of this machine.
///
/// # Errors
/// When it works elsewhere.
pub(super) async fn is_here(url: &str, data_dir: &Path) -> anyhow::Result<()> {
    let own_url = of_data_dir(&local_client()?, data_dir).await?;
    let (there, here) = (identity(&http_client()?, url).await?, identity(&local_client()?, &own_url).await?);
    if there.process == here.process {
        return Ok(());
    }
    anyhow::bail!("{url} is not the server of {}", data_dir.display())
}

/// The installation that a data directory holds.
///
/// # Errors
/// When it holds none, or this account can't read it.
pub(super) fn installation_of(data_dir: &Path) -> anyhow::Result<String> {
    let path = data_dir.join("installation.json");
    let how = || {
        Refused::mistake(format!(
            "there is no platform in {} that this account may use: sign in with `coppice login URL`, name another \
             --data-dir, or start one with `coppice serve`",
            data_dir.display()
        ))
    };
    let text = std::fs::read(&path).with_context(how)?;
    let known: serde_json::Value = serde_json::from_slice(&text).with_context(how)?;
    known["installation"].as_str().map(str::to_owned).with_context(how)
}

/// The URL of the process that works on a data directory.
///
/// # Errors
/// When there is none, or another server is where it was.
pub(super) async fn of_data_dir(http: &reqwest::Client, data_dir: &Path) -> anyhow::Result<String> {
    let installation = installation_of(data_dir)?;
    let stopped = || {
        format!(
            "no server of {0} is running: start it with `coppice serve --data-dir {0}`",
            super::words::quoted(&data_dir.display().to_string())
        )
    };
    let account = std::fs::metadata(data_dir).with_context(stopped)?.uid();
    let started = Instant::now();
    loop {
        let record = ServeRecord::of(data_dir).with_context(stopped)?;
        let url = format!("http://{}", record.reachable_api());
        let are_ours = listeners::are_of(record.reachable_api(), account).with_context(stopped)?;
        anyhow::ensure!(
            are_ours.with_context(stopped)?,
            "a program of another account listens at {url}, so no key was sent there: find it with `ss -ltnp`, end it, \
             then start the server again"
        );
        let found = identity(http, &url).await.with_context(stopped)?;
        if found.installation == installation && found.process == record.process {
            return Ok(url);
        }
        if found.installation != installation || started.elapsed() > PATIENCE {
            return Err(anyhow::anyhow!("another server answers at {url}")).with_context(stopped);
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_none_says_so() {
        assert_eq!(url("http://127.0.0.1:7070/"), Ok("http://127.0.0.1:7070".to_owned()));
        assert!(url("").is_err_and(|why| why.contains("it is empty") && why.contains("COPPICE_URL")));
        for text in ["localhost:7070", "7070", "ftp://host", "http://", "not a url"] {
            assert!(url(text).is_err_and(|why| why.contains("https://db.example.com")), "{text}");
        }
    }

    #[test]
    fn a_kept_credential_is_for_one_address() {
        let own = "https://db.example.com/base";
        for same in [own, "https://DB.example.com:443/base/"] {
            check_address(same, own, "the profile work").expect("it is the same");
        }
        for other in
            ["http://db.example.com/base", "https://db.example.com", "https://db.example.com:8443/base"]
        {
            let refused = check_address(other, own, "the profile work").expect_err(other);
            assert!(
                refused.downcast_ref::<Refused>().is_some()
                    && refused.to_string().contains("the profile work")
            );
        }
    }

    #[tokio::test]
    async fn a_directory_without_a_server_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let http = reqwest::Client::new();
        let nothing = of_data_dir(&http, directory.path()).await.expect_err("nothing is there");
        assert!(nothing.to_string().contains("there is no platform in"), "{nothing:#}");
        assert!(nothing.downcast_ref::<Refused>().is_some(), "it is the caller's mistake: {nothing:#}");
        std::fs::write(directory.path().join("installation.json"), r#"{"installation": "ins_1"}"#)
            .expect("a file");
        let stopped = of_data_dir(&http, directory.path()).await.expect_err("nothing runs");
        assert!(stopped.to_string().starts_with("no server of "), "{stopped:#}");
    }
}

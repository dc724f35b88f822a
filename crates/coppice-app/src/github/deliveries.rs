//! What GitHub sends: checked, and written down as what may be otherwise now.

use coppice_core::{Error, ErrorCode, Result};
use coppice_failpoint::failpoint;
use coppice_store::GithubNews;
use serde::Deserialize;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::Github;
use crate::signed::is_signed_by;

/// Longest id of a delivery.
const ID_LENGTH_MAX: usize = 64;

/// A delivery as it came.
#[derive(Clone, Copy, Debug)]
pub struct GithubDelivery<'a> {
    /// `X-GitHub-Delivery`
    pub id: Option<&'a str>,
    /// `X-GitHub-Event`
    pub event: &'a str,
    /// `X-Hub-Signature-256`
    pub signature: Option<&'a str>,
    /// All of its bytes.
    pub body: &'a [u8],
}

#[derive(Deserialize)]
struct Numbered {
    id: i64,
}

#[derive(Deserialize)]
struct PullTold {
    action: String,
    pull_request: PullNumber,
    repository: Numbered,
}

#[derive(Deserialize)]
struct PullNumber {
    number: i64,
}

#[derive(Deserialize)]
struct InstallationTold {
    installation: Numbered,
    #[serde(default)]
    repositories_removed: Vec<Numbered>,
}

#[derive(Deserialize)]
struct RepositoryTold {
    repository: Numbered,
}

impl Github {
    /// Takes a delivery of GitHub's: what follows from it is written down when this returns, and done later. One
    /// that came before changes nothing.
    ///
    /// # Errors
    /// `invalid_signature`, `invalid_json`, `missing_parameter`
    pub async fn take_delivery(&self, delivery: &GithubDelivery<'_>) -> Result<()> {
        let secrets = self.api.as_deref().map(|github| github.config.webhook_secrets.as_slice());
        if !is_signed(delivery, secrets.unwrap_or_default()) {
            return Err(Error::invalid(ErrorCode::InvalidSignature, "invalid signature"));
        }
        let id = delivery.id.filter(|id| (1..=ID_LENGTH_MAX).contains(&id.len()));
        let Some(id) = id else {
            let public = "the header X-GitHub-Delivery must name the delivery";
            return Err(Error::invalid(ErrorCode::MissingParameter, public));
        };
        let Some(news) = news(delivery)? else { return Ok(()) };
        failpoint!("github.delivery");
        self.store.github_delivery(id, &news).await?;
        failpoint!("github.stored");
        Ok(())
    }
}

fn is_signed(delivery: &GithubDelivery<'_>, secrets: &[Zeroizing<String>]) -> bool {
    let tag = delivery.signature.and_then(|text| text.strip_prefix("sha256="));
    is_signed_by(secrets, delivery.body, tag.into_iter())
}

/// What may be otherwise after a delivery; nothing after most.
fn news(delivery: &GithubDelivery<'_>) -> Result<Option<GithubNews>> {
    let nothing = GithubNews::default();
    let found = match delivery.event {
        "pull_request" => {
            let PullTold { action, pull_request, repository } = read(delivery.body)?;
            let matters = matches!(action.as_str(), "opened" | "reopened" | "synchronize" | "closed");
            matters.then_some(GithubNews { pull: Some((repository.id, pull_request.number)), ..nothing })
        }
        "installation" | "installation_repositories" => {
            let InstallationTold { installation, repositories_removed } = read(delivery.body)?;
            let repositories = repositories_removed.iter().map(|one| one.id).collect();
            Some(GithubNews { installation: Some(installation.id), repositories, ..nothing })
        }
        "repository" => {
            let RepositoryTold { repository } = read(delivery.body)?;
            Some(GithubNews { repositories: vec![repository.id], ..nothing })
        }
        _ => {
            read::<IgnoredAny>(delivery.body)?;
            None
        }
    };
    Ok(found)
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|_| Error::invalid(ErrorCode::InvalidJson, "the body is not the JSON that GitHub sends"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery<'a>(event: &'a str, signature: Option<&'a str>, body: &'a [u8]) -> GithubDelivery<'a> {
        GithubDelivery { id: Some("1"), event, signature, body }
    }

    fn secrets(texts: &[&str]) -> Vec<Zeroizing<String>> {
        texts.iter().map(|text| Zeroizing::new((*text).to_owned())).collect()
    }

    /// The example of docs.github.com, "Validating webhook deliveries".
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn a_delivery_is_taken_that_any_of_the_secrets_signed_and_no_other() {
        let body = b"Hello, World!";
        let is_taken =
            |signature, body, secrets: &[_]| is_signed(&delivery("ping", signature, body), secrets);
        let secret = "It's a Secret to Everybody";
        assert!(is_taken(Some(SIGNATURE), body, &secrets(&[secret])));
        assert!(is_taken(Some(SIGNATURE), body, &secrets(&["the next one", secret])));
        assert!(!is_taken(Some(SIGNATURE), b"Hello, World?", &secrets(&[secret])));
        assert!(!is_taken(Some(SIGNATURE), body, &secrets(&["another"])));
        assert!(!is_taken(Some(SIGNATURE), body, &[]));
        assert!(!is_taken(None, body, &secrets(&[secret])));
        for bad in ["", "sha256=", "sha1=757107ea", &SIGNATURE[7..], &SIGNATURE[..40]] {
            assert!(!is_taken(Some(bad), body, &secrets(&[secret])), "{bad}");
        }
    }

    #[test]
    fn a_delivery_says_what_may_be_otherwise_and_nothing_else() {
        let told = |event, body: &str| news(&delivery(event, None, body.as_bytes()));
        let pull = |action: &str| {
            format!(
                r#"{{"action":"{action}","number":7,"pull_request":{{"number":7}},"repository":{{"id":5}}}}"#
            )
        };
        for action in ["opened", "reopened", "synchronize", "closed"] {
            let news = told("pull_request", &pull(action)).expect("JSON").expect("news");
            assert_eq!(news.pull, Some((5, 7)), "{action}");
        }
        assert_eq!(told("pull_request", &pull("labeled")).expect("JSON"), None);
        let removed =
            r#"{"action":"removed","installation":{"id":3},"repositories_removed":[{"id":5},{"id":6}]}"#;
        let news = told("installation_repositories", removed).expect("JSON").expect("news");
        assert_eq!((news.installation, news.repositories), (Some(3), vec![5, 6]));
        assert_eq!(told("ping", r#"{"zen":"x"}"#).expect("JSON"), None);
        for (event, body) in [("ping", "zen"), ("pull_request", "{}"), ("installation", "[]")] {
            assert!(told(event, body).is_err(), "{event} {body}");
        }
    }
}

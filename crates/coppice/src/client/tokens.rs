//! The command line as a client of the authorization server: device sign-in
//! (RFC 8628), renewal (RFC 6749, section 6), revocation (RFC 7009).

use std::time::Duration;

use anyhow::{Context, bail};
use chrono::Utc;
use serde::Deserialize;

use super::output;
use super::profiles::{Profile, ProfileFile, Tokens};
use super::transport::begun;
use super::verification;

/// What this program is called at the authorization server. It is a public
/// client: a program that everybody has keeps no secret.
const CLIENT_ID: &str = "coppice-cli";
/// Without an API scope the token may do what its owner may.
const SCOPE: &str = "openid offline_access";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Tokens that end this soon are renewed first.
const RENEW_BEFORE: chrono::Duration = chrono::Duration::seconds(30);

/// Whatever a server says, nothing lasts longer here: a clock can't show every time that it could say.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the authorization server is.
#[derive(Debug, Deserialize)]
pub(super) struct Endpoints {
    /// What the server calls itself.
    issuer: String,
    device_authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) revocation_endpoint: String,
}

impl Endpoints {
    /// All places that are sent something.
    fn all(&self) -> [&str; 3] {
        [&self.device_authorization_endpoint, &self.token_endpoint, &self.revocation_endpoint]
    }
}

/// A sign-in that waits for a person.
#[derive(Debug, Deserialize)]
pub(super) struct DeviceSignIn {
    device_code: String,
    /// What the page has to show.
    pub(super) user_code: String,
    /// The page to open.
    pub(super) verification_uri_complete: String,
    expires_in: u64,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    refresh_token: String,
    expires_in: u64,
}

/// Why the authorization server said no (RFC 6749, section 5.2).
#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: String,
    error_description: Option<String>,
}

impl ErrorBody {
    fn words(self) -> String {
        self.error_description.unwrap_or(self.error)
    }
}

enum Answer<T> {
    Given(T),
    Refused(ErrorBody),
}

async fn ask<T: serde::de::DeserializeOwned>(
    http: &reqwest::Client,
    endpoint: &str,
    form: &[(&str, &str)],
) -> anyhow::Result<Answer<T>> {
    let sent = http.post(endpoint).form(form).send();
    let sent = output::patiently("waiting for the server", sent).await;
    let response = begun(endpoint, sent)?;
    let is_success = response.status().is_success();
    let unclear = || format!("{endpoint} answered something that is not OAuth");
    if is_success {
        return Ok(Answer::Given(response.json().await.with_context(unclear)?));
    }
    Ok(Answer::Refused(response.json().await.with_context(unclear)?))
}

/// So many seconds, as a server said them.
fn seconds(said: u64) -> Duration {
    Duration::from_secs(said).min(LONGEST)
}

impl TokenAnswer {
    fn tokens(self) -> Tokens {
        Tokens {
            access_token: self.access_token,
            refresh_token: self.refresh_token,
            expires_at: Utc::now() + seconds(self.expires_in),
        }
    }
}

/// Asks a platform where its authorization server is.
///
/// # Errors
/// When it does not answer, or describes another than itself.
pub(super) async fn discover(http: &reqwest::Client, url: &str) -> anyhow::Result<Endpoints> {
    let place = format!("{url}/.well-known/openid-configuration");
    let response = begun(url, http.get(&place).send().await)?;
    let response = response.error_for_status().with_context(|| format!("{url} offers no sign-in"))?;
    let unclear = || format!("{place} is no description of a sign-in");
    let endpoints: Endpoints = response.json().await.with_context(unclear)?;
    verification::description(url, &endpoints.issuer, endpoints.all())?;
    Ok(endpoints)
}

/// Begins a sign-in.
pub(super) async fn begin(http: &reqwest::Client, endpoints: &Endpoints) -> anyhow::Result<DeviceSignIn> {
    let form = [("client_id", CLIENT_ID), ("scope", SCOPE)];
    match ask(http, &endpoints.device_authorization_endpoint, &form).await? {
        Answer::Given(sign_in) => Ok(sign_in),
        Answer::Refused(refusal) => bail!("the server starts no sign-in: {}", refusal.words()),
    }
}

/// Waits until somebody allowed or refused a sign-in.
pub(super) async fn wait(
    http: &reqwest::Client,
    endpoints: &Endpoints,
    sign_in: &DeviceSignIn,
) -> anyhow::Result<Tokens> {
    let mut pause = seconds(sign_in.interval.unwrap_or(5));
    let last = tokio::time::Instant::now() + seconds(sign_in.expires_in);
    let form = [
        ("client_id", CLIENT_ID),
        ("grant_type", DEVICE_GRANT),
        ("device_code", sign_in.device_code.as_str()),
    ];
    while tokio::time::Instant::now() < last {
        tokio::time::sleep(pause).await;
        let refusal = match ask::<TokenAnswer>(http, &endpoints.token_endpoint, &form).await? {
            Answer::Given(answer) => return Ok(answer.tokens()),
            Answer::Refused(refusal) => refusal,
        };
        match refusal.error.as_str() {
            "authorization_pending" => {}
            // RFC 8628, section 3.5
            "slow_down" => pause += Duration::from_secs(5),
            "access_denied" => bail!("the sign-in was refused in the browser"),
            "expired_token" => break,
            _ => bail!("signing in: {}", refusal.words()),
        }
    }
    bail!("nobody allowed the sign-in in time: try `coppice login` again")
}

/// Ends the session behind a refresh token.
pub(super) async fn revoke(http: &reqwest::Client, profile: &Profile) -> anyhow::Result<()> {
    let form = [("client_id", CLIENT_ID), ("token", profile.tokens.refresh_token.as_str())];
    let endpoint = profile.revocation_endpoint.as_str();
    begun(endpoint, http.post(endpoint).form(&form).send().await)?.error_for_status()?;
    Ok(())
}

/// An access token of a profile that is good for the next request; renewed
/// where that is needed.
pub(super) async fn access_token(
    http: &reqwest::Client,
    name: &str,
    profile: &Profile,
) -> anyhow::Result<String> {
    if profile.tokens.expires_at - RENEW_BEFORE > Utc::now() {
        return Ok(profile.tokens.access_token.clone());
    }
    let file = ProfileFile::locate()?;
    let locked = file.lock().await?;
    // Another command may have renewed them while this one waited.
    let signed_out = || format!("you are signed out of {}: sign in again with `coppice login`", profile.url);
    let mut profile = file.read()?.profiles.remove(name).with_context(signed_out)?;
    if profile.tokens.expires_at - RENEW_BEFORE > Utc::now() {
        return Ok(profile.tokens.access_token);
    }
    let form = [
        ("client_id", CLIENT_ID),
        ("grant_type", "refresh_token"),
        ("refresh_token", profile.tokens.refresh_token.as_str()),
    ];
    let answer: TokenAnswer = match ask(http, &profile.token_endpoint, &form).await? {
        Answer::Given(answer) => answer,
        Answer::Refused(refusal) if refusal.error == "invalid_grant" => {
            bail!("your session at {} has ended: sign in again with `coppice login`", profile.url)
        }
        Answer::Refused(refusal) => bail!("renewing the session at {}: {}", profile.url, refusal.words()),
    };
    profile.tokens = answer.tokens();
    let token = profile.tokens.access_token.clone();
    locked.change(|profiles| profiles.profiles.insert(name.to_owned(), profile))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_that_a_server_says_is_too_long() {
        assert_eq!([0, 300, 86_401, u64::MAX].map(|said| seconds(said).as_secs()), [0, 300, 86_400, 86_400]);
        let answer =
            TokenAnswer { access_token: String::new(), refresh_token: String::new(), expires_in: u64::MAX };
        assert!(answer.tokens().expires_at - Utc::now() <= chrono::Duration::days(1));
    }
}

//! People who come from Vercel, with a code by which Vercel says who they are.
//! Each is a user of ours, and a member of the installation's organization alone.

use chrono::Utc;
use coppice_core::audit::RequestOrigin;
use coppice_core::authentication::Methods;
use coppice_core::organization::Role;
use coppice_core::{Result, UserId, VercelInstallationId};
use coppice_store::VercelPerson;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::{Zeroize as _, Zeroizing};

use super::Vercel;
use super::asking::ask;
use super::{VercelConfig, refused};
use crate::asking::Reply;
use crate::attempts::{ARRIVAL, source};
use crate::outside::account::display_name;
use crate::{BrowserSession, SignIn};

/// Longest code, and longest `state`, in bytes.
const TEXT_MAX: usize = 4096;
/// How many people Vercel is asked about in one go.
const PEOPLE_AT_ONCE: u32 = 20;

/// What somebody who comes from Vercel brings along.
#[derive(Clone, Copy, Debug)]
pub struct VercelArrival<'a> {
    /// By which Vercel says who they are, once.
    pub code: &'a str,
    /// What Vercel wants back with it.
    pub state: Option<&'a str>,
    /// The database that they looked at.
    pub resource: Option<&'a str>,
}

/// Vercel's answer to a code.
#[derive(Deserialize)]
struct Exchanged {
    id_token: String,
}

/// What Vercel says of a member of an account.
#[derive(Deserialize)]
struct Member {
    role: String,
}

/// What is known of a person when Vercel was asked about them.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// What they may do; nothing with a role that is not known here.
    Member(Option<Role>),
    /// The account there has no such person any more.
    Gone,
    /// Nothing that is understood.
    Nothing,
}

impl Vercel {
    /// Signs somebody in who comes from Vercel; tells the path where they go on, at their database if they come
    /// from one.
    ///
    /// # Errors
    /// `invalid_token` when it is not certain who they are, or their installation is not known; `rate_limited` after
    /// many of which Vercel did not say it; `unavailable` while Vercel can't be asked.
    pub async fn sign_in(
        &self,
        arrival: &VercelArrival<'_>,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<(SignIn, String)> {
        let vercel = self.api()?;
        let from = origin.address.map(source).unwrap_or_default();
        self.attempts.count(ARRIVAL, &from).await?;
        let token = exchange(&vercel.config, arrival).await?;
        let claims = vercel.claims(&token).await?;
        self.attempts.take_back(ARRIVAL, &from).await?;
        let installation = claims.installation_id.as_deref().and_then(VercelInstallationId::parse);
        let installation =
            installation.ok_or_else(|| refused("Vercel does not say by which installation"))?;
        let name = claims.shown_name();
        let role = claims.user_role.as_deref().and_then(role_of);
        let caller = claims.caller_for(installation)?;
        let nobody = || refused("Vercel does not say who it is, or that they may use the installation");
        let person = caller.user.as_deref().filter(|person| is_id(person));
        let (person, role) = person.zip(role).ok_or_else(nobody)?;
        let unknown = || refused("the installation is not known here, or being deleted");
        let known = self.installation_of(&caller).await?.filter(|known| !known.is_ending);
        let known = known.ok_or_else(unknown)?;
        let new = UserId::generate(Utc::now());
        let name = display_name(&name);
        let user = self.store.vercel_person_arrives(&known, (person, &name), &new, role).await?;
        let user = user.ok_or_else(unknown)?;
        // They came here from where they are signed in, by a code that is seconds old.
        let begun = self
            .identity
            .begin_browser_session(&user, true, &Methods::outside(false), origin, replaced)
            .await?;
        let mut place = format!("/console/orgs/{}", known.organization);
        if let Some(id) = arrival.resource
            && let Ok(resource) = self.find_resource(&known, id).await
        {
            place = format!("{place}/projects/{}/branches/{}/overview", resource.project, resource.branch);
        }
        Ok((begun, place))
    }

    /// Asks Vercel what people may do who can still come in: an account there has other members by now.
    pub(crate) async fn look_at_people(&self) -> Result<()> {
        let mut done = Ok(());
        if self.api.is_some() {
            for person in self.store.vercel_people_due(PEOPLE_AT_ONCE).await? {
                done = self.look_at_person(&person).await.and(done);
            }
        }
        done
    }

    async fn look_at_person(&self, of: &VercelPerson) -> Result<()> {
        let below = format!("member/{}", of.person);
        let Some(reply) = self.ask(&of.installation, (Method::GET, &below), None).await? else {
            return Ok(());
        };
        match said(&reply) {
            Said::Member(role) => {
                let is_so = self.store.vercel_person_role(of, role).await?;
                if is_so && role.is_none() {
                    tracing::warn!(user = %of.user, installation = %of.installation, "a person has a role at Vercel that is not known here");
                }
            }
            Said::Gone => {
                if self.store.vercel_person_forget(of).await? {
                    tracing::info!(user = %of.user, installation = %of.installation, "a person may not come from Vercel any more");
                }
            }
            Said::Nothing => {
                tracing::warn!(installation = %of.installation, "Vercel does not say who its people are: {}", reply.status);
            }
        }
        Ok(())
    }
}

/// Reads what Vercel answers. Only what is sure has a person forgotten: their keys go with them, and no later answer
/// brings them back.
fn said(reply: &Reply) -> Said {
    let member: Option<Member> = serde_json::from_slice(&reply.body).ok();
    match (reply.status, member) {
        (StatusCode::OK, Some(member)) => Said::Member(role_of(&member.role)),
        (StatusCode::NOT_FOUND, _) => Said::Gone,
        _ => Said::Nothing,
    }
}

/// Whether a person can be asked about by a path that ends with it.
fn is_id(person: &str) -> bool {
    person.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// What a person may do who has a role at Vercel.
fn role_of(role: &str) -> Option<Role> {
    match role {
        "ADMIN" => Some(Role::Admin),
        "USER" => Some(Role::Viewer),
        _ => None,
    }
}

/// Gives Vercel a code; what it says of who brought it, not yet believed. While a client secret is being replaced,
/// Vercel knows one of them.
async fn exchange(config: &VercelConfig, arrival: &VercelArrival<'_>) -> Result<Zeroizing<String>> {
    let is_text = |text: &str| (1..=TEXT_MAX).contains(&text.len());
    if !is_text(arrival.code) || !arrival.state.is_none_or(is_text) {
        return Err(refused("it brings no code of Vercel's"));
    }
    let mut status = StatusCode::UNAUTHORIZED;
    for secret in &config.client_secrets {
        let mut asked = json!({
            "code": arrival.code, "client_id": config.client_id, "client_secret": secret.as_str(),
            "grant_type": "authorization_code",
        });
        if let Some(state) = arrival.state {
            asked["state"] = json!(state);
        }
        let place = (Method::POST, "v1/integrations/sso/token");
        let reply = ask(config, place, |request| request.json(&asked)).await;
        if let Some(Value::String(secret)) = asked.get_mut("client_secret") {
            secret.zeroize();
        }
        let reply = reply?;
        if reply.status.is_success() {
            let exchanged: Option<Exchanged> = serde_json::from_slice(&reply.body).ok();
            let token = exchanged.map(|exchanged| Zeroizing::new(exchanged.id_token));
            return token.ok_or_else(|| refused("Vercel answers the code with something else than a token"));
        }
        status = reply.status;
    }
    tracing::info!("a code of somebody who comes from Vercel is refused there: {status}");
    Err(refused("Vercel does not take the code: it is good once, for some minutes"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    #[test]
    fn only_who_is_gone_at_vercel_is_forgotten_and_a_role_that_is_not_known_lets_nobody_in() {
        let said_by = |status, body: &str| {
            said(&Reply { status, headers: HeaderMap::new(), body: body.as_bytes().to_vec() })
        };
        for (body, expected) in [
            (r#"{"id":"u","role":"ADMIN"}"#, Said::Member(Some(Role::Admin))),
            (r#"{"id":"u","role":"USER"}"#, Said::Member(Some(Role::Viewer))),
            (r#"{"id":"u","role":"BILLING"}"#, Said::Member(None)),
            (r#"{"id":"u"}"#, Said::Nothing),
            (r#"{"id":"u","role":null}"#, Said::Nothing),
            ("<html>we are back soon</html>", Said::Nothing),
            ("", Said::Nothing),
        ] {
            assert_eq!(said_by(StatusCode::OK, body), expected, "{body}");
        }
        let member = r#"{"id":"u","role":"ADMIN"}"#;
        for body in ["", "{}", member] {
            assert_eq!(said_by(StatusCode::NOT_FOUND, body), Said::Gone, "{body}");
        }
        for status in [StatusCode::NO_CONTENT, StatusCode::FOUND, StatusCode::FORBIDDEN, StatusCode::GONE] {
            assert_eq!(said_by(status, member), Said::Nothing, "{status}");
        }
    }
}

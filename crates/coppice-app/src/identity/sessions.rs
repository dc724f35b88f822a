//! What can be done with a token besides using it: believing it, ending its
//! session, asking about it.

use chrono::{TimeDelta, Utc};
use coppice_core::access::{Caller, CredentialId, Grant, Principal};
use coppice_core::audit::RequestOrigin;
use coppice_core::{Error, ErrorCode, OrganizationId, Result, SessionId, UserId};
use coppice_oauth::client::Client;
use coppice_oauth::resource::Resource;
use coppice_oauth::scope::{OPENID, Scopes};
use coppice_oauth::token::{AccessClaims, Distrust, IdClaims, key_id, verify_access, verify_id_hint};
use coppice_store::LivingSession;
use serde_json::{Value, json};

use super::Identity;
use super::IdentityResult;
use super::sign_in::{IDLE, is_recent};
use crate::access::Credential;
use crate::{AccountEvent, AccountEventKind};

/// How old the note may be of when a browser session was last used.
const USE_NOTED: TimeDelta = TimeDelta::minutes(5);

/// An access token whose session goes on.
struct Living {
    claims: AccessClaims,
    id: SessionId,
    user: UserId,
    session: LivingSession,
}

/// What a bearer of a token is told that is not believed.
fn disbelieved(distrust: Distrust) -> Error {
    let code = match distrust {
        Distrust::Expired => ErrorCode::ExpiredToken,
        Distrust::Invalid => ErrorCode::InvalidToken,
    };
    Error::Unauthenticated { code }
}

impl Identity {
    /// Believes an access token that is shown at a place, and whose session goes
    /// on, or not.
    async fn living(
        &self,
        token: &str,
        place: Resource,
        organization: Option<&OrganizationId>,
    ) -> Result<Result<Living, Distrust>> {
        let claims = match self.access_claims(token, place).await? {
            Ok(claims) => claims,
            Err(distrust) => return Ok(Err(distrust)),
        };
        let id = SessionId::from_trusted(claims.sid.clone());
        let user = UserId::from_trusted(claims.sub.clone());
        let found = self.store.session_living(&id, &user, organization).await?;
        Ok(match found {
            Some(session) => Ok(Living { claims, id, user, session }),
            None => Err(Distrust::Invalid),
        })
    }

    /// Believes an access token, or not, without the metastore.
    async fn access_claims(&self, token: &str, place: Resource) -> Result<Result<AccessClaims, Distrust>> {
        let Some(id) = key_id(token) else { return Ok(Err(Distrust::Invalid)) };
        let Some(key) = self.public_key(&id).await? else { return Ok(Err(Distrust::Invalid)) };
        let issuers = self.issuers();
        Ok(verify_access(token, &key, &issuers.all(), &place.audiences(issuers)))
    }

    /// Who calls with an access token?
    pub(crate) async fn authenticate_token(
        &self,
        token: &str,
        place: Resource,
        organization: Option<&OrganizationId>,
    ) -> Result<Credential> {
        let living = self.living(token, place, organization).await?.map_err(disbelieved)?;
        let Living { claims, id, user, session } = living;
        let scopes = scopes_of(&claims.scope).of_api();
        // An empty list would be no limit.
        if scopes.is_empty() {
            return Err(disbelieved(Distrust::Invalid));
        }
        let grant = Grant { scopes, ..Grant::everything() };
        let expiry = (!grant.has_every_scope()).then_some(session.expires_at);
        let credential = CredentialId::Session(id);
        let (principal, is_stale) = (Principal::User(user), session.is_stale);
        let caller = Caller { principal, credential, grant, expiry, is_stale };
        Ok(Credential::new(caller, session.holder, session.membership))
    }

    /// Who calls with the cookie of a browser session? They may do what they
    /// may do by themselves.
    pub(crate) async fn authenticate_browser(
        &self,
        secret: &str,
        organization: Option<&OrganizationId>,
    ) -> Result<Credential> {
        let hash = self.key.hash(secret);
        let found = self.store.browser_session_living(&hash, IDLE, organization).await?;
        let Some(found) = found else { return Err(disbelieved(Distrust::Invalid)) };
        // Pages that stay open ask all the time; to know it this well is enough.
        if Utc::now() - found.last_seen_at > USE_NOTED {
            self.store.browser_session_find(&hash, IDLE).await?;
        }
        let (principal, credential) = (Principal::User(found.user), CredentialId::Browser(hash));
        let is_stale = !found.asked_at.is_some_and(is_recent);
        let caller = Caller { principal, credential, grant: Grant::everything(), expiry: None, is_stale };
        Ok(Credential::new(caller, found.holder, found.membership))
    }

    /// What the user-info endpoint says to who shows an access token.
    ///
    /// # Errors
    /// `invalid_token`, `expired_token`, `insufficient_scope`
    pub async fn user_info(&self, bearer: Option<&str>) -> Result<Value> {
        let token = bearer.ok_or(Error::Unauthenticated { code: ErrorCode::MissingToken })?;
        let Living { claims, user, .. } =
            self.living(token, Resource::Api, None).await?.map_err(disbelieved)?;
        if !scopes_of(&claims.scope).has(OPENID) {
            return Err(Error::InsufficientScope { needed: OPENID });
        }
        let user = self.store.user_find(&user).await?;
        let user = user.ok_or_else(|| disbelieved(Distrust::Invalid))?;
        let mut info = serde_json::to_value(super::tokens::profile(&user)).map_err(Error::internal)?;
        info["sub"] = user.id.to_string().into();
        Ok(info)
    }

    /// What an ID token that a client hands back says, if we made it.
    pub async fn id_hint(&self, token: &str) -> Result<Option<IdClaims>> {
        let Some(id) = key_id(token) else { return Ok(None) };
        let Some(key) = self.public_key(&id).await? else { return Ok(None) };
        Ok(verify_id_hint(token, &key, &self.issuers().all()).ok())
    }

    /// Ends the session of a token, if it is this client's. A token that is not
    /// valid has no session to end.
    pub async fn revoke(&self, client: &Client, token: &str, origin: &RequestOrigin) -> Result<()> {
        let refresh = self.refresh.verify(token, &self.issuers().all());
        let (session, user) = match refresh {
            Ok(claims) if claims.azp == client.id => (claims.sid, claims.sub),
            Ok(_) => return Ok(()),
            Err(_) => match self.access_claims(token, Resource::Agents).await? {
                Ok(claims) if claims.azp == client.id => (claims.sid, claims.sub),
                Ok(_) | Err(_) => return Ok(()),
            },
        };
        let session = SessionId::from_trusted(session);
        if !self.store.session_end(&session, &client.id).await? {
            return Ok(());
        }
        let user = UserId::from_trusted(user);
        let event = AccountEvent::new(AccountEventKind::TokenRevoked, &user, origin);
        self.audit.note_account(&event.about(session.as_str())).await;
        Ok(())
    }

    /// What a confidential client may know of a token: everything of an access
    /// token, as it may have to decide about it, and of its own refresh tokens.
    ///
    /// # Errors
    /// `invalid_client` for a public client.
    pub async fn introspect(&self, client: &Client, token: &str) -> IdentityResult<Value> {
        self.only_confidential(client)?;
        let inactive = json!({ "active": false });
        if let Ok(claims) = self.refresh.verify(token, &self.issuers().all()) {
            let session = SessionId::from_trusted(claims.sid.clone());
            let user = UserId::from_trusted(claims.sub.clone());
            let is_own = claims.azp == client.id;
            if !is_own || self.store.session_living(&session, &user, None).await?.is_none() {
                return Ok(inactive);
            }
            let mut answer = serde_json::to_value(&claims).map_err(Error::internal)?;
            answer["active"] = true.into();
            answer["client_id"] = claims.azp.into();
            return Ok(answer);
        }
        let living = self.living(token, Resource::Agents, None).await?;
        let Ok(Living { claims, .. }) = living else { return Ok(inactive) };
        let mut answer = serde_json::to_value(&claims).map_err(Error::internal)?;
        answer["active"] = true.into();
        answer["client_id"] = claims.azp.into();
        answer["token_type"] = super::tokens::TOKEN_TYPE.into();
        answer["username"] = claims.profile.preferred_username.into();
        Ok(answer)
    }
}

fn scopes_of(text: &str) -> Scopes {
    Scopes::from_trusted(text.split_ascii_whitespace().map(str::to_owned).collect())
}

//! The token endpoint: a code, a refresh token or a device code for tokens.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::authentication::Methods;
use coppice_core::organization::User;
use coppice_core::{Error, SessionId, UserId};
use coppice_oauth::client::Client;
use coppice_oauth::issuer::Realm;
use coppice_oauth::params::Params;
use coppice_oauth::pkce::{Challenge, is_proven};
use coppice_oauth::random::secret;
use coppice_oauth::resource::Resource;
use coppice_oauth::scope::{OFFLINE_ACCESS, OPENID, Scopes};
use coppice_oauth::token::{AccessClaims, IdClaims, Profile, RefreshClaims};
use coppice_oauth::{OAuthError, OAuthErrorCode};
use coppice_store::{AuthorizationCode, CodeMatch, DeviceState, NewSession, RefreshMatch, Session, Tx};
use serde::Serialize;

use super::Identity;
use super::{IdentityError, IdentityResult, devices};

/// How long an access token is good.
pub(super) const ACCESS_LIFETIME: TimeDelta = TimeDelta::seconds(300);
pub(super) const TOKEN_TYPE: &str = "Bearer";
/// A session ends when it is not used for this long, and after this long in
/// any case.
const BROWSER_IDLE: TimeDelta = TimeDelta::seconds(86_400);
const BROWSER_LIFETIME: TimeDelta = TimeDelta::days(30);
/// The same for one that goes on without the browser.
const OFFLINE_IDLE: TimeDelta = TimeDelta::seconds(2_592_000);
const OFFLINE_LIFETIME: TimeDelta = TimeDelta::seconds(5_184_000);
/// How long a refresh token that was replaced can still be used.
const ROTATION_GRACE: TimeDelta = TimeDelta::seconds(60);
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What tokens are good for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted<'a> {
    /// What may be done.
    pub(super) scopes: &'a Scopes,
    /// Where.
    pub(super) resource: Resource,
}

/// What a client gets.
#[derive(Clone, Serialize)]
pub struct TokenAnswer {
    access_token: String,
    expires_in: i64,
    refresh_token: String,
    refresh_expires_in: i64,
    token_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
    #[serde(rename = "not-before-policy")]
    not_before_policy: i64,
    session_state: String,
    scope: String,
}

impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenAnswer({})", self.session_state)
    }
}

/// What tokens say about a person.
pub(super) fn profile(user: &User) -> Profile {
    Profile {
        email: user.email.clone(),
        email_verified: user.is_email_verified,
        name: user.name.clone(),
        preferred_username: user.email.clone(),
    }
}

fn idle(is_offline: bool) -> TimeDelta {
    if is_offline { OFFLINE_IDLE } else { BROWSER_IDLE }
}

impl Identity {
    /// Answers a token request of a client that proved who it is.
    ///
    /// # Errors
    /// `invalid_grant` and the other errors of RFC 6749 and 8628.
    pub async fn token(
        &self,
        realm: &Realm,
        client: &Client,
        params: &Params,
    ) -> IdentityResult<TokenAnswer> {
        if params.repeats_any() {
            return Err(OAuthError::invalid_request("a parameter comes more than once").into());
        }
        match params.get("grant_type") {
            Some("authorization_code") => self.redeem_code(realm, client, params).await,
            Some("refresh_token") => self.refresh(realm, client, params).await,
            Some(DEVICE_GRANT) => self.redeem_device_code(realm, client, params).await,
            Some(_) => {
                let description = "grant_type is authorization_code, refresh_token or device_code";
                Err(OAuthError::new(OAuthErrorCode::UnsupportedGrantType, description).into())
            }
            None => Err(OAuthError::invalid_request("grant_type is missing").into()),
        }
    }

    async fn redeem_code(
        &self,
        realm: &Realm,
        client: &Client,
        params: &Params,
    ) -> IdentityResult<TokenAnswer> {
        let code = params.get("code").ok_or_else(|| OAuthError::invalid_request("code is missing"))?;
        let mut tx = self.store.begin().await?;
        let found = self.store.code_use_in_tx(&mut tx, &self.key.hash(code)).await?;
        let outcome = match found {
            Some(CodeMatch::Fresh(code)) => check_code(&code, client, params)
                .and_then(|()| self.narrowed(&code.resource, params))
                .map(|resource| (code, resource)),
            Some(CodeMatch::Used) => {
                tracing::warn!(
                    client = client.id,
                    "a code was used again; the session made from it is ended"
                );
                Err(OAuthError::invalid_grant("the code was used before"))
            }
            None => Err(OAuthError::invalid_grant("the code is unknown")),
        };
        let (code, resource) = match outcome {
            Ok(good) => good,
            Err(error) => {
                // The code stays used, and what came of it stays ended.
                tx.commit().await?;
                return Err(error.into());
            }
        };
        let scopes = Scopes::from_trusted(code.scopes.clone());
        let user = UserId::from_trusted(code.user_id.clone());
        let browser = code.browser_session.as_deref();
        let shown = (code.signed_in_at, &code.methods, code.is_stale);
        let granted = Granted { scopes: &scopes, resource };
        let session = self.begin_session(&mut tx, client, &user, granted, browser, shown).await?;
        self.store.code_note_session_in_tx(&mut tx, &code.code_hash, &session.id).await?;
        let answer = self.issue(&mut tx, realm, client, &session, granted, (code.nonce, secret())).await?;
        tx.commit().await?;
        Ok(answer)
    }

    async fn begin_session(
        &self,
        tx: &mut Tx,
        client: &Client,
        user: &UserId,
        granted: Granted<'_>,
        browser_session: Option<&str>,
        (signed_in_at, methods, is_stale): (DateTime<Utc>, &Methods, bool),
    ) -> IdentityResult<Session> {
        let now = Utc::now();
        let id = SessionId::generate(now);
        let is_offline = granted.scopes.has(OFFLINE_ACCESS);
        let new = NewSession {
            id: &id,
            user,
            client_id: &client.id,
            scopes: granted.scopes.words(),
            resource: granted.resource.as_str(),
            browser_session,
            is_offline,
            signed_in_at,
            methods,
            is_stale,
            idle_until: now + idle(is_offline),
            expires_at: now + if is_offline { OFFLINE_LIFETIME } else { BROWSER_LIFETIME },
        };
        let is_begun = self.store.session_insert_in_tx(tx, &new).await?;
        let session = if is_begun { self.store.session_find_in_tx(tx, &id).await? } else { None };
        session.ok_or_else(|| {
            OAuthError::invalid_grant("the account is disabled, or who let it in is signed out").into()
        })
    }

    async fn refresh(&self, realm: &Realm, client: &Client, params: &Params) -> IdentityResult<TokenAnswer> {
        let token = params
            .get("refresh_token")
            .ok_or_else(|| OAuthError::invalid_request("refresh_token is missing"))?;
        let unusable = || OAuthError::invalid_grant("the refresh token has expired or was revoked");
        let claims = self.refresh.verify(token, &self.issuers().all()).map_err(|_| unusable())?;
        if claims.azp != client.id {
            return Err(unusable().into());
        }
        let id = SessionId::from_trusted(claims.sid);
        let mut tx = self.store.begin().await?;
        let session = self.store.session_find_in_tx(&mut tx, &id).await?;
        let session = session.filter(|session| session.client_id == client.id).ok_or_else(unusable)?;
        let next = self.key.successor(&claims.jti);
        if client.rotates_refresh_tokens() {
            let (hash, next_hash) = (self.key.hash(&claims.jti), self.key.hash(&next));
            let replacing =
                self.store.refresh_token_replace_in_tx(&mut tx, (&hash, &next_hash), &id, ROTATION_GRACE);
            let used = replacing.await?;
            if used == RefreshMatch::Replaced {
                drop(tx);
                // Somebody else has it, too.
                tracing::warn!(
                    client = client.id,
                    session = id.as_str(),
                    "a replaced refresh token was used again; its session is ended"
                );
                self.store.session_end(&id, &client.id).await?;
                return Err(unusable().into());
            }
        }
        let granted = Scopes::from_trusted(session.scopes.clone());
        let scopes = granted.narrowed_to(params.words("scope")).ok_or_else(|| {
            OAuthError::new(OAuthErrorCode::InvalidScope, "more is asked for than was granted")
        })?;
        let granted = Granted { scopes: &scopes, resource: self.narrowed(&session.resource, params)? };
        self.store.session_extend_in_tx(&mut tx, &id, Utc::now() + idle(session.is_offline)).await?;
        let answer = self.issue(&mut tx, realm, client, &session, granted, (None, next)).await?;
        tx.commit().await?;
        Ok(answer)
    }

    async fn redeem_device_code(
        &self,
        realm: &Realm,
        client: &Client,
        params: &Params,
    ) -> IdentityResult<TokenAnswer> {
        let code =
            params.get("device_code").ok_or_else(|| OAuthError::invalid_request("device_code is missing"))?;
        let mut tx = self.store.begin().await?;
        let found = self
            .store
            .device_poll_in_tx(&mut tx, &self.key.hash(code), &client.id, devices::HASTE)
            .await?
            .ok_or_else(|| OAuthError::invalid_grant("the device code is unknown"))?;
        let refuse =
            |code, description: &str| Err(IdentityError::Refused(OAuthError::new(code, description)));
        let is_late = found.expires_at <= Utc::now();
        let outcome = match found.state {
            DeviceState::Denied => refuse(OAuthErrorCode::AccessDenied, "the person said no"),
            DeviceState::Redeemed => refuse(OAuthErrorCode::InvalidGrant, "the device code was used before"),
            DeviceState::Allowed { .. } | DeviceState::Waiting if is_late => {
                refuse(OAuthErrorCode::ExpiredToken, "nobody answered in time; ask again")
            }
            DeviceState::Allowed { user, signed_in_at, methods, is_stale } => {
                Ok((user, signed_in_at, methods, is_stale))
            }
            DeviceState::Waiting if found.is_hasty => {
                refuse(OAuthErrorCode::SlowDown, "wait longer between polls")
            }
            DeviceState::Waiting => refuse(OAuthErrorCode::AuthorizationPending, "nobody has answered yet"),
        };
        let (user, signed_in_at, methods, is_stale) = match outcome {
            Ok(allowed) => allowed,
            Err(error) => {
                // When it polled is remembered.
                tx.commit().await?;
                return Err(error);
            }
        };
        let scopes = Scopes::from_trusted(found.scopes);
        let shown = (signed_in_at, &methods, is_stale);
        let granted = Granted { scopes: &scopes, resource: self.narrowed(&found.resource, params)? };
        let session = self.begin_session(&mut tx, client, &user, granted, None, shown).await?;
        let answer = self.issue(&mut tx, realm, client, &session, granted, (None, secret())).await?;
        tx.commit().await?;
        Ok(answer)
    }

    /// What tokens are for, of what was granted, for who asks.
    fn narrowed(&self, granted: &str, params: &Params) -> Result<Resource, OAuthError> {
        Resource::from_trusted(granted).narrowed_to(Resource::asked(params, self.issuers())?)
    }

    /// An access token of a session, and its claims.
    pub(super) async fn access_token(
        &self,
        realm: &Realm,
        session: &Session,
        granted: Granted<'_>,
        now: DateTime<Utc>,
    ) -> Result<(String, AccessClaims), Error> {
        let claims = AccessClaims::new(
            (self.issuers().issuer(realm), granted.resource.audience(self.issuers())),
            &session.client_id,
            session.user.id.as_str(),
            session.id.as_str(),
            granted.scopes.to_string(),
            &session.methods,
            profile(&session.user),
            now,
            (now + ACCESS_LIFETIME).min(session.expires_at),
        );
        let token = self.signing_key().await?.sign(&claims).map_err(Error::internal)?;
        Ok((token, claims))
    }

    async fn issue(
        &self,
        tx: &mut Tx,
        realm: &Realm,
        client: &Client,
        session: &Session,
        granted: Granted<'_>,
        (nonce, refresh_id): (Option<String>, String),
    ) -> IdentityResult<TokenAnswer> {
        let now = Utc::now();
        let (access_token, claims) = self.access_token(realm, session, granted, now).await?;
        let id_token = match granted.scopes.has(OPENID) {
            true => {
                let id_claims = IdClaims::beside(&claims, &access_token, session.signed_in_at, nonce);
                Some(self.signing_key().await?.sign(&id_claims).map_err(Error::internal)?)
            }
            false => None,
        };
        let refresh_end = (now + idle(session.is_offline)).min(session.expires_at);
        let refresh = RefreshClaims::beside(&claims, refresh_end, refresh_id);
        if client.rotates_refresh_tokens() {
            self.store.refresh_token_insert_in_tx(tx, &self.key.hash(&refresh.jti), &session.id).await?;
        }
        Ok(TokenAnswer {
            access_token,
            expires_in: claims.exp - now.timestamp(),
            refresh_token: self.refresh.sign(&refresh).map_err(Error::internal)?,
            refresh_expires_in: refresh.exp - now.timestamp(),
            token_type: TOKEN_TYPE,
            id_token,
            not_before_policy: 0,
            session_state: session.id.to_string(),
            scope: granted.scopes.to_string(),
        })
    }
}

/// Whether a code may be redeemed by who asks.
fn check_code(code: &AuthorizationCode, client: &Client, params: &Params) -> Result<(), OAuthError> {
    if code.client_id != client.id {
        return Err(OAuthError::invalid_grant("the code is another client's"));
    }
    if code.expires_at <= Utc::now() {
        return Err(OAuthError::invalid_grant("the code has expired"));
    }
    if params.get("redirect_uri") != Some(&code.redirect_uri) {
        return Err(OAuthError::invalid_grant("redirect_uri is another one than the code was sent to"));
    }
    let challenge = code.challenge.clone().map(Challenge::from_trusted);
    if !is_proven(challenge.as_ref(), params.get("code_verifier")) {
        return Err(OAuthError::invalid_grant("code_verifier does not fit the code_challenge"));
    }
    Ok(())
}

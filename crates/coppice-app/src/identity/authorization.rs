//! From an authorization request to its answer.

use chrono::{TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::{Error, ErrorCode, SessionId, UserId};
use coppice_oauth::OAuthError;
use coppice_oauth::authorize::{
    self, AuthorizationRefusal, AuthorizationRequest, AuthorizationStep, ResponseType, Visitor,
};
use coppice_oauth::client::Client;
use coppice_oauth::issuer::Realm;
use coppice_oauth::params::Params;
use coppice_oauth::random;
use coppice_oauth::scope::Scopes;
use coppice_store::{AuthorizationCode, BrowserSession, NewSession, Tx};

use super::Identity;
use super::tokens::{ACCESS_LIFETIME, Granted, TOKEN_TYPE};
use super::{IdentityError, IdentityResult};
use crate::rows::check_session_in_tx;
use crate::{AccountEvent, AccountEventKind};

/// A code has to be redeemed within this time.
const CODE_LIFETIME: TimeDelta = TimeDelta::seconds(60);
/// A session without a refresh token lives a little longer than its only token,
/// as clocks differ.
const SKEW: TimeDelta = TimeDelta::seconds(30);

/// A request that makes sense, and who sent it.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// Who.
    pub client: Client,
    /// What.
    pub request: AuthorizationRequest,
}

impl Identity {
    /// Understands an authorization request.
    ///
    /// # Errors
    /// An [`AuthorizationRefusal`] that says where the error goes, or that the metastore fails.
    pub async fn read_authorization(
        &self,
        params: &Params,
    ) -> Result<Result<Authorization, AuthorizationRefusal>, Error> {
        let id = match authorize::client_id(params) {
            Ok(id) => id,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(client) = self.oauth_client(id).await? else {
            return Ok(Err(AuthorizationRefusal::Shown(OAuthError::invalid_request(
                "there is no such client",
            ))));
        };
        let read = authorize::read(params, &client, self.issuers());
        Ok(read.map(|request| Authorization { client, request }))
    }

    /// What has to happen before the answer.
    pub async fn authorization_step(
        &self,
        authorization: &Authorization,
        session: Option<&BrowserSession>,
    ) -> Result<AuthorizationStep, Error> {
        let has_consent = match session {
            Some(session) => self.has_consent(authorization, session).await?,
            None => false,
        };
        let signed_in_at = session.map(|session| session.signed_in_at);
        let is_fresh = session.is_some_and(|session| self.was_just_asked(session));
        Ok(authorization.request.step(Visitor { signed_in_at, is_fresh, has_consent }, Utc::now()))
    }

    async fn has_consent(
        &self,
        authorization: &Authorization,
        session: &BrowserSession,
    ) -> Result<bool, Error> {
        let Authorization { client, request } = authorization;
        let place = &request.destination.redirect_uri;
        if client.needs_no_consent(place, self.issuers().public_url()) {
            return Ok(true);
        }
        if !client.remembers_consent(place) {
            return Ok(false);
        }
        let given =
            self.store.consent_find(&session.user, &client.id, place, request.resource.as_str()).await?;
        Ok(given.is_some_and(|given| Scopes::from_trusted(given).covers(&request.scopes)))
    }

    /// Makes the answer that the person allows, and remembers that they do if they just showed who
    /// they are: whoever finds a browser signed in must not be able to leave a client in it that is
    /// asked nothing when its owner comes back.
    pub async fn allow_authorization(
        &self,
        realm: &Realm,
        authorization: &Authorization,
        session: &BrowserSession,
        origin: &RequestOrigin,
    ) -> Result<String, Error> {
        let is_remembered = self.was_just_asked(session);
        let answer = self.answer(realm, authorization, session, is_remembered).await?;
        let event = AccountEvent::new(AccountEventKind::ClientAllowed, &session.user, origin);
        self.audit.note_account(&event.about(&authorization.client.id)).await;
        Ok(answer)
    }

    /// Makes the answer that was asked for; returns where to send the browser.
    pub async fn answer_authorization(
        &self,
        realm: &Realm,
        authorization: &Authorization,
        session: &BrowserSession,
    ) -> Result<String, Error> {
        self.answer(realm, authorization, session, false).await
    }

    async fn answer(
        &self,
        realm: &Realm,
        authorization: &Authorization,
        session: &BrowserSession,
        is_remembered: bool,
    ) -> Result<String, Error> {
        let Authorization { client, request } = authorization;
        match request.response_type {
            ResponseType::Code => {
                let code = random::secret();
                let now = Utc::now();
                let row = AuthorizationCode {
                    code_hash: self.key.hash(&code),
                    client_id: client.id.clone(),
                    redirect_uri: request.destination.redirect_uri.clone(),
                    challenge: request.challenge.as_ref().map(|challenge| challenge.as_str().to_owned()),
                    scopes: request.scopes.words().to_vec(),
                    resource: request.resource.as_str().to_owned(),
                    nonce: request.nonce.clone(),
                    user_id: session.user.to_string(),
                    browser_session: Some(session.id_hash.clone()),
                    signed_in_at: session.signed_in_at,
                    methods: session.methods.clone(),
                    is_stale: !self.was_just_asked(session),
                    expires_at: now + CODE_LIFETIME,
                };
                let mut tx = self.begin_answer(authorization, session, is_remembered).await?;
                self.store.code_insert_in_tx(&mut tx, &row).await?;
                tx.commit().await?;
                Ok(request.destination.url(&self.issuers().issuer(realm), &[("code", &code)]))
            }
            ResponseType::Token => self.implicit(realm, authorization, session, is_remembered).await,
        }
    }

    /// Begins to write an answer down: for a session that goes on, with the consent.
    async fn begin_answer(
        &self,
        Authorization { client, request }: &Authorization,
        session: &BrowserSession,
        is_remembered: bool,
    ) -> Result<Tx, Error> {
        let mut tx = self.store.begin().await?;
        self.check_goes_on(&mut tx, session).await?;
        let place = &request.destination.redirect_uri;
        if is_remembered && client.remembers_consent(place) {
            let (resource, scopes) = (request.resource.as_str(), request.scopes.words());
            self.store
                .consent_grant_in_tx(&mut tx, &session.user, &client.id, place, resource, scopes)
                .await?;
        }
        Ok(tx)
    }

    /// A token without a code: of a session that ends with it.
    async fn implicit(
        &self,
        realm: &Realm,
        authorization: &Authorization,
        browser: &BrowserSession,
        is_remembered: bool,
    ) -> Result<String, Error> {
        let Authorization { client, request } = authorization;
        let now = Utc::now();
        let id = SessionId::generate(now);
        let mut tx = self.begin_answer(authorization, browser, is_remembered).await?;
        let end = now + ACCESS_LIFETIME + SKEW;
        let new = NewSession {
            id: &id,
            user: &browser.user,
            client_id: &client.id,
            scopes: request.scopes.words(),
            resource: request.resource.as_str(),
            browser_session: Some(&browser.id_hash),
            is_offline: false,
            signed_in_at: browser.signed_in_at,
            methods: &browser.methods,
            is_stale: !self.was_just_asked(browser),
            idle_until: end,
            expires_at: end,
        };
        if !self.store.session_insert_in_tx(&mut tx, &new).await? {
            return Err(Error::Unauthenticated { code: ErrorCode::InvalidToken });
        }
        let session = self.store.session_find_in_tx(&mut tx, &id).await?;
        let session = session.ok_or_else(|| Error::internal("a session ended as it began"))?;
        let granted = Granted { scopes: &request.scopes, resource: request.resource };
        let (token, _) = self.access_token(realm, &session, granted, now).await?;
        tx.commit().await?;
        let lifetime = ACCESS_LIFETIME.num_seconds().to_string();
        let scope = request.scopes.to_string();
        let fields = [
            ("access_token", token.as_str()),
            ("token_type", TOKEN_TYPE),
            ("expires_in", &lifetime),
            ("scope", &scope),
        ];
        Ok(request.destination.url(&self.issuers().issuer(realm), &fields))
    }

    /// Makes sure that a browser's session did not end since it was looked for:
    /// what comes of it later would not end with it.
    pub(super) async fn check_goes_on(&self, tx: &mut Tx, session: &BrowserSession) -> Result<(), Error> {
        self.check_lives(tx, &session.user, &session.id_hash).await
    }

    /// As [`Identity::check_goes_on`], of the session of a user with this hash.
    pub(super) async fn check_lives(&self, tx: &mut Tx, user: &UserId, id_hash: &str) -> Result<(), Error> {
        check_session_in_tx(&self.store, tx, user, id_hash).await
    }

    /// Tells the client of an error.
    pub fn refuse_authorization(
        &self,
        realm: &Realm,
        authorization: &Authorization,
        error: &OAuthError,
    ) -> String {
        authorization.request.destination.error_url(&self.issuers().issuer(realm), error)
    }

    /// The confidential client that asks about tokens.
    ///
    /// # Errors
    /// `invalid_client`
    pub(super) fn only_confidential(&self, client: &Client) -> IdentityResult<()> {
        match client.is_confidential() {
            true => Ok(()),
            false => Err(IdentityError::Refused(OAuthError::invalid_client())),
        }
    }
}

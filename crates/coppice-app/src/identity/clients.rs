//! Clients: finding them, and making sure that a request comes from one.

use std::net::IpAddr;

use chrono::Utc;
use coppice_core::Result;
use coppice_core::id::random_text;
use coppice_oauth::client::Client;
use coppice_oauth::registration::{Registration, answer};
use coppice_oauth::{OAuthError, OAuthErrorCode};
use coppice_store::RegisteredClient;
use serde_json::Value;

use super::Identity;
use super::{IdentityError, IdentityResult};
use crate::attempts::{REGISTRATION, source};

/// Ids of clients that registered themselves begin like this.
const REGISTERED: &str = "dyn_";
/// Most clients that registered themselves; which one makes room for the next
/// is in [`coppice_store::Store::oauth_client_insert`].
const REGISTERED_MAX: i64 = 10_000;

/// What a request says of who sends it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientClaim<'a> {
    /// Which client.
    pub id: &'a str,
    /// Its secret, if it has one.
    pub secret: Option<&'a str>,
}

impl Identity {
    /// The client with this id.
    pub async fn oauth_client(&self, id: &str) -> Result<Option<Client>> {
        if let Some(client) = self.config.clients.iter().find(|client| client.id == id) {
            return Ok(Some(client.clone()));
        }
        if !self.has_registration() || !id.starts_with(REGISTERED) || id.len() > 64 {
            return Ok(None);
        }
        let found = self.store.oauth_client_find(id).await?;
        Ok(found.map(|found| {
            let registration = Registration { name: found.name, redirect_uris: found.redirect_uris };
            registration.client(found.id, &self.config.clients)
        }))
    }

    /// The client that sends a request, if it proves to be it.
    ///
    /// # Errors
    /// `invalid_client`
    pub async fn authenticate_client(&self, claim: ClientClaim<'_>) -> IdentityResult<Client> {
        let client = self.oauth_client(claim.id).await?;
        let client = client.filter(|client| client.is_proven_by(claim.secret));
        client.ok_or_else(|| OAuthError::invalid_client().into())
    }

    /// Registers a client with what it says of itself; returns what it is told.
    ///
    /// # Errors
    /// `invalid_redirect_uri`, `invalid_client_metadata`; `rate_limited`
    pub async fn register_client(&self, metadata: &Value, address: IpAddr) -> IdentityResult<Value> {
        let config = &self.config;
        let registration = Registration::read(metadata, &config.own_redirect_uris)?;
        let vouched = &config.clients;
        registration.check_name(vouched)?;
        self.attempts.count(REGISTRATION, &source(address)).await?;
        let client = registration.client(format!("{REGISTERED}{}", random_text()), vouched);
        let row = RegisteredClient {
            id: client.id.clone(),
            name: client.name.clone(),
            redirect_uris: client.redirect_uris.clone(),
        };
        if !self.store.oauth_client_insert(&row, REGISTERED_MAX).await? {
            let description = "too many clients are registered and used; ask the operator";
            return Err(IdentityError::Refused(OAuthError::new(
                OAuthErrorCode::TemporarilyUnavailable,
                description,
            )));
        }
        Ok(answer(&client, Utc::now().timestamp()))
    }
}

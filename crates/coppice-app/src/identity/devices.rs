//! Devices without a browser of their own (RFC 8628).

use std::net::IpAddr;

use chrono::{TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::{Error, Result};
use coppice_oauth::client::{Client, Trust};
use coppice_oauth::params::Params;
use coppice_oauth::resource::Resource;
use coppice_oauth::scope::Scopes;
use coppice_oauth::{OAuthError, OAuthErrorCode, random, user_code};
use coppice_store::{BrowserSession, NewDevice};
use serde::Serialize;

use super::Identity;
use super::{IdentityError, IdentityResult};
use crate::attempts::{DEVICE, USER_CODE, source};
use crate::{AccountEvent, AccountEventKind};

/// How long a person may take to type the code.
pub(super) const LIFETIME: TimeDelta = TimeDelta::seconds(600);
/// What devices are told to wait between polls, in seconds.
const INTERVAL_SECONDS: i64 = 5;
/// Polls closer than this are told to slow down: known clients poll every two
/// seconds and give up when they are told so.
pub(super) const HASTE: TimeDelta = TimeDelta::milliseconds(1500);

/// What a device is told when it asks.
#[derive(Clone, Serialize)]
pub struct DeviceAnswer {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: String,
    expires_in: i64,
    interval: i64,
}

impl std::fmt::Debug for DeviceAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceAnswer")
    }
}

/// A device that waits, as the person is shown it.
#[derive(Clone, Debug)]
pub struct Device {
    /// Name of the program on it.
    pub client: String,
    /// Whether the operator vouches for that name.
    pub is_vouched: bool,
    /// Id of that program.
    pub client_id: String,
    /// What it asks for.
    pub scopes: Scopes,
    /// Where it asked from.
    pub address: String,
    /// The code as it shows it.
    pub user_code: String,
}

impl Identity {
    /// Lets a device ask to be connected.
    ///
    /// # Errors
    /// `unauthorized_client`, `rate_limited`
    pub async fn start_device(
        &self,
        client: &Client,
        params: &Params,
        address: IpAddr,
    ) -> IdentityResult<DeviceAnswer> {
        if !client.may_use_device {
            let description = "this client connects no devices";
            return Err(OAuthError::new(OAuthErrorCode::UnauthorizedClient, description).into());
        }
        self.attempts.count(DEVICE, &source(address)).await?;
        let scopes = client.granted(params.words("scope"));
        let resource = Resource::asked(params, self.issuers())?.unwrap_or_default();
        let device_code = random::secret();
        // A code that is taken is as good as impossible.
        for _ in 0..5 {
            let code = user_code::generate();
            let new = NewDevice {
                code_hash: &self.key.hash(&device_code),
                user_code_hash: &self.key.hash(&code),
                client_id: &client.id,
                scopes: scopes.words(),
                resource: resource.as_str(),
                address: &address.to_string(),
                expires_at: Utc::now() + LIFETIME,
            };
            if self.store.device_insert(&new).await? {
                let shown = user_code::display(&code);
                let page = format!("{}/oauth/device", self.issuers().public_url());
                return Ok(DeviceAnswer {
                    device_code,
                    verification_uri_complete: format!("{page}?user_code={shown}"),
                    verification_uri: page,
                    user_code: shown,
                    expires_in: LIFETIME.num_seconds(),
                    interval: INTERVAL_SECONDS,
                });
            }
        }
        Err(IdentityError::Failed(Error::internal("every user code is taken")))
    }

    /// The device that shows this code. Guessing is limited.
    ///
    /// # Errors
    /// `rate_limited`
    pub async fn device_with_code(&self, text: &str, session: &BrowserSession) -> Result<Option<Device>> {
        self.attempts.count(USER_CODE, session.user.as_str()).await?;
        let Some(code) = user_code::parse(text) else { return Ok(None) };
        let Some(found) = self.store.device_waiting(&self.key.hash(&code)).await? else { return Ok(None) };
        let Some(client) = self.oauth_client(&found.client_id).await? else { return Ok(None) };
        self.attempts.take_back(USER_CODE, session.user.as_str()).await?;
        Ok(Some(Device {
            is_vouched: client.trust != Trust::Nobody,
            client: client.name,
            client_id: client.id,
            scopes: Scopes::from_trusted(found.scopes),
            address: found.address,
            user_code: user_code::display(&code),
        }))
    }

    /// Gives a device its answer. False when it does not wait any more.
    pub async fn answer_device(
        &self,
        device: &Device,
        is_allowed: bool,
        session: &BrowserSession,
        origin: &RequestOrigin,
    ) -> Result<bool> {
        let Some(code) = user_code::parse(&device.user_code) else { return Ok(false) };
        let hash = self.key.hash(&code);
        let mut tx = self.store.begin().await?;
        self.check_goes_on(&mut tx, session).await?;
        let is_stale = !self.was_just_asked(session);
        let was_waiting =
            self.store.device_answer_in_tx(&mut tx, &hash, is_allowed, session, is_stale).await?;
        tx.commit().await?;
        if was_waiting && is_allowed {
            let event = AccountEvent::new(AccountEventKind::ClientAllowed, &session.user, origin);
            self.audit.note_account(&event.about(&device.client_id)).await;
        }
        Ok(was_waiting)
    }
}

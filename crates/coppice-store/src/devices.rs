//! Devices that wait for somebody to connect them.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::UserId;
use coppice_core::authentication::Methods;
use sqlx::FromRow;

use crate::{BrowserSession, Result, Store, StoreError, Tx};

/// A device that asks to be connected.
#[derive(Clone, Debug)]
pub struct NewDevice<'a> {
    /// Hash of what the device polls with.
    pub code_hash: &'a str,
    /// Hash of what the person types.
    pub user_code_hash: &'a str,
    /// The program on the device.
    pub client_id: &'a str,
    /// What it asks for.
    pub scopes: &'a [String],
    /// What for: `api` or `agents`.
    pub resource: &'a str,
    /// Where it asked from.
    pub address: &'a str,
    /// When it is too late.
    pub expires_at: DateTime<Utc>,
}

/// A device that waits for an answer.
#[derive(Clone, Debug, FromRow)]
pub struct WaitingDevice {
    /// The program on the device.
    pub client_id: String,
    /// What it asks for.
    pub scopes: Vec<String>,
    /// Where it asked from.
    pub address: String,
}

/// What a device was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// Nothing yet.
    Waiting,
    /// It may act for somebody.
    Allowed {
        /// Who allowed it.
        user: UserId,
        /// When that person showed who they are.
        signed_in_at: DateTime<Utc>,
        /// How they showed it.
        methods: Methods,
        /// See [`crate::NewSession::is_stale`].
        is_stale: bool,
    },
    /// The person said no.
    Denied,
    /// It may, and was told so.
    Redeemed,
}

/// A device that polls.
#[derive(Clone, Debug)]
pub struct PollingDevice {
    /// What it may do.
    pub scopes: Vec<String>,
    /// What for: `api` or `agents`.
    pub resource: String,
    /// What it was answered, before this poll.
    pub state: DeviceState,
    /// When it is too late.
    pub expires_at: DateTime<Utc>,
    /// Whether it polled a moment ago.
    pub is_hasty: bool,
}

#[derive(FromRow)]
struct PollingRow {
    scopes: Vec<String>,
    resource: String,
    state: String,
    user_id: Option<String>,
    signed_in_at: Option<DateTime<Utc>>,
    methods: Option<Vec<String>>,
    is_stale: bool,
    expires_at: DateTime<Utc>,
    is_hasty: bool,
}

impl TryFrom<PollingRow> for PollingDevice {
    type Error = StoreError;

    fn try_from(row: PollingRow) -> Result<Self> {
        let state = match (row.state.as_str(), row.user_id.clone(), row.signed_in_at, row.methods.clone()) {
            ("waiting", ..) => DeviceState::Waiting,
            ("allowed", Some(user), Some(signed_in_at), Some(methods)) => DeviceState::Allowed {
                user: UserId::from_trusted(user),
                signed_in_at,
                methods: methods.into(),
                is_stale: row.is_stale,
            },
            ("denied", ..) => DeviceState::Denied,
            ("redeemed", ..) => DeviceState::Redeemed,
            _ => return Err(StoreError::UnknownValue { what: "state of a device", value: row.state }),
        };
        let PollingRow { scopes, resource, expires_at, is_hasty, .. } = row;
        Ok(Self { scopes, resource, state, expires_at, is_hasty })
    }
}

impl Store {
    /// Keeps a device that asks. False when its user code is taken.
    pub async fn device_insert(&self, new: &NewDevice<'_>) -> Result<bool> {
        let done = sqlx::query(
            "insert into device_codes (code_hash, user_code_hash, client_id, scopes, address, expires_at,
                                       resource)
             values ($1, $2, $3, $4, $5, $6, $7) on conflict (user_code_hash) do nothing",
        )
        .bind(new.code_hash)
        .bind(new.user_code_hash)
        .bind(new.client_id)
        .bind(new.scopes)
        .bind(new.address)
        .bind(new.expires_at)
        .bind(new.resource)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The device that shows this code and waits.
    pub async fn device_waiting(&self, user_code_hash: &str) -> Result<Option<WaitingDevice>> {
        let query = sqlx::query_as(
            "select client_id, scopes, address from device_codes
             where user_code_hash = $1 and state = 'waiting' and expires_at > now()",
        );
        Ok(query.bind(user_code_hash).fetch_optional(&self.pool).await?)
    }

    /// Answers a device that waits; for `is_stale` see [`crate::NewSession::is_stale`]. What it is allowed ends with
    /// the browser's session if it does not come for it before. False when it does not wait any more.
    pub async fn device_answer_in_tx(
        &self,
        tx: &mut Tx,
        user_code_hash: &str,
        is_allowed: bool,
        by: &BrowserSession,
        is_stale: bool,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update device_codes set state = $2, user_id = $3, signed_in_at = $4, methods = $5, is_stale = $6,
                 browser_session = $7
             where user_code_hash = $1 and state = 'waiting' and expires_at > now()",
        )
        .bind(user_code_hash)
        .bind(if is_allowed { "allowed" } else { "denied" })
        .bind(by.user.as_str())
        .bind(by.signed_in_at)
        .bind(by.methods.words())
        .bind(is_stale)
        .bind(&by.id_hash)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// What there is for a device that polls; `interval` is the shortest time
    /// between polls. An answer that it was allowed is given once.
    pub async fn device_poll_in_tx(
        &self,
        tx: &mut Tx,
        code_hash: &str,
        client_id: &str,
        interval: TimeDelta,
    ) -> Result<Option<PollingDevice>> {
        // As in `user_hold_in_tx`.
        sqlx::query(
            "select from users where id = (select user_id from device_codes where code_hash = $1) for share",
        )
        .bind(code_hash)
        .execute(&mut **tx)
        .await?;
        let query = sqlx::query_as(
            "update device_codes d set polled_at = clock_timestamp(),
                    state = case when d.state = 'allowed' and d.expires_at > now() then 'redeemed' else d.state end
             from (select code_hash, state, polled_at from device_codes
                   where code_hash = $1 and client_id = $2 for update) before
             where d.code_hash = before.code_hash
             returning d.scopes, d.resource, before.state, d.user_id, d.signed_in_at, d.methods, d.is_stale, d.expires_at,
                       coalesce(before.polled_at > clock_timestamp() - make_interval(secs => $3), false)
                           as is_hasty",
        );
        let query = query.bind(code_hash).bind(client_id).bind(interval.as_seconds_f64());
        let row: Option<PollingRow> = query.fetch_optional(&mut **tx).await?;
        row.map(PollingDevice::try_from).transpose()
    }
}

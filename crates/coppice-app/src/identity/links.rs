//! Links with which an operator lets somebody in, who needs no password for it.
//! Whoever may make one may read the data directory, and could set a password.

use chrono::{TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::authentication::Methods;
use coppice_core::{Error, ErrorCode, Result, UserId};
use coppice_oauth::random;
use coppice_store::{BrowserSession, Holdings, Owner, Store};
use zeroize::Zeroizing;

use super::Identity;
use super::sign_in::SignIn;
use crate::MasterKey;
use crate::audit::note_reclaimed_by_operator;

/// How long a link is good.
pub const LINK_LIFETIME: TimeDelta = TimeDelta::minutes(15);

/// Makes the secret of a link that signs a user in, once. Whoever follows it becomes the owner of an
/// account that nobody had verified: returns also what let in whoever had made that, and is gone.
///
/// # Errors
/// `invalid_token` when they are disabled or gone.
pub async fn new_sign_in_link(
    store: &Store,
    key: &MasterKey,
    user: &UserId,
) -> Result<(Zeroizing<String>, Option<Holdings>)> {
    let secret = Zeroizing::new(random::secret());
    let mut tx = store.begin().await?;
    let taken = store.user_reclaim_in_tx(&mut tx, user, Owner::default()).await?;
    let (hash, end) = (key.hash(&secret), Utc::now() + LINK_LIFETIME);
    if !store.sign_in_link_insert_in_tx(&mut tx, &hash, user, end).await? {
        return Err(Error::Unauthenticated { code: ErrorCode::InvalidToken });
    }
    tx.commit().await?;
    if taken.is_some() {
        note_reclaimed_by_operator(store, user).await;
    }
    Ok((secret, taken))
}

impl Identity {
    /// The secret of a link that signs the first user in, once.
    ///
    /// # Errors
    /// As [`new_sign_in_link`], also when there is nobody yet.
    pub async fn first_sign_in_link(&self) -> Result<Zeroizing<String>> {
        let first = self.store.user_first().await?;
        let user = first.ok_or(Error::Unauthenticated { code: ErrorCode::InvalidToken })?;
        Ok(new_sign_in_link(&self.store, &self.key, &user).await?.0)
    }

    /// The address of whom a link signs in; none when it is of no use any more.
    pub async fn sign_in_link(&self, secret: &str) -> Result<Option<String>> {
        // Everything else was made up.
        if secret.len() != random::SECRET_LENGTH {
            return Ok(None);
        }
        Ok(self.store.sign_in_link_find(&self.key.hash(secret)).await?)
    }

    /// Uses a link up and signs in whom it was made for; none when it is of no
    /// use any more. Who has a second factor is asked for it next.
    pub async fn follow_sign_in_link(
        &self,
        secret: &str,
        origin: &RequestOrigin,
        replaced: Option<&BrowserSession>,
    ) -> Result<Option<SignIn>> {
        if secret.len() != random::SECRET_LENGTH {
            return Ok(None);
        }
        let Some(user) = self.store.sign_in_link_take(&self.key.hash(secret)).await? else { return Ok(None) };
        self.begin_browser_session(&user, true, &Methods::link(), origin, replaced).await.map(Some)
    }
}

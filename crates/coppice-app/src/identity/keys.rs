//! The keys that tokens are signed with. They are rows, so that every process
//! has the same; each keeps them in memory and looks again once a minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::{Error, Result};
use coppice_oauth::signing::{PublicKey, SigningAlgorithm, SigningKey};
use coppice_store::{SigningKeyRow, Store};
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Identity;
use crate::MasterKey;

/// Keys in memory are looked up again after this long.
const FRESH: Duration = Duration::from_secs(60);
/// A token with an unknown key makes us look, but not more often than this.
const LOOK: Duration = Duration::from_secs(5);
/// A new key is published this long before it signs, so that everybody knows it by then.
const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct KeyRing {
    current: RwLock<Arc<KeySet>>,
    loading: Mutex<()>,
}

#[derive(Debug, Default)]
struct KeySet {
    /// Newest first, down to the one that signs now.
    signing: Vec<(DateTime<Utc>, Arc<SigningKey>)>,
    public: Vec<PublicKey>,
    loaded_at: Option<Instant>,
}

impl KeySet {
    fn is_older_than(&self, age: Duration) -> bool {
        self.loaded_at.is_none_or(|at| at.elapsed() >= age)
    }

    fn signs_now(&self) -> Option<Arc<SigningKey>> {
        let now = Utc::now();
        self.signing.iter().find(|(from, _)| *from <= now).map(|(_, key)| key.clone())
    }

    fn newest(&self) -> Option<&(DateTime<Utc>, Arc<SigningKey>)> {
        self.signing.first()
    }
}

impl KeyRing {
    fn current(&self) -> Arc<KeySet> {
        self.current.read().clone()
    }
}

/// A key that was made because somebody wanted another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedKey {
    /// Its id.
    pub id: String,
    /// When it begins to sign.
    pub signs_from: DateTime<Utc>,
}

/// Makes the next signing key, of the same kind as the newest: the kind is a
/// setting of the platform, which changes it by itself. With `forget_old` no
/// earlier key is believed any more, and the new one signs at once. None when
/// there is no key yet: the platform makes the first.
///
/// # Errors
/// When a newer program made the newest key, or the metastore fails.
pub async fn rotate_signing_key(
    store: &Store,
    master: &Arc<MasterKey>,
    forget_old: bool,
) -> Result<Option<RotatedKey>> {
    let Some(newest) = store.signing_key_list().await?.into_iter().next() else { return Ok(None) };
    let algorithm = SigningAlgorithm::parse(&newest.algorithm).ok_or_else(|| {
        Error::internal(format!("keys of the kind {} need a newer coppice", newest.algorithm))
    })?;
    let now = Utc::now();
    let signs_from = if forget_old { now } else { now + AHEAD };
    let key = new_signing_key(master, algorithm, signs_from).await?;
    store.signing_key_add(&key, None, forget_old).await?;
    Ok(Some(RotatedKey { id: key.id, signs_from }))
}

/// Makes a key that signs from `signs_from` on.
async fn new_signing_key(
    master: &Arc<MasterKey>,
    algorithm: SigningAlgorithm,
    signs_from: DateTime<Utc>,
) -> Result<SigningKeyRow> {
    let master = master.clone();
    let made = tokio::task::spawn_blocking(move || generate(&master, algorithm, signs_from));
    made.await.map_err(Error::internal)?
}

/// Takes a while.
fn generate(
    master: &MasterKey,
    algorithm: SigningAlgorithm,
    signs_from: DateTime<Utc>,
) -> Result<SigningKeyRow> {
    let private = SigningKey::generate(algorithm).map_err(Error::internal)?;
    let key = SigningKey::read(algorithm, &private).map_err(Error::internal)?;
    Ok(SigningKeyRow {
        private_sealed: master.seal(&key.public.id, &private),
        id: key.public.id,
        algorithm: algorithm.as_str().to_owned(),
        public_jwk: key.public.jwk,
        signs_from,
        published_until: None,
    })
}

impl Identity {
    /// The keys, not older than `age`.
    async fn key_set(&self, age: Duration) -> Result<Arc<KeySet>> {
        let ring = &self.keys;
        let current = ring.current();
        if !current.is_older_than(age) {
            return Ok(current);
        }
        let _loading = ring.loading.lock().await;
        // Somebody else may have looked meanwhile.
        let current = ring.current();
        if !current.is_older_than(age) {
            return Ok(current);
        }
        let loaded = Arc::new(self.load_keys().await?);
        *ring.current.write() = loaded.clone();
        Ok(loaded)
    }

    async fn load_keys(&self) -> Result<KeySet> {
        let mut rows = self.store.signing_key_list().await?;
        if rows.is_empty() {
            self.add_signing_key(Utc::now(), DateTime::UNIX_EPOCH).await?;
            rows = self.store.signing_key_list().await?;
        }
        let now = Utc::now();
        let mut set = KeySet { loaded_at: Some(Instant::now()), ..KeySet::default() };
        let mut has_current = false;
        for row in rows {
            let algorithm = SigningAlgorithm::parse(&row.algorithm)
                .ok_or_else(|| Error::internal(format!("unknown algorithm {} of a key", row.algorithm)))?;
            if !has_current {
                let private = self.key.open(&row.id, &row.private_sealed)?;
                let key = SigningKey::read(algorithm, &private).map_err(Error::internal)?;
                set.signing.push((row.signs_from, Arc::new(key)));
                has_current = row.signs_from <= now;
            }
            set.public.push(PublicKey::new(algorithm, row.public_jwk).map_err(Error::internal)?);
        }
        Ok(set)
    }

    async fn add_signing_key(&self, signs_from: DateTime<Utc>, unless_since: DateTime<Utc>) -> Result<bool> {
        let row = new_signing_key(&self.key, self.signing_algorithm(), signs_from).await?;
        Ok(self.store.signing_key_add(&row, Some(unless_since), false).await?)
    }

    /// The key that signs now; made if there is none yet.
    pub(super) async fn signing_key(&self) -> Result<Arc<SigningKey>> {
        let key = self.key_set(FRESH).await?.signs_now();
        key.ok_or_else(|| Error::internal("no signing key is in use yet"))
    }

    /// The key with this id.
    pub(super) async fn public_key(&self, id: &str) -> Result<Option<PublicKey>> {
        let find = |set: &KeySet| set.public.iter().find(|key| key.id == id).cloned();
        let known = self.keys.current();
        let is_fresh = !known.is_older_than(FRESH);
        if let Some(found) = find(&known).filter(|_| is_fresh) {
            return Ok(Some(found));
        }
        Ok(find(&*self.key_set(LOOK).await?))
    }

    /// Every public key, as clients get them.
    pub async fn jwks(&self) -> Result<Value> {
        let set = self.key_set(LOOK).await?;
        let keys: Vec<_> = set.public.iter().map(|key| key.jwk.clone()).collect();
        Ok(json!({ "keys": keys }))
    }

    /// Makes the next key when the newest has signed for long enough, or in
    /// another way than is wanted now.
    pub(crate) async fn renew_signing_keys(&self) -> Result<()> {
        let set = self.key_set(FRESH).await?;
        let Some((from, newest)) = set.newest() else { return Ok(()) };
        let now = Utc::now();
        let is_old = *from + TimeDelta::days(i64::from(self.config.signing_key_days)) <= now;
        if is_old || newest.public.algorithm != self.signing_algorithm() {
            let is_added = self.add_signing_key(now + AHEAD, *from + TimeDelta::microseconds(1)).await?;
            if is_added {
                tracing::info!(
                    "made a new key to sign tokens with; it is used in {} minutes",
                    AHEAD.num_minutes()
                );
            }
        }
        Ok(())
    }
}
